//! Convolutions, transposed ones, and fully connected layers, by Caffe's parameters: layers that weigh a part of the
//! input.
//!
//! Shape rules are those of `BaseConvolutionLayer`, `DeconvolutionLayer` and `InnerProductLayer`.

use crate::operand::{Operand, canonical};
use crate::site::Site;
use crate::unsupported::Refusal;
use crate::window::{Convolution, Window, inner};

/// One number for each of `rank` axes: from two parameters, from one that repeats, or the default.
pub(super) fn spatial(
    site: &Site<'_>,
    each: &str,
    height: &str,
    width: &str,
    rank: usize,
    default: Option<u64>,
) -> Result<Vec<u64>, Refusal> {
    let numbers = if site.is_stated(height) || site.is_stated(width) {
        if site.is_stated(each) || rank != 2 {
            return site.refuse(each, format!("beside {height} and {width}, with {rank} axes"));
        }
        // Caffe takes 0 for the other one, which no kernel and no stride may be.
        if each != "pad" && site.is_stated(height) != site.is_stated(width) {
            return Err(Refusal::parameter(format!("{height} or {width} without the other")));
        }
        let of = |name: &str| if site.is_stated(name) { site.int(name).map(Some) } else { Ok(None) };
        let [height, width] = [of(height)?, of(width)?].map(|of| of.or(default.map(|default| default as i64)));
        [height, width].into_iter().flatten().collect()
    } else {
        site.ints(each)?
    };
    let numbers: Option<Vec<u64>> =
        numbers.into_iter().map(|number| u32::try_from(number).ok().map(u64::from)).collect();
    match (numbers.as_deref(), default) {
        (Some([]), Some(default)) => Ok(vec![default; rank]),
        (Some([one]), _) => Ok(vec![*one; rank]),
        (Some(all), _) if !all.is_empty() && all.len() == rank => Ok(all.to_vec()),
        _ => site.refuse(each, format!("for {rank} axes")),
    }
}

/// The window of a layer; kernel and stride are at least 1.
pub(super) fn window(site: &Site<'_>, rank: usize) -> Result<Window, Refusal> {
    let kernel = spatial(site, "kernel_size", "kernel_h", "kernel_w", rank, None)?;
    let stride = spatial(site, "stride", "stride_h", "stride_w", rank, Some(1))?;
    let pad = spatial(site, "pad", "pad_h", "pad_w", rank, Some(0))?;
    if kernel.contains(&0) || stride.contains(&0) {
        return Err(Refusal::parameter("a kernel or a stride of 0"));
    }
    Ok(Window { kernel, stride, pad })
}

pub(super) fn convolution(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let group = site.size("group")?;
    convolve(site, group)
}

/// Forks' depthwise convolutions: as many groups as channels, whatever `group` says.
pub(super) fn depthwise(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 4..=4)?;
    convolve(site, x.shape[1])
}

fn convolve(site: &mut Site<'_>, group: u64) -> Result<Vec<Operand>, Refusal> {
    parameters(site, group)?.convolve(site)
}

pub(super) fn deconvolution(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let group = site.size("group")?;
    parameters(site, group)?.transpose(site)
}

/// The parameters of a convolution, checked against the input's channels.
fn parameters(site: &Site<'_>, group: u64) -> Result<Convolution, Refusal> {
    let x = site.x();
    site.rank(&x, 3..=5)?;
    if canonical(site.int("axis")?, &x.shape)? != 1 {
        return site.refuse("axis", "where only 1 is supported");
    }
    let rank = x.shape.len() - 2;
    let (outputs, window) = (site.size("num_output")?, window(site, rank)?);
    let dilation = spatial(site, "dilation", "", "", rank, Some(1))?;
    let has_bias = site.flag("bias_term")?;
    Convolution { x, outputs, group, window, dilation, has_bias, longer: Vec::new() }.checked()
}

pub(super) fn inner_product(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let axis = canonical(site.int("axis")?, &site.x().shape)?;
    let (outputs, is_turned) = (site.size("num_output")?, site.flag("transpose")?);
    let has_bias = site.flag("bias_term")?;
    inner(site, axis, outputs, is_turned, has_bias)
}
