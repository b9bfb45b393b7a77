//! The layers that read a flattened value: inner products, layers with a value for each flattened one, and others,
//! whose outputs depend on the order.
//!
//! The one place that says which layers lie between a flattening and an inner product, and which others read there.

use std::collections::BTreeMap;

use blob_io::net::{Layer, LayerKind, Net};

use crate::transform::topology::{Feed, Wire, is_per_channel};

/// The layers that read one flattened value, directly or through plain layers and layers by channel.
#[derive(Debug, Default)]
pub(super) struct Region<'a> {
    pub(super) products: Vec<&'a Layer>,
    pub(super) by_channel: Vec<&'a Layer>,
    pub(super) others: Vec<&'a Layer>,
    /// The layers whose outputs the net gives to its user.
    pub(super) outputs: Vec<&'a Layer>,
    /// Whether the flattened value has the channels last.
    pub(super) is_last: bool,
}

/// The regions by flattened value, as numbered by [`Source::flat`].
pub(super) fn regions<'a>(net: &Net, wires: &[Wire<'a>]) -> BTreeMap<usize, Region<'a>> {
    let mut regions: BTreeMap<usize, Region<'a>> = BTreeMap::new();
    for wire in wires {
        let made = wire.made.and_then(Feed::flat);
        let is_within = wire.source.flat().is_some();
        let passes_on = is_within && (made.is_some() || wire.made.is_none());
        for flat in &wire.flats {
            let region = regions.entry(*flat).or_default();
            region.is_last |= wire.source.is_last();
            match wire.layer.kind {
                LayerKind::InnerProduct if wire.source.flat() == Some(*flat) => region.products.push(wire.layer),
                _ if passes_on && is_per_channel(wire.layer) => region.by_channel.push(wire.layer),
                _ if !passes_on => region.others.push(wire.layer),
                _ => {}
            }
        }
        if let Some(flat) = made.filter(|_| wire.layer.tops.iter().any(|top| net.is_output(*top))) {
            regions.entry(flat).or_default().outputs.push(wire.layer);
        }
    }
    regions
}
