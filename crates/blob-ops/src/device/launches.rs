//! From a piece of work, the addresses of its operands and the limits of a launch to launches: pure, without a device.
//!
//! The width of a word follows from addresses, lengths and strides. Within a launch indices have 32 bits; what is longer
//! is cut. Relies on plans for the geometry and on `params.rs` for what kernels are told.

mod elements;
mod limits;
#[cfg(test)]
mod tests;

pub(crate) use elements::{joined, sum_len};
#[cfg(test)]
pub(crate) use limits::LIMITS;
pub(crate) use limits::Limits;

use super::params::{Axis, Launch, Params, Rows, Run, Squares, Strided, THREADS, Tiles};
use crate::plan::{Blocks, Permutation, Stride, Strides};
use crate::work::Work;

/// Bytes on the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) address: u64,
    pub(crate) len: usize,
}

impl Span {
    fn is_aligned(self, width: usize) -> bool {
        self.address.is_multiple_of(width as u64)
    }
}

/// What a device has to launch. The spans are those that the work names, in its order.
pub(crate) fn launches(work: &Work, reads: &[Span], writes: &[Span], limits: Limits) -> Vec<Launch> {
    match (*work, reads, writes) {
        (Work::Rows { rows, split: false }, parts, &[whole]) => self::rows(whole, parts, rows, false, limits),
        (Work::Rows { rows, split: true }, &[whole], parts) => self::rows(whole, parts, rows, true, limits),
        (Work::Permute(plan), &[from], &[to]) => permute(&plan, from, to, limits),
        (Work::Squares { side, width }, &[], &[span]) => squares(span, side, width, limits),
        (Work::Arithmetic { op, dtype, alpha }, &[], &[y]) => elements::arithmetic(op, dtype, alpha, y, y, limits),
        (Work::Arithmetic { op, dtype, alpha }, &[x], &[y]) => elements::arithmetic(op, dtype, alpha, y, x, limits),
        (Work::Fill { element, size }, &[], &[span]) => elements::fill(&element[..size], span, limits),
        (Work::Convert { source, target }, &[from], &[to]) => elements::convert(source, target, from, to, limits),
        (Work::Check { dtype, bounds }, &[from], &[found]) => {
            elements::check(dtype, bounds, from, found.address, limits)
        }
        (Work::Sums { dtype, square }, &[from], &[to]) => elements::sums(dtype, square, from, to, limits),
        _ => unreachable!("{work:?} of {} inputs and {} outputs", reads.len(), writes.len()),
    }
}

/// Words that a thread moves.
const ITEMS: u32 = 4;

/// Entries that a side needs for tiles to pay: with fewer, most lanes of a tile's rows would have nothing to do.
const MIN_SIDE: usize = 16;

/// Of the numbers that all are multiples of, the widest word that a kernel moves.
fn width(multiples: impl IntoIterator<Item = u64>) -> usize {
    let all = multiples.into_iter().fold(16, |all, each| all | each);
    1 << all.trailing_zeros()
}

