//! Finds the normalisations of a net that can be folded, and the reason for each that cannot.

use std::collections::{HashMap, HashSet};
use std::fmt;

use blob_io::net::{Layer, LayerKind, Role};
use blob_io::{TensorName, work};

use super::{Fold, Folded, Side};
use crate::transform::binding::{Bound, bias_beside};
use crate::transform::eps::OtherEps;
use crate::transform::norm;
use blob_io::words::{and_more, listed};

/// At most this many readers of a value are named.
const MAX_NAMED: usize = 3;
/// At most this many other layers that are refused for one reason are named.
const MAX_LISTED: usize = 5;

/// A normalisation that is not folded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The layer's name.
    pub layer: String,
    /// The reason, worded to follow the layer's name: `reads the net's input`.
    pub reason: String,
    /// The kind of the reason: refusals of one kind differ in names only.
    pub kind: RefusalKind,
}

/// The kind of reason for which a normalisation is not folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalKind {
    /// A layer is in some phases of the net only, as in a net for training.
    Phase,
    /// The layer computes mean and variance from its input, as in a net for training.
    OwnStatistics,
    /// Another layer reads the same values.
    Readers,
    /// The layer before is no convolution, deconvolution or fully connected layer.
    Behind,
    /// The weights of the layer before are not in the file.
    NoWeights,
    /// A tensor that the layer needs is not in the file.
    Lacks,
    /// The net has no such layer.
    Unknown,
    /// Any other reason.
    Other,
}

impl RefusalKind {
    /// Whether the net as it is used after training has no such reason.
    #[must_use]
    pub fn is_of_training(self) -> bool {
        matches!(self, Self::Phase | Self::OwnStatistics)
    }
}

/// The kind and the text of a refusal's reason.
struct Why(RefusalKind, String);

impl From<String> for Why {
    fn from(text: String) -> Self {
        Self(RefusalKind::Other, text)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not folded: it {}", self.layer, self.reason)
    }
}

impl Fold {
    /// Finds the normalisations that can be folded into the convolution, deconvolution or fully connected layer before,
    /// and the refused ones. A Scale that follows no BatchNorm counts as a normalisation.
    #[must_use]
    pub fn of(net: &Bound<'_>) -> (Self, Vec<Refusal>) {
        let (mut fold, mut refused) = (Self::default(), Vec::new());
        let mut after: HashSet<*const Layer> = HashSet::new();
        for layer in net.layers() {
            let is_norm = norm::is_norm(layer);
            if !(is_norm || is_lone_scale(layer)) || after.contains(&std::ptr::from_ref(layer)) {
                continue;
            }
            let scale = foldable_scale(net, layer);
            let folded = folded(net, layer, scale);
            // If a BatchNorm stays, its Scale stays too.
            after.extend(scale.filter(|_| is_norm || folded.is_ok()).map(std::ptr::from_ref));
            match folded {
                Ok(folded) => {
                    fold.scales += usize::from(!is_norm);
                    fold.layers.push(folded);
                }
                Err(Why(kind, reason)) => refused.push(Refusal { layer: layer.name.to_owned(), reason, kind }),
            }
        }
        refused.extend(net.uncovered().iter().map(|norm| Refusal {
            layer: norm.layer.clone(),
            reason: "is in the file, and the net has no such BatchNorm".to_owned(),
            kind: RefusalKind::Unknown,
        }));
        (fold, refused)
    }

    /// A folded normalisation whose eps the net tells otherwise.
    pub(crate) fn other_eps(&self, net: &Bound<'_>) -> Option<OtherEps> {
        let norms = self.layers.iter().filter(|folded| folded.variance.is_some());
        norms.into_iter().find_map(|folded| OtherEps::of(folded.eps, net, |layer| *layer.name == *folded.layer))
    }
}

/// The refusals, one text for each of the first `most` reasons; of more, a text with the number of the others.
pub(super) fn by_reason(refused: &[Refusal], most: usize) -> Vec<String> {
    let mut groups: Vec<(&Refusal, Vec<&str>)> = Vec::new();
    // Reasons of most kinds differ in names only.
    let mut places: HashMap<(RefusalKind, &str), usize> = HashMap::new();
    for refusal in refused {
        work::visit(0, 1);
        let reason = if refusal.kind == RefusalKind::Other { &*refusal.reason } else { "" };
        let place = *places.entry((refusal.kind, reason)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, others)) => others.push(&refusal.layer),
            None => groups.push((refusal, Vec::new())),
        }
    }
    let more: usize = groups.iter().skip(most).map(|(_, others)| 1 + others.len()).sum();
    let texts = groups.iter().take(most).map(|(first, others)| match &others[..] {
        [] => first.to_string(),
        others => format!("{first}; so {}", listed(MAX_LISTED, others)),
    });
    let mut texts: Vec<String> = texts.collect();
    texts.extend((more > 0).then(|| format!("{more} more are not folded, for other reasons")));
    texts
}

