//! Tiles of a permutation along diagonals, where rows lie so far apart that they share the sets of a cache.
//!
//! ```text
//! for each square of four lines of entries each way, in parts of one line each way:
//!     for each diagonal of its parts:
//!         for each row of a part, for each part: copy a line of the source to the stage
//!         for each lane of C entries x, for each part: turn them, store C lines of the destination,
//!             and ask for as many lines of the next square, row by row, in the second-level cache
//! ```
//! So neighbours in time are in sets of their own. A set of the first-level cache of an AMD EPYC (Zen 4) takes a line
//! in 10 cycles to be read, in 17 to be written, and rows of 4 KiB all begin in one set: 128² of f32 in the
//! second-level cache take 1.13 µs in tiles of 16 rows, 3.1 µs where the rows are 4 KiB apart on both sides, and 1.8 µs
//! along diagonals. 1024² of f32 take 2.1 of memcpy's time in place of 2.7, with AVX2 2.3 in place of 4.1. Not for
//! bytes, nor for pairs with AVX2: a lane stores 16 and 8 lines of one set, and a square has more rows than a set of
//! the second level has room for, u8 4096² 4.0 and 2.4 (benches/record/2026-11-28-moves.md).

#![allow(unsafe_code)]

use super::super::machine::{Block, Lines, Store};
use super::super::tiles::{LANE, Vector, check, load, start, turn};
use crate::plan::LINE;
use std::array::from_fn;
use std::mem::MaybeUninit;

/// Parts along each side of a square.
const SIDE: usize = 4;

/// The parts of a diagonal, each of as many rows as a line has entries. Never read before it is written.
type Stage = MaybeUninit<Lines<[[[u8; LINE]; LINE]; SIDE]>>;

/// Where the rows of a part begin.
const ROWS: [usize; LINE] = {
    let mut places = [0; LINE];
    let mut row = 0;
    while row < LINE {
        places[row] = row * LINE;
        row += 1;
    }
    places
};

/// The whole block; `false`, and nothing is moved, where a side is shorter than a square or the rows of the source
/// share no sets. A register has `R` entries of `W` bytes, a lane has `C`.
///
/// # Safety
/// The machine has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn diagonals<V: Vector, const W: usize, const R: usize, const C: usize>(
    block: &mut Block<'_>,
) -> bool {
    const { assert!(W * R == V::BYTES && W * C == LANE && LINE.is_multiple_of(V::BYTES) && C <= 16) };
    let part = const { LINE / W };
    let (xs, ys) = (block.to.len(), block.from.len());
    if xs.min(ys) < SIDE * part || !share_sets(block.from) {
        return false;
    }
    check(block.from, block.src, xs * W);
    check(block.to, block.dst, ys * W);
    let dst = block.dst.as_ptr().addr();
    let places = block.to.iter().fold(dst, |all, to| all | (dst + to));
    let past = block.store == Store::Past && places.is_multiple_of(LINE);
    past.then(V::begin_streaming);
    let mut stage = Stage::uninit();
    let (columns, rows) = (xs.div_ceil(part), ys.div_ceil(part));
    for left in (0..columns).step_by(SIDE) {
        for top in (0..rows).step_by(SIDE) {
            let below = top + SIDE < rows;
            let next =
                if below { Next::of(block, left, top + SIDE, part) } else { Next::of(block, left + SIDE, 0, part) };
            // Else parts overlap, or are done twice.
            let past = past && (left + SIDE) * part <= xs && (top + SIDE) * part <= ys;
            let across = SIDE.min(columns - left);
            let y: [usize; SIDE] = from_fn(|k| start((top + k).min(rows - 1), ys, part));
            for diagonal in 0..across {
                let x: [usize; SIDE] = from_fn(|k| start(left + (k + diagonal) % across, xs, part));
                // SAFETY: the caller promises the set; `check` has seen both sides, and each part lies within: `start`
                // leaves room for `part` entries, of `xs` and of `ys`. `past` only where all of `to` are multiples of a
                // line, and all parts of the square are whole and done once.
                unsafe {
                    fill::<V, W>(block, &x, &y, stage.as_mut_ptr().cast());
                    let asked = diagonal * part * SIDE;
                    empty::<V, W, R, C>(block, &x, &y, stage.as_ptr().cast(), next.as_ref(), asked, past);
                }
            }
        }
    }
    true
}

/// Whether the rows begin in few sets of a first-level cache, which come again after 4 KiB.
fn share_sets(from: &[usize]) -> bool {
    /// At most four sets.
    const APART: usize = 1 << 10;
    matches!(from, [first, second, ..] if second.wrapping_sub(*first).is_multiple_of(APART))
}

