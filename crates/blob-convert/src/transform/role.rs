//! The role of a tensor in its layer: weights of a convolution, weights of an inner product, or other.
//!
//! The followed net tells the role; else the layer's type, if the file has a type. Otherwise the role is guessed from
//! name and shape, and the caller adds a note about guesses.

use blob_io::net::{LayerKind, Role};
use blob_io::{TensorName, work};

use super::binding::{Bound, User, is_spatial};
use super::step::{Context, Misfit, Spec};

/// The weights that a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weights {
    /// O×I/g×H×W, for a deconvolution I×O/g×H×W; other numbers of spatial axes too.
    Convolution,
    /// O×I, or 1×1×O×I.
    InnerProduct,
    Other,
}

/// The words for guessed roles.
pub(super) const CONVOLUTION: &str = "weights of a convolution";
pub(super) const INNER_PRODUCT: &str = "weights of an inner product";

/// The source of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The net, or the layer's type.
    Type,
    Shape,
}

/// The layer and the role of each tensor of a file, as the followed net tells.
#[derive(Debug, Default)]
pub(super) struct Roles<'a>(Option<Bound<'a>>);

impl<'a> Roles<'a> {
    pub(super) fn of(context: &Context<'a>) -> Result<Self, Misfit> {
        Ok(Self(context.net()?.map(|net| Bound::of(net.net(), context.checkpoint()))))
    }

    /// The layers of a tensor, or of the data of a diff.
    pub(super) fn users(&self, spec: &Spec<'_>) -> impl Iterator<Item = User<'a>> {
        self.0.iter().flat_map(|net| net.users(data_name(spec.entry.name())))
    }

    /// The first reader, in words, that is none of `own`.
    pub(super) fn other_reader(&self, spec: &Spec<'_>, is_own: impl Fn(User<'a>) -> bool) -> Option<String> {
        self.0.as_ref()?.other_reader(data_name(spec.entry.name()), is_own)
    }

    /// The layer of a tensor, or of the data of a diff: the first, where several have it.
    pub(super) fn user(&self, spec: &Spec<'_>) -> Option<User<'a>> {
        self.users(spec).next()
    }

    /// The role of a tensor, or of the data of a diff.
    pub(super) fn role(&self, spec: &Spec<'_>) -> (Weights, By) {
        Self::role_in(self.user(spec), spec)
    }

    /// The role of a tensor for one of the layers.
    pub(super) fn role_in(user: Option<User<'_>>, spec: &Spec<'_>) -> (Weights, By) {
        match user {
            Some(User { layer, role: Role::Weight }) if is_spatial(layer) => (Weights::Convolution, By::Type),
            Some(User { layer, role: Role::Weight }) if layer.kind == LayerKind::InnerProduct => {
                (Weights::InnerProduct, By::Type)
            }
            // A net does not know the convolutions of forks as such; the layer's type in the file tells.
            Some(User { layer, .. }) if layer.kind != LayerKind::Other || spec.entry.layer_type().is_none() => {
                (Weights::Other, By::Type)
            }
            _ => role(spec),
        }
    }
}

/// A name without the ending of a diff.
pub(super) fn data_name(name: &str) -> &str {
    work::visit(0, 1);
    TensorName::without_diff(name)
}

/// The role of a tensor, or of the data of a diff, where no net tells the role.
pub(super) fn role(spec: &Spec<'_>) -> (Weights, By) {
    let Some(layer) = spec.entry.layer_type().filter(|layer| !layer.is_empty()) else {
        return (by_shape(spec), By::Shape);
    };
    let role = match spec.entry.index() {
        0 if is_convolution(layer) => Weights::Convolution,
        0 if layer == "InnerProduct" => Weights::InnerProduct,
        _ => Weights::Other,
    };
    (role, By::Type)
}

/// Whether a layer type is a convolution or deconvolution, in forks too: `DepthwiseConvolution`,
/// `ConvolutionDepthwise`.
pub(crate) fn is_convolution(layer: &str) -> bool {
    layer.contains("Convolution") || layer.contains("Deconvolution")
}

/// Parts of the names of matrices that are no weights of an inner product: tables of vectors, recurrent layers.
const NO_PRODUCT: [&str; 4] = ["embed", "i2h_weight", "h2h_weight", "h2r_weight"];

fn by_shape(spec: &Spec<'_>) -> Weights {
    let name = data_name(&spec.tensor.name);
    let is_weight = name.ends_with("weight") || name.ends_with("/0");
    match (is_weight, spec.tensor.shape.dims()) {
        (true, [_, _] | [1, 1, _, _]) if !NO_PRODUCT.iter().any(|part| name.contains(part)) => Weights::InnerProduct,
        (true, [_, _, _, _]) => Weights::Convolution,
        _ => Weights::Other,
    }
}
