//! Pooling: Caffe rounds the number of windows up, and leaves out a last window that begins beyond the input.
//!
//! Shape rules are those of `PoolingLayer`. The mask of a maximum is the place in its plane.

use blob_core::DType;

use super::window::window;
use crate::operand::{Operand, shown};
use crate::site::Site;
use crate::unsupported::Refusal;
use crate::window::{Along, Pooling, Window};

pub(super) fn pooling(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 4..=4)?;
    let is_max = match site.choice("pool", 0, &["MAX", "AVE", "STOCHASTIC"])? {
        0 => true,
        1 => false,
        _ => return site.refuse("pool", "is for training"),
    };
    let has_mask = site.node.outputs.len() > 1;
    if has_mask && !is_max {
        return site.refuse("pool", "has no mask");
    }
    let kernel = ["kernel_size", "kernel_h", "kernel_w"];
    if site.flag("global_pooling")? && kernel.iter().any(|name| site.is_stated(name)) {
        return site.refuse("global_pooling", "beside a kernel, which Caffe refuses, too");
    }
    let planes = x.shape[..2].to_vec();
    if site.flag("global_pooling")? && !has_mask {
        if ["pad", "pad_h", "pad_w", "stride", "stride_h", "stride_w"].iter().any(|name| site.is_stated(name)) {
            // Caffe takes a stride of 1 and a pad of 0 alone.
            let axes = windows(site, &x.shape[2..], &x.shape[2..])?;
            if axes.1.pad != [0, 0] || axes.1.stride != [1, 1] {
                return site.refuse("global_pooling", "with a pad or a stride");
            }
        }
        let op_type = if is_max { "GlobalMaxPool" } else { "GlobalAveragePool" };
        return Ok(vec![site.op(op_type, &[&x], vec![], [planes, vec![1, 1]].concat())?]);
    }
    let (axes, window) = windows(site, &x.shape[2..], &[])?;
    let pooling = Pooling { x, window, axes };
    if is_max { max(site, &pooling, has_mask) } else { Ok(vec![pooling.average(site)?]) }
}

/// The maxima, and the mask: ONNX's indices are those of the whole tensor, Caffe's those of a plane.
fn max(site: &mut Site<'_>, pooling: &Pooling, has_mask: bool) -> Result<Vec<Operand>, Refusal> {
    let (x, shape, attributes) = (&pooling.x, pooling.shape(), pooling.attributes());
    if !has_mask {
        return Ok(vec![site.op("MaxPool", &[x], attributes, shape)?]);
    }
    let outputs = vec![(DType::F32, shape.clone()), (DType::I64, shape.clone())];
    let pooled = site.ops("MaxPool", &[x], attributes, outputs)?;
    let plane = site.ints_of(&[(x.shape[2] * x.shape[3]) as i64])?;
    let mask = site.ops("Mod", &[&pooled[1], &plane], vec![], vec![(DType::I64, shape)])?;
    Ok([&pooled[..1], &mask[..]].concat())
}

/// The windows along both axes. Of a global pooling the kernel is given.
fn windows(site: &Site<'_>, extents: &[u64], kernel: &[u64]) -> Result<(Vec<Along>, Window), Refusal> {
    let global = site.flag("global_pooling")?;
    let mut of = if global {
        let kernel = if kernel.is_empty() { extents } else { kernel };
        let stride = super::window::spatial(site, "stride", "stride_h", "stride_w", 2, Some(1))?;
        let pad = super::window::spatial(site, "pad", "pad_h", "pad_w", 2, Some(0))?;
        Window { kernel: kernel.to_vec(), stride, pad }
    } else {
        window(site, 2)?
    };
    if site.is_stated("pad_w") && !site.is_stated("pad_h") {
        return site.refuse("pad_w", "without pad_h, where Caffe does not read it");
    }
    if of.stride.contains(&0) {
        of.stride = vec![1, 1];
    }
    // Forks state the rounding in two ways.
    let rounds_up = site.choice("round_mode", 0, &["CEIL", "FLOOR"])? == 0 && site.flag("ceil_mode")?;
    let axes = extents.iter().enumerate().map(|(place, extent)| {
        let (kernel, stride, pad) = (of.kernel[place], of.stride[place], of.pad[place]);
        let padded = extent + 2 * pad;
        // Rounded up, a window that is larger than the input by less than a step is still one window.
        let over = kernel.saturating_sub(padded);
        if pad >= kernel || over > 0 && !(rounds_up && over < stride) {
            return Err(Refusal::shape(format!("a window of {kernel}, padded by {pad}, over {}", shown(extents))));
        }
        let free = padded.saturating_sub(kernel);
        let mut windows = if rounds_up { free.div_ceil(stride) } else { free / stride } + 1;
        // Caffe looks at both axes where either is padded.
        if of.pad != [0, 0] && (windows - 1) * stride >= extent + pad {
            windows -= 1;
        }
        Along::of(windows, *extent, &of, place)
    });
    let axes: Result<Vec<Along>, Refusal> = axes.collect();
    Ok((axes?, of))
}
