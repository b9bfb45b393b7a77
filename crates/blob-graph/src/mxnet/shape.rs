//! Operators that give values another shape or order, and change none.

use crate::forms::{self, concat, tiled, transposed};
use crate::operand::{Operand, canonical, count, shown};
use crate::site::Site;
use crate::unsupported::Refusal;

/// The codes of `Reshape`: 0 keeps an extent, −1 follows from the others, −2 keeps all that are left, −3 joins two,
/// −4 splits one into the two extents behind.
pub(super) fn reshape(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, is_reversed) = (site.x(), site.flag("reverse")?);
    let (mut codes, mut from) = (site.ints("shape")?, x.shape.clone());
    let is_old = site.ints("target_shape")?.iter().any(|extent| *extent != 0);
    if codes.is_empty() || is_old || site.flag("keep_highest")? || is_reversed && codes.contains(&-4) {
        return site.refuse("shape", "with target_shape, keep_highest or reverse is not supported");
    }
    if is_reversed {
        codes.reverse();
        from.reverse();
    }
    let mut shape = walked(&codes, &from).ok_or_else(|| Refusal::shape(format!("{codes:?} for {}", shown(&from))))?;
    if is_reversed {
        shape.reverse();
    }
    Ok(vec![site.reshape(&x, &shape)?])
}

/// The shape that the codes make; `None` where they do not fit.
fn walked(codes: &[i64], from: &[u64]) -> Option<Vec<u64>> {
    let (mut shape, mut open, mut at) = (Vec::new(), None, 0);
    let mut codes = codes.iter().copied();
    while let Some(code) = codes.next() {
        let own = from.get(at).copied();
        at += 1;
        match code {
            0 => shape.push(own?),
            -1 if open.is_none() => {
                open = Some(shape.len());
                shape.push(1);
            }
            -2 => {
                shape.extend(from.get(at - 1..).unwrap_or_default());
                at = from.len();
            }
            -3 => {
                shape.push(own?.checked_mul(*from.get(at)?)?);
                at += 1;
            }
            -4 => {
                let (one, two) = (codes.next()?, codes.next()?);
                let extent = |n: i64| u64::try_from(n).ok().filter(|n| *n > 0);
                let parts = match (extent(one), extent(two)) {
                    (Some(one), Some(two)) => [one, two],
                    (Some(one), None) if two == -1 => [one, own? / one],
                    (None, Some(two)) if one == -1 => [own? / two, two],
                    _ => return None,
                };
                shape.extend((parts[0].checked_mul(parts[1]) == own).then_some(parts)?);
            }
            code => shape.push(u64::try_from(code).ok()?),
        }
    }
    if let Some(open) = open {
        let (whole, known) = (count(from).ok()?, count(&shape).ok()?);
        shape[open] = whole.checked_div(known).filter(|extent| extent * known == whole)?;
    }
    Some(shape)
}

/// One axis behind the first.
pub(super) fn flatten(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 1..=8)?;
    Ok(vec![forms::flat(site, &x)?])
}

/// The axes in the stated order, or in the opposite one.
pub(super) fn transpose(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let stated = if site.is_none("axes") { Vec::new() } else { site.ints("axes")? };
    let mut order: Vec<usize> = stated.iter().map(|axis| canonical(*axis, &x.shape)).collect::<Result<_, _>>()?;
    if order.is_empty() {
        order = (0..x.shape.len()).rev().collect();
    }
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..x.shape.len()) {
        return site.refuse("axes", format!("of {}", shown(&x.shape)));
    }
    Ok(vec![transposed(site, &x, &order)?])
}

pub(super) fn swap_axis(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let (one, two) = (canonical(site.int("dim1")?, &x.shape)?, canonical(site.int("dim2")?, &x.shape)?);
    let mut order: Vec<usize> = (0..x.shape.len()).collect();
    order.swap(one, two);
    Ok(vec![transposed(site, &x, &order)?])
}

/// The place of a new axis among `rank + 1`.
fn new_axis(axis: i64, x: &Operand) -> Result<usize, Refusal> {
    canonical(axis, &[&x.shape[..], &[1]].concat())
}

/// The shape with a new axis of 1.
fn wider(x: &Operand, axis: usize) -> Vec<u64> {
    [&x.shape[..axis], &[1], &x.shape[axis..]].concat()
}

/// Adds an axis of 1, whatever the batch.
fn expanded(site: &mut Site<'_>, x: &Operand, axis: usize) -> Result<Operand, Refusal> {
    let axes = site.ints_of(&[axis as i64])?;
    site.op("Unsqueeze", &[x, &axes], vec![], wider(x, axis))
}

pub(super) fn expand_dims(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let axis = new_axis(site.int("axis")?, &x)?;
    Ok(vec![expanded(site, &x, axis)?])
}

