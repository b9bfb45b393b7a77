//! Convolutions, transposed ones, and fully connected layers, by MXNet's attributes.

use crate::forms::transposed;
use crate::operand::{Operand, shown};
use crate::site::Site;
use crate::unsupported::Refusal;
use crate::window::{Convolution, Window, inner};

/// One number for each of `rank` axes, or the default.
pub(super) fn spatial(site: &Site<'_>, name: &str, rank: usize, default: u64) -> Result<Vec<u64>, Refusal> {
    let numbers = site.ints(name)?;
    if numbers.is_empty() {
        return Ok(vec![default; rank]);
    }
    let numbers: Option<Vec<u64>> =
        numbers.into_iter().map(|number| u32::try_from(number).ok().map(u64::from)).collect();
    match numbers {
        Some(numbers) if numbers.len() == rank => Ok(numbers),
        _ => site.refuse(name, format!("for {rank} axes")),
    }
}

/// Refuses a layout with the channels elsewhere than behind the batch.
pub(super) fn channels_second(site: &Site<'_>) -> Result<(), Refusal> {
    match site.text("layout") {
        "" | "None" | "NCW" | "NCHW" | "NCDHW" => Ok(()),
        _ => site.refuse("layout", "where the channels must follow the batch"),
    }
}

/// The parameters of a convolution, checked against the input's channels.
fn parameters(site: &Site<'_>) -> Result<Convolution, Refusal> {
    let x = site.x();
    site.rank(&x, 3..=5)?;
    channels_second(site)?;
    let rank = x.shape.len() - 2;
    let kernel = spatial(site, "kernel", rank, 0)?;
    let (stride, pad) = (spatial(site, "stride", rank, 1)?, spatial(site, "pad", rank, 0)?);
    let (dilation, outputs) = (spatial(site, "dilate", rank, 1)?, site.size("num_filter")?);
    let (group, has_bias) = (site.size("num_group")?, !site.flag("no_bias")?);
    let window = Window { kernel, stride, pad };
    Convolution { x, outputs, group, window, dilation, has_bias, longer: Vec::new() }.checked()
}

pub(super) fn convolution(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    parameters(site)?.convolve(site)
}

/// `target_shape` stands for padding, and for one more element at the end where the padding is odd.
pub(super) fn deconvolution(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let mut of = parameters(site)?;
    let rank = of.window.kernel.len();
    of.longer = spatial(site, "adj", rank, 0)?;
    let target = spatial(site, "target_shape", rank, 0)?;
    if target.iter().any(|extent| *extent > 0) {
        for (axis, extent) in target.iter().enumerate() {
            let whole = of.window.stride[axis].checked_mul(of.x.shape[axis + 2] - 1).unwrap_or(0) + of.extent(axis);
            let Some(over) = whole.checked_sub(*extent) else {
                return site.refuse("target_shape", "is larger than the output without padding");
            };
            (of.window.pad[axis], of.longer[axis]) = (over.div_ceil(2), over % 2);
        }
    }
    // MXNet and ONNX both want fewer additional elements than steps.
    if of.longer.iter().zip(&of.window.stride).any(|(longer, stride)| longer >= stride && *longer > 0) {
        return site.refuse("adj", "is not below the stride");
    }
    of.transpose(site)
}

pub(super) fn fully_connected(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 1..=8)?;
    let axis = if site.flag("flatten")? { 1 } else { x.shape.len() - 1 };
    let (outputs, has_bias) = (site.size("num_hidden")?, !site.flag("no_bias")?);
    inner(site, axis, outputs, false, has_bias)
}

/// The products of two stacks of matrices, either of which may be turned.
pub(super) fn batch_dot(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let mut factors = [0, 1].map(|place| site.inputs[place].clone());
    for (factor, name) in factors.iter_mut().zip(["transpose_a", "transpose_b"]) {
        site.rank(factor, 3..=8)?;
        if site.flag(name)? {
            let mut order: Vec<usize> = (0..factor.shape.len()).collect();
            order.swap(factor.shape.len() - 2, factor.shape.len() - 1);
            *factor = transposed(site, factor, &order)?;
        }
    }
    let [a, b] = &factors;
    let (of_a, of_b) = (a.shape.split_at(a.shape.len() - 2), b.shape.split_at(b.shape.len() - 2));
    if of_a.0 != of_b.0 || of_a.1[1] != of_b.1[0] {
        return Err(Refusal::shape(format!("{} times {}", shown(&a.shape), shown(&b.shape))));
    }
    let shape = [of_a.0, &[of_a.1[0], of_b.1[1]]].concat();
    Ok(vec![site.op("MatMul", &[a, b], vec![], shape)?])
}
