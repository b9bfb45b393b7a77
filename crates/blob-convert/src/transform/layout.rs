//! `layout`: the weights of convolutions with their axes in another order.

use std::collections::HashMap;

use blob_core::Shape;
use blob_io::net::{self, LayerKind};
use serde_json::{Value, json};

use super::reorder::Reorder;
use super::role::{By, Role, guessed, role};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};

/// Permutes the weights of convolutions, which Caffe, MXNet and torch have as outputs × inputs/groups × height × width.
///
/// A deconvolution's, inputs × outputs/groups × height × width, are permuted by the same axes: `hwio` is then height × width ×
/// outputs × inputs, as TensorFlow has them. Where the file's own net says that a convolution is depthwise, `hwio` is TensorFlow's
/// height × width × channels × outputs of each channel. Weights of other than four axes stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// As they are: torch's.
    Oihw,
    /// TensorFlow's and Keras's.
    Hwio,
    /// TensorFlow Lite's.
    Ohwi,
}

impl Layout {
    /// Every layout.
    pub const ALL: &[Self] = &[Self::Oihw, Self::Hwio, Self::Ohwi];

    /// Its axes in their order: `hwio`.
    #[must_use]
    pub fn order(self) -> &'static str {
        match self {
            Self::Oihw => "oihw",
            Self::Hwio => "hwio",
            Self::Ohwi => "ohwi",
        }
    }

    /// Which of OIHW's axes each of its own is.
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
            // A diff is of its data's layer.
            let name = spec.entry.name();
            let groups =
                depthwise.get(name.strip_suffix(".diff").unwrap_or(name)).map(|groups| groups.unwrap_or(dims[0]));
            match groups.and_then(|groups| by_channel(dims, groups)) {
                // The outputs of a channel follow each other, so that the values are in this order already.
                Some(shape) => made.reshaped(shape).saying("permuted from oihw to hwcm, of a depthwise convolution"),
                None => made.saying(format!("permuted from oihw to {}", self.order())),
            }
        });
        let mut outcome: Outcome = made.collect();
        outcome.notes.extend(guessed(by_shape, "weights of convolutions"));
        if others > 0 {
            outcome = outcome.noting(format!("weights of convolutions that have not four axes stay: {others}"));
        }
        Ok(if count == 0 { outcome.noting("there are no weights of convolutions to permute") } else { outcome })
    }
}

/// The weights of convolutions in groups, by their names, as the file's own net has them; `None` where the layer's type says that
/// each channel is a group.
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

/// TensorFlow's shape of a depthwise convolution's weights: height, width, channels, outputs of each.
fn by_channel(dims: &[usize], channels: usize) -> Option<Shape> {
    let [outputs, 1, height, width] = *dims else { return None };
    let is_even = channels > 0 && outputs.is_multiple_of(channels);
    is_even.then(|| Shape::new([height, width, channels, outputs / channels]).ok()).flatten()
}

/// A tensor with its axes in another order, seen with these extents.
pub(super) fn permuted(place: usize, spec: &Spec<'_>, dims: &[usize], axes: &[usize]) -> Made {
    let mut tensor = spec.tensor.clone();
    // The same extents in another order make a shape as well.
    tensor.shape = Shape::new(axes.iter().map(|axis| dims[*axis]).collect::<Vec<_>>()).unwrap_or(tensor.shape);
    Made::computed(tensor, vec![place], Reorder::permuted(dims, axes))
}
