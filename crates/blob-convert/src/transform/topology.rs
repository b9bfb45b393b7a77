//! Traces the source of each layer's inputs: the net's input, the net's own values, the output of a convolution, or of
//! an inner product.
//!
//! One pass over the layers is enough, as a net writes each value before a layer reads the value. `axes` tells from a
//! layer's settings which axes the layer merges or removes.

pub(super) mod axes;
mod types;

use std::collections::HashMap;

use blob_io::net::{Layer, LayerKind, Net};

use self::axes::Left;
use self::types::{
    CONCATENATING, FIRST, FLATTENING, JOINING, KEEPING_ONE, NEIGHBOURLY, NONE, PLAIN, RECURRENT, RESHAPING, RESIZING,
    SQUEEZING,
};
use super::binding::Bound;
use super::extents::after;
use super::step::{Context, Misfit};

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
pub(super) enum Feed<'n> {
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
    /// the layer reads values with channels and positions, flattened or not; `is_flat` where such a value may be
    /// flattened; `is_last` where such a value has the channels last.
    Mixed { layer: &'n Layer, input: Option<usize>, has_positions: bool, is_flat: bool, is_last: bool },
}

impl Feed<'_> {
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

    /// The same source, without positions.
    fn without_positions(self) -> Self {
        match self {
            Self::Mixed { layer, input, is_last, .. } => {
                Self::Mixed { layer, input, has_positions: false, is_flat: false, is_last }
            }
            source => source,
        }
    }

    /// Whether these values may have channels and positions on one axis.
    pub(super) fn is_flat(self) -> bool {
        self.flat().is_some() || matches!(self, Self::Mixed { is_flat: true, .. })
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
    pub(super) source: Feed<'n>,
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
    pub(super) made: Option<Feed<'n>>,
}

/// Every layer with the source of the inputs.
pub(super) fn sources<'n>(bound: &Bound<'n>) -> Vec<Wire<'n>> {
    let net = bound.net();
    let mut values: HashMap<usize, Feed<'_>> = HashMap::new();
    let mut sizes: HashMap<usize, [u64; 2]> = HashMap::new();
    let mut all = Vec::new();
    let is_channels_last = net.layers().iter().any(|layer| layer.channels_last);
    // Axes are counted for images alone.
    let is_planar = net.layers().iter().all(|layer| !is_windowed(layer) || layer.kernel.len() == 2);
    for layer in net.layers() {
        let is = |types: &[&str]| types.contains(&&*layer.type_name);
        let read = || layer.bottoms.iter().take(count_of_inputs(layer));
        let source = |value: &usize| values.get(value).copied().unwrap_or_else(|| begun(bound, *value));
        let from: Vec<Feed<'_>> = read().map(source).collect();
        let inputs: Vec<usize> = from.iter().filter_map(|source| source.unmixed()).collect();
        let own: Vec<usize> = from.iter().filter_map(|source| source.own()).collect();
        let is_product = layer.kind == LayerKind::InnerProduct;
        let flats = layer.bottoms.iter().take(if is_product { usize::MAX } else { from.len() }).map(source);
        let flats: Vec<usize> = flats.filter_map(Feed::flat).collect();
        let has_positions = from.iter().any(|source| has_positions(*source, net));
        let is_last = from.iter().any(|source| source.is_last());
        let input = from.iter().find_map(|source| source.input());
        let is_flat = has_positions && (from.iter().any(|source| source.is_flat()) || is(RESHAPING));
        let mixed = Feed::Mixed { layer, input, has_positions, is_flat, is_last };
        let is_by_channel = is(CONCATENATING) && layer.axis == 1 && !is_channels_last;
        let source = match *from {
            [one] => one,
            _ if is_join(layer) => joined(&from).unwrap_or(mixed),
            _ if is_by_channel => concatenated(&from).unwrap_or(mixed),
            _ => mixed,
        };
        let stated = |value: usize| sides(net, value);
        // Weights and vectors beside an image have no size.
        let sized = read().zip(&from).filter(|(_, source)| !has_positions || self::has_positions(**source, net));
        let of_inputs: Option<Vec<[u64; 2]>> =
            sized.map(|(value, _)| sizes.get(value).copied().or_else(|| stated(*value))).collect();
        let size = of_inputs.and_then(|all| common(&all, is_join(layer)));
        let flattens = is(FLATTENING) && axes::is_whole(layer) || is(RESHAPING) && axes::flattens(layer);
        let reads = Reads {
            layer,
            source,
            mixed,
            own: own.first().copied().filter(|_| own.len() == from.len()),
            has_own: !own.is_empty(),
            count: from.len(),
            size,
            is_by_channel,
            flattens,
            left: axes::left(layer, is_last, is_planar),
        };
        let mut first = None;
        for top in &layer.tops {
            let made = reads.made(bound, *top);
            first = first.or(Some(made));
            values.insert(*top, made);
            sizes.extend(reads.size_after().or_else(|| stated(*top)).map(|size| (*top, size)));
        }
        let is_plain = reads.is_plain();
        all.push(Wire { layer, source, size, inputs, own, has_positions, flats, is_plain, made: first });
    }
    all
}

