//! The tensors of a net whose values lie in the order of channels and positions that were flattened: weights, factors
//! and summands behind a flattening.
//!
//! The one place that says which tensors a change of that order concerns; `fc-from` permutes them, `layout` tells of
//! them. Relies on `wires` for the values that a layer reads. Reads no values.

use std::collections::{HashMap, HashSet};

use blob_io::net::{Layer, LayerKind, Role};

use super::binding::{Bound, is_spatial};
use super::step::Spec;
use super::topology::{Feed, Wire, axes, is_per_channel};

/// The operators of MXNet's that multiply by a matrix among their inputs, under the names in symbols and the short
/// ones.
const MATRICES: [&str; 7] =
    ["dot", "batch_dot", "linalg_gemm", "linalg_gemm2", "_linalg_gemm", "_linalg_gemm2", "_npi_matmul"];
/// The types of recurrent layers, whose weights are by the values of the input.
const RECURRENT: [&str; 1] = ["RNN"];

/// The order of channels and positions in which a tensor's values lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Channels × height × width.
    First,
    /// Height × width × channels.
    Last,
    /// Not known: an operator before may have changed the order.
    Unknown,
}

/// A tensor in the order of a flattening.
#[derive(Debug)]
pub(super) struct Ordered<'s> {
    pub(super) spec: &'s Spec<'s>,
    pub(super) order: Order,
    /// Whether an operator before reads values with the channels last.
    pub(super) is_last: bool,
    /// Whether the tensor is the weight of an inner product.
    pub(super) is_product: bool,
}

/// The parts of a net that depend on the order of a flattening.
#[derive(Debug, Default)]
pub(super) struct Dependents<'s, 'n> {
    /// Each tensor once.
    pub(super) tensors: Vec<Ordered<'s>>,
    /// Inner products whose weights are computed.
    pub(super) computed: Vec<&'n Layer>,
}

