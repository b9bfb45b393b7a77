//! Pooling. The convention `valid` leaves out a last window that does not fit, and `full` keeps it.

use blob_io::onnx::Attribute;

use super::window::{channels_second, spatial};
use crate::forms::with;
use crate::operand::{Operand, shown};
use crate::site::Site;
use crate::unsupported::Refusal;
use crate::window::{Along, Pooling, Window};

pub(super) fn pooling(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 3..=5)?;
    channels_second(site)?;
    let kind = site.choice("pool_type", 0, &["max", "avg", "sum", "lp"])?;
    if kind == 3 {
        return site.refuse("pool_type", "is not supported");
    }
    let rank = x.shape.len() - 2;
    if site.flag("global_pool")? {
        let area = x.shape[2..].iter().fold(1.0, |area, extent| area * *extent as f32);
        let shape = [&x.shape[..2], &vec![1; rank]].concat();
        let op_type = if kind == 0 { "GlobalMaxPool" } else { "GlobalAveragePool" };
        let pooled = site.op(op_type, &[&x], vec![], shape)?;
        return Ok(vec![if kind == 2 { with(site, "Mul", pooled, area, 1.0)? } else { pooled }]);
    }
    let mut pad = spatial(site, "pad", rank, 0)?;
    let is_zero_outside = kind == 0 && site.node.type_name == "Pooling_v1";
    let x = if is_zero_outside { within_zeros(site, x, &std::mem::replace(&mut pad, vec![0; rank]))? } else { x };
    let pooling = windows(site, x, pad)?;
    let area = pooling.window.kernel.iter().fold(1.0, |area, extent| area * *extent as f32);
    let result = match kind {
        0 => site.op("MaxPool", &[&pooling.x], pooling.attributes(), pooling.shape())?,
        1 if site.is_none("count_include_pad") || site.flag("count_include_pad")? => pooling.average(site)?,
        1 => {
            let mut attributes = pooling.attributes();
            attributes.push(("count_include_pad", Attribute::Int(0)));
            site.op("AveragePool", &[&pooling.x], attributes, pooling.shape())?
        }
        _ => {
            let average = pooling.whole_average(site)?;
            with(site, "Mul", average, area, 1.0)?
        }
    };
    Ok(vec![result])
}

/// An image with zeros around, which the first version of MXNet's pooling compares with the image's values.
fn within_zeros(site: &mut Site<'_>, x: Operand, pad: &[u64]) -> Result<Operand, Refusal> {
    if pad.iter().all(|pad| *pad == 0) {
        return Ok(x);
    }
    let side: Vec<i64> = [0, 0].into_iter().chain(pad.iter().map(|pad| *pad as i64)).collect();
    let shape = x.shape.iter().zip(&side).map(|(extent, pad)| extent.saturating_add(2 * *pad as u64)).collect();
    let (pads, zero) = (site.ints_of(&[side.clone(), side].concat())?, site.scalar(0.0)?);
    site.op("Pad", &[&x, &pads, &zero], vec![("mode", Attribute::Text("constant".to_owned()))], shape)
}

/// The windows along all axes.
fn windows(site: &Site<'_>, x: Operand, pad: Vec<u64>) -> Result<Pooling, Refusal> {
    let rank = pad.len();
    let (kernel, stride) = (spatial(site, "kernel", rank, 0)?, spatial(site, "stride", rank, 1)?);
    if kernel.contains(&0) || stride.contains(&0) {
        return Err(Refusal::parameter("a kernel or a stride of 0"));
    }
    let is_full = match site.text("pooling_convention") {
        "valid" => false,
        "full" => true,
        _ => return site.refuse("pooling_convention", "is not supported: MXNet 1.9.1 fails with it"),
    };
    let window = Window { kernel, stride, pad };
    let mut axes = Vec::new();
    for (axis, extent) in x.shape[2..].iter().enumerate() {
        let (kernel, stride, pad) = (window.kernel[axis], window.stride[axis], window.pad[axis]);
        let padded = extent + 2 * pad;
        if pad >= kernel || padded < kernel {
            let message = format!("a window of {kernel}, padded by {pad}, over {}", shown(&x.shape[2..]));
            return Err(Refusal::shape(message));
        }
        let free = padded - kernel;
        let windows = if is_full { free.div_ceil(stride) } else { free / stride } + 1;
        axes.push(Along::of(windows, *extent, &window, axis)?);
    }
    Ok(Pooling { x, window, axes })
}

/// The average of each of so many parts of an image, which overlap where the size does not divide.
pub(super) fn adaptive(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 4..=4)?;
    let size: Vec<u64> = match site.ints("output_size")?[..] {
        [] => vec![1, 1],
        [one] => vec![u64::try_from(one).unwrap_or(0); 2],
        [height, width] => vec![u64::try_from(height).unwrap_or(0), u64::try_from(width).unwrap_or(0)],
        _ => return site.refuse("output_size", "for 2 axes"),
    };
    let (planes, extents) = x.shape.split_at(2);
    let shape = [planes, &size[..]].concat();
    if size.contains(&0) || size.iter().zip(extents).any(|(to, _)| *to > 1 << 16) {
        return site.refuse("output_size", "has no size from 1 on");
    }
    if size == [1, 1] {
        return Ok(vec![site.op("GlobalAveragePool", &[&x], vec![], shape)?]);
    }
    if size.iter().zip(extents).all(|(to, from)| from.is_multiple_of(*to)) {
        let kernel: Vec<u64> = size.iter().zip(extents).map(|(to, from)| from / to).collect();
        let window = Window { stride: kernel.clone(), kernel, pad: vec![0, 0] };
        let axes = [0, 1].map(|axis| Along::of(size[axis], extents[axis], &window, axis));
        let axes = axes.into_iter().collect::<Result<_, _>>()?;
        return Ok(vec![Pooling { x, window, axes }.average(site)?]);
    }
    let (rows, columns) = (shares(size[0], extents[0])?, shares(size[1], extents[1])?);
    let rows = site.floats_of(&rows, &[size[0], extents[0]])?;
    let turned: Vec<f32> = (0..extents[1])
        .flat_map(|from| (0..size[1]).map(move |to| (to * extents[1] + from) as usize))
        .map(|at| columns[at])
        .collect();
    let columns = site.floats_of(&turned, &[extents[1], size[1]])?;
    let low = site.op("MatMul", &[&rows, &x], vec![], [planes, &[size[0], extents[1]]].concat())?;
    Ok(vec![site.op("MatMul", &[&low, &columns], vec![], shape)?])
}

/// The share of each element of an axis in each part's average: `to` rows of `from` numbers.
fn shares(to: u64, from: u64) -> Result<Vec<f32>, Refusal> {
    let count = to.checked_mul(from).filter(|count| *count <= 1 << 22);
    let mut shares =
        vec![0.0; count.ok_or_else(|| Refusal::shape("an average of more parts than are supported"))? as usize];
    for part in 0..to {
        let (start, end) = (part * from / to, ((part + 1) * from).div_ceil(to));
        let row = (part * from) as usize;
        shares[row + start as usize..row + end as usize].fill(1.0 / (end - start) as f32);
    }
    Ok(shares)
}