/// The inputs of one layer, from which the outputs follow.
struct Reads<'n> {
    layer: &'n Layer,
    source: Feed<'n>,
    /// The source of outputs that nobody follows.
    mixed: Feed<'n>,
    /// The first of the net's own values, where the layer reads nothing else.
    own: Option<usize>,
    /// Whether one of the inputs is the net's own.
    has_own: bool,
    count: usize,
    size: Option<[u64; 2]>,
    is_by_channel: bool,
    flattens: bool,
    left: Option<Left>,
}

impl<'n> Reads<'n> {
    fn is(&self, types: &[&str]) -> bool {
        types.contains(&&*self.layer.type_name)
    }

    fn is_plain(&self) -> bool {
        (self.is(PLAIN) || self.is(RESIZING)) && self.layer.kind == LayerKind::Other
    }

    /// The source of an output.
    fn made(&self, bound: &Bound<'n>, top: usize) -> Feed<'n> {
        let Self { layer, source, mixed, left, flattens, .. } = *self;
        let is_passed = self.is_plain() || is_join(layer) || self.count == 1 && self.is(FIRST);
        match (layer.kind, source) {
            (LayerKind::Convolution | LayerKind::Deconvolution, _) => {
                Feed::Spatial { channels: layer.num_output, flat: None, is_last: layer.channels_last }
            }
            (LayerKind::InnerProduct, source) => product(layer, source).unwrap_or(mixed),
            // Each output of a layer without inputs is a separate value: images, labels.
            _ if layer.bottoms.is_empty() => begun(bound, top),
            _ if self.count == 0 => mixed,
            _ if self.own.is_some() => self.own.map_or(mixed, Feed::Own),
            (LayerKind::Lstm, _) => mixed.without_positions(),
            _ if self.is(RECURRENT) || left == Some(Left::Nothing) => mixed.without_positions(),
            (_, Feed::Spatial { flat: Some(_), .. }) if self.is(RESIZING) || self.is(NEIGHBOURLY) => mixed,
            _ if is_passed => source,
            (_, Feed::Spatial { flat: None, .. }) if self.is_by_channel => source,
            (_, Feed::Spatial { channels, flat, is_last }) if flattens => {
                Feed::Spatial { channels, flat: flat.or(Some(top)), is_last }
            }
            (_, Feed::Spatial { flat: Some(_), .. }) if self.is(SQUEEZING) => source,
            (_, Feed::Spatial { channels, flat: None, is_last }) if left.is_some() => {
                let flat = (left == Some(Left::Channels { has_axes: false })).then_some(top);
                Feed::Spatial { channels, flat, is_last }
            }
            (_, Feed::Vector(_)) if flattens || self.is(RESHAPING) && axes::keeps_one_position(layer) => source,
            (_, Feed::Vector(product) | Feed::Reshaped(product)) if self.is(RESHAPING) => Feed::Reshaped(product),
            // On the net's input, the factors per channel would have to be reversed too.
            _ if is_per_channel(layer) && source.input().is_none() => source,
            _ => mixed,
        }
    }

    /// The height and width of the outputs.
    fn size_after(&self) -> Option<[u64; 2]> {
        let (layer, size) = (self.layer, self.size);
        let is_resized = is_windowed(layer) || layer.type_name == "Pooling";
        let is_kept = self.is(PLAIN) || is_join(layer) || self.is_by_channel || self.flattens || is_per_channel(layer);
        let keeps_one = self.is(KEEPING_ONE) || self.is(RESHAPING) || self.is(SQUEEZING);
        match size {
            _ if layer.type_name == "Pooling" && layer.window.is_global => Some([1, 1]),
            _ if matches!(self.left, Some(Left::Channels { .. })) || axes::pools_all(layer) => Some([1, 1]),
            Some(size) if is_resized => after(layer, size),
            Some([1, 1]) if keeps_one => size,
            // The net's own values may be many, for one position.
            Some([1, 1]) if is_join(layer) && self.has_own && !self.source.is_flat() => None,
            _ if is_kept => size,
            _ => None,
        }
    }
}

/// Whether a layer joins its inputs element by element. Caffe's Scale and Bias of two inputs do.
fn is_join(layer: &Layer) -> bool {
    let is_of_two = matches!(layer.kind, LayerKind::Scale | LayerKind::Bias) && layer.bottoms.len() == 2;
    is_of_two || JOINING.contains(&&*layer.type_name)
}

fn is_windowed(layer: &Layer) -> bool {
    matches!(layer.kind, LayerKind::Convolution | LayerKind::Deconvolution)
}

/// The number of inputs from which a layer takes values.
fn count_of_inputs(layer: &Layer) -> usize {
    let is = |types: &[&str]| types.contains(&&*layer.type_name);
    // Further inputs of an inner product are computed weights.
    let takes_first = is(FIRST) || is(RECURRENT) || layer.kind == LayerKind::InnerProduct;
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
fn begun<'n>(net: &Bound<'_>, value: usize) -> Feed<'n> {
    if net.is_input(value) { Feed::Input(value) } else { Feed::Own(value) }
}