/// Without the named axes of 1, or without all.
pub(super) fn squeeze(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let named = if site.is_none("axis") { Vec::new() } else { site.ints("axis")? };
    let mut axes: Vec<usize> = named.iter().map(|axis| canonical(*axis, &x.shape)).collect::<Result<_, _>>()?;
    if axes.is_empty() {
        axes = (0..x.shape.len()).filter(|axis| x.shape[*axis] == 1).collect();
    }
    if axes.iter().any(|axis| x.shape[*axis] != 1) {
        return site.refuse("axis", format!("of {}", shown(&x.shape)));
    }
    let mut shape: Vec<u64> =
        x.shape.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, extent)| *extent).collect();
    if shape.is_empty() {
        // MXNet has no scalars: one axis of 1 is left.
        axes.pop();
        shape.push(1);
    }
    if axes.is_empty() {
        return Ok(vec![x]);
    }
    let axes: Vec<i64> = axes.iter().map(|axis| *axis as i64).collect();
    let axes = site.ints_of(&axes)?;
    Ok(vec![site.op("Squeeze", &[&x, &axes], vec![], shape)?])
}

pub(super) fn concatenated(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let axis = canonical(site.int("dim")?, &site.x().shape)?;
    let inputs = site.inputs;
    Ok(vec![concat(site, inputs, axis)?])
}

/// The inputs side by side along a new axis.
pub(super) fn stack(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let axis = new_axis(site.int("axis")?, &site.x())?;
    crate::window::same_shape(site.inputs)?;
    let mut inputs = site.inputs.to_vec();
    for input in &mut inputs {
        *input = expanded(site, input, axis)?;
    }
    Ok(vec![concat(site, &inputs, axis)?])
}

pub(super) fn tile(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (mut x, mut repeats) = (site.x(), site.ints("reps")?);
    if repeats.len() > blob_core::MAX_AXES || repeats.iter().any(|repeat| *repeat < 1) {
        return site.refuse("reps", format!("of {}", shown(&x.shape)));
    }
    while x.shape.len() < repeats.len() {
        x = expanded(site, &x, 0)?;
    }
    let before = x.shape.len() - repeats.len();
    repeats.splice(0..0, std::iter::repeat_n(1, before));
    let repeats: Vec<u64> = repeats.iter().map(|repeat| *repeat as u64).collect();
    Ok(vec![tiled(site, &x, &repeats)?])
}

/// Each element so many times in a row, along an axis, or of all values.
pub(super) fn repeat(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (mut x, repeats, mut axis) = (site.x(), site.size("repeats")?, 0);
    if site.is_none("axis") {
        x = site.reshape(&x, &[count(&x.shape)?])?;
    } else {
        axis = canonical(site.int("axis")?, &x.shape)?;
    }
    let mut shape = x.shape.clone();
    shape[axis] = shape[axis].saturating_mul(repeats);
    let apart = expanded(site, &x, axis + 1)?;
    let mut longer = apart.shape.clone();
    longer[axis + 1] = repeats;
    let longer = forms::repeated(site, &apart, &longer)?;
    Ok(vec![site.reshape(&longer, &shape)?])
}

/// The first input with some of its axes replaced by some of the second input's, which have as many elements.
pub(super) fn reshape_like(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, like) = (site.x(), site.inputs[1].shape.clone());
    let span = |first: &str, last: &str, rank: usize| -> Result<(usize, usize), Refusal> {
        let place = |name: &str, default: usize| -> Result<usize, Refusal> {
            let stated = if site.is_none(name) { default as i64 } else { site.int(name)? };
            let from_left = if stated < 0 { stated.saturating_add(rank as i64) } else { stated };
            let place = usize::try_from(from_left).ok().filter(|place| *place <= rank);
            place.map_or_else(|| site.refuse(name, format!("of {rank} axes")), Ok)
        };
        let (first_axis, end) = (place(first, 0)?, place(last, rank)?);
        if first_axis > end { site.refuse(first, "is behind the end") } else { Ok((first_axis, end)) }
    };
    let (own, other) = (span("lhs_begin", "lhs_end", x.shape.len())?, span("rhs_begin", "rhs_end", like.len())?);
    let shape = [&x.shape[..own.0], &like[other.0..other.1], &x.shape[own.1..]].concat();
    Ok(vec![site.reshape(&x, &shape)?])
}

/// Axes of 1 become longer: the extents are stated, or those of the second input.
pub(super) fn broadcast(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    let mut shape = x.shape.clone();
    match &*site.node.type_name {
        "broadcast_to" => {
            let stated = site.ints("shape")?;
            for (extent, stated) in shape.iter_mut().zip(&stated).filter(|(_, stated)| **stated != 0) {
                *extent = u64::try_from(*stated).unwrap_or(0);
            }
            if stated.len() != shape.len() {
                return site.refuse("shape", format!("of {}", shown(&x.shape)));
            }
        }
        "broadcast_like" => shape.clone_from(&site.inputs[1].shape),
        _ => {
            let (axes, sizes) = (site.ints("axis")?, site.ints("size")?);
            for (axis, size) in axes.iter().zip(&sizes) {
                shape[canonical(*axis, &x.shape)?] = u64::try_from(*size).unwrap_or(0);
            }
            if axes.len() != sizes.len() {
                return site.refuse("size", "has not one number for each axis");
            }
        }
    }
    let fits = shape.len() == x.shape.len()
        && shape.iter().zip(&x.shape).all(|(to, from)| *to > 0 && (to == from || *from == 1));
    if !fits {
        return Err(Refusal::shape(format!("{} as {}", shown(&x.shape), shown(&shape))));
    }
    Ok(vec![forms::repeated(site, &x, &shape)?])
}