/// Whether a Scale has stored factors, rather than multiplying two inputs.
fn is_lone_scale(layer: &Layer) -> bool {
    layer.kind == LayerKind::Scale && layer.bottoms.len() == 1
}

/// The Scale after a normalisation, if a fold can take the Scale along.
fn foldable_scale<'a>(net: &Bound<'a>, norm: &Layer) -> Option<&'a Layer> {
    scale_after(net, norm).filter(|scale| check_place(net, scale).is_ok())
}

/// Whether each output channel of a layer is a weighted sum of inputs, so that a factor can go into the weights.
fn is_foldable(layer: &Layer) -> bool {
    matches!(layer.kind, LayerKind::Convolution | LayerKind::Deconvolution | LayerKind::InnerProduct)
}

/// Whether the file has all tensors that a Scale needs, and no others.
fn is_whole(net: &Bound<'_>, scale: &Layer) -> bool {
    net.tensor(scale, Role::Weight).is_some() && scale.bias_term == net.tensor(scale, Role::Bias).is_some()
}

/// The reason why a layer with a stray bias is not folded. Caffe refuses a file with more blobs than the layer has,
/// others ignore the surplus; so a stray bias has no part in the results that a fold keeps.
const STRAY: &str = "has a bias in the file, and no bias_term";

/// Whether the file has a bias that the layer does not use.
fn has_stray_bias(net: &Bound<'_>, layer: &Layer) -> bool {
    !layer.bias_term && net.tensor(layer, Role::Bias).is_some()
}

fn folded(net: &Bound<'_>, norm: &Layer, scale: Option<&Layer>) -> Result<Folded, Why> {
    if norm.kind == LayerKind::Scale {
        check_scale(net, norm)?;
    }
    let before = before(net, norm)?;
    let channel_axis = axis_of(before)?;
    let axes = before.kernel.len() as i64;
    if norm.axis != channel_axis && !(channel_axis == -1 && axes > 0 && norm.axis == axes + 1) {
        return Err(format!(
            "normalises axis {}, and the channels of {:?} are axis {channel_axis}",
            norm.axis, before.name
        )
        .into());
    }
    let named = |layer: &Layer, role: Role| net.tensor(layer, role).map(str::to_owned);
    let own = |role: Role| named(norm, role);
    let weight = named(before, Role::Weight).ok_or_else(|| {
        Why(RefusalKind::NoWeights, format!("follows {:?}, whose weights are not in the file", before.name))
    })?;
    if has_stray_bias(net, before) {
        return Err(format!("follows {:?}, which {STRAY}", before.name).into());
    }
    let (mean, variance) = (own(Role::Mean), own(Role::Variance));
    for layer in [Some(before), Some(norm), scale].into_iter().flatten() {
        if let Some((_, name)) = lacking(net, layer).next() {
            return Err(Why(RefusalKind::Lacks, format!("needs {name:?}, which the file does not have")));
        }
    }
    // Caffe wants three blobs of a BatchNorm; other files may have the factor divided out.
    let of_mean = mean.as_deref().map(TensorName::of).filter(|mean| mean.index() == Some(0));
    let lacks_factor = own(Role::Factor).is_none() && (net.is_of_caffe() || net.lost_factor(norm).is_some());
    if let Some(layer) = of_mean.and_then(TensorName::layer).filter(|_| lacks_factor) {
        return Err(format!("needs \"{layer}/2\", its factor, which the file does not have").into());
    }
    if mean.is_some() != variance.is_some() || norm.kind == LayerKind::BatchNorm && mean.is_none() {
        return Err("has no mean or no variance in the file".to_owned().into());
    }
    let scaled = |role: Role| scale.and_then(|scale| named(scale, role));
    Ok(Folded {
        layer: norm.name.to_owned(),
        scale_layer: scale.map(|scale| scale.name.to_owned()),
        has_bias: named(before, Role::Bias).is_some(),
        bias: named(before, Role::Bias).unwrap_or_else(|| bias_beside(&weight)),
        side: side(before),
        eps: net.eps(norm),
        factor: own(Role::Factor),
        gamma: own(Role::Weight),
        fix_gamma: norm.fix_gamma,
        beta: own(Role::Bias),
        scale: scaled(Role::Weight),
        shift: scaled(Role::Bias),
        weight,
        mean,
        variance,
    })
}

/// The parameters of a layer that the framework needs and the file lacks.
pub(in crate::transform) fn lacking<'l>(net: &Bound<'_>, layer: &'l Layer) -> impl Iterator<Item = (Role, &'l str)> {
    // A prototxt does not say how many blobs a BatchNorm of Caffe's has: forks have five, and a factor can be divided
    // out. A BatchNorm of MXNet's has no factor, and the variables in the symbol are the parameters.
    let needed = layer.tensors().filter(|(role, _)| match layer.kind {
        LayerKind::Bn => false,
        LayerKind::BatchNorm => layer.tensor(Role::Factor).is_none(),
        _ => *role != Role::Bias || layer.bias_term,
    });
    needed.filter(|(role, _)| net.tensor(layer, *role).is_none())
}