/// Whether a layer has values for each channel.
pub(super) fn is_per_channel(layer: &Layer) -> bool {
    let by_channel = [LayerKind::BatchNorm, LayerKind::Bn, LayerKind::Scale, LayerKind::Bias, LayerKind::PRelu]
        .contains(&layer.kind);
    by_channel || matches!(&*layer.type_name, "LayerNorm" | "InstanceNorm")
}

/// The outputs of an inner product; `None` for outputs in which positions are mixed. One that flattens nothing, or
/// flattens positions alone, keeps other axes.
fn product<'n>(layer: &'n Layer, source: Feed<'n>) -> Option<Feed<'n>> {
    match source {
        Feed::Spatial { flat: None, is_last: true, .. } if !layer.flatten => {
            Some(Feed::Spatial { channels: layer.num_output, flat: None, is_last: true })
        }
        Feed::Spatial { flat: None, .. } | Feed::Mixed { has_positions: true, is_flat: false, .. }
            if !axes::is_whole(layer) =>
        {
            None
        }
        _ => Some(Feed::Vector(layer)),
    }
}

/// The height and width that all inputs have. In a join, an input of one position is repeated.
fn common(all: &[[u64; 2]], is_join: bool) -> Option<[u64; 2]> {
    let mut sizes = all.iter().copied().filter(|size| !is_join || *size != [1, 1]);
    let first = sizes.next().or(all.first().copied())?;
    sizes.all(|other| other == first).then_some(first)
}

/// Whether values have channels and positions, or are of layers that read such values.
fn has_positions(source: Feed<'_>, net: &Net) -> bool {
    match source {
        Feed::Spatial { .. } => true,
        Feed::Input(value) | Feed::Own(value) => {
            net.extents(value).is_some_and(|[_, channels, sides @ ..]| channels > 1 && sides != [1, 1])
        }
        Feed::Mixed { has_positions, .. } => has_positions,
        Feed::Vector(_) | Feed::Reshaped(_) => false,
    }
}

/// The source of values that are joined element by element; `None` unless all are spatial and not flattened, or have no
/// positions: the net's own, or one for each channel.
fn joined<'n>(from: &[Feed<'n>]) -> Option<Feed<'n>> {
    let (mut all, mut order) = (Vec::new(), None);
    for source in from {
        match source {
            Feed::Own(_) | Feed::Vector(_) => all.push(None),
            Feed::Spatial { channels, flat: None, is_last } if order.is_none_or(|order| order == *is_last) => {
                order = Some(*is_last);
                all.push(*channels);
            }
            _ => return None,
        }
    }
    // One channel is repeated for many, as one of unknown number may be.
    let many = all.iter().flatten().copied().find(|channels| *channels > 1);
    let channels = many.or_else(|| all.iter().all(|channels| *channels == Some(1)).then_some(1));
    Some(Feed::Spatial { channels, flat: None, is_last: order? })
}

/// The source of values whose channels stand one behind the other; `None` unless all are spatial and not flattened.
fn concatenated<'n>(from: &[Feed<'n>]) -> Option<Feed<'n>> {
    let mut all = Some(0u64);
    for source in from {
        let Feed::Spatial { channels, flat: None, is_last: false } = source else { return None };
        all = all.zip(*channels).and_then(|(all, own)| all.checked_add(own));
    }
    Some(Feed::Spatial { channels: all, flat: None, is_last: false })
}
