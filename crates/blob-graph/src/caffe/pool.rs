//! Pooling: Caffe rounds the number of windows up, and leaves out a last window that begins beyond the input.
//!
//! Shape rules are those of `PoolingLayer`. The mask of a maximum is the place in its plane.

use blob_core::DType;
use blob_io::onnx::Attribute;

use super::window::{Window, window};
use crate::site::{Operand, Site, ints, shown};
use crate::unsupported::Refusal;

/// The most windows of an average that need factors.
const MAX_FACTORS: u64 = 1 << 22;

/// How Caffe's windows lie along one axis.
#[derive(Debug)]
struct Axis {
    windows: u64,
    /// How far the last window reaches beyond the input: the padding that a maximum needs. Negative if it ends before.
    over: i64,
    pad: u64,
}

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
    let shape = [planes, axes.iter().map(|axis| axis.windows).collect()].concat();
    let begin = || window.pad.iter().copied();
    let mut attributes = vec![("kernel_shape", ints(window.kernel.clone())), ("strides", ints(window.stride.clone()))];
    if is_max {
        let end = axes.iter().map(|axis| u64::try_from(axis.over).unwrap_or(0));
        attributes.push(("pads", ints(begin().chain(end))));
        return max(site, &x, has_mask, attributes, shape);
    }
    let ends = axes.iter().map(|axis| u64::try_from(axis.over).unwrap_or(0));
    attributes.push(("pads", ints(begin().chain(ends))));
    attributes.push(("count_include_pad", Attribute::Int(1)));
    let average = site.op("AveragePool", &[&x], attributes, shape.clone())?;
    if axes.iter().all(|axis| axis.over <= axis.pad as i64) {
        return Ok(vec![average]);
    }
    let factors = factors(&axes, &window, &x.shape[2..])?;
    let factors = site.floats_of(&factors, &[1, 1, axes[0].windows, axes[1].windows])?;
    Ok(vec![site.op("Mul", &[&average, &factors], vec![], shape)?])
}

/// The factors from averages over whole windows to Caffe's: Caffe counts the padding, but nothing beyond it.
/// `ceil_mode` says the same, but OpenCV 5.0.0 counts the elements beyond, in 66 of 66 windows that reach there;
/// onnxruntime 1.32.0 in none.
fn factors(axes: &[Axis], window: &Window, extents: &[u64]) -> Result<Vec<f32>, Refusal> {
    if axes[0].windows * axes[1].windows > MAX_FACTORS {
        return Err(Refusal::shape("an average over more windows than are supported"));
    }
    let counted = |axis: usize| {
        let (kernel, end) = (window.kernel[axis], extents[axis] + 2 * window.pad[axis]);
        let starts = (0..axes[axis].windows).map(move |place| place * window.stride[axis]);
        starts.map(move |start| (start + kernel).min(end) - start)
    };
    let whole = window.kernel[0] * window.kernel[1];
    Ok(counted(0).flat_map(|rows| counted(1).map(move |columns| whole as f32 / (rows * columns) as f32)).collect())
}

/// The maxima, and the mask: ONNX's indices are those of the whole tensor, Caffe's those of a plane.
fn max(
    site: &mut Site<'_>,
    x: &Operand,
    has_mask: bool,
    attributes: Vec<(&str, Attribute)>,
    shape: Vec<u64>,
) -> Result<Vec<Operand>, Refusal> {
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
fn windows(site: &Site<'_>, extents: &[u64], kernel: &[u64]) -> Result<(Vec<Axis>, Window), Refusal> {
    let global = site.flag("global_pooling")?;
    let mut of = if global {
        let kernel = if kernel.is_empty() { extents } else { kernel };
        let stride = super::window::spatial(site, ("stride", "stride_h", "stride_w"), 2, Some(1))?;
        let pad = super::window::spatial(site, ("pad", "pad_h", "pad_w"), 2, Some(0))?;
        Window { kernel: kernel.to_vec(), stride, pad }
    } else {
        window(site, 2)?
    };
    if of.stride.contains(&0) {
        of.stride = vec![1, 1];
    }
    // Forks state the rounding in two ways.
    let rounds_up = site.choice("round_mode", 0, &["CEIL", "FLOOR"])? == 0 && site.flag("ceil_mode")?;
    let axis = |(place, extent): (usize, &u64)| {
        let (kernel, stride, pad) = (of.kernel[place], of.stride[place], of.pad[place]);
        let padded = extent + 2 * pad;
        if pad >= kernel || padded < kernel {
            return Err(Refusal::shape(format!("a window of {kernel}, padded by {pad}, over {}", shown(extents))));
        }
        let free = padded - kernel;
        let mut windows = if rounds_up { free.div_ceil(stride) } else { free / stride } + 1;
        if pad > 0 && (windows - 1) * stride >= extent + pad {
            windows -= 1;
        }
        let begin = (windows - 1) * stride;
        if begin >= extent + pad {
            return Err(Refusal::shape(format!("a window that begins beyond {extent} elements")));
        }
        Ok(Axis { windows, over: (begin + kernel) as i64 - (extent + pad) as i64, pad })
    };
    let axes: Result<Vec<Axis>, Refusal> = extents.iter().enumerate().map(axis).collect();
    Ok((axes?, of))
}
