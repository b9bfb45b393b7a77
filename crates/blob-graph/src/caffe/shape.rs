//! Layers that move values, and compute none.

use blob_io::onnx::Attribute;

use crate::forms::{Cut, cut, tiled, transposed};
use crate::operand::{Operand, canonical, count, shown};
use crate::site::Site;
use crate::unsupported::Refusal;

/// 0 keeps an extent of the input, −1 follows from the others; `axis` and `num_axes` say which axes change.
pub(super) fn reshape(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let (axis, axes, dims) = (site.int("axis")?, site.int("num_axes")?, site.ints("shape.dim")?);
    let rank = x.shape.len() as i64;
    // A negative axis counts from behind the last: −1 adds axes at the end.
    let first = if axis < 0 { axis + rank + 1 } else { axis };
    let end = if axes == -1 { rank } else { first.saturating_add(axes) };
    if !(0..=rank).contains(&first) || !(first..=rank).contains(&end) || axes < -1 {
        return Err(Refusal::shape(format!("{axes} axes from {axis} of {}", shown(&x.shape))));
    }
    let (first, end) = (first as usize, end as usize);
    let mut shape = x.shape[..first].to_vec();
    let mut open = None;
    for (place, dim) in dims.iter().enumerate() {
        let extent = match dim {
            0 => x.shape.get(first + place).copied(),
            -1 if open.is_none() => {
                open = Some(shape.len());
                Some(1)
            }
            dim => u64::try_from(*dim).ok(),
        };
        shape.push(extent.ok_or_else(|| Refusal::shape(format!("{dims:?} for {}", shown(&x.shape))))?);
    }
    shape.extend(&x.shape[end..]);
    if let Some(open) = open {
        let (whole, known) = (count(&x.shape)?, count(&shape)?);
        shape[open] = if whole.is_multiple_of(known) { whole / known } else { 0 };
    }
    Ok(vec![site.reshape(&x, &shape)?])
}

pub(super) fn flatten(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let (first, last) = (canonical(site.int("axis")?, &x.shape)?, canonical(site.int("end_axis")?, &x.shape)?);
    if first > last {
        return Err(Refusal::shape(format!("the axes {first} to {last}")));
    }
    let flat = count(&x.shape[first..=last])?;
    if first == 1 && last == x.shape.len() - 1 && first != last {
        return Ok(vec![site.op("Flatten", &[&x], vec![("axis", Attribute::Int(1))], vec![x.shape[0], flat])?]);
    }
    let shape = [&x.shape[..first], &[flat], &x.shape[last + 1..]].concat();
    Ok(vec![site.reshape(&x, &shape)?])
}

/// The axes in the stated order, then the others.
pub(super) fn permute(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let mut order = Vec::new();
    for axis in site.ints("order")? {
        let axis = canonical(axis, &x.shape)?;
        if order.contains(&axis) {
            return site.refuse("order", "has an axis twice");
        }
        order.push(axis);
    }
    let rest: Vec<usize> = (0..x.shape.len()).filter(|axis| !order.contains(axis)).collect();
    order.extend(rest);
    Ok(vec![transposed(site, &x, &order)?])
}

pub(super) fn tile(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, tiles) = (site.x(), site.size("tiles")?);
    let axis = canonical(site.int("axis")?, &x.shape)?;
    let mut repeats = vec![1; x.shape.len()];
    repeats[axis] = tiles;
    Ok(vec![tiled(site, &x, &repeats)?])
}

/// The first input, cut to the second one's extents from an axis on.
pub(super) fn crop(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, like) = (site.x(), site.inputs[1].clone());
    let axis = canonical(site.int("axis")?, &x.shape)?;
    let axes = axis..x.shape.len();
    let offsets = match &site.ints("offset")?[..] {
        [] => vec![0; axes.len()],
        [one] => vec![*one; axes.len()],
        all if all.len() == axes.len() => all.to_vec(),
        _ => return site.refuse("offset", format!("for {} axes", axes.len())),
    };
    if like.shape.len() != x.shape.len() {
        return Err(Refusal::shape(format!("{} cut to {}", shown(&x.shape), shown(&like.shape))));
    }
    let mut cuts = Vec::new();
    for (axis, offset) in axes.zip(&offsets) {
        let start = u64::try_from(*offset).unwrap_or(u64::MAX);
        cuts.push(Cut { axis, start, end: start.saturating_add(like.shape[axis]) });
    }
    Ok(vec![cut(site, &x, &cuts)?])
}

/// The channels of groups, taken in turn.
pub(super) fn shuffle_channel(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, group) = (site.x(), site.size("group")?);
    site.needs_one_of(&["group"])?;
    site.rank(&x, 4..=4)?;
    let [batch, channels, height, width] = x.shape[..] else { return Err(Refusal::shape("no image")) };
    if !channels.is_multiple_of(group) {
        return Err(Refusal::shape(format!("{group} groups of {channels} channels")));
    }
    let apart = site.reshape(&x, &[batch, group, channels / group, height, width])?;
    let turned = transposed(site, &apart, &[0, 2, 1, 3, 4])?;
    Ok(vec![site.reshape(&turned, &x.shape)?])
}
