//! `squeeze-legacy`: removes the leading ones from blobs of Caffe before 2015.
//!
//! At that time every blob had four axes: a bias was 1×1×1×N, the weights of an inner product 1×1×O×I. Caffe still
//! accepts these shapes (`ShapeEquals`); other frameworks do not.

use blob_core::Shape;
use blob_io::TensorName;
use blob_io::net::{Layer, Role};
use serde_json::{Value, json};

use super::binding::User;
use super::role::{Roles, Weights, is_convolution};
use super::step::{Context, Fact, Made, Misfit, Outcome, Spec, Transform, Undone};

/// Layers whose weights are matrices, with the indices of these blobs.
const MATRICES: &[(&str, &[usize])] =
    &[("InnerProduct", &[0]), ("Embed", &[0]), ("LSTM", &[0, 2]), ("RNN", &[0, 2, 3])];
/// Layers whose blobs are all vectors; NVCaffe's and SegNet's BatchNorm stores vectors as 1×C×1×1.
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

    fn fits_net(&self) -> bool {
        true
    }

    fn undone(&self) -> Undone<'_> {
        Undone::AsItWas
    }

    fn relies_on(&self) -> &'static [Fact] {
        &[Fact::Axes]
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let roles = Roles::of(context).map_err(|misfit| vec![misfit])?;
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let same = Made::same(place, spec);
            let typed = spec.entry.layer_type().filter(|layer| !layer.is_empty());
            let (dims, is_guess) = match (typed, roles.user(spec)) {
                (Some(layer), _) => (of_layer(layer, spec.entry.index(), spec), false),
                (None, Some(User { layer, role })) => (of_layer(&layer.type_name, index_of(layer, role), spec), false),
                (None, None) => (of_name(spec, &roles), true),
            };
            let Some(shape) = dims.and_then(|dims| Shape::new(dims).ok()) else { return same };
            let change = format!("squeezed from {}", spec.tensor.shape);
            let guess = is_guess.then_some("an inner product or a bias of before 2015");
            same.reshaped(shape).with_change(change).guessed(guess)
        });
        Ok(made.collect())
    }

    fn follows_net(&self) -> bool {
        true
    }
}

/// The place of the tensor with this role among the layer's tensors.
fn index_of(layer: &Layer, role: Role) -> usize {
    layer.tensors().position(|(own, _)| own == role).unwrap_or_default()
}

/// The squeezed extents of a layer's blob; `None` for a blob that stays.
fn of_layer(layer: &str, index: usize, spec: &Spec<'_>) -> Option<Vec<usize>> {
    let dims = spec.tensor.shape.dims();
    let matrix = MATRICES.iter().find(|(known, _)| *known == layer);
    match (dims, matrix) {
        ([1, 1, rows, columns], Some((_, places))) if places.contains(&index) => Some(vec![*rows, *columns]),
        ([1, 1, 1, len], Some(_)) => Some(vec![*len]),
        ([1, 1, 1, len], None) if is_convolution(layer) && index > 0 => Some(vec![*len]),
        ([1, len, 1, 1] | [1, 1, 1, len], None) if VECTORS.contains(&layer) => Some(vec![*len]),
        _ => None,
    }
}

/// The squeezed extents of a tensor whose layer type is unknown. A small square stays: such a tensor may be the kernel
/// of a one-channel convolution.
fn of_name(spec: &Spec<'_>, roles: &Roles<'_>) -> Option<Vec<usize>> {
    const LARGEST_KERNEL: usize = 11;
    let name = TensorName::of(&spec.tensor.name);
    name.layer()?;
    match spec.tensor.shape.dims() {
        [1, 1, 1, len] if name.index().is_some_and(|index| index > 0) => Some(vec![*len]),
        [1, 1, rows, columns] if roles.role(spec).0 == Weights::InnerProduct => {
            (rows != columns || *rows > LARGEST_KERNEL).then(|| vec![*rows, *columns])
        }
        _ => None,
    }
}
