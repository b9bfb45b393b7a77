//! `layout`: permutes the axes of convolution weights.

use std::collections::HashMap;

use blob_core::Shape;
use blob_io::net::{self, LayerKind};
use serde_json::{Value, json};

use super::reorder::Reorder;
use super::role::{By, Role, guessed, role};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};

/// Permutes the weights of convolutions, which Caffe, MXNet and PyTorch store as outputs × inputs/groups × height ×
/// width.
///
/// Weights of deconvolutions, inputs × outputs/groups × height × width, are permuted by the same axes: `hwio` is then
/// height × width × outputs × inputs, as in TensorFlow. If the file's own net says that a convolution is depthwise,
/// `hwio` is TensorFlow's height × width × channels × outputs per channel. Weights that do not have four axes are left
/// alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// PyTorch's, which is the stored order.
    Oihw,
    /// TensorFlow's and Keras's.
    Hwio,
    /// TensorFlow Lite's.
    Ohwi,
}

impl Layout {
    /// Every layout.
    pub const ALL: &[Self] = &[Self::Oihw, Self::Hwio, Self::Ohwi];

    /// The letters of its axes in order: `hwio`.
    #[must_use]
    pub fn order(self) -> &'static str {
        match self {
            Self::Oihw => "oihw",
            Self::Hwio => "hwio",
            Self::Ohwi => "ohwi",
        }
    }

    /// The axis of OIHW that each of its axes is.
    fn axes(self) -> [usize; 4] {
        match self {
            Self::Oihw => [0, 1, 2, 3],
            Self::Hwio => [2, 3, 1, 0],
            Self::Ohwi => [0, 2, 3, 1],
        }
    }

    pub(super) fn read(settings: &Value) -> Option<Self> {
        let to = settings["to"].as_str()?;
        Self::ALL.iter().copied().find(|layout| layout.order() == to)
    }
}

impl Transform for Layout {
    fn name(&self) -> &'static str {
        "layout"
    }

    fn settings(&self) -> Value {
        json!({ "to": self.order() })
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let (mut by_shape, mut others, mut count) = (0, 0, 0);
        let depthwise = if *self == Self::Hwio { depthwise(context)? } else { HashMap::new() };
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let same = Made::same(place, spec);
            let (Role::Convolution, by) = role(spec) else { return same };
            let dims = spec.tensor.shape.dims();
            if dims.len() != 4 {
                others += 1;
                return same;
            }
            count += 1;
            by_shape += usize::from(by == By::Shape);
            let made = permuted(place, spec, dims, &self.axes());
            // A diff belongs to the same layer as its data.
            let name = spec.entry.name();
            let groups =
                depthwise.get(name.strip_suffix(".diff").unwrap_or(name)).map(|groups| groups.unwrap_or(dims[0]));
            match groups.and_then(|groups| by_channel(dims, groups)) {
                // The outputs of one channel are adjacent, so only the shape differs.
                Some(shape) => {
                    made.reshaped(shape).with_change("permuted from oihw to hwcm, of a depthwise convolution")
                }
                None => made.with_change(format!("permuted from oihw to {}", self.order())),
            }
        });
        let mut outcome: Outcome = made.collect();
        outcome.notes.extend(guessed(by_shape, "weights of convolutions"));
        if others > 0 {
            outcome = outcome.with_note(format!("weights of convolutions that have not four axes stay: {others}"));
        }
        Ok(if count == 0 { outcome.with_note("there are no weights of convolutions to permute") } else { outcome })
    }
}

/// Maps the names of grouped convolutions' weights to the number of groups, from the file's own net; `None` if the
/// layer's type implies one group per channel.
fn depthwise(context: &Context<'_>) -> Result<HashMap<String, Option<usize>>, Vec<Misfit>> {
    let net = context.checkpoint().net().map_err(|e| vec![Misfit::about_all(e.to_string())])?.unwrap_or_default();
    let layers = net.layers().iter().filter(|layer| layer.kind == LayerKind::Convolution);
    let weights = layers.filter_map(|layer| {
        let groups = match &*layer.type_name {
            name if name.contains("Depthwise") => None,
            _ => Some(usize::try_from(layer.group).ok().filter(|groups| *groups > 1)?),
        };
        Some((layer.tensor(net::Role::Weight)?.to_owned(), groups))
    });
    Ok(weights.collect())
}

/// TensorFlow's shape for the weights of a depthwise convolution: height, width, channels, outputs per channel.
fn by_channel(dims: &[usize], channels: usize) -> Option<Shape> {
    let [outputs, 1, height, width] = *dims else { return None };
    let is_even = channels > 0 && outputs.is_multiple_of(channels);
    is_even.then(|| Shape::new([height, width, channels, outputs / channels]).ok()).flatten()
}

/// A tensor with permuted axes; `dims` are the extents before.
pub(super) fn permuted(place: usize, spec: &Spec<'_>, dims: &[usize], axes: &[usize]) -> Made {
    let mut tensor = spec.tensor.clone();
    // Permuting the extents of a valid shape gives a valid shape.
    tensor.shape = Shape::new(axes.iter().map(|axis| dims[*axis]).collect::<Vec<_>>()).unwrap_or(tensor.shape);
    Made::computed(tensor, vec![place], Reorder::permuted(dims, axes))
}
