//! Layers with several inputs or outputs: side by side, cut apart, combined value by value.

use crate::forms::{self, with};
use crate::operand::{Operand, canonical, shown};
use crate::site::Site;
use crate::unsupported::Refusal;
use crate::window::same_shape;

/// The axis, by its name or by the old name, of which one may be stated.
fn axis(site: &Site<'_>, old: &str) -> Result<usize, Refusal> {
    let x = site.x();
    match (site.is_stated("axis"), site.is_stated(old)) {
        (true, true) => site.refuse(old, "beside axis"),
        (false, true) => canonical(site.int(old)?, &x.shape),
        _ => canonical(site.int("axis")?, &x.shape),
    }
}

pub(super) fn concat(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let axis = axis(site, "concat_dim")?;
    let inputs = site.inputs;
    Ok(vec![forms::concat(site, inputs, axis)?])
}

pub(super) fn slice(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, axis) = (site.x(), axis(site, "slice_dim")?);
    let (parts, extent) = (site.node.outputs.len(), x.shape[axis]);
    let points = site.ints("slice_point")?;
    let mut sizes = Vec::new();
    if points.is_empty() {
        if !extent.is_multiple_of(parts as u64) {
            return Err(Refusal::shape(format!("{parts} equal parts of {extent}")));
        }
        sizes = vec![extent / parts as u64; parts];
    } else {
        let mut start = 0;
        for point in points.iter().copied().chain([extent as i64]) {
            let size = u64::try_from(point - start).ok().filter(|size| *size > 0);
            sizes.push(size.ok_or_else(|| Refusal::shape(format!("a cut at {point} of {extent}")))?);
            start = point;
        }
    }
    if sizes.len() != parts {
        return Err(Refusal::shape(format!("{} cuts for {parts} outputs", points.len())));
    }
    forms::split(site, &x, axis, &sizes)
}

/// The input under several names.
pub(super) fn split(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    Ok(vec![site.x(); site.node.outputs.len()])
}

pub(super) fn eltwise(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    same_shape(site.inputs)?;
    let operation = site.choice("operation", 0, &["PROD", "SUM", "MAX"])?;
    let factors = site.floats("coeff")?;
    if !factors.is_empty() && (operation != 1 || factors.len() != site.inputs.len()) {
        return site.refuse("coeff", "does not fit the inputs or the operation");
    }
    let mut inputs = site.inputs.to_vec();
    for (input, factor) in inputs.iter_mut().zip(factors) {
        *input = with(site, "Mul", input.clone(), factor, 1.0)?;
    }
    if operation == 1 {
        return Ok(vec![forms::sum(site, &inputs)?]);
    }
    let [first, rest @ ..] = &inputs[..] else { return Err(Refusal::shape("no input")) };
    if operation == 2 && !rest.is_empty() {
        let inputs: Vec<&Operand> = inputs.iter().collect();
        return Ok(vec![site.op("Max", &inputs, vec![], first.shape.clone())?]);
    }
    let mut product = first.clone();
    for other in rest {
        product = site.op("Mul", &[&product, other], vec![], first.shape.clone())?;
    }
    Ok(vec![product])
}

/// a · x + y, with a factor for each channel of each image.
pub(super) fn axpy(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let [a, x, y] = [0, 1, 2].map(|place| site.inputs[place].clone());
    same_shape(&site.inputs[1..])?;
    let fits = x.shape.len() == 4
        && a.shape.iter().copied().eq([&x.shape[..2], &vec![1; a.shape.len().saturating_sub(2)]].concat());
    if !fits || a.shape.len() > 4 {
        return Err(Refusal::shape(format!("factors of {} for {}", shown(&a.shape), shown(&x.shape))));
    }
    let a = site.reshape(&a, &[x.shape[0], x.shape[1], 1, 1])?;
    let product = site.op("Mul", &[&x, &a], vec![], x.shape.clone())?;
    Ok(vec![site.op("Add", &[&product, &y], vec![], x.shape)?])
}
