//! The parts of a net that a layout cannot turn: matrices behind values whose order the convolutions no longer make,
//! factors along several axes, and values of the net's own.
//!
//! Relies on `wires` for the values that a layer reads. Reads no values.

use std::collections::{BTreeSet, HashMap};

use blob_io::net::{Layer, LayerKind, Role as Of};

use super::{Layout, permuted};
use crate::change::listed;
use crate::transform::bound::Bound;
use crate::transform::step::{Made, Spec};
use crate::transform::wires::{Source, Wire};

/// The axes of Caffe's values, in order.
const VALUES: [char; 4] = ['n', 'c', 'h', 'w'];
/// The axes of the same values with the channels last.
const LAST: &str = "nhwc";

/// Notes on the inner products whose columns or rows stay height × width × channels, though the convolutions around are
/// turned to channels × height × width.
pub(super) fn first(net: &Bound<'_>, wires: &[Wire<'_>], tensors: &[Spec<'_>]) -> Vec<String> {
    let specs = by_name(tensors);
    let weight = |layer: &Layer| specs.get(net.tensor(layer, Of::Weight)?).copied();
    let (mut columns, mut rows, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for wire in wires {
        let is_product = wire.layer.kind == LayerKind::InnerProduct;
        let (list, layer) = match wire.source {
            Source::Spatial { is_last: true, .. } if is_product => (&mut columns, wire.layer),
            Source::Mixed { is_last: true, .. } if is_product => (&mut unknown, wire.layer),
            Source::Reshaped(product) if wire.layer.channels_last => (&mut rows, product),
            _ => continue,
        };
        let Some(spec) = weight(layer).filter(|spec| !has_one_order(wire, spec)) else { continue };
        list.push(spec.tensor.name.clone());
    }
    let order = "stay height \u{d7} width \u{d7} channels";
    let notes = [
        told(
            &columns,
            format!("layout: columns {order}: permute(0, 2, 3, 1) before the flattening: {}", listed(&columns)),
        ),
        told(&rows, format!("layout: rows {order}: permute(0, 3, 1, 2) behind the reshaping: {}", listed(&rows))),
        told(
            &unknown,
            format!(
                "layout: nothing says in which order {} reads channels and positions, which were channels last before",
                listed(&unknown)
            ),
        ),
    ];
    notes.into_iter().flatten().collect()
}

/// Notes on tensors that stay channels × height × width, though the convolutions around are turned to channels last:
/// the columns of inner products, unless `--fc-from` has permuted them, and values of the net's own.
pub(super) fn last(net: &Bound<'_>, wires: &[Wire<'_>], tensors: &[Spec<'_>], is_after_fc: bool) -> Vec<String> {
    let specs = by_name(tensors);
    let (mut columns, mut own) = (Vec::new(), BTreeSet::new());
    for wire in wires {
        let is_flattened = match wire.source {
            Source::Spatial { is_last, .. } => !is_last,
            Source::Input(_) => wire.has_positions,
            _ => false,
        };
        if wire.layer.kind == LayerKind::InnerProduct && is_flattened && !is_after_fc {
            let spec = net.tensor(wire.layer, Of::Weight).and_then(|name| specs.get(name));
            columns.extend(spec.filter(|spec| !has_one_order(wire, spec)).map(|spec| spec.tensor.name.clone()));
        }
        if wire.has_positions && !wire.source.is_last() {
            let names = wire.own.iter().filter_map(|value| specs.get(net.own_tensor(*value)?));
            own.extend(names.filter(|spec| spec.tensor.shape.count() > 1).map(|spec| spec.tensor.name.clone()));
        }
    }
    let (order, own) = ("channels \u{d7} height \u{d7} width", own.into_iter().collect::<Vec<_>>());
    let notes = [
        told(
            &columns,
            format!(
                "layout: columns stay {order}, and TensorFlow flattens channels last: --fc-from C,H,W: {}",
                listed(&columns)
            ),
        ),
        told(&own, format!("layout: values of the net's own stay as stored, {order}: {}", listed(&own))),
    ];
    notes.into_iter().flatten().collect()
}

fn by_name<'s, 'a>(tensors: &'s [Spec<'a>]) -> HashMap<&'s str, &'s Spec<'a>> {
    tensors.iter().map(|spec| (spec.entry.name(), spec)).collect()
}

fn told(names: &[String], words: String) -> Option<String> {
    (!names.is_empty()).then_some(words)
}

/// Whether an inner product reads one position alone, so that there is one order.
fn has_one_order(wire: &Wire<'_>, spec: &Spec<'_>) -> bool {
    let columns = spec.tensor.shape.dims().last().map(|columns| *columns as u64);
    match wire.source {
        Source::Spatial { channels, .. } => wire.size == Some([1, 1]) || channels.is_some() && channels == columns,
        _ => false,
    }
}

/// Whether a layer of Caffe's has factors or summands along some axes.
pub(super) fn is_along_axes(layer: &Layer) -> bool {
    matches!(layer.kind, LayerKind::Scale | LayerKind::Bias)
}

/// Turns the factors of a layer along several axes; `None` where the axes are not known as those of an image.
pub(super) fn factors(
    to: Layout,
    place: usize,
    spec: &Spec<'_>,
    layer: &Layer,
    reads: Option<&Wire<'_>>,
) -> Option<Made> {
    let is_image = reads.is_none_or(|wire| {
        matches!(wire.source, Source::Input(_) | Source::Spatial { flat: None, is_last: false, .. })
    });
    let dims = spec.tensor.shape.dims();
    if dims.len() < 2 {
        return Some(Made::same(place, spec));
    }
    let first = usize::try_from(if layer.axis < 0 { layer.axis + VALUES.len() as i64 } else { layer.axis }).ok()?;
    // Along one axis alone there is one order, as with the leading ones of older files.
    let has_one_order = dims.iter().filter(|dim| **dim != 1).count() < 2;
    let Some(own) = VALUES.get(first..first.checked_add(dims.len())?).filter(|_| is_image) else {
        return has_one_order.then(|| Made::same(place, spec));
    };
    let mut axes: Vec<usize> = (0..own.len()).collect();
    if to != Layout::Oihw {
        axes.sort_by_key(|axis| LAST.find(own[*axis]));
    }
    if axes.is_sorted() {
        return Some(Made::same(place, spec));
    }
    let (from, to): (String, String) = (own.iter().collect(), axes.iter().map(|axis| own[*axis]).collect());
    Some(permuted(place, spec, dims, &axes).with_change(format!("permuted from {from} to {to}")))
}
