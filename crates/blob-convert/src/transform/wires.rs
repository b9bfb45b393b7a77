//! Traces what each layer of a net reads: the net's input, the output of a convolution, or of an inner product.
//!
//! One pass over the layers is enough, as a net writes each value before reading it.

use std::collections::HashMap;

use blob_io::net::{Layer, LayerKind, Net};

use super::step::{Context, Misfit};

/// Layers that mix neither channels nor positions.
const PLAIN: &[&str] = &[
    "Split", "ReLU", "Dropout", "Pooling", "Power", "LRN", "Sigmoid", "TanH", "ELU", "AbsVal", "Exp", "Log", "BNLL",
    "Flatten",
];
/// Layers that take values from their first input only; the others give extents or positions.
const FIRST: &[&str] = &["ROIPooling", "PSROIPooling", "Crop"];

/// The file's own net, if it says which layer reads what.
pub(super) fn wired(context: &Context<'_>) -> Result<Option<Net>, Vec<Misfit>> {
    let net = context.checkpoint().net().map_err(|e| vec![Misfit::about_all(e.to_string())])?;
    Ok(net.filter(|net| net.layers().iter().any(|layer| !layer.bottoms.is_empty())))
}

/// Where values come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'n> {
    /// The net's input.
    Input,
    /// A layer with channels and positions: a convolution or a pooling.
    Spatial,
    /// An inner product.
    Vector,
    /// A layer that may mix channels or positions; the flag says whether it reads the net's input.
    Mixed(&'n Layer, bool),
}

impl Source<'_> {
    pub(super) fn is_input(self) -> bool {
        matches!(self, Self::Input | Self::Mixed(_, true))
    }
}

/// Every layer with the source of its inputs.
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
            // On the net's input, the factors per channel would have to be reversed too.
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