/// Copies a diagonal of parts, that begin at `x` and `y`, to the stage.
///
/// # Safety
/// The machine has the set. The block has `LINE / W` entries from each of `x` and `y` on, [`check`] has seen its
/// source, and the stage is a [`Stage`].
#[inline(always)]
unsafe fn fill<V: Vector, const W: usize>(block: &Block<'_>, x: &[usize; SIDE], y: &[usize; SIDE], stage: *mut u8) {
    let part = const { LINE / W };
    let from: [&[usize]; SIDE] = from_fn(|k| &block.from[y[k]..][..part]);
    let src: [*const u8; SIDE] = from_fn(|k| block.src.as_ptr().wrapping_add(x[k] * W));
    #[allow(clippy::needless_range_loop, reason = "the rows of all parts in turn")]
    for row in 0..part {
        for k in 0..SIDE {
            for at in (0..LINE).step_by(V::BYTES) {
                // SAFETY: the caller promises that a line, `part` entries from `x` on, can be read in each row, and row
                // `row` of part `k` is one of the stage's: `row` is below `part`, which is at most LINE.
                unsafe { V::load(src[k].add(from[k][row] + at)).store(stage.add((k * part + row) * LINE + at)) };
            }
        }
    }
}

/// Turns the parts of the stage and stores them at `x` and `y`.
///
/// # Safety
/// The machine has the set. The block has `LINE / W` entries from each of `x` and `y` on, [`check`] has seen its
/// destination, and [`fill`] has filled the stage. `past` only where lines of all parts are a line's multiple in
/// memory, and no byte of them is stored twice.
#[inline(always)]
unsafe fn empty<V: Vector, const W: usize, const R: usize, const C: usize>(
    block: &mut Block<'_>,
    x: &[usize; SIDE],
    y: &[usize; SIDE],
    stage: *const u8,
    next: Option<&Next>,
    asked: usize,
    past: bool,
) {
    let part = const { LINE / W };
    let to: [&[usize]; SIDE] = from_fn(|k| &block.to[x[k]..][..part]);
    // One pointer, from which all parts' are: another one would end this one's right to store.
    let base = block.dst.as_mut_ptr();
    let dst: [*mut u8; SIDE] = from_fn(|k| base.wrapping_add(y[k] * W));
    for lane in 0..part / C {
        for k in 0..SIDE {
            for register in 0..LINE / V::BYTES {
                let from = ROWS[register * R..].first_chunk().expect("R rows");
                // SAFETY: the caller promises the set and a full stage, of which part `k` has the `R` rows `from` and
                // in each of them lane `lane`.
                let lines = unsafe { turn::<V, W, C>(load::<V, R, C>(stage.add(k * part * LINE + lane * LANE), from)) };
                for i in 0..C {
                    // SAFETY: the caller promises `part` entries from `y` on, a line, in the destination of each of
                    // `part` entries from `x` on, and a multiple of a line for a stream, which the stores of no other
                    // part touch; a token whose stores go past the caches fences before the bytes are anyone's.
                    unsafe {
                        let place = dst[k].add(to[k][lane * C + i] + register * V::BYTES);
                        if past { lines[i].stream(place) } else { lines[i].store(place) }
                    }
                }
            }
            if let Some(next) = next {
                next.ask::<V, C>(asked + (lane * SIDE + k) * C, past);
            }
        }
    }
}

/// A square that is to come: where its rows are read and its lines are written.
struct Next {
    from: *const usize,
    to: *const usize,
    src: *const u8,
    dst: *mut u8,
}

impl Next {
    /// The one that begins with these parts; `None` where it is not whole.
    #[inline(always)]
    fn of(block: &mut Block<'_>, left: usize, top: usize, part: usize) -> Option<Self> {
        let from = block.from.get(top * part..(top + SIDE) * part)?.as_ptr();
        let to = block.to.get(left * part..(left + SIDE) * part)?.as_ptr();
        let src = block.src.as_ptr().wrapping_add(left * LINE);
        let dst = block.dst.as_mut_ptr().wrapping_add(top * LINE);
        Some(Next { from, to, src, dst })
    }

    /// Asks for `C` lines from number `first` on, on both sides.
    #[inline(always)]
    fn ask<V: Vector, const C: usize>(&self, first: usize, past: bool) {
        for line in first..first + C {
            let (row, at) = (line / SIDE, line % SIDE * LINE);
            // SAFETY: a square has SIDE · `part` rows and lines, all in the tables, as `of` has seen; of SIDE · SIDE ·
            // `part` lines in all, `line` is one.
            let (from, to) = unsafe { (*self.from.add(row), *self.to.add(row)) };
            V::prefetch(self.src.wrapping_add(from + at));
            if !past {
                V::prefetch(self.dst.wrapping_add(to + at));
            }
        }
    }
}
