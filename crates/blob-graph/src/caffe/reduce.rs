//! Layers that make one value of many.

use blob_core::DType;
use blob_io::onnx::Attribute;

use crate::forms::{FLOAT, reduced, with};
use crate::operand::{Operand, canonical, count};
use crate::site::Site;
use crate::unsupported::Refusal;

/// All axes from one on become one value.
pub(super) fn reduction(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, factor) = (site.x(), site.float("coeff")?);
    let axis = canonical(site.int("axis")?, &x.shape)?;
    let operation = site.choice("operation", 1, &["SUM", "ASUM", "SUMSQ", "MEAN"])?;
    let axes: Vec<usize> = (axis..x.shape.len()).collect();
    let op_type = ["ReduceSum", "ReduceL1", "ReduceSumSquare", "ReduceMean"][operation];
    let reduced = reduced(site, op_type, &x, &axes, false)?;
    Ok(vec![with(site, "Mul", reduced, factor, 1.0)?])
}

/// The places of the largest values, as numbers, or the values. Of equal values Caffe takes the last place.
pub(super) fn arg_max(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, most, with_values) = (site.x(), site.size("top_k")?, site.flag("out_max_val")?);
    if !site.is_stated("axis") {
        site.rank(&x, 1..=8)?;
        let (images, places) = (x.shape[0], count(&x.shape[1..])?);
        let flat = site.reshape(&x, &[images, 1, places])?;
        let Largest { indices, values } = largest(site, &flat, 2, most, with_values)?;
        let found = if with_values {
            let shape = vec![images, 2, most];
            site.op("Concat", &[&indices, &values], vec![("axis", Attribute::Int(1))], shape)?
        } else {
            indices
        };
        // Caffe keeps the number of axes, of which there are 3 at least.
        let rest = vec![1; x.shape.len().saturating_sub(3)];
        return Ok(vec![site.reshape(&found, &[&found.shape[..], &rest].concat())?]);
    }
    let axis = canonical(site.int("axis")?, &x.shape)?;
    let Largest { indices, values } = largest(site, &x, axis, most, with_values)?;
    Ok(vec![if with_values { values } else { indices }])
}

/// The largest values along an axis, and their places as numbers.
struct Largest {
    indices: Operand,
    values: Operand,
}

fn largest(site: &mut Site<'_>, x: &Operand, axis: usize, most: u64, with_values: bool) -> Result<Largest, Refusal> {
    let mut shape = x.shape.clone();
    if most > shape[axis] {
        return site.refuse("top_k", format!("of {}", shape[axis]));
    }
    shape[axis] = most;
    let axis = ("axis", Attribute::Int(axis as i64));
    let (values, places) = if most == 1 && !with_values {
        let attributes = vec![axis, ("keepdims", Attribute::Int(1)), ("select_last_index", Attribute::Int(1))];
        let places = site.ops("ArgMax", &[x], attributes, vec![(DType::I64, shape.clone())])?;
        (x.clone(), places[0].clone())
    } else {
        let most = site.ints_of(&[most as i64])?;
        let outputs = vec![(DType::F32, shape.clone()), (DType::I64, shape.clone())];
        let found = site.ops("TopK", &[x, &most], vec![axis], outputs)?;
        (found[0].clone(), found[1].clone())
    };
    let indices = site.op("Cast", &[&places], vec![("to", Attribute::Int(FLOAT))], shape)?;
    Ok(Largest { indices, values })
}
