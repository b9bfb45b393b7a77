//! What a tensor is to its layer: the weights of a convolution, of an inner product, or something else.
//!
//! By the layer's type, where the file has it; else by name and shape, which the caller says in a note.

use super::step::Spec;

/// What a tensor is to its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// O×I/g×H×W, of a deconvolution I×O/g×H×W; with more axes of space, too.
    Convolution,
    /// O×I, or 1×1×O×I.
    InnerProduct,
    Other,
}

/// How sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Type,
    Shape,
}

/// What a tensor is to its layer, or its diff.
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

/// Whether it is a convolution or a deconvolution, also of a fork: `DepthwiseConvolution`, `ConvolutionDepthwise`.
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

/// A note on the tensors that were taken for something by their names and shapes.
pub(crate) fn guessed(count: usize, what: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("by its name and shape, 1 tensor is taken for {what}")),
        count => Some(format!("by their names and shapes, {count} tensors are taken for {what}")),
    }
}
