//! From a piece of work, the addresses of its operands and the limits of a launch to launches: pure, without a device.
//!
//! The width of a word follows from addresses, lengths and strides. Within a launch indices have 32 bits; longer
//! work is cut. Relies on plans for the geometry and on `params.rs` for the structs that kernels take.

mod elements;
mod limits;
mod permute;
#[cfg(test)]
mod tests;

pub(crate) use elements::{joined, sum_len};
#[cfg(test)]
pub(crate) use limits::LIMITS;
pub(crate) use limits::Limits;

use super::params::{Launch, Params, Rows, Run, Squares, THREADS};
use crate::work::Work;
use bytemuck::Zeroable;

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

/// The file with the kernels for some work. Follows from the work alone, because kernels are loaded before there are
/// addresses: a launch whose addresses do not fit falls back to words, which each file for permutations has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Family {
    Rows,
    Tiles,
    /// Tiles of entries of less than four bytes.
    Packed,
    Narrow,
    Squares,
    Elements,
    Conversions,
    Checks,
    Floats,
    Integers,
}

impl Family {
    pub(crate) fn of(work: &Work) -> Self {
        match work {
            Work::Rows { .. } => Family::Rows,
            Work::Permute(plan) => permute::family(plan),
            Work::Squares { .. } => Family::Squares,
            Work::Arithmetic { .. } | Work::Fill { .. } => Family::Elements,
            Work::Convert { .. } => Family::Conversions,
            Work::Check { .. } => Family::Checks,
            Work::Sums { dtype, .. } if dtype.is_float() => Family::Floats,
            Work::Sums { .. } => Family::Integers,
        }
    }
}

/// The launches of some work, of this family. The spans are the work's operands, in order.
pub(crate) fn launches(work: &Work, family: Family, reads: &[Span], writes: &[Span], limits: Limits) -> Vec<Launch> {
    match (*work, reads, writes) {
        (Work::Rows { rows, split: false }, parts, &[whole]) => self::rows(whole, parts, rows, false, limits),
        (Work::Rows { rows, split: true }, &[whole], parts) => self::rows(whole, parts, rows, true, limits),
        (Work::Permute(plan), &[from], &[to]) => permute::permute(&plan, family, from, to, limits),
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

/// The columns of a launch of rows being gathered.
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
            let mut params = Rows {
                whole: self.start + (first * self.pitch) as u64,
                pitch: self.pitch as u64,
                words: words as u32,
                row: self.columns as u32,
                step_rows: THREADS / self.columns as u32,
                step_columns: THREADS % self.columns as u32,
                split: split.into(),
                ..Rows::zeroed()
            };
            for run in &self.runs {
                params.push(Run { at: run.at + first as u64 * run.pitch, ..*run });
            }
            let params = Params::Rows(Box::new(params));
            launches.push(Launch { kernel, blocks: blocks(words.div_ceil(ITEMS as usize)), params });
        }
        self.start += (self.columns * self.width) as u64;
        self.columns = 0;
        self.runs.clear();
    }
}

/// Matrices one behind the other, each transposed in place.
fn squares(span: Span, side: usize, width: usize, limits: Limits) -> Vec<Launch> {
    let matrix = side * side * width;
    let tiles = side.div_ceil(32);
    let kernel = of_width(width, ["", "square_8", "square_4", "square_2", "square_1"]);
    let each = (limits.words / (tiles * tiles)).max(1);
    let bytes = !span.is_aligned(width);
    let matrices = span.len / matrix;
    let launches = (0..matrices).step_by(each).map(|first| {
        let count = each.min(matrices - first);
        let at = span.address + (first * matrix) as u64;
        let (matrix, bytes) = (matrix as u64, bytes.into());
        let params = Squares { at, matrix, side: side as u32, tiles: tiles as u32, bytes, pad: 0 };
        Launch { kernel, blocks: (count * tiles * tiles) as u32, params: Params::Squares(params) }
    });
    launches.collect()
}
