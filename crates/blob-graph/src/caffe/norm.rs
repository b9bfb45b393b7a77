//! Normalisations, and the factors and summands of channels that follow them.

use blob_io::onnx::Attribute;

use crate::forms::{self, unary, with};
use crate::need::Make;
use crate::operand::{Operand, canonical, count, shown};
use crate::site::{Site, ints};
use crate::unsupported::Refusal;

/// By the stored mean and variance, which Caffe divides by a factor.
pub(super) fn batch_norm(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 2..=8)?;
    if !site.flag("use_global_stats")? {
        return site.refuse("use_global_stats", "normalises by the input");
    }
    let (eps, channels) = (site.float("eps")?, x.shape[1]);
    let ones = vec![1.0; bounded(channels)?];
    let (scale, bias) = (site.floats_of(&ones, &[channels])?, site.floats_of(&vec![0.0; ones.len()], &[channels])?);
    let factor = site.node.tensors.get(2).cloned().unwrap_or_else(|| format!("{}/2", site.node.name));
    let mean = site.weight(0, Make::BatchNorm(factor.clone()), &[channels])?;
    let variance = site.weight(1, Make::BatchNorm(factor), &[channels])?;
    let attributes = vec![("epsilon", Attribute::Float(eps))];
    let shape = x.shape.clone();
    Ok(vec![site.op("BatchNormalization", &[&x, &scale, &bias, &mean, &variance], attributes, shape)?])
}

/// The number of channels, where so many constants are reasonable.
fn bounded(channels: u64) -> Result<usize, Refusal> {
    const MOST: u64 = 1 << 20;
    let few = usize::try_from(channels).ok().filter(|_| channels <= MOST);
    few.ok_or_else(|| Refusal::shape(format!("{channels} channels, where {MOST} are supported")))
}

/// SegNet's for inference scales and shifts; PSPNet's has a mean and a variance, too.
pub(super) fn bn(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 2..=8)?;
    let channels = x.shape[1];
    let is_inference = match site.text("bn_mode") {
        "" => false,
        "INFERENCE" | "1" => true,
        _ => return site.refuse("bn_mode", "normalises by the input"),
    };
    if is_inference {
        return affine(site, 1, 1, [Some(0), Some(1)]);
    }
    // A prototxt leaves the number of tensors open.
    if site.node.tensors.len() < 4 {
        site.needs_one_of(&["bn_mode"])?;
    }
    let eps = site.float("eps")?;
    let mut weights = vec![x.clone()];
    for index in 0..4 {
        weights.push(site.weight(index, Make::Reshape(vec![channels]), &[channels])?);
    }
    let inputs: Vec<&Operand> = weights.iter().collect();
    Ok(vec![site.op("BatchNormalization", &inputs, vec![("epsilon", Attribute::Float(eps))], x.shape.clone())?])
}

/// A factor for each place along some axes, and a summand: tensors of the layer, or the second input.
pub(super) fn scale(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (axis, axes, has_bias) = (site.int("axis")?, site.int("num_axes")?, site.flag("bias_term")?);
    let (factor, summand) = if site.inputs.len() > 1 { (None, 0) } else { (Some(0), 1) };
    if factor.is_some() {
        return affine(site, axis, axes, [factor, has_bias.then_some(summand)]);
    }
    let other = site.inputs[1].clone();
    let (x, axis) = (site.x(), canonical(axis, &site.x().shape)?);
    let factor = spread(site, &x, axis, &other)?;
    let scaled = site.op("Mul", &[&x, &factor], vec![], x.shape.clone())?;
    if !has_bias {
        return Ok(vec![scaled]);
    }
    let summand = site.weight(0, Make::Reshape(factor.shape.clone()), &factor.shape)?;
    Ok(vec![site.op("Add", &[&scaled, &summand], vec![], x.shape)?])
}

pub(super) fn bias(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (axis, axes) = (site.int("axis")?, site.int("num_axes")?);
    if site.inputs.len() == 1 {
        return affine(site, axis, axes, [None, Some(0)]);
    }
    let (x, other) = (site.x(), site.inputs[1].clone());
    let axis = canonical(axis, &x.shape)?;
    let summand = spread(site, &x, axis, &other)?;
    Ok(vec![site.op("Add", &[&x, &summand], vec![], x.shape.clone())?])
}

