//! The parts of a net that a layout cannot turn: matrices behind values whose order the convolutions no longer make,
//! factors along several axes, and values of the net's own.
//!
//! Relies on `wires` for the values that a layer reads. Reads no values.

use std::collections::{BTreeSet, HashMap, HashSet};

use blob_io::net::{Layer, LayerKind, Role};

use super::Layout;
use crate::change::listed;
use crate::transform::binding::{Bound, is_spatial};
use crate::transform::order::{self, Dependents, Order, Ordered};
use crate::transform::reorder::permuted;
use crate::transform::step::{Made, Spec};
use crate::transform::topology::{Feed, Wire};

/// The axes of Caffe's values, in order.
const VALUES: [char; 4] = ['n', 'c', 'h', 'w'];
/// The axes of the same values with the channels last.
const LAST: &str = "nhwc";

/// Notes on tensors that no longer fit the order of the values that they meet.
#[derive(Debug, Default)]
struct Notes(Vec<String>);

impl Notes {
    /// Adds a note about these tensors, if there are any.
    fn add(&mut self, names: &[String], words: impl FnOnce(&str) -> String) {
        if !names.is_empty() {
            self.0.push(words(&listed(names)));
        }
    }
}

/// Notes on the inner products whose columns or rows stay height × width × channels, though the convolutions around are
/// turned to channels × height × width.
pub(super) fn first(net: &Bound<'_>, wires: &[Wire<'_>], tensors: &[Spec<'_>]) -> Vec<String> {
    let specs = by_name(tensors);
    let (mut columns, mut rows, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for Ordered { spec, order, is_last, .. } in order::ordered(net, wires, &specs).tensors {
        match order {
            Order::Last => columns.push(spec.tensor.name.clone()),
            Order::Unknown if is_last => unknown.push(spec.tensor.name.clone()),
            Order::Unknown | Order::First => {}
        }
    }
    for wire in wires.iter().filter(|wire| wire.layer.channels_last) {
        let Feed::Reshaped(product) = wire.source else { continue };
        let spec = net.tensor(product, Role::Weight).and_then(|name| specs.get(name));
        rows.extend(spec.map(|spec| spec.tensor.name.clone()));
    }
    let (mut notes, order) = (Notes::default(), "stay height \u{d7} width \u{d7} channels");
    notes.add(&columns, |names| format!("layout: columns {order}: permute(0, 2, 3, 1) before the flattening: {names}"));
    notes.add(&rows, |names| format!("layout: rows {order}: permute(0, 3, 1, 2) behind the reshaping: {names}"));
    notes.add(&unknown, |names| {
        format!(
            "layout: nothing says in which order {names} reads channels and positions, which were channels last before"
        )
    });
    notes.0
}

/// Notes on tensors that stay channels × height × width, though the convolutions around are turned to channels last:
/// the values behind a flattening, unless `--fc-from` has permuted or told them, and values of the net's own.
pub(super) fn last(
    to: Layout,
    net: &Bound<'_>,
    wires: &[Wire<'_>],
    tensors: &[Spec<'_>],
    is_after_fc: bool,
) -> Vec<String> {
    let specs = by_name(tensors);
    let (mut columns, mut others, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    let Dependents { tensors, computed } = order::ordered(net, wires, &specs);
    let told: HashSet<&str> = tensors.iter().map(|ordered| ordered.spec.entry.name()).collect();
    for Ordered { spec, order, is_product, .. } in &tensors {
        let list = match order {
            Order::First if *is_product => &mut columns,
            Order::First => &mut others,
            Order::Unknown => &mut unknown,
            Order::Last => continue,
        };
        list.push(spec.tensor.name.clone());
    }
    let mut own = BTreeSet::new();
    let beside = wires.iter().filter(|wire| wire.has_positions && !wire.source.is_last());
    // Behind a flattening of one position, channels alone are left.
    for wire in beside.filter(|wire| wire.size != Some([1, 1]) || !wire.source.is_flat()) {
        let names = wire.own.iter().filter_map(|value| specs.get(net.own_tensor(*value)?));
        let left = names.filter(|spec| spec.tensor.shape.count() > 1 && !told.contains(spec.entry.name()));
        own.extend(left.map(|spec| spec.tensor.name.clone()));
    }
    let (mut notes, order) = (Notes::default(), "channels \u{d7} height \u{d7} width");
    if !is_after_fc {
        let computed: Vec<String> = computed.iter().map(|layer| layer.name.clone()).collect();
        notes.add(&columns, |names| {
            format!("layout: columns stay {order}, and TensorFlow flattens channels last: --fc-from C,H,W: {names}")
        });
        notes.add(&others, |names| {
            format!("layout: values behind a flattening stay {order}, and TensorFlow's has the channels last: {names}")
        });
        notes.add(&computed, |names| format!("layout: computed weights stay {order} behind a flattening: of {names}"));
        notes.add(&unknown, |names| {
            format!("layout: nothing says in which order {names} reads channels and positions, which are last now")
        });
    }
    let (mut rows, mut images) = (Vec::new(), Vec::new());
    for wire in order::images_made(wires) {
        let product = if let Feed::Vector(product) = wire.source { net.tensor(product, Role::Weight) } else { None };
        match product.and_then(|name| specs.get(name)) {
            Some(spec) => rows.push(spec.tensor.name.clone()),
            None => images.push(wire.layer.name.clone()),
        }
    }
    notes.add(&rows, |names| {
        format!("layout: rows stay {order}, and TensorFlow's reshape has the channels last: {names}")
    });
    notes.add(&images, |names| {
        format!("layout: values become {order}, and TensorFlow's reshape has the channels last: by {names}")
    });
    let left = wires.iter().map(|wire| wire.layer).filter(|layer| {
        let is_turned = is_spatial(layer) || layer.kind == LayerKind::InnerProduct && to == Layout::Hwio;
        is_turned && order::is_computed(layer)
    });
    let left: Vec<String> = left.map(|layer| layer.name.clone()).collect();
    notes.add(&left, |names| format!("layout: weights that are computed have the axes of before: of {names}"));
    let own: Vec<String> = own.into_iter().collect();
    notes.add(&own, |names| format!("layout: values of the net's own stay as stored, {order}: {names}"));
    notes.0
}

fn by_name<'s>(tensors: &'s [Spec<'s>]) -> HashMap<&'s str, &'s Spec<'s>> {
    tensors.iter().map(|spec| (spec.entry.name(), spec)).collect()
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
    let is_image = reads
        .is_none_or(|wire| matches!(wire.source, Feed::Input(_) | Feed::Spatial { flat: None, is_last: false, .. }));
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