/// The layer before a normalisation, if the fold may change that layer's weights.
fn before<'a>(net: &Bound<'a>, norm: &Layer) -> Result<&'a Layer, Why> {
    if norm.type_name.ends_with("WithReLU") {
        return Err(format!("is {}, whose ReLU would be lost", norm.type_name).into());
    }
    let [bottom] = *norm.bottoms else {
        return Err(format!("reads {} values, and one is expected", norm.bottoms.len()).into());
    };
    let Some(before) = net.net().writer(bottom) else {
        return Err("reads the net's input: no convolution comes before".to_owned().into());
    };
    if !is_foldable(before) {
        let (name, kind) = (&before.name, &before.type_name);
        let why = format!("reads {name:?}, which is {kind}, not a convolution or a fully connected layer");
        return Err(Why(RefusalKind::Behind, why));
    }
    let uses = net.net().uses(bottom);
    if uses > 1 {
        // Of a value that every layer reads, each refusal names a few readers alone.
        let others = net.net().readers(bottom).filter(|reader| !std::ptr::eq(*reader, norm));
        let others: Vec<String> = others.take(MAX_NAMED).map(|reader| format!("{:?}", reader.name)).collect();
        let more = and_more((uses - 1).saturating_sub(MAX_NAMED));
        let others = if others.is_empty() { "the net's user".to_owned() } else { others.join(", ") + &more };
        let why = format!("is not the only one that reads {:?}: {others} would read other values", before.name);
        return Err(Why(RefusalKind::Readers, why));
    }
    if norm.normalises_by_input {
        let why = "computes mean and variance from its input".to_owned();
        return Err(Why(RefusalKind::OwnStatistics, why));
    }
    if norm.kind == LayerKind::Bn && net.tensor(norm, Role::Mean).is_none() && !norm.is_inference {
        return Err("has no mean and no variance, and is not said to be for inference".to_owned().into());
    }
    for layer in [before, norm] {
        check_place(net, layer)?;
        if layer.shares_tensors {
            return Err(
                format!("cannot be folded alone: {:?} shares its tensors with another layer", layer.name).into()
            );
        }
    }
    Ok(before)
}

/// Checks that a layer has one input and one output and is there in every phase of the net.
fn check_place(net: &Bound<'_>, layer: &Layer) -> Result<(), Why> {
    let stays = |kind, why: String| Err(Why(kind, format!("cannot be folded: {:?} {why}", layer.name)));
    let ([_], &[top]) = (&layer.bottoms[..], &layer.tops[..]) else {
        let (bottoms, tops) = (layer.bottoms.len(), layer.tops.len());
        return stays(
            RefusalKind::Other,
            format!("reads {bottoms} values and writes {tops}, and one each is expected"),
        );
    };
    if layer.is_conditional {
        return stays(RefusalKind::Phase, "is in some phases of the net only".to_owned());
    }
    if net.net().is_written_twice(top) {
        return stays(RefusalKind::Other, "writes what another layer writes too".to_owned());
    }
    Ok(())
}

/// Checks that a Scale itself can be folded.
fn check_scale(net: &Bound<'_>, scale: &Layer) -> Result<(), String> {
    if !is_by_channel(scale) {
        let (axis, axes) = (scale.axis, scale.num_axes);
        return Err(format!("has axis {axis} and num_axes {axes}, and the channels are axis 1 alone"));
    }
    if has_stray_bias(net, scale) {
        return Err(STRAY.to_owned());
    }
    if !is_whole(net, scale) {
        return Err("has no factors or no summands in the file".to_owned());
    }
    Ok(())
}

/// The channel axis of a layer's output.
fn axis_of(layer: &Layer) -> Result<i64, String> {
    match layer.kind {
        LayerKind::InnerProduct if !layer.flatten => {
            Err(format!("reads {:?}, whose outputs are in its last axis", layer.name))
        }
        _ => Ok(layer.axis),
    }
}

fn side(layer: &Layer) -> Side {
    match layer.kind {
        LayerKind::Deconvolution if layer.channels_last => Side::LastOf { groups: layer.group },
        LayerKind::Deconvolution => Side::Second { groups: layer.group },
        LayerKind::InnerProduct if layer.transpose => Side::Last,
        LayerKind::InnerProduct => Side::Rows,
        _ => Side::First,
    }
}

/// The per-channel Scale after a normalisation, if nothing else reads that normalisation.
pub(in crate::transform) fn scale_after<'a>(net: &Bound<'a>, norm: &Layer) -> Option<&'a Layer> {
    let [top] = *norm.tops else {
        return None;
    };
    let scale = net.net().readers(top).next().filter(|layer| layer.kind == LayerKind::Scale)?;
    let is_plain = scale.bottoms.len() == 1 && is_by_channel(scale) && !scale.shares_tensors;
    (net.net().uses(top) == 1 && is_plain && is_whole(net, scale)).then_some(scale)
}

/// Whether a Scale has one factor per channel.
pub(in crate::transform) fn is_by_channel(scale: &Layer) -> bool {
    scale.axis == 1 && scale.num_axes == 1
}