/// The second input, with axes of 1 around it so that it covers the first input's axes from `axis` on.
fn spread(site: &mut Site<'_>, x: &Operand, axis: usize, other: &Operand) -> Result<Operand, Refusal> {
    let end = axis + other.shape.len();
    if x.shape.get(axis..end) != Some(&other.shape[..]) {
        return Err(Refusal::shape(format!("{} along axis {axis} of {}", shown(&other.shape), shown(&x.shape))));
    }
    let mut shape = vec![1; x.shape.len()];
    shape[axis..end].copy_from_slice(&other.shape);
    site.reshape(other, &shape)
}

/// The factor and the summand that are tensors of these indices, along `axes` axes from `axis` on: −1 is all.
fn affine(
    site: &mut Site<'_>,
    axis: i64,
    axes: i64,
    [factor, summand]: [Option<usize>; 2],
) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let first = canonical(axis, &x.shape)?;
    let end = if axes == -1 { Some(x.shape.len()) } else { usize::try_from(axes).ok().map(|axes| first + axes) };
    let end = end.filter(|end| *end <= x.shape.len());
    let end = end.ok_or_else(|| Refusal::shape(format!("{axes} axes from {first} of {}", shown(&x.shape))))?;
    let mut shape = vec![1; x.shape.len()];
    shape[first..end].copy_from_slice(&x.shape[first..end]);
    let mut result = x;
    for (op_type, index) in [("Mul", factor), ("Add", summand)] {
        let Some(index) = index else { continue };
        let weight = site.weight(index, Make::Reshape(shape.clone()), &shape)?;
        let whole = result.shape.clone();
        result = site.op(op_type, &[&result, &weight], vec![], whole)?;
    }
    Ok(vec![result])
}

/// By the squares of neighbours: across channels one operator; within a channel the average of squares. Caffe divides
/// alpha by the number of neighbours in both, as ONNX does, and has k across channels alone.
pub(super) fn lrn(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 4..=4)?;
    let size = site.size("local_size")?;
    if size.is_multiple_of(2) {
        return site.refuse("local_size", "is even");
    }
    let (alpha, beta, k) = (site.float("alpha")?, site.float("beta")?, site.float("k")?);
    if site.choice("norm_region", 0, &["ACROSS_CHANNELS", "WITHIN_CHANNEL"])? == 0 {
        return Ok(vec![forms::lrn(site, &x, size, [alpha, beta, k])?]);
    }
    let shape = || x.shape.clone();
    let squares = site.op("Mul", &[&x, &x], vec![], shape())?;
    let attributes = vec![
        ("kernel_shape", ints([size; 2])),
        // The default; rten 0.27 does not know that.
        ("strides", ints([1; 2])),
        ("pads", ints([size / 2; 4])),
        ("count_include_pad", Attribute::Int(1)),
    ];
    let average = site.op("AveragePool", &[&squares], attributes, shape())?;
    let (factor, one) = (site.scalar(alpha)?, site.scalar(1.0)?);
    let scaled = site.op("Mul", &[&average, &factor], vec![], shape())?;
    let shifted = site.op("Add", &[&scaled, &one], vec![], shape())?;
    let power = with(site, "Pow", shifted, beta, 1.0)?;
    Ok(vec![site.op("Div", &[&x, &power], vec![], shape())?])
}

/// Minus the mean, and divided by the deviation plus eps: of each plane, or of each image.
pub(super) fn mvn(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 3..=5)?;
    let first = if site.flag("across_channels")? { 1 } else { 2 };
    let (divides, eps) = (site.flag("normalize_variance")?, site.float("eps")?);
    let axes: Vec<usize> = (first..x.shape.len()).collect();
    let centred = forms::centred(site, &x, &axes)?;
    if !divides {
        return Ok(vec![centred]);
    }
    let variance = forms::mean_square(site, &centred, &axes)?;
    let deviation = unary(site, "Sqrt", &variance, vec![])?;
    let divisor = with(site, "Add", deviation, eps, 0.0)?;
    Ok(vec![site.op("Div", &[&centred, &divisor], vec![], x.shape.clone())?])
}

/// SSD's: divided by the square root of the sum of squares and eps, times a factor for each channel or for all.
pub(super) fn normalize(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 4..=4)?;
    let (is_whole, is_shared) = (site.flag("across_spatial")?, site.flag("channel_shared")?);
    let eps = site.float("eps")?;
    let axes: Vec<usize> = if is_whole { (1..4).collect() } else { vec![1] };
    let divided = forms::over_norm(site, &x, &axes, eps)?;
    let shape = if is_shared { vec![1; 4] } else { vec![1, x.shape[1], 1, 1] };
    count(&shape)?;
    let factor = site.weight(0, Make::Reshape(shape.clone()), &shape)?;
    Ok(vec![site.op("Mul", &[&divided, &factor], vec![], x.shape)?])
}