/// The tensors in the order of a flattening. `specs` has the tensors by their names in the file.
pub(super) fn ordered<'s, 'n>(
    net: &Bound<'n>,
    wires: &[Wire<'n>],
    specs: &HashMap<&str, &'s Spec<'s>>,
) -> Dependents<'s, 'n> {
    let (mut found, mut seen) = (Dependents::default(), HashSet::new());
    let images = images(net, wires, specs);
    let spec = |name: &str| specs.get(name).copied();
    // With one position, there is one order.
    for wire in wires.iter().filter(|wire| wire.size != Some([1, 1])) {
        let layer = wire.layer;
        let is_product = layer.kind == LayerKind::InnerProduct;
        let of_roles = |roles: &[Role]| {
            let names = roles.iter().filter_map(|role| net.tensor(layer, *role));
            names.filter_map(spec).collect::<Vec<_>>()
        };
        let tensors = if is_product {
            of_roles(&[Role::Weight])
        } else if layer.kind == LayerKind::Lstm || RECURRENT.contains(&&*layer.type_name) {
            of_roles(&[Role::Weight, Role::Static, Role::Other])
        } else if is_spatial(layer) && wire.source.flat().is_some() {
            of_roles(&[Role::Weight])
        } else if is_per_channel(layer) && wire.source.flat().is_some() {
            of_roles(&[Role::Weight, Role::Bias, Role::Mean, Role::Variance])
        } else if !wire.flats.is_empty() || MATRICES.contains(&&*layer.type_name) && !wire.source.is_last() {
            let own = wire.own.iter().filter_map(|value| spec(net.own_tensor(*value)?));
            own.chain(of_roles(&[Role::Weight, Role::Bias, Role::Other])).collect()
        } else {
            continue;
        };
        if is_product && is_computed(layer) && order(wire, None, &images).is_some_and(|order| order != Order::Last) {
            found.computed.push(layer);
        }
        for spec in tensors.into_iter().filter(|spec| spec.tensor.shape.count() > 1) {
            let Some(order) = order(wire, inputs(layer, spec), &images) else { continue };
            if seen.insert(spec.entry.name()) {
                found.tensors.push(Ordered { spec, order, is_last: wire.source.is_last(), is_product });
            }
        }
    }
    found
}

/// The order of the values that a layer reads; `None` where there is one order alone. `inputs` is the number of values,
/// where the layer's tensor tells.
fn order(wire: &Wire<'_>, inputs: Option<usize>, images: &HashSet<usize>) -> Option<Order> {
    let layer = wire.layer;
    // An inner product along one axis flattens nothing.
    if layer.kind == LayerKind::InnerProduct && !axes::is_whole(layer) && !wire.source.is_flat() {
        return None;
    }
    let is_image = |value: usize| wire.has_positions || images.contains(&value);
    match wire.source {
        Feed::Spatial { channels: Some(1), .. } => None,
        Feed::Spatial { channels: Some(channels), .. } if inputs.is_some_and(|n| n as u64 == channels) => None,
        Feed::Spatial { is_last: true, .. } => Some(Order::Last),
        Feed::Spatial { .. } => Some(Order::First),
        Feed::Input(value) => is_image(value).then_some(Order::First),
        Feed::Vector(_) | Feed::Reshaped(_) | Feed::Own(_) => None,
        // Of several inputs, one is flattened.
        Feed::Mixed { layer: mixed, is_last, .. } if !wire.flats.is_empty() && std::ptr::eq(mixed, layer) => {
            Some(if is_last { Order::Last } else { Order::First })
        }
        Feed::Mixed { has_positions, input, .. } => {
            (has_positions || input.is_some_and(is_image)).then_some(Order::Unknown)
        }
    }
}

/// The number of inputs of a layer by a tensor: the columns of a matrix, the channels of a kernel, the values of a
/// vector.
fn inputs(layer: &Layer, spec: &Spec<'_>) -> Option<usize> {
    let dims = spec.tensor.shape.dims();
    let matrix = dims.strip_prefix(&[1, 1]).unwrap_or(dims);
    match (layer.kind, matrix) {
        (LayerKind::InnerProduct, [rows, columns]) => Some(if layer.transpose { *rows } else { *columns }),
        (LayerKind::Convolution, [_, channels, ..]) => channels.checked_mul(usize::try_from(layer.group).ok()?),
        (LayerKind::Deconvolution, [channels, ..]) => Some(*channels),
        _ if is_per_channel(layer) => Some(spec.tensor.shape.count()),
        _ => None,
    }
}

/// The inputs of the net that a convolution of several channels reads.
fn images(net: &Bound<'_>, wires: &[Wire<'_>], specs: &HashMap<&str, &Spec<'_>>) -> HashSet<usize> {
    let of_several = wires.iter().filter(|wire| has_windows(wire.layer)).filter(|wire| {
        let weight = net.tensor(wire.layer, Role::Weight).and_then(|weight| specs.get(weight));
        weight.is_none_or(|spec| spec.tensor.shape.dims().get(1) != Some(&1))
    });
    of_several.filter_map(|wire| wire.source.input()).collect()
}

/// Whether a layer's windows move over the positions of an image.
fn has_windows(layer: &Layer) -> bool {
    is_spatial(layer) || layer.type_name == "Pooling"
}

/// Whether an inner product computes its weights of other values.
pub(super) fn is_computed(layer: &Layer) -> bool {
    layer.tensor(Role::Weight).is_none() && layer.bottoms.len() > 1
}

/// The reshapes that make images of flattened values, or of the channels of one position.
pub(super) fn images_made<'w, 'n>(wires: &'w [Wire<'n>]) -> impl Iterator<Item = &'w Wire<'n>> {
    let is_channels_last = wires.iter().any(|wire| wire.layer.channels_last);
    let reshapes = wires.iter().filter(move |wire| !is_channels_last && axes::makes_image(wire.layer));
    // Of values with one axis, or with axes of which one position is left.
    reshapes.filter(|wire| match wire.source {
        Feed::Vector(_) => true,
        Feed::Spatial { flat, .. } => flat.is_some() || wire.size == Some([1, 1]),
        _ => false,
    })
}

/// The rows of inner products that become channels × height × width for a layer: the name of the weight, and the layer.
pub(super) fn rows<'s, 'n>(
    net: &Bound<'n>,
    wires: &[Wire<'n>],
    specs: &HashMap<&str, &'s Spec<'s>>,
) -> Vec<(&'s Spec<'s>, &'n Layer)> {
    let reading = wires.iter().filter(|wire| has_windows(wire.layer) && !wire.layer.channels_last);
    let rows = reading.filter_map(|wire| match wire.source {
        Feed::Reshaped(product) => Some((specs.get(net.tensor(product, Role::Weight)?).copied()?, wire.layer)),
        _ => None,
    });
    rows.collect()
}
