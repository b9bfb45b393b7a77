//! Operators that make one value of many.

use blob_core::DType;
use blob_io::onnx::Attribute;

use crate::forms::{FLOAT, reduced, unary};
use crate::operand::{Operand, canonical};
use crate::site::Site;
use crate::unsupported::Refusal;

/// The axes that are named, or with `exclude` all others; all where none is named.
fn axes(site: &Site<'_>, x: &Operand) -> Result<Vec<usize>, Refusal> {
    let named: Vec<i64> = if site.is_none("axis") { Vec::new() } else { site.ints("axis")? };
    let named: Vec<usize> = named.iter().map(|axis| canonical(*axis, &x.shape)).collect::<Result<_, _>>()?;
    if named.is_empty() {
        return Ok((0..x.shape.len()).collect());
    }
    let excludes = !site.is_none("exclude") && site.flag("exclude")?;
    Ok((0..x.shape.len()).filter(|axis| named.contains(axis) != excludes).collect())
}

pub(super) fn reduce(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, keeps) = (site.x(), site.flag("keepdims")?);
    let axes = axes(site, &x)?;
    let op_type = match site.node.type_name.trim_end_matches("_axis") {
        "sum" => "ReduceSum",
        "mean" => "ReduceMean",
        "max" => "ReduceMax",
        "min" => "ReduceMin",
        "prod" => "ReduceProd",
        _ => match site.int("ord")? {
            1 => "ReduceL1",
            2 => "ReduceL2",
            _ => return site.refuse("ord", "is neither 1 nor 2"),
        },
    };
    if axes.is_empty() {
        return Ok(vec![x]);
    }
    let is_whole = axes.len() == x.shape.len() && !keeps;
    let made = reduced(site, op_type, &x, &axes, keeps || is_whole)?;
    // MXNet has no scalars: one axis of 1 is left.
    Ok(vec![if is_whole { site.reshape(&made, &[1])? } else { made }])
}

/// The place of the largest value along an axis, as a number; of equal ones the first.
pub(super) fn arg_max(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, keeps) = (site.x(), site.flag("keepdims")?);
    if site.is_none("axis") {
        return site.refuse("axis", "must be stated");
    }
    let axis = canonical(site.int("axis")?, &x.shape)?;
    let mut shape = x.shape.clone();
    if keeps || shape.len() == 1 {
        shape[axis] = 1;
    } else {
        shape.remove(axis);
    }
    let attributes = vec![
        ("axis", Attribute::Int(axis as i64)),
        ("keepdims", Attribute::Int(i64::from(shape.len() == x.shape.len()))),
    ];
    let places = site.ops("ArgMax", &[&x], attributes, vec![(DType::I64, shape)])?;
    Ok(vec![unary(site, "Cast", &places[0], vec![("to", Attribute::Int(FLOAT))])?])
}
