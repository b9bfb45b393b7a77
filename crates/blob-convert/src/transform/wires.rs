//! What the layers of a source's net read: its input, the outputs of a convolution, or those of an inner product.
//!
//! One pass over the layers in their order, as each value is written before it is read.

use std::collections::HashMap;

use blob_io::net::{Layer, LayerKind, Net};

use super::step::{Context, Misfit};

/// Layers that change no channel and no place, or each channel alone.
const PLAIN: &[&str] = &[
    "Split", "ReLU", "Dropout", "Pooling", "Power", "LRN", "Sigmoid", "TanH", "ELU", "AbsVal", "Exp", "Log", "BNLL",
    "Flatten",
];
/// Layers that read the values of their first input, and of others only extents or places.
const FIRST: &[&str] = &["ROIPooling", "PSROIPooling", "Crop"];

/// The source's net, where the file says which layer reads what.
pub(super) fn wired(context: &Context<'_>) -> Result<Option<Net>, Vec<Misfit>> {
    let net = context.checkpoint().net().map_err(|e| vec![Misfit::about_all(e.to_string())])?;
    Ok(net.filter(|net| net.layers().iter().any(|layer| !layer.bottoms.is_empty())))
}

/// Where values come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'n> {
    /// The net's input.
    Input,
    /// A layer that keeps channels and places apart: a convolution or a pooling.
    Spatial,
    /// An inner product.
    Vector,
    /// A layer that may put channels or places elsewhere; whether it reads the net's input.
    Mixed(&'n Layer, bool),
}

impl Source<'_> {
    pub(super) fn is_input(self) -> bool {
        matches!(self, Self::Input | Self::Mixed(_, true))
    }
}

/// Every layer with where its inputs come from.
pub(super) fn sources(net: &Net) -> Vec<(&Layer, Source<'_>)> {
    let mut values: HashMap<usize, Source<'_>> = HashMap::new();
    let mut all = Vec::new();
    for layer in net.layers() {
        let read = if FIRST.contains(&&*layer.type_name) { 1 } else { usize::MAX };
        let from: Vec<Source<'_>> =
            layer.bottoms.iter().take(read).map(|v| values.get(v).copied().unwrap_or(Source::Input)).collect();
        let source = match *from {
            [] => Source::Input,
            [one] => one,
            _ => Source::Mixed(layer, from.iter().any(|source| source.is_input())),
        };
        all.push((layer, source));
        let made = match layer.kind {
            LayerKind::Convolution | LayerKind::Deconvolution => Source::Spatial,
            LayerKind::InnerProduct => Source::Vector,
            _ if layer.bottoms.is_empty() || PLAIN.contains(&&*layer.type_name) => source,
            // A factor a channel of the input would have to be reversed with it.
            LayerKind::BatchNorm | LayerKind::Bn | LayerKind::Scale | LayerKind::Bias | LayerKind::PRelu
                if !source.is_input() =>
            {
                source
            }
            _ => Source::Mixed(layer, from.iter().any(|source| source.is_input())),
        };
        values.extend(layer.tops.iter().map(|top| (*top, made)));
    }
    all
}
