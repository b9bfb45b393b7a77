//! Layers that work value by value, and the softmax: the output has the input's shape.

use blob_io::onnx::Attribute;

use crate::forms::{self, clipped, compared, with};
use crate::operand::{Operand, canonical};
use crate::site::Site;
use crate::unsupported::Refusal;

/// One node with one input.
fn unary(site: &mut Site<'_>, op_type: &str, attributes: Vec<(&str, Attribute)>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    Ok(vec![forms::unary(site, op_type, &x, attributes)?])
}

/// The input itself.
pub(super) fn pass(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    Ok(vec![site.x()])
}

/// The input itself; where training did not scale up what it kept, inference scales down.
pub(super) fn dropout(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    if site.flag("scale_train")? {
        return pass(site);
    }
    let kept = 1.0 - site.float("dropout_ratio")?;
    Ok(vec![with(site, "Mul", site.x(), kept, 1.0)?])
}

pub(super) fn relu(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let slope = site.float("negative_slope")?;
    if slope == 0.0 {
        unary(site, "Relu", vec![])
    } else {
        unary(site, "LeakyRelu", vec![("alpha", Attribute::Float(slope))])
    }
}

pub(super) fn relu6(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    Ok(vec![clipped(site, &x, 0.0, 6.0)?])
}

pub(super) fn clip(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, least, most) = (site.x(), site.float("min")?, site.float("max")?);
    Ok(vec![clipped(site, &x, least, most)?])
}

pub(super) fn prelu(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, is_shared) = (site.x(), site.flag("channel_shared")?);
    Ok(vec![forms::prelu(site, &x, is_shared)?])
}

pub(super) fn elu(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let alpha = site.float("alpha")?;
    unary(site, "Elu", vec![("alpha", Attribute::Float(alpha))])
}

pub(super) fn sigmoid(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    unary(site, "Sigmoid", vec![])
}

pub(super) fn tanh(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    unary(site, "Tanh", vec![])
}

pub(super) fn abs(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    unary(site, "Abs", vec![])
}

/// log(1 + exp(x)).
pub(super) fn bnll(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    unary(site, "Softplus", vec![])
}

/// x · sigmoid(βx).
pub(super) fn swish(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, beta) = (site.x(), site.float("beta")?);
    let scaled = with(site, "Mul", x.clone(), beta, 1.0)?;
    let gate = site.op("Sigmoid", &[&scaled], vec![], x.shape.clone())?;
    Ok(vec![site.op("Mul", &[&x, &gate], vec![], x.shape.clone())?])
}

/// The logarithm of the base; a base of −1 is e.
fn log_base(site: &Site<'_>) -> Result<f64, Refusal> {
    match site.float("base")? {
        -1.0 => Ok(1.0),
        base if base > 0.0 => Ok(f64::from(base).ln()),
        _ => site.refuse("base", "is no base"),
    }
}

/// base^(shift + scale · x), as Caffe computes it: exp(scale · ln base · x) · base^shift.
pub(super) fn exp(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (log, x) = (log_base(site)?, site.x());
    let (scale, shift) = (f64::from(site.float("scale")?), f64::from(site.float("shift")?));
    let scaled = with(site, "Mul", x, (scale * log) as f32, 1.0)?;
    let shape = scaled.shape.clone();
    let power = site.op("Exp", &[&scaled], vec![], shape)?;
    Ok(vec![with(site, "Mul", power, (shift * log).exp() as f32, 1.0)?])
}

/// The logarithm of shift + scale · x.
pub(super) fn log(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (log, x) = (log_base(site)?, site.x());
    if log == 0.0 {
        return site.refuse("base", "has no logarithm");
    }
    let (scale, shift) = (site.float("scale")?, site.float("shift")?);
    let scaled = with(site, "Mul", x, scale, 1.0)?;
    let shifted = with(site, "Add", scaled, shift, 0.0)?;
    let shape = shifted.shape.clone();
    let natural = site.op("Log", &[&shifted], vec![], shape)?;
    Ok(vec![with(site, "Mul", natural, (1.0 / log) as f32, 1.0)?])
}

/// (shift + scale · x)^power.
pub(super) fn power(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, power) = (site.x(), site.float("power")?);
    let (scale, shift) = (site.float("scale")?, site.float("shift")?);
    let scaled = with(site, "Mul", x, scale, 1.0)?;
    let shifted = with(site, "Add", scaled, shift, 0.0)?;
    Ok(vec![with(site, "Pow", shifted, power, 1.0)?])
}

/// 1 where a value is larger, else 0.
pub(super) fn threshold(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, bound) = (site.x(), site.float("threshold")?);
    let bound = site.scalar(bound)?;
    Ok(vec![compared(site, "Greater", &x, &bound)?])
}

pub(super) fn softmax(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    along(site, "Softmax")
}

pub(super) fn log_softmax(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    along(site, "LogSoftmax")
}

fn along(site: &mut Site<'_>, op_type: &str) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let axis = canonical(site.int("axis")?, &x.shape)?;
    Ok(vec![forms::along(site, op_type, &x, axis)?])
}
