//! Launches of permutations: in tiles where both sides are long, through a stretch where one is short, else word by
//! word.
//!
//! A launch whose addresses or extents do not fit its family falls back to words.

use super::super::params::{Axes, Axis, Launch, Narrow, Params, Strided, Tiles};
use super::{Family, ITEMS, Limits, Span, blocks, of_width, rows, width};
use crate::plan::{Blocks, Permutation, Stride, Strides};

/// Entries that a side needs for tiles to pay: with fewer, most lanes of a tile's rows would have nothing to do.
const MIN_SIDE: usize = 16;

/// The longest side that is called short where the other one may be taken in stretches.
const MAX_NARROW: usize = 32;

/// A shift by which every word number becomes 0: no block has 2³¹ words.
const TO_ZERO: u32 = 31;

/// Where long axes are cut.
const STEP: usize = 128;

/// Entries that are worth a block.
const MIN_STRETCH: usize = 1024;

/// Entries along each side from which on the widest tiles pay. Measured on an H100, of a copy: 4 bytes 0.95 in narrow
/// tiles and 0.97 in wide ones, 2 bytes 0.92 and 0.97, 1 byte 0.90 and 0.94; but with 64 entries on a side 1.00 and
/// 0.78.
const MIN_WIDE: u32 = 256;

pub(super) fn family(plan: &Permutation) -> Family {
    let sides = Blocks::new(plan);
    match () {
        () if plan.axes.as_slice().is_empty() => Family::Rows,
        () if short(&sides).is_some() || sides.x.count() < MIN_SIDE || sides.y.count() < MIN_SIDE => Family::Narrow,
        () if plan.run < 4 => Family::Packed,
        () => Family::Tiles,
    }
}

/// A permutation from one place to another, which do not overlap.
pub(super) fn permute(plan: &Permutation, family: Family, from: Span, to: Span, limits: Limits) -> Vec<Launch> {
    let (from, to) = (from.address, to.address);
    if family == Family::Rows {
        let span = |address| Span { address, len: plan.run };
        return rows(span(to), &[span(from)], 1, false, limits);
    }
    let mut launches = Vec::new();
    let width = width([from, to, plan.run as u64]);
    cut(*plan, from, to, limits.words * width, &mut |plan, from, to| {
        launches.push(moved(plan, from, to, width, family));
    });
    launches
}

/// Halves along the longest axis, and the halves again, until each has at most as many bytes. A run is an axis of
/// bytes.
fn cut(plan: Permutation, from: u64, to: u64, most: usize, launch: &mut impl FnMut(&Permutation, u64, u64)) {
    if plan.bytes() <= most {
        return launch(&plan, from, to);
    }
    let longest = plan.axes.as_slice().iter().max_by_key(|axis| axis.len).copied();
    let Some(axis) = longest.filter(|axis| axis.len > 1) else {
        cut(Permutation { run: most, ..plan }, from, to, most, launch);
        let (from, to) = (from + most as u64, to + most as u64);
        return cut(Permutation { run: plan.run - most, ..plan }, from, to, most, launch);
    };
    // At whole tiles, so that the places of both halves are as aligned as those of the whole.
    let half = if axis.len >= 2 * STEP { axis.len / 2 / STEP * STEP } else { axis.len / 2 };
    let part = |len| {
        let mut axes = Strides::default();
        let mut taken = false;
        for each in plan.axes.as_slice() {
            let is_it = !taken && *each == axis;
            taken |= is_it;
            axes.push(if is_it { Stride { len, ..axis } } else { *each });
        }
        Permutation { run: plan.run, axes }
    };
    cut(part(half), from, to, most, launch);
    let (from, to) = (from + (half * axis.from) as u64, to + (half * axis.to) as u64);
    cut(part(axis.len - half), from, to, most, launch);
}

fn moved(plan: &Permutation, from: u64, to: u64, width: usize, family: Family) -> Launch {
    let sides = Blocks::new(plan);
    let in_blocks = (plan.run == width)
        .then(|| match family {
            Family::Narrow => narrow(&sides, from, to, width),
            _ => tiles(&sides, from, to, width),
        })
        .flatten();
    in_blocks.unwrap_or_else(|| strided(plan, &sides, from, to, width))
}

/// Words in the order of the shorter side.
fn strided(plan: &Permutation, sides: &Blocks, from: u64, to: u64, width: usize) -> Launch {
    let mut axes = plan.axes.as_slice().to_vec();
    if sides.x.count() < sides.y.count() {
        axes.sort_by_key(|axis| axis.from)
    } else {
        axes.sort_by_key(|axis| axis.to)
    }
    let mut ordered = Strides::default();
    axes.into_iter().for_each(|axis| ordered.push(axis));
    let mut axes = Axis::all(&ordered);
    if plan.run > width {
        let (len, stride) = ((plan.run / width) as u32, width as u64);
        axes.insert(0, Axis { len, from: stride, to: stride });
    }
    let words = Axis::count(&axes);
    let kernel = of_width(width, ["strided_16", "strided_8", "strided_4", "strided_2", "strided_1"]);
    let params = Params::Strided(Strided { from, to, words, axes: axes.len() as u32, axis: Axes::new(&axes) });
    Launch { kernel, blocks: blocks(words.div_ceil(ITEMS) as usize), params }
}

