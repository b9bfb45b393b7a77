//! The role of a tensor in its layer: weights of a convolution, weights of an inner product, or other.
//!
//! Known by the layer's type if the file has it, otherwise guessed from name and shape; the caller adds a note about
//! guesses.

use super::step::Spec;

/// The role of a tensor in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// O×I/g×H×W, for a deconvolution I×O/g×H×W; other numbers of spatial axes too.
    Convolution,
    /// O×I, or 1×1×O×I.
    InnerProduct,
    Other,
}

/// How the role is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Type,
    Shape,
}

/// The role of a tensor, or of the data of a diff.
pub(crate) fn role(spec: &Spec<'_>) -> (Role, By) {
    let Some(layer) = spec.entry.layer_type().filter(|layer| !layer.is_empty()) else {
        return (by_shape(spec), By::Shape);
    };
    let role = match spec.entry.index() {
        0 if is_convolution(layer) => Role::Convolution,
        0 if layer == "InnerProduct" => Role::InnerProduct,
        _ => Role::Other,
    };
    (role, By::Type)
}

/// Whether a layer type is a convolution or deconvolution, in forks too: `DepthwiseConvolution`,
/// `ConvolutionDepthwise`.
pub(crate) fn is_convolution(layer: &str) -> bool {
    layer.contains("Convolution") || layer.contains("Deconvolution")
}

fn by_shape(spec: &Spec<'_>) -> Role {
    let name = spec.tensor.name.strip_suffix(".diff").unwrap_or(&spec.tensor.name);
    let is_weight = name.ends_with("weight") || name.ends_with("/0");
    match (is_weight, spec.tensor.shape.dims()) {
        (true, [_, _] | [1, 1, _, _]) => Role::InnerProduct,
        (true, [_, _, _, _]) => Role::Convolution,
        _ => Role::Other,
    }
}

/// A note about tensors whose role was guessed from name and shape.
pub(crate) fn guessed(count: usize, what: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("by its name and shape, 1 tensor is taken for {what}")),
        count => Some(format!("by their names and shapes, {count} tensors are taken for {what}")),
    }
}
