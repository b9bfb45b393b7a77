//! The axes of an image that a layer merges or removes, by the layer's settings.
//!
//! Sources: `ReshapeLayer`, `ReductionLayer`, `FlattenLayer` of BVLC/caffe `9b891540`; `InferReshapeShape` and
//! `ReduceAxesParam` of apache/mxnet 1.9.1. Knows no values.

use blob_io::net::Layer;

/// Operators of MXNet's that reduce axes to one value each.
const REDUCING: [&str; 8] = ["mean", "sum", "sum_axis", "max", "min", "prod", "nansum", "norm"];

/// The axes that a reduction leaves of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The channels; `has_axes` where the positions stay as axes of one.
    Channels { has_axes: bool },
    /// At most the images.
    Nothing,
}

fn setting<'n>(layer: &'n Layer, key: &str) -> Option<&'n str> {
    layer.attributes().find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// Whole numbers in MXNet's or Caffe's notation: `(0, -1)`, `2`, `0,-1`. `None` for other texts.
fn numbers(text: &str) -> Option<Vec<i64>> {
    let inner = text.trim().trim_start_matches(['(', '[']).trim_end_matches([')', ']']);
    let parts = inner.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| part.trim_end_matches('L').parse().ok()).collect()
}

fn is_set(layer: &Layer, key: &str) -> bool {
    setting(layer, key).is_some_and(|value| matches!(value, "True" | "true" | "1"))
}

/// An axis of an image of four axes, counted from the first.
fn from_first(axis: i64) -> i64 {
    if axis < 0 { axis + 4 } else { axis }
}

/// The target of a reshape behind the axis of images; `None` unless that axis surely stays.
fn behind_images(layer: &Layer) -> Option<Vec<i64>> {
    let shape = setting(layer, "shape").or_else(|| setting(layer, "reshape_param.shape.dim"))?;
    let first = setting(layer, "reshape_param.axis").map_or(Some(0), |axis| axis.parse::<i64>().ok())?;
    let is_part = setting(layer, "reshape_param.num_axes").is_some_and(|count| count != "-1");
    let dims = numbers(shape).filter(|_| !is_part && !is_set(layer, "reverse"))?;
    match (first, &*dims) {
        // 0 takes the extent of the input.
        (0, [0, behind @ ..]) => Some(behind.to_vec()),
        (1, _) => Some(dims),
        _ => None,
    }
}

/// Whether a reshape surely makes one axis of all axes but that of the images.
pub(super) fn flattens(layer: &Layer) -> bool {
    behind_images(layer).is_some_and(|dims| match *dims {
        // Below -1 and 0 are codes of MXNet's; 0 takes the channels alone.
        [one] => one == -1 || one > 0,
        [one, ref ones @ ..] => one == -1 && ones.iter().all(|extent| *extent == 1),
        [] => false,
    })
}

/// Whether a reshape of one axis gives it no positions: all values become channels.
pub(super) fn keeps_one_position(layer: &Layer) -> bool {
    behind_images(layer).is_some_and(|dims| dims.iter().skip(1).all(|extent| *extent == 1))
}

/// Whether a reshape makes an image of several channels and positions, whatever the axis of images becomes.
pub(in crate::transform) fn makes_image(layer: &Layer) -> bool {
    let shape = setting(layer, "shape").or_else(|| setting(layer, "reshape_param.shape.dim"));
    let first = setting(layer, "reshape_param.axis").map_or(Some(0), |axis| axis.parse::<usize>().ok());
    let dims = shape.and_then(numbers).zip(first).filter(|(dims, first)| dims.len() + first == 4);
    dims.is_some_and(|(dims, first)| {
        let [channels, positions @ ..] = &dims[1 - first.min(1)..] else { return false };
        *channels != 1 && positions.iter().any(|side| *side != 1)
    })
}

/// Whether a flattening or an inner product takes all axes but that of the images.
pub(in crate::transform) fn is_whole(layer: &Layer) -> bool {
    let axis = setting(layer, "flatten_param.axis").map_or(Some(layer.axis), |axis| axis.parse().ok());
    let last = setting(layer, "flatten_param.end_axis").is_none_or(|axis| matches!(axis, "-1" | "3"));
    axis.is_some_and(|axis| from_first(axis) == 1) && last && layer.flatten
}

/// Whether an adaptive pooling of MXNet's gives one position.
pub(super) fn pools_all(layer: &Layer) -> bool {
    if layer.type_name != "_contrib_AdaptiveAvgPooling2D" {
        return false;
    }
    let size = setting(layer, "output_size").map_or(Some(Vec::new()), numbers);
    size.is_some_and(|all| all.iter().all(|side| *side == 1))
}

/// The axes that a reduction leaves; `None` for other layers, for a reduction that leaves positions, and for one
/// of MXNet's where values may have other axes than images (`is_planar`).
pub(super) fn left(layer: &Layer, is_last: bool, is_planar: bool) -> Option<Left> {
    if layer.type_name == "Reduction" {
        let axis = setting(layer, "reduction_param.axis").map_or(Some(0), |axis| axis.parse().ok()).map(from_first)?;
        return match axis {
            0 | 1 => Some(Left::Nothing),
            2 => Some(Left::Channels { has_axes: false }),
            _ => None,
        };
    }
    if !REDUCING.contains(&&*layer.type_name) || !is_planar {
        return None;
    }
    let given = setting(layer, "axis").filter(|axis| *axis != "None").map_or(Some(Vec::new()), numbers)?;
    let given: Vec<i64> = given.into_iter().map(from_first).collect();
    let is_gone = |axis: &i64| (given.is_empty() || given.contains(axis)) != is_set(layer, "exclude");
    let positions = if is_last { [1, 2] } else { [2, 3] };
    match (positions.iter().all(is_gone), is_gone(if is_last { &3 } else { &1 })) {
        (true, true) => Some(Left::Nothing),
        (true, false) => Some(Left::Channels { has_axes: is_set(layer, "keepdims") }),
        _ => None,
    }
}
