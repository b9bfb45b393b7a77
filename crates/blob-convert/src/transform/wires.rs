//! Traces the source of each layer's inputs: the net's input, the net's own values, the output of a convolution, or of
//! an inner product.
//!
//! One pass over the layers is enough, as a net writes each value before a layer reads the value.

use std::collections::HashMap;

use blob_io::net::{Layer, LayerKind, Net};

use super::bound::Bound;
use super::extents::after;
use super::step::{Context, Misfit};

/// Layers that mix neither channels nor positions, of Caffe and its forks, then of MXNet.
const PLAIN: &[&str] = &[
    "Split",
    "ReLU",
    "Dropout",
    "Power",
    "LRN",
    "Sigmoid",
    "TanH",
    "ELU",
    "AbsVal",
    "Exp",
    "Log",
    "BNLL",
    "ReLU6",
    "Swish",
    "Clip",
    "Silence",
    "Activation",
    "relu",
    "sigmoid",
    "tanh",
    "hard_sigmoid",
    "LeakyReLU",
    "identity",
    "_copy",
    "Cast",
    "cast",
    "amp_cast",
    "BlockGrad",
    "stop_gradient",
    "clip",
    "_plus_scalar",
    "_minus_scalar",
    "_rminus_scalar",
    "_mul_scalar",
    "_div_scalar",
    "_rdiv_scalar",
    "_power_scalar",
    "_maximum_scalar",
    "_minimum_scalar",
    "sqrt",
    "square",
    "abs",
    "negative",
    "exp",
    "log",
];
/// Layers that mix no channels and give positions other extents.
const RESIZING: &[&str] = &[
    "Pooling",
    "Interp",
    "Upsample",
    "Pooling_v1",
    "Pad",
    "pad",
    "UpSampling",
    "_contrib_BilinearResize2D",
    "_contrib_AdaptiveAvgPooling2D",
];
/// Layers that join values of the same shape element by element.
const JOINING: &[&str] =
    &["Eltwise", "elemwise_add", "_Plus", "_plus", "_add", "add_n", "ElementWiseSum", "elemwise_mul", "broadcast_add"];
/// Layers that put values one behind the other along an axis.
const CONCATENATING: &[&str] = &["Concat", "concat"];
/// Layers that make one axis of channels and positions.
const FLATTENING: &[&str] = &["Flatten", "flatten"];
/// Layers that give an axis of outputs other extents.
const RESHAPING: &[&str] = &["Reshape", "reshape"];
/// Layers that take values from their first input only; the others give extents or positions.
const FIRST: &[&str] = &["ROIPooling", "Crop", "_contrib_ROIAlign", "slice_like"];
/// Layers that take no values, only extents.
const NONE: &[&str] =
    &["PriorBox", "_contrib_MultiBoxPrior", "MultiBoxPrior", "shape_array", "zeros_like", "ones_like"];

/// Plain layers whose outputs depend on which channels are neighbours: a reversal keeps neighbours, another order does
/// not.
const NEIGHBOURLY: &[&str] = &["LRN"];

/// The followed net, with the tensors of the file; `None` for a net that does not say which layer reads what.
pub(super) fn wired<'a>(context: &Context<'a>) -> Result<Option<Bound<'a>>, Misfit> {
    let Some(net) = context.wired_net()? else { return Ok(None) };
    let bound = Bound::of(net.net(), context.checkpoint());
    let clash = bound.clashes().first().cloned();
    match clash.or_else(|| net.net().disorder()) {
        Some(why) => Err(Misfit::about_all(format!("the net does not fit: {why}"))),
        None => Ok(Some(bound)),
    }
}

