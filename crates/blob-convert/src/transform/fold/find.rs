//! Where a fold is right, from a net's layers; and why not, for every normalisation that stays.

use std::fmt;

use blob_io::net::{Layer, LayerKind, Role};

use super::{Fold, Folded, Side};
use crate::transform::bound::{Bound, bias_beside};

/// A normalisation that is not folded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// Its layer.
    pub layer: String,
    /// Why, in words that follow the layer's name: `reads the net's input`.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not folded: it {}", self.layer, self.reason)
    }
}

impl Fold {
    /// The normalisations of a net that can be folded into the convolution, deconvolution or fully connected layer before them,
    /// and those that cannot. A Scale alone behind such a layer is one.
    #[must_use]
    pub fn of(net: &Bound<'_>) -> (Self, Vec<Refusal>) {
        let (mut fold, mut refused) = (Self::default(), Vec::new());
        let is_norm = |layer: &&Layer| matches!(layer.kind(), LayerKind::BatchNorm | LayerKind::Bn);
        for layer in net.layers().filter(|layer| is_norm(layer) || is_lone_scale(net, layer)) {
            match folded(net, layer) {
                Ok(folded) => {
                    fold.scales += usize::from(layer.kind() == LayerKind::Scale);
                    fold.layers.push(folded);
                }
                Err(reason) => refused.push(Refusal { layer: layer.name().to_owned(), reason }),
            }
        }
        refused.extend(net.strangers().iter().map(|stranger| Refusal {
            layer: stranger.layer.clone(),
            reason: "is in the file, and the net has no such BatchNorm".to_owned(),
        }));
        (fold, refused)
    }
}

/// Whether it is a Scale, channel by channel, of what a layer before it makes that it could be folded into.
fn is_lone_scale(net: &Bound<'_>, layer: &Layer) -> bool {
    let [bottom] = *layer.bottoms() else {
        return false;
    };
    let is_behind = net.net().writer(bottom).is_some_and(is_foldable);
    layer.kind() == LayerKind::Scale && is_behind && is_by_channel(layer) && is_whole(net, layer)
}

/// Whether a layer's outputs are sums of products with weights, a row of them for each channel.
fn is_foldable(layer: &Layer) -> bool {
    matches!(layer.kind(), LayerKind::Convolution | LayerKind::Deconvolution | LayerKind::InnerProduct)
}

/// Whether the file has the tensors that a Scale is said to have.
fn is_whole(net: &Bound<'_>, scale: &Layer) -> bool {
    net.tensor(scale, Role::Weight).is_some() && (!scale.bias_term() || net.tensor(scale, Role::Bias).is_some())
}

fn folded(net: &Bound<'_>, norm: &Layer) -> Result<Folded, String> {
    let before = before(net, norm)?;
    let channel_axis = axis_of(before)?;
    let is_same = |axis: i64| axis == channel_axis || channel_axis == -1 && axis == before.kernel().len() as i64 + 1;
    if !is_same(norm.axis()) {
        return Err(format!(
            "normalises axis {}, and the channels of {:?} are axis {channel_axis}",
            norm.axis(),
            before.name()
        ));
    }
    let named = |layer: &Layer, role: Role| net.tensor(layer, role).map(str::to_owned);
    let own = |role: Role| named(norm, role);
    let weight = named(before, Role::Weight)
        .ok_or_else(|| format!("follows {:?}, whose weights are not in the file", before.name()))?;
    let (mean, variance) = (own(Role::Mean), own(Role::Variance));
    if mean.is_some() != variance.is_some() || norm.kind() == LayerKind::BatchNorm && mean.is_none() {
        return Err("has no mean or no variance in the file".to_owned());
    }
    let scale = scale_after(net, norm);
    let scaled = |role: Role| scale.and_then(|scale| named(scale, role));
    Ok(Folded {
        layer: norm.name().to_owned(),
        scale_layer: scale.map(|scale| scale.name().to_owned()),
        has_bias: named(before, Role::Bias).is_some(),
        bias: named(before, Role::Bias).unwrap_or_else(|| bias_beside(&weight)),
        side: side(before),
        eps: norm.eps(),
        factor: own(Role::Factor),
        gamma: own(Role::Weight),
        fix_gamma: norm.fix_gamma(),
        beta: own(Role::Bias),
        scale: scaled(Role::Weight),
        shift: scaled(Role::Bias),
        weight,
        mean,
        variance,
    })
}

/// The layer before a normalisation, if nothing forbids to change it.
fn before<'a>(net: &Bound<'a>, norm: &Layer) -> Result<&'a Layer, String> {
    if norm.type_name().ends_with("WithReLU") {
        return Err(format!("is {}, whose ReLU would be lost", norm.type_name()));
    }
    let [bottom] = *norm.bottoms() else {
        return Err(format!("reads {} values, and one is expected", norm.bottoms().len()));
    };
    let Some(before) = net.net().writer(bottom) else {
        return Err("reads the net's input: no convolution comes before".to_owned());
    };
    if !is_foldable(before) {
        return Err(format!(
            "reads {:?}, which is {}, not a convolution or a fully connected layer",
            before.name(),
            before.type_name()
        ));
    }
    if net.net().uses(bottom) > 1 {
        let others = net.net().readers(bottom).filter(|reader| !std::ptr::eq(*reader, norm));
        let others: Vec<String> = others.map(|reader| format!("{:?}", reader.name())).collect();
        let others = if others.is_empty() { "the net's user".to_owned() } else { others.join(", ") };
        return Err(format!("is not the only one that reads {:?}: {others} would read other values", before.name()));
    }
    if norm.normalises_by_input() {
        return Err("computes mean and variance from its input".to_owned());
    }
    if norm.kind() == LayerKind::Bn && net.tensor(norm, Role::Mean).is_none() && !norm.is_inference() {
        return Err("has no mean and no variance, and is not said to be for inference".to_owned());
    }
    for layer in [before, norm] {
        if layer.shares_tensors() {
            return Err(format!("cannot be folded alone: {:?} shares its tensors with another layer", layer.name()));
        }
    }
    Ok(before)
}

/// The axis of a layer's output that has its channels.
fn axis_of(layer: &Layer) -> Result<i64, String> {
    match layer.kind() {
        LayerKind::InnerProduct if !layer.flatten() => {
            Err(format!("reads {:?}, whose outputs are in its last axis", layer.name()))
        }
        _ => Ok(layer.axis()),
    }
}

fn side(layer: &Layer) -> Side {
    match layer.kind() {
        LayerKind::Deconvolution => Side::Second { groups: layer.group() },
        LayerKind::InnerProduct if layer.transpose() => Side::Last,
        _ => Side::First,
    }
}

/// The Scale that alone reads a normalisation, channel by channel.
pub(in crate::transform) fn scale_after<'a>(net: &Bound<'a>, norm: &Layer) -> Option<&'a Layer> {
    let [top] = *norm.tops() else {
        return None;
    };
    let scale = net.net().readers(top).next().filter(|layer| layer.kind() == LayerKind::Scale)?;
    let is_plain = scale.bottoms().len() == 1 && is_by_channel(scale) && !scale.shares_tensors();
    (net.net().uses(top) == 1 && is_plain && is_whole(net, scale)).then_some(scale)
}

/// Whether a Scale has a factor for each channel, and not one for all or for another axis.
pub(in crate::transform) fn is_by_channel(scale: &Layer) -> bool {
    scale.axis() == 1 && scale.num_axes() == 1
}
