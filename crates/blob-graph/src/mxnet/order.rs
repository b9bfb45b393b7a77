//! Operators that rank values, take values from computed places, or count: `topk`, `gather_nd`, `_arange`.

use blob_core::DType;
use blob_io::onnx::Attribute;

use crate::forms::{FLOAT, INT64, indices, transposed, unary};
use crate::operand::{Operand, canonical, count, shown};
use crate::site::Site;
use crate::unsupported::Refusal;

/// Places are numbers in f32, which holds every whole number up to this one.
const MAX_PLACE: u64 = 1 << 24;

/// The most numbers that `_arange` counts.
const MAX_COUNTED: u64 = 1 << 22;

/// Whether numbers are integers; refuses types that round places or cut them.
fn are_whole(site: &Site<'_>) -> Result<bool, Refusal> {
    match site.text("dtype") {
        "float32" | "float64" => Ok(false),
        "int32" | "int64" => Ok(true),
        _ => site.refuse("dtype", "is not supported"),
    }
}

/// Places as numbers of the type that is stated.
fn numbers(site: &mut Site<'_>, places: &Operand) -> Result<Operand, Refusal> {
    let is_whole = are_whole(site)?;
    let numbers = unary(site, "Cast", places, vec![("to", Attribute::Int(FLOAT))])?;
    Ok(Operand { is_whole, ..numbers })
}

/// The first values along an axis in order, and their places.
fn ranked(site: &mut Site<'_>, kept: Option<u64>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    if site.is_none("axis") {
        return site.refuse("axis", "ranks all values");
    }
    let axis = canonical(site.int("axis")?, &x.shape)?;
    let kept = kept.unwrap_or(x.shape[axis]);
    if kept > x.shape[axis] || x.shape[axis] > MAX_PLACE {
        return Err(Refusal::shape(format!("the first {kept} along axis {axis} of {}", shown(&x.shape))));
    }
    let mut shape = x.shape.clone();
    shape[axis] = kept;
    let largest = Attribute::Int(i64::from(!site.flag("is_ascend")?));
    let limit = site.ints_of(&[kept as i64])?;
    let attributes = vec![("axis", Attribute::Int(axis as i64)), ("largest", largest)];
    site.ops("TopK", &[&x, &limit], attributes, vec![(DType::F32, shape.clone()), (DType::I64, shape)])
}

/// The largest or smallest values along an axis, their places, or both. No `k` above 0 ranks the whole axis.
pub(super) fn top_k(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let kept = u64::try_from(site.int("k")?).ok().filter(|kept| *kept > 0);
    let kind = site.choice("ret_typ", 0, &["value", "indices", "mask", "both"])?;
    if kind == 2 {
        return site.refuse("ret_typ", "is not supported");
    }
    let mut made = ranked(site, kept)?;
    if kind > 0 {
        made[1] = numbers(site, &made[1])?;
    }
    Ok(match kind {
        0 => made.drain(..1).collect(),
        1 => made.drain(1..).collect(),
        _ => made,
    })
}

/// The places along an axis in the order of their values.
pub(super) fn arg_sort(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let made = ranked(site, None)?;
    Ok(vec![numbers(site, &made[1])?])
}

/// The values at places that the second input names: along the first axis stands a place for each axis of the first.
pub(super) fn gather_nd(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let [x, places] = [0, 1].map(|place| site.inputs[place].clone());
    let depth = places.shape.first().map_or(0, |depth| *depth as usize);
    if !(1..=x.shape.len()).contains(&depth) || places.shape.len() < 2 {
        return Err(Refusal::shape(format!("{} at places of {}", shown(&x.shape), shown(&places.shape))));
    }
    // ONNX has the places of one value along the last axis.
    let order: Vec<usize> = (1..places.shape.len()).chain([0]).collect();
    let places = transposed(site, &places, &order)?;
    let places = indices(site, "Cast", &[&places], vec![("to", Attribute::Int(INT64))], places.shape.clone())?;
    let shape = [&places.shape[..places.shape.len() - 1], &x.shape[depth..]].concat();
    let result = site.op("GatherND", &[&x, &places], vec![], shape)?;
    Ok(vec![Operand { is_whole: x.is_whole, ..result }])
}

/// The values along some axes from the last to the first.
pub(super) fn reverse(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (mut x, axes) = (site.x(), site.ints("axis")?);
    for axis in axes {
        let axis = canonical(axis, &x.shape)?;
        site.body.room(8 * x.shape[axis])?;
        let places: Vec<i64> = (0..x.shape[axis] as i64).rev().collect();
        let places = site.ints_of(&places)?;
        x = site.op("Gather", &[&x, &places], vec![("axis", Attribute::Int(axis as i64))], x.shape.clone())?;
    }
    Ok(vec![x])
}

/// The extents of the input as numbers.
pub(super) fn shape_array(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let shape = site.x().shape;
    if shape.iter().any(|extent| *extent > MAX_PLACE) {
        return Err(Refusal::shape(format!("{} as numbers in f32", shown(&shape))));
    }
    let extents: Vec<f32> = shape.iter().map(|extent| *extent as f32).collect();
    let extents = site.floats_of(&extents, &[extents.len() as u64])?;
    Ok(vec![Operand { is_whole: true, ..extents }])
}

/// Numbers at equal steps from a start to before a stop. A single number is the stop, as in Python.
pub(super) fn arange(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let is_whole = are_whole(site)?;
    let (mut start, step, repeats) = (site.float("start")?, site.float("step")?, site.size("repeat")?);
    if site.flag("infer_range")? {
        return site.refuse("infer_range", "takes the extent from a reader");
    }
    let stop = if site.is_none("stop") { std::mem::replace(&mut start, 0.0) } else { site.float("stop")? };
    let steps = ((f64::from(stop) - f64::from(start)) / f64::from(step)).ceil();
    if !(1.0..=MAX_COUNTED as f64).contains(&steps) {
        return site.refuse("step", format!("from {start} to {stop}"));
    }
    if is_whole && [start, stop, step].iter().any(|number| number.fract() != 0.0) {
        return site.refuse("dtype", "cuts off the start or the step");
    }
    let total = count(&[steps as u64, repeats])?;
    if total > MAX_COUNTED {
        return site.refuse("repeat", format!("gives {total} numbers, where {MAX_COUNTED} are supported"));
    }
    let numbers: Vec<f32> = (0..total).map(|place| start + (place / repeats) as f32 * step).collect();
    let numbers = site.floats_of(&numbers, &[total])?;
    Ok(vec![Operand { is_whole, ..numbers }])
}