/// The source of values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'n> {
    /// An input of the net, with the number of its value.
    Input(usize),
    /// A value of the net's own, learnt or constant, or made of such values alone, with the first one's number.
    Own(usize),
    /// A layer with channels and positions: a convolution or a pooling. `flat` is the flattened value, where channels
    /// and positions share an axis. `is_last` where the channels are the last axis, as in MXNet's NHWC.
    Spatial { channels: Option<u64>, flat: Option<usize>, is_last: bool },
    /// An inner product.
    Vector(&'n Layer),
    /// The outputs of an inner product with several axes.
    Reshaped(&'n Layer),
    /// A layer that may mix channels or positions, and the net's input if the layer reads one. `has_positions` where
    /// the layer reads values with channels and positions, flattened or not; `is_last` where such a value has the
    /// channels last.
    Mixed { layer: &'n Layer, input: Option<usize>, has_positions: bool, is_last: bool },
}

impl Source<'_> {
    /// The net's input that the values come from.
    pub(super) fn input(self) -> Option<usize> {
        match self {
            Self::Input(input) | Self::Mixed { input: Some(input), .. } => Some(input),
            _ => None,
        }
    }

    /// The net's input that the values are.
    fn unmixed(self) -> Option<usize> {
        if let Self::Input(input) = self { Some(input) } else { None }
    }

    /// The net's own value that the values are made of.
    fn own(self) -> Option<usize> {
        if let Self::Own(value) = self { Some(value) } else { None }
    }

    /// The flattened value that these values are, or are made of value by value.
    pub(super) fn flat(self) -> Option<usize> {
        match self {
            Self::Spatial { flat, .. } => flat,
            _ => None,
        }
    }

    /// Whether these values have the channels last, or are made of such values.
    pub(super) fn is_last(self) -> bool {
        matches!(self, Self::Spatial { is_last: true, .. } | Self::Mixed { is_last: true, .. })
    }
}

/// One layer and the source of the inputs.
#[derive(Debug)]
pub(super) struct Wire<'n> {
    pub(super) layer: &'n Layer,
    pub(super) source: Source<'n>,
    /// The height and width of the inputs, before a flattening; `None` where the net does not tell.
    pub(super) size: Option<[u64; 2]>,
    /// The net's inputs that the layer reads unmixed.
    pub(super) inputs: Vec<usize>,
    /// The net's own values that the layer reads.
    pub(super) own: Vec<usize>,
    /// Whether the layer reads values with channels and positions, flattened or not.
    pub(super) has_positions: bool,
    /// The flattened values that the layer reads.
    pub(super) flats: Vec<usize>,
    /// Whether the layer passes the input on without mixing channels.
    pub(super) is_plain: bool,
    /// The source of the outputs; `None` for a layer without outputs.
    pub(super) made: Option<Source<'n>>,
}

/// Every layer with the source of the inputs.
pub(super) fn sources<'n>(bound: &Bound<'n>) -> Vec<Wire<'n>> {
    let net = bound.net();
    let mut values: HashMap<usize, Source<'_>> = HashMap::new();
    let mut sizes: HashMap<usize, [u64; 2]> = HashMap::new();
    let mut all = Vec::new();
    let is_channels_last = net.layers().iter().any(|layer| layer.channels_last);
    for layer in net.layers() {
        let is = |types: &[&str]| types.contains(&&*layer.type_name);
        let read = || layer.bottoms.iter().take(count_of_inputs(layer));
        let source = |value: &usize| values.get(value).copied().unwrap_or_else(|| begun(bound, *value));
        let from: Vec<Source<'_>> = read().map(source).collect();
        let inputs: Vec<usize> = from.iter().filter_map(|source| source.unmixed()).collect();
        let own: Vec<usize> = from.iter().filter_map(|source| source.own()).collect();
        let is_product = layer.kind == LayerKind::InnerProduct;
        let flats = layer.bottoms.iter().take(if is_product { usize::MAX } else { from.len() }).map(source);
        let flats: Vec<usize> = flats.filter_map(Source::flat).collect();
        let has_positions = from.iter().any(|source| has_positions(*source, net));
        let is_last = from.iter().any(|source| source.is_last());
        let input = from.iter().find_map(|source| source.input());
        let mixed = Source::Mixed { layer, input, has_positions, is_last };
        let is_by_channel = is(CONCATENATING) && layer.axis == 1 && !is_channels_last;
        let source = match *from {
            [one] => one,
            _ if is(JOINING) => joined(&from).unwrap_or(mixed),
            _ if is_by_channel => concatenated(&from).unwrap_or(mixed),
            _ => mixed,
        };
        let is_norm = is_norm(layer.kind);
        let is_plain = (is(PLAIN) || is(RESIZING)) && layer.kind == LayerKind::Other;
        let stated = |value: usize| sides(net, value);
        let of_inputs: Option<Vec<[u64; 2]>> = read().map(|v| sizes.get(v).copied().or_else(|| stated(*v))).collect();
        let size = of_inputs.and_then(|all| all.first().copied().filter(|size| all.iter().all(|other| other == size)));
        let is_windowed = matches!(layer.kind, LayerKind::Convolution | LayerKind::Deconvolution);
        let size_after = match size {
            _ if layer.type_name == "Pooling" && layer.window.is_global => Some([1, 1]),
            Some(size) if is_windowed || layer.type_name == "Pooling" => after(layer, size),
            _ if is(PLAIN) || is(JOINING) || is_by_channel || is(FLATTENING) || is_norm => size,
            _ => None,
        };
        let mut first = None;
        for top in &layer.tops {
            let made = match (layer.kind, source) {
                (LayerKind::Convolution | LayerKind::Deconvolution, _) => {
                    Source::Spatial { channels: layer.num_output, flat: None, is_last: layer.channels_last }
                }
                (LayerKind::InnerProduct, _) => Source::Vector(layer),
                // Each output of a layer without inputs is a separate value: images, labels.
                _ if layer.bottoms.is_empty() => begun(bound, *top),
                _ if from.is_empty() => mixed,
                _ if own.len() == from.len() => Source::Own(own[0]),
                (_, Source::Spatial { flat: Some(_), .. }) if is(RESIZING) || is(NEIGHBOURLY) => mixed,
                _ if is_plain || is(JOINING) || from.len() == 1 && is(FIRST) => source,
                (_, Source::Spatial { flat: None, .. }) if is_by_channel => source,
                (_, Source::Spatial { channels, flat, is_last }) if is(FLATTENING) => {
                    Source::Spatial { channels, flat: flat.or(Some(*top)), is_last }
                }
                (_, Source::Vector(product) | Source::Reshaped(product)) if is(RESHAPING) => Source::Reshaped(product),
                (_, Source::Vector(_)) if is(FLATTENING) => source,
                // On the net's input, the factors per channel would have to be reversed too.
                _ if is_norm && source.input().is_none() => source,
                _ => mixed,
            };
            first = first.or(Some(made));
            values.insert(*top, made);
            sizes.extend(size_after.or_else(|| stated(*top)).map(|size| (*top, size)));
        }
        all.push(Wire { layer, source, size, inputs, own, has_positions, flats, is_plain, made: first });
    }
    all
}

