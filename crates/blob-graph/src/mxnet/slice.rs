//! Operators that cut values out, or put values around.

use blob_io::onnx::Attribute;

use crate::forms::{Cut, cut, split};
use crate::operand::{Operand, canonical, shown};
use crate::site::Site;
use crate::unsupported::Refusal;

/// A place along an axis from the left; behind the end, the end.
fn place(stated: Option<i64>, extent: u64, default: u64) -> u64 {
    let Some(stated) = stated else { return default };
    let from_left = if stated < 0 { stated.saturating_add(extent as i64) } else { stated };
    from_left.clamp(0, extent as i64) as u64
}

pub(super) fn slice_axis(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let axis = canonical(site.int("axis")?, &x.shape)?;
    let extent = x.shape[axis];
    let one = |name: &str| Ok(site.some_ints(name)?.first().copied().flatten());
    let (start, end) = (place(one("begin")?, extent, 0), place(one("end")?, extent, extent));
    Ok(vec![cut(site, &x, &[Cut { axis, start, end }])?])
}

/// The first axes, each from a place to a place.
pub(super) fn slice(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, begin, end) = (site.x(), site.some_ints("begin")?, site.some_ints("end")?);
    if site.some_ints("step")?.iter().any(|step| step.is_some_and(|step| step != 1)) {
        return site.refuse("step", "where only 1 is supported");
    }
    if begin.len() > x.shape.len() || end.len() != begin.len() {
        return site.refuse("begin", format!("of {}", shown(&x.shape)));
    }
    let cuts = begin.iter().zip(&end).enumerate().map(|(axis, (begin, end))| {
        let extent = x.shape[axis];
        Cut { axis, start: place(*begin, extent, 0), end: place(*end, extent, extent) }
    });
    // An axis that stays whole is not named, so that the batch may be of any size.
    let cuts: Vec<Cut> = cuts.filter(|cut| cut.start != 0 || cut.end != x.shape[cut.axis]).collect();
    Ok(vec![cut(site, &x, &cuts)?])
}

/// The extents of the second input, along the named axes or along all.
pub(super) fn slice_like(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, like) = (site.x(), site.inputs[1].shape.clone());
    let named = if site.is_none("axes") { Vec::new() } else { site.ints("axes")? };
    let mut axes: Vec<usize> = named.iter().map(|axis| canonical(*axis, &x.shape)).collect::<Result<_, _>>()?;
    if axes.is_empty() {
        axes = (0..x.shape.len()).collect();
    }
    // ONNX's Slice takes an axis once.
    axes.sort_unstable();
    axes.dedup();
    let mut cuts = Vec::new();
    for axis in axes {
        let Some(end) = like.get(axis).copied() else {
            return Err(Refusal::shape(format!("{} cut to {}", shown(&x.shape), shown(&like))));
        };
        if end != x.shape[axis] {
            cuts.push(Cut { axis, start: 0, end });
        }
    }
    Ok(vec![cut(site, &x, &cuts)?])
}

/// The first input, cut to stated extents or to the second input's.
pub(super) fn crop(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 4..=4)?;
    let size: Vec<u64> = match site.inputs.get(1) {
        Some(like) if like.shape.len() == 4 => like.shape[2..].to_vec(),
        Some(like) => return Err(Refusal::shape(format!("{} cut to {}", shown(&x.shape), shown(&like.shape)))),
        None => site.ints("h_w")?.iter().map(|extent| u64::try_from(*extent).unwrap_or(0)).collect(),
    };
    let offset: Vec<u64> = if site.flag("center_crop")? {
        x.shape[2..].iter().zip(&size).map(|(whole, part)| whole.saturating_sub(*part) / 2).collect()
    } else {
        site.ints("offset")?.iter().map(|start| u64::try_from(*start).unwrap_or(u64::MAX)).collect()
    };
    if size.len() != 2 || offset.len() != 2 {
        return site.refuse("h_w", "and the offset have not 2 numbers");
    }
    let of =
        |place: usize| Cut { axis: place + 2, start: offset[place], end: offset[place].saturating_add(size[place]) };
    Ok(vec![cut(site, &x, &[of(0), of(1)])?])
}

/// Equal parts along an axis.
pub(super) fn slice_channel(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, parts) = (site.x(), site.size("num_outputs")?);
    let axis = canonical(site.int("axis")?, &x.shape)?;
    let extent = x.shape[axis];
    if !extent.is_multiple_of(parts) || site.node.outputs.len() as u64 > parts {
        return Err(Refusal::shape(format!("{parts} equal parts of {extent}")));
    }
    let squeezes = site.flag("squeeze_axis")?;
    if squeezes && parts != extent {
        return site.refuse("squeeze_axis", format!("of {parts} parts of {extent}"));
    }
    let mut outputs = split(site, &x, axis, &vec![extent / parts; parts as usize])?;
    if squeezes {
        let axes = site.ints_of(&[axis as i64])?;
        for output in &mut outputs {
            let shape = [&output.shape[..axis], &output.shape[axis + 1..]].concat();
            *output = site.op("Squeeze", &[output, &axes], vec![], shape)?;
        }
    }
    Ok(outputs)
}

/// Numbers, the edge, or the mirrored image around an image.
pub(super) fn pad(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, widths) = (site.x(), site.ints("pad_width")?);
    let mode = site.choice("mode", 0, &["constant", "edge", "reflect"])?;
    let widths: Option<Vec<u64>> = widths.iter().map(|width| u32::try_from(*width).ok().map(u64::from)).collect();
    let Some(widths) = widths.filter(|widths| widths.len() == 2 * x.shape.len()) else {
        return site.refuse("pad_width", format!("of {}", shown(&x.shape)));
    };
    let pairs = || widths.chunks(2).zip(&x.shape);
    if mode == 2 && pairs().any(|(pair, extent)| pair.iter().any(|width| width >= extent)) {
        return site.refuse("pad_width", format!("mirrors more than {}", shown(&x.shape)));
    }
    let shape: Vec<u64> = pairs().map(|(pair, extent)| pair[0] + extent + pair[1]).collect();
    let ends = |end: usize| widths.iter().skip(end).step_by(2).map(|width| *width as i64);
    let pads: Vec<i64> = ends(0).chain(ends(1)).collect();
    let pads = site.ints_of(&pads)?;
    let attributes = vec![("mode", Attribute::Text(["constant", "edge", "reflect"][mode].to_owned()))];
    if mode != 0 {
        return Ok(vec![site.op("Pad", &[&x, &pads], attributes, shape)?]);
    }
    let number = site.limit("constant_value")?;
    let number = site.scalar(number)?;
    Ok(vec![site.op("Pad", &[&x, &pads, &number], attributes, shape)?])
}
