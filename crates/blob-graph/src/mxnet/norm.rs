//! Normalisations: by stored statistics, or by the input itself.

use blob_io::onnx::Attribute;

use crate::forms::{self, transposed, unary, with};
use crate::need::Make;
use crate::operand::{Operand, canonical};
use crate::site::Site;
use crate::unsupported::Refusal;

/// By the stored mean and variance; a gamma that is fixed counts as 1.
pub(super) fn batch_norm(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 2..=8)?;
    let axis = canonical(site.int("axis")?, &x.shape)?;
    if axis == 0 {
        return site.refuse("axis", "is the batch");
    }
    // ONNX has the channels behind the batch.
    let order: Vec<usize> = [0, axis].into_iter().chain((1..x.shape.len()).filter(|other| *other != axis)).collect();
    let x = transposed(site, &x, &order)?;
    let (eps, channels) = (site.float("eps")?, x.shape[1]);
    let gamma = if site.flag("fix_gamma")? { Make::Ones } else { Make::AsIs };
    let gamma = site.weight(0, gamma, &[channels])?;
    let rest = [1, 2, 3].map(|index| site.weight(index, Make::AsIs, &[channels]));
    let [beta, mean, variance] = rest;
    let (beta, mean, variance) = (beta?, mean?, variance?);
    let attributes = vec![("epsilon", Attribute::Float(eps))];
    let shape = x.shape.clone();
    let result = site.op("BatchNormalization", &[&x, &gamma, &beta, &mean, &variance], attributes, shape)?;
    let back: Vec<usize> = (0..order.len()).filter_map(|axis| order.iter().position(|own| *own == axis)).collect();
    Ok(vec![transposed(site, &result, &back)?])
}

/// By the mean and the variance of each plane.
pub(super) fn instance_norm(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, eps) = (site.x(), site.float("eps")?);
    site.rank(&x, 3..=5)?;
    let (gamma, beta) = (site.weight(0, Make::AsIs, &[x.shape[1]])?, site.weight(1, Make::AsIs, &[x.shape[1]])?);
    let attributes = vec![("epsilon", Attribute::Float(eps))];
    Ok(vec![site.op("InstanceNormalization", &[&x, &gamma, &beta], attributes, x.shape.clone())?])
}

/// By the mean and the variance along one axis.
pub(super) fn layer_norm(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, eps) = (site.x(), site.float("eps")?);
    let axis = canonical(site.int("axis")?, &x.shape)?;
    let centred = forms::centred(site, &x, &[axis])?;
    let variance = forms::mean_square(site, &centred, &[axis])?;
    let raised = with(site, "Add", variance, eps, 0.0)?;
    let deviation = unary(site, "Sqrt", &raised, vec![])?;
    let mut result = site.op("Div", &[&centred, &deviation], vec![], x.shape.clone())?;
    let mut shape = vec![1; x.shape.len()];
    shape[axis] = x.shape[axis];
    for (index, op_type) in ["Mul", "Add"].into_iter().enumerate() {
        let weight = site.weight(index, Make::Reshape(shape.clone()), &shape)?;
        result = site.op(op_type, &[&result, &weight], vec![], x.shape.clone())?;
    }
    Ok(vec![result])
}

/// Over the square root of the sum of squares and eps: of an image, of a place, or of a plane.
pub(super) fn l2(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, eps) = (site.x(), site.float("eps")?);
    site.rank(&x, 2..=8)?;
    let rank = x.shape.len();
    let axes: Vec<usize> = match site.choice("mode", 0, &["instance", "channel", "spatial"])? {
        0 => (1..rank).collect(),
        1 => vec![1],
        _ => (2..rank).collect(),
    };
    if axes.is_empty() {
        return site.refuse("mode", "of 2 axes");
    }
    Ok(vec![forms::over_norm(site, &x, &axes, eps)?])
}

/// By the squares of neighbours across channels.
pub(super) fn lrn(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, size) = (site.x(), site.size("nsize")?);
    site.rank(&x, 4..=4)?;
    if size.is_multiple_of(2) {
        return site.refuse("nsize", "is even");
    }
    let numbers = [site.float("alpha")?, site.float("beta")?, site.float("knorm")?];
    Ok(vec![forms::lrn(site, &x, size, numbers)?])
}
