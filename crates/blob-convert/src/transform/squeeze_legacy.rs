//! `squeeze-legacy`: removes the leading ones from blobs of Caffe before 2015.
//!
//! At that time every blob had four axes: a bias was 1×1×1×N, the weights of an inner product 1×1×O×I. Caffe still
//! accepts these shapes (`ShapeEquals`); other frameworks do not.

use blob_core::Shape;
use serde_json::{Value, json};

use super::role::{Role, guessed, is_convolution, role};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};

/// Layers whose weights are matrices, with the indices of these blobs.
const MATRICES: &[(&str, &[usize])] =
    &[("InnerProduct", &[0]), ("Embed", &[0]), ("LSTM", &[0, 2]), ("RNN", &[0, 2, 3])];
/// Layers whose blobs are all vectors; NVCaffe's and SegNet's BatchNorm stores them as 1×C×1×1.
const VECTORS: &[&str] = &["BN", "BatchNorm", "Bias", "PReLU", "Scale"];

/// Removes the ones that Caffe's blobs had before 2015.
#[derive(Clone, Copy, Debug)]
pub struct SqueezeLegacy;

impl Transform for SqueezeLegacy {
    fn name(&self) -> &'static str {
        "squeeze-legacy"
    }

    fn settings(&self) -> Value {
        json!({})
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let mut by_shape = 0;
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let same = Made::same(place, spec);
            let dims = match spec.entry.layer_type() {
                Some(layer) if !layer.is_empty() => of_layer(layer, spec),
                _ => of_name(spec),
            };
            let Some(shape) = dims.and_then(|dims| Shape::new(dims).ok()) else { return same };
            by_shape += usize::from(spec.entry.layer_type().is_none_or(str::is_empty));
            let change = format!("squeezed from {}", spec.tensor.shape);
            same.reshaped(shape).with_change(change)
        });
        let outcome: Outcome = made.collect();
        Ok(match guessed(by_shape, "inner products and biases of before 2015") {
            Some(note) => outcome.with_note(note),
            None => outcome,
        })
    }
}

/// The squeezed extents of a layer's blob, if they differ.
fn of_layer(layer: &str, spec: &Spec<'_>) -> Option<Vec<usize>> {
    let (dims, index) = (spec.tensor.shape.dims(), spec.entry.index());
    let matrix = MATRICES.iter().find(|(known, _)| *known == layer);
    match (dims, matrix) {
        ([1, 1, rows, columns], Some((_, places))) if places.contains(&index) => Some(vec![*rows, *columns]),
        ([1, 1, 1, len], Some(_)) => Some(vec![*len]),
        ([1, 1, 1, len], None) if is_convolution(layer) && index > 0 => Some(vec![*len]),
        ([1, len, 1, 1] | [1, 1, 1, len], None) if VECTORS.contains(&layer) => Some(vec![*len]),
        _ => None,
    }
}

/// The same if the layer's type is unknown. A small square is left alone: it may be the kernel of a one-channel
/// convolution.
fn of_name(spec: &Spec<'_>) -> Option<Vec<usize>> {
    const LARGEST_KERNEL: usize = 11;
    let name = spec.tensor.name.strip_suffix(".diff").unwrap_or(&spec.tensor.name);
    let (_, index) = name.rsplit_once('/')?;
    match spec.tensor.shape.dims() {
        [1, 1, 1, len] if index != "0" && index.parse::<usize>().is_ok() => Some(vec![*len]),
        [1, 1, rows, columns] if role(spec).0 == Role::InnerProduct => {
            (rows != columns || *rows > LARGEST_KERNEL).then(|| vec![*rows, *columns])
        }
        _ => None,
    }
}