fn tiles(sides: &Blocks, from: u64, to: u64, width: usize) -> Option<Launch> {
    if sides.x.count() < MIN_SIDE || sides.y.count() < MIN_SIDE {
        return None;
    }
    let [outer, x, y] = [&sides.outer, &sides.x, &sides.y].map(Axis::all);
    let is_multiple = |of| width <= 4 && is_multiple(of, [from, to], [&outer, &x, &y], width);
    let is_wide = Axis::count(&x) >= MIN_WIDE && Axis::count(&y) >= MIN_WIDE;
    let (kernel, tile) = match width {
        1 if is_wide && is_multiple(4) => ("wide_1", [128, 256]),
        2 if is_wide && is_multiple(8) => ("wide_2", [128; 2]),
        4 if is_wide && is_multiple(8) => ("wide_4", [64; 2]),
        1 if is_multiple(4) => ("packed_1", [128; 2]),
        2 if is_multiple(4) => ("packed_2", [64; 2]),
        1 | 2 | 4 => (of_width(width, ["", "", "tile_4", "tile_2", "tile_1"]), [64; 2]),
        _ => (of_width(width, ["tile_16", "tile_8", "", "", ""]), [32; 2]),
    };
    let [x_count, y_count] = [&x, &y].map(|side| Axis::count(side));
    let (x_tiles, y_tiles) = (x_count.div_ceil(tile[0]), y_count.div_ceil(tile[1]));
    let x_end = outer.len() + x.len();
    let params = Tiles {
        from,
        to,
        x: x_count,
        y: y_count,
        x_tiles,
        y_tiles,
        outer: outer.len() as u32,
        x_end: x_end as u32,
        y_end: (x_end + y.len()) as u32,
        pad: 0,
        axis: Axes::new(outer.iter().chain(&x).chain(&y)),
    };
    Some(Launch { kernel, blocks: Axis::count(&outer) * x_tiles * y_tiles, params: Params::Tiles(params) })
}

/// Whether every row begins and ends at a multiple of `of` bytes, in the source and in the destination.
fn is_multiple(of: u64, places: [u64; 2], [outer, x, y]: [&[Axis]; 3], width: usize) -> bool {
    let ends = [x, y].map(|side| u64::from(Axis::count(side)) * width as u64);
    let strides = outer.iter().flat_map(|axis| [axis.from, axis.to]);
    let rows = x.iter().map(|axis| axis.to).chain(y.iter().map(|axis| axis.from));
    places.into_iter().chain(ends).chain(strides).chain(rows).all(|place| place.is_multiple_of(of))
}

/// A short side and a long one, each of one axis, whose entries together lie without a gap.
struct Short {
    side: Stride,
    long: Stride,
    /// Where there is no gap: in the source, else in the destination.
    gather: bool,
}

impl Short {
    /// Bytes from entry to entry of the short side, where each has a row of its own.
    fn pitch(&self) -> usize {
        if self.gather { self.side.to } else { self.side.from }
    }
}

/// Entries of less than four bytes move as words of four: each row has to hold whole ones.
fn short(sides: &Blocks) -> Option<Short> {
    let (&[x], &[y]) = (sides.x.as_slice(), sides.y.as_slice()) else {
        return None;
    };
    let is_short = |side: Stride| side.len <= MAX_NARROW && x.len * y.len >= MIN_STRETCH;
    let short = match () {
        () if is_short(y) && x.to == y.len * sides.run => Short { side: y, long: x, gather: false },
        () if is_short(x) && y.from == x.len * sides.run => Short { side: x, long: y, gather: true },
        () => return None,
    };
    let strides = sides.outer.as_slice().iter().flat_map(|axis| [axis.from, axis.to]);
    let mut places = [short.pitch(), short.long.len * sides.run].into_iter().chain(strides);
    (sides.run >= 4 || places.all(|place| place.is_multiple_of(4))).then_some(short)
}

fn narrow(sides: &Blocks, from: u64, to: u64, width: usize) -> Option<Launch> {
    let short = short(sides)?;
    let (side, len) = (short.side.len, short.long.len);
    let outer = Axis::all(&sides.outer);
    if width < 4 && ![from, to].iter().all(|address| address.is_multiple_of(4)) {
        return None;
    }
    let (in_word, words) = match width {
        4 => (1, 2048),
        _ => (4usize.div_ceil(width), 1024),
    };
    // Whole cache lines, or nearly: a stretch begins at a multiple of 16 entries.
    let most = words * in_word / side / 16 * 16;
    let chunk = len.div_ceil(len.div_ceil(most)).next_multiple_of(16);
    let chunks = len.div_ceil(chunk) as u32;
    let params = Narrow {
        from,
        to,
        pitch: short.pitch() as u64,
        side: side as u32,
        len: len as u32,
        chunk: chunk as u32,
        chunks,
        // Exact for the number of a word in a block, which is far below 2³² over the words.
        reciprocal: ((1u64 << 32) / (chunk / in_word) as u64 + 1) as u32,
        // With an odd number of entries apart all lanes find banks of their own; with an even one every 128 bytes are
        // moved on.
        shift: if side % 2 == 1 { TO_ZERO } else { (128 / width.max(4)).ilog2() },
        gather: short.gather.into(),
        outer: outer.len() as u32,
        axis: Axes::new(&outer),
    };
    let kernel = of_width(width, ["narrow_16", "narrow_8", "narrow_4", "narrow_2", "narrow_1"]);
    Some(Launch { kernel, blocks: Axis::count(&outer) * chunks, params: Params::Narrow(params) })
}