/// The kernel for words of this width, of names with the widest first.
fn of_width(width: usize, names: [&'static str; 5]) -> &'static str {
    names[4 - width.ilog2() as usize]
}

fn blocks(threads: usize) -> u32 {
    threads.div_ceil(THREADS as usize) as u32
}

/// Rows of one run of each part: to the whole, or with `split` from it. No part shares a byte with another.
fn rows(whole: Span, parts: &[Span], rows: usize, split: bool, limits: Limits) -> Vec<Launch> {
    let parts: Vec<Span> = parts.iter().copied().filter(|part| part.len > 0).collect();
    let mut launches = Vec::new();
    if parts.is_empty() || rows == 0 {
        return launches;
    }
    let pitch = whole.len / rows;
    let of_parts = parts.iter().flat_map(|part| [part.address, (part.len / rows) as u64]);
    let width = width(of_parts.chain([whole.address]));
    let mut table = Table { width, pitch, start: whole.address, columns: 0, runs: Vec::new() };
    for part in parts {
        let (run, mut done) = (part.len / rows, 0);
        while done < run {
            let room = limits.words - table.columns;
            if table.runs.len() == limits.parts || room == 0 {
                table.launch(rows, split, limits, &mut launches);
                continue;
            }
            let words = ((run - done) / width).min(room);
            table.columns += words;
            let end = table.columns as u32;
            table.runs.push(Run { at: part.address + done as u64, pitch: run as u64, end });
            done += words * width;
        }
    }
    table.launch(rows, split, limits, &mut launches);
    launches
}

/// The columns of a launch of rows while they are gathered.
struct Table {
    width: usize,
    /// Bytes from row to row of the whole.
    pitch: usize,
    /// Where the first column lies in the first row of the whole.
    start: u64,
    columns: usize,
    runs: Vec<Run>,
}

impl Table {
    /// Launches for all rows of these columns; the next columns begin behind.
    fn launch(&mut self, rows: usize, split: bool, limits: Limits, launches: &mut Vec<Launch>) {
        let kernel = of_width(self.width, ["rows_16", "rows_8", "rows_4", "rows_2", "rows_1"]);
        let each = (limits.words / self.columns).max(1);
        for first in (0..rows).step_by(each) {
            let words = each.min(rows - first) * self.columns;
            let below = |run: &Run| Run { at: run.at + first as u64 * run.pitch, ..*run };
            let params = Params::Rows(Rows {
                whole: self.start + (first * self.pitch) as u64,
                pitch: self.pitch as u64,
                words: words as u32,
                row: self.columns as u32,
                split,
                parts: self.runs.iter().map(below).collect(),
            });
            launches.push(Launch { kernel, blocks: blocks(words.div_ceil(ITEMS as usize)), params });
        }
        self.start += (self.columns * self.width) as u64;
        self.columns = 0;
        self.runs.clear();
    }
}

/// A permutation from one place to another, which do not overlap.
fn permute(plan: &Permutation, from: Span, to: Span, limits: Limits) -> Vec<Launch> {
    let (from, to) = (from.address, to.address);
    if plan.axes.as_slice().is_empty() {
        let span = |address| Span { address, len: plan.run };
        return rows(span(to), &[span(from)], 1, false, limits);
    }
    let mut launches = Vec::new();
    cut(*plan, from, to, width([from, to, plan.run as u64]), limits, &mut launches);
    launches
}

/// Halves along the longest axis, and the halves again, until each fits in a launch.
fn cut(plan: Permutation, from: u64, to: u64, width: usize, limits: Limits, launches: &mut Vec<Launch>) {
    if plan.bytes() / width <= limits.words {
        return launches.push(moved(&plan, from, to, width));
    }
    let longest = plan.axes.as_slice().iter().max_by_key(|axis| axis.len).copied();
    // A run alone is longer than a launch.
    let Some(axis) = longest.filter(|axis| axis.len > 1) else {
        let span = |address| Span { address, len: plan.run };
        return launches.extend(rows(span(to), &[span(from)], 1, false, limits));
    };
    let half = axis.len / 2;
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
    cut(part(half), from, to, width, limits, launches);
    let (from, to) = (from + (half * axis.from) as u64, to + (half * axis.to) as u64);
    cut(part(axis.len - half), from, to, width, limits, launches);
}

/// One launch: tiles where an entry is a word and both sides are long, else words in the order of the shorter side.
fn moved(plan: &Permutation, from: u64, to: u64, width: usize) -> Launch {
    let sides = Blocks::new(plan);
    if plan.run == width && sides.x.count() >= MIN_SIDE && sides.y.count() >= MIN_SIDE {
        return tiles(&sides, from, to, width);
    }
    let mut axes = plan.axes.as_slice().to_vec();
    match sides.x.count() < sides.y.count() {
        true => axes.sort_by_key(|axis| axis.from),
        false => axes.sort_by_key(|axis| axis.to),
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
    let params = Params::Strided(Strided { from, to, words, axes });
    Launch { kernel, blocks: blocks(words.div_ceil(ITEMS) as usize), params }
}

fn tiles(sides: &Blocks, from: u64, to: u64, width: usize) -> Launch {
    let [outer, x, y] = [&sides.outer, &sides.x, &sides.y].map(Axis::all);
    let packed = width < 4 && is_packed([from, to], [&outer, &x, &y], width);
    let (kernel, side) = match (width, packed) {
        (1, true) => ("packed_1", 128),
        (2, true) => ("packed_2", 64),
        (1 | 2 | 4, _) => (of_width(width, ["", "", "tile_4", "tile_2", "tile_1"]), 64),
        _ => (of_width(width, ["tile_16", "tile_8", "", "", ""]), 32),
    };
    let outer_count = Axis::count(&outer);
    let params = Tiles { from, to, side, outer, x, y };
    let [along_x, along_y] = params.tiles();
    Launch { kernel, blocks: outer_count * along_x * along_y, params: Params::Tiles(params) }
}

/// Whether every row begins and ends at a word of four bytes, in the source and in the destination.
fn is_packed(places: [u64; 2], [outer, x, y]: [&[Axis]; 3], width: usize) -> bool {
    let ends = [x, y].map(|side| u64::from(Axis::count(side)) * width as u64);
    let strides = outer.iter().flat_map(|axis| [axis.from, axis.to]);
    let rows = x.iter().map(|axis| axis.to).chain(y.iter().map(|axis| axis.from));
    places.into_iter().chain(ends).chain(strides).chain(rows).all(|place| place.is_multiple_of(4))
}

/// Matrices one behind the other, each transposed where it is.
fn squares(span: Span, side: usize, width: usize, limits: Limits) -> Vec<Launch> {
    let matrix = side * side * width;
    let tiles = side.div_ceil(32);
    let kernel = of_width(width, ["", "square_8", "square_4", "square_2", "square_1"]);
    let each = (limits.words / (tiles * tiles)).max(1);
    let bytes = !span.is_aligned(width);
    let matrices = span.len / matrix;
    let launch = |first: usize| {
        let count = each.min(matrices - first);
        let at = span.address + (first * matrix) as u64;
        let params = Squares { at, matrix: matrix as u64, side: side as u32, tiles: tiles as u32, bytes };
        Launch { kernel, blocks: (count * tiles * tiles) as u32, params: Params::Squares(params) }
    };
    (0..matrices).step_by(each).map(launch).collect()
}