/// The number of inputs from which a layer takes values.
fn count_of_inputs(layer: &Layer) -> usize {
    let is = |types: &[&str]| types.contains(&&*layer.type_name);
    // Further inputs of an inner product are computed weights.
    let takes_first = is(FIRST) || layer.kind == LayerKind::InnerProduct;
    match (takes_first, is(NONE)) {
        (_, true) => 0,
        (true, _) => 1,
        _ => usize::MAX,
    }
}

/// The stated height and width of an input of the net.
fn sides(net: &Net, value: usize) -> Option<[u64; 2]> {
    let [.., height, width] = net.extents(value)?;
    Some([height, width]).filter(|size| !size.contains(&0))
}

/// The source of a value that no layer computes from others.
fn begun<'n>(net: &Bound<'_>, value: usize) -> Source<'n> {
    if net.is_input(value) { Source::Input(value) } else { Source::Own(value) }
}

/// Whether a layer has values for each channel.
fn is_norm(kind: LayerKind) -> bool {
    matches!(kind, LayerKind::BatchNorm | LayerKind::Bn | LayerKind::Scale | LayerKind::Bias | LayerKind::PRelu)
}

/// Whether values have channels and positions, or are of layers that read such values.
fn has_positions(source: Source<'_>, net: &Net) -> bool {
    match source {
        Source::Spatial { .. } => true,
        Source::Input(value) | Source::Own(value) => {
            net.extents(value).is_some_and(|[_, channels, sides @ ..]| channels > 1 && sides != [1, 1])
        }
        Source::Mixed { has_positions, .. } => has_positions,
        Source::Vector(_) | Source::Reshaped(_) => false,
    }
}

/// The source of values that are joined element by element; `None` unless all are spatial and not flattened.
fn joined<'n>(from: &[Source<'n>]) -> Option<Source<'n>> {
    let (mut channels, is_last) = (None, from.first()?.is_last());
    for source in from {
        let Source::Spatial { channels: own, flat: None, is_last: last } = source else { return None };
        channels = channels.or(*own);
        if *last != is_last {
            return None;
        }
    }
    Some(Source::Spatial { channels, flat: None, is_last })
}

/// The source of values whose channels stand one behind the other; `None` unless all are spatial and not flattened.
fn concatenated<'n>(from: &[Source<'n>]) -> Option<Source<'n>> {
    let mut all = Some(0u64);
    for source in from {
        let Source::Spatial { channels, flat: None, is_last: false } = source else { return None };
        all = all.zip(*channels).and_then(|(all, own)| all.checked_add(own));
    }
    Some(Source::Spatial { channels: all, flat: None, is_last: false })
}
