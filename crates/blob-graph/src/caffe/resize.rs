//! Layers that make images larger or smaller without weights.

use blob_core::DType;
use blob_io::onnx::Attribute;

use crate::forms::{Cut, bilinear, cut, nearest};
use crate::operand::{Operand, count, shown};
use crate::site::Site;
use crate::unsupported::Refusal;

/// DeepLab's and PSPNet's: bilinear, with corners on corners. A negative padding cuts the input.
pub(super) fn interp(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let mut x = site.x();
    site.rank(&x, 4..=4)?;
    site.needs_one_of(&["height", "zoom_factor", "shrink_factor"])?;
    let cuts = ["pad_beg", "pad_end"].map(|name| match site.int(name) {
        Ok(pad) => u32::try_from(-pad).map_or_else(|_| site.refuse(name, "is not supported"), |cut| Ok(u64::from(cut))),
        Err(refusal) => Err(refusal),
    });
    let [begin, end] = cuts;
    let (begin, end) = (begin?, end?);
    if begin + end > 0 {
        let of = |axis: usize| Cut { axis, start: begin, end: x.shape[axis].saturating_sub(end) };
        x = cut(site, &x, &[of(2), of(3)])?;
    }
    let (zoom, shrink) = (site.size("zoom_factor")?, site.size("shrink_factor")?);
    let mut shape = x.shape.clone();
    for (axis, name) in [(2, "height"), (3, "width")] {
        shape[axis] = if site.int(name)? != 0 {
            site.size(name)?
        } else {
            let small = (x.shape[axis] - 1) / shrink + 1;
            (small - 1).checked_mul(zoom).map_or(0, |grown| grown + 1)
        };
    }
    let is_sized = ["height", "width"].map(|name| site.int(name).unwrap_or(0) != 0);
    let is_scaled = zoom != 1 || shrink != 1;
    if is_sized[0] != is_sized[1] || is_sized[0] && is_scaled || shape.contains(&0) {
        return Err(Refusal::parameter("a height or a width without the other, or beside a factor"));
    }
    Ok(vec![bilinear(site, &x, &shape, "align_corners")?])
}

fn extents(site: &mut Site<'_>, shape: &[u64]) -> Result<Operand, Refusal> {
    let shape: Vec<i64> = shape.iter().map(|extent| *extent as i64).collect();
    site.ints_of(&shape)
}

/// SegNet's: each value goes to the place that the mask of a maximum names; all others are 0. Without a mask, each
/// value is repeated.
pub(super) fn upsample(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 4..=4)?;
    site.needs_one_of(&["scale", "scale_h", "upsample_h"])?;
    let mut shape = x.shape.clone();
    let mut scales = [1, 1];
    for (place, [own, scale, pad]) in
        [["upsample_h", "scale_h", "pad_out_h"], ["upsample_w", "scale_w", "pad_out_w"]].into_iter().enumerate()
    {
        let factor = site.size(if site.is_stated(scale) { scale } else { "scale" })?;
        scales[place] = factor;
        let grown =
            x.shape[place + 2].checked_mul(factor).map(|grown| grown - u64::from(site.flag(pad).unwrap_or(false)));
        shape[place + 2] = if site.is_stated(own) { site.size(own)? } else { grown.unwrap_or(0) };
        if !site.is_stated(own) && site.flag(pad)? && site.inputs.len() == 1 {
            return site.refuse(pad, "without a mask");
        }
    }
    if shape.contains(&0) {
        return Err(Refusal::shape(format!("{} as {}", shown(&x.shape), shown(&shape))));
    }
    if site.inputs.len() > 1 {
        return unpool(site, &x, shape);
    }
    if site.is_stated("upsample_h") || site.is_stated("upsample_w") {
        return site.refuse("upsample_h", "without a mask");
    }
    Ok(vec![nearest(site, &x, scales)?])
}

/// The mask holds places in a plane, so each plane becomes one row.
fn unpool(site: &mut Site<'_>, x: &Operand, shape: Vec<u64>) -> Result<Vec<Operand>, Refusal> {
    let mask = site.inputs[1].clone();
    if mask.dtype != DType::I64 || mask.shape != x.shape {
        return Err(Refusal::shape("the second input is not the mask of a Pooling"));
    }
    let planes = x.shape[0] * x.shape[1];
    let (old, new) = (x.shape[2] * x.shape[3], count(&shape[2..])?);
    let places = site.reshape(&mask, &[planes, old])?;
    let values = site.reshape(x, &[planes, old])?;
    let (zero, rows) = (site.floats_of(&[0.0], &[1, 1])?, extents(site, &[planes, new])?);
    let empty = site.op("Expand", &[&zero, &rows], vec![], vec![planes, new])?;
    let attributes = vec![("axis", Attribute::Int(1))];
    let placed = site.op("ScatterElements", &[&empty, &places, &values], attributes, vec![planes, new])?;
    Ok(vec![site.reshape(&placed, &shape)?])
}
