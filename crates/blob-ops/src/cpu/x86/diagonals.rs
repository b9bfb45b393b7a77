//! Squares of a permutation along diagonals, where rows lie so far apart that they share the sets of a cache.
//!
//! ```text
//! for each column of squares, of four lines of entries each way, in parts of one line each way, from top to bottom:
//!     for each diagonal of the square's parts:
//!         for each row of a part, for each part: copy a line of the source to a stage
//!         for each lane of C entries x, for each part: turn them, ask for C lines of the next square, row by row, in
//!             the second-level cache, and store C lines of the destination
//! in place: a square and its mirror image, a diagonal of each in a stage of its own
//! ```
//! So neighbours in time are in sets of their own. A set of the first-level cache of an AMD EPYC (Zen 4) takes a line
//! in 10 cycles to be read, in 17 to be written, and rows of 4 KiB all begin in one set: 128² of f32 in the
//! second-level cache take 1.13 µs in tiles of 16 rows, 3.1 µs where the rows are 4 KiB apart on both sides, and 1.8 µs
//! along diagonals. Gains stand in benches/record/2026-11-28-moves.md. No instruction may panic between a lane's loads
//! and its stores: compilers then load all before, and 1024² of f32 take 185 µs in place of 164.

#![allow(unsafe_code)]

use super::super::machine::{Lines, SQUARE, Store, Strip};
use super::super::tiles::{LANE, Vector, check, load, start, turn};
use crate::plan::LINE;
use std::array::from_fn;
use std::mem::MaybeUninit;

/// Parts along each side of a square.
const SIDE: usize = SQUARE / LINE;

/// The parts of a diagonal, each of as many rows as a line has entries. Never read before it is written.
type Stage = MaybeUninit<Lines<[[[u8; LINE]; LINE]; SIDE]>>;

/// Where the rows of a part begin in a [`Stage`].
const ROWS: [usize; LINE] = {
    let mut places = [0; LINE];
    let mut row = 0;
    while row < LINE {
        places[row] = row * LINE;
        row += 1;
    }
    places
};

/// The whole strip; `false`, and nothing is moved, where it has fewer rows or columns than a square. A register has `R`
/// entries of `W` bytes, a lane has `C`.
///
/// # Safety
/// The machine has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn diagonals<V: Vector, const W: usize, const R: usize, const C: usize>(
    strip: &mut Strip<'_>,
) -> bool {
    let part = const { LINE / W };
    let (xs, ys) = (strip.columns, strip.rows);
    if xs.min(ys) < SIDE * part {
        return false;
    }
    let to = &strip.to[..xs];
    let last = (ys - 1).checked_mul(strip.step).and_then(|last| last.checked_add(xs * W));
    assert!(last.is_some_and(|last| last <= strip.src.len()), "the plan lies within its memory");
    check(to, strip.dst, ys * W);
    let (src, dst) = (strip.src.as_ptr(), strip.dst.as_mut_ptr());
    let places = to.iter().fold(dst.addr(), |all, to| all | (dst.addr() + to));
    let past = strip.store == Store::Streaming && places.is_multiple_of(LINE);
    past.then(V::begin_streaming);
    let mut stage = Stage::uninit();
    let stage = stage.as_mut_ptr().cast();
    for left in (0..xs.div_ceil(part)).step_by(SIDE) {
        let across = SIDE.min(xs.div_ceil(part) - left);
        let mut parts: [usize; SIDE] = from_fn(|k| k % across);
        for top in (0..ys.div_ceil(part)).step_by(SIDE) {
            let below = (top + SIDE) * part < ys;
            let (next_top, next_left) = if below { (top + SIDE, left) } else { (0, left + SIDE) };
            let mut next = Next::of::<W>(strip, dst, next_top, next_left);
            let past = past && is_alone(left, xs, part) && is_alone(top, ys, part);
            let y: [usize; SIDE] = from_fn(|k| start(top + k, ys, part));
            for _ in 0..across {
                let x = parts.map(|k| start(left + k, xs, part));
                parts = parts.map(|k| if k + 1 < across { k + 1 } else { 0 });
                let to = x.map(|x| strip.to[x..][..part].as_ptr());
                // SAFETY: the caller promises the set; both sides were checked, and each part lies within: `start`
                // leaves room for `part` entries, of `xs` and of `ys`. `past` only where all of `to` are multiples of a
                // line, and no other square touches the bytes of this one, whose parts are whole and apart.
                unsafe {
                    fill::<V, W>(from_fn(|k| src.add(y[k] * strip.step + x[k] * W)), strip.step, stage);
                    empty::<V, W, R, C>(stage, to, y.map(|y| dst.add(y * W)), Some(&mut next), past);
                }
            }
        }
    }
    true
}

/// Whether the square that begins with part `first` shares no entry with another one, nor has a part twice.
fn is_alone(first: usize, len: usize, part: usize) -> bool {
    // The last part of a ragged side reaches into the one before.
    let ragged = if len.is_multiple_of(part) { 0 } else { part };
    (first + SIDE) * part + ragged <= len
}

/// The `matrix`, of rows of `row` bytes, transposed where it is; `false`, and nothing is moved, where its sides are no
/// multiples of a square's. Each square below the diagonal changes places with its mirror image, diagonal by diagonal:
/// part `(k, k + d)` of one belongs in part `(k + d, k)` of the other.
///
/// # Safety
/// The machine has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn in_place<V: Vector, const W: usize, const R: usize, const C: usize>(
    matrix: &mut [u8],
    row: usize,
) -> bool {
    if row == 0 || !row.is_multiple_of(SQUARE) || row.checked_mul(row / W) != Some(matrix.len()) {
        return false;
    }
    let places: [usize; SQUARE] = from_fn(|line| line * row);
    let matrix = Matrix { bytes: matrix.as_mut_ptr(), row, part: LINE / W };
    let mut stages = [const { Stage::uninit() }; 2];
    let [stage, mirrored] = stages.each_mut().map(|stage| stage.as_mut_ptr().cast());
    for top in 0..row / SQUARE {
        for left in 0..=top {
            let (next_top, next_left) = if left < top { (top, left + 1) } else { (top + 1, 0) };
            let mut next = matrix.next(next_top, next_left, &places);
            // A square on the diagonal of the matrix is its own mirror image, as its diagonals 0 and 2 are.
            let diagonals = if left < top { SIDE } else { SIDE / 2 + 1 };
            for diagonal in 0..diagonals {
                let parts = from_fn(|k| matrix.part((top, left), (k, (k + diagonal) % SIDE)));
                let others = from_fn(|k| matrix.part((left, top), ((k + diagonal) % SIDE, k)));
                let to = [places.as_ptr(); SIDE];
                // SAFETY: the caller promises the set. `row` is the length of a row, a multiple of a square's, and
                // there are as many rows as entries in one: squares `top` and `left` and all their parts lie within,
                // lines `row` apart, the first `part` of `places`. Both stages are full before a byte is stored.
                unsafe {
                    fill::<V, W>(parts.map(<*mut u8>::cast_const), row, stage);
                    fill::<V, W>(others.map(<*mut u8>::cast_const), row, mirrored);
                    empty::<V, W, R, C>(stage, to, others, Some(&mut next), false);
                    if left < top || diagonal == 1 {
                        empty::<V, W, R, C>(mirrored, to, parts, None, false);
                    }
                }
            }
        }
    }
    true
}

/// A matrix of whole squares, by number.
struct Matrix {
    bytes: *mut u8,
    row: usize,
    part: usize,
}

impl Matrix {
    /// Where a part of a square begins, both by row and column.
    #[inline(always)]
    fn part(&self, square: (usize, usize), part: (usize, usize)) -> *mut u8 {
        let row = (square.0 * SIDE + part.0) * self.part;
        self.bytes.wrapping_add(row * self.row + square.1 * SQUARE + part.1 * LINE)
    }

    /// A square and its mirror image; behind the last row the first one, which is asked for in vain.
    fn next(&self, top: usize, left: usize, places: &[usize; SQUARE]) -> Next {
        let top = if top < self.row / SQUARE { top } else { 0 };
        let (src, dst) = (self.part((top, left), (0, 0)), self.part((left, top), (0, 0)));
        Next { src, dst, step: self.row, to: places.as_ptr() }
    }
}

/// Copies a diagonal of parts to the stage: rows of a line, the first of each part at `from`.
///
/// # Safety
/// The machine has the set. From each of `from` on a line can be read in each of `LINE / W` rows, `step` bytes apart,
/// and the stage is a [`Stage`].
#[inline(always)]
unsafe fn fill<V: Vector, const W: usize>(mut from: [*const u8; SIDE], step: usize, stage: *mut u8) {
    let part = const { LINE / W };
    for row in 0..part {
        for (k, from) in from.iter_mut().enumerate() {
            for at in (0..LINE).step_by(V::BYTES) {
                // SAFETY: the caller promises a line to read in each of `part` rows, and row `row` of part `k` is one
                // of the stage's: `row` is below `part`, which is at most LINE.
                unsafe { V::load(from.add(at)).store(stage.add((k * part + row) * LINE + at)) };
            }
            *from = from.wrapping_add(step);
        }
    }
}

/// Turns the parts of the stage and stores them: part `k`, line `x`, at `to[k][x]` past `dst[k]`.
///
/// # Safety
/// The machine has the set, and [`fill`] has filled the stage. Of `LINE / W` places from each of `to` on, each is one
/// past its part's `dst` where a line can be written; `past` only where all lines are a line's multiple in memory, and
/// nothing touches them before the fence.
#[inline(always)]
unsafe fn empty<V: Vector, const W: usize, const R: usize, const C: usize>(
    stage: *const u8,
    to: [*const usize; SIDE],
    dst: [*mut u8; SIDE],
    mut next: Option<&mut Next>,
    past: bool,
) {
    const { assert!(W * R == V::BYTES && W * C == LANE && LINE.is_multiple_of(V::BYTES) && C <= 16) };
    let part = const { LINE / W };
    for lane in 0..part / C {
        for k in 0..SIDE {
            let from = stage.wrapping_add(k * part * LINE + lane * LANE);
            // SAFETY: the caller promises `part` places, of which these are `C`.
            let to = unsafe { &*to[k].add(lane * C).cast::<[usize; C]>() };
            let lane = Lane { from, to, dst: dst[k] };
            // SAFETY: the caller promises the set and a full stage, of which part `k` has `part` rows and in each of
            // them lane `lane`; a line to write at each place; and the rest for stores past the caches, before which a
            // token's fence comes that the bytes are anyone's.
            unsafe {
                if past {
                    lane.stream::<V, W, R>(next.as_deref(), k * C);
                } else {
                    lane.store::<V, W, R>(next.as_deref(), k * C);
                }
            }
        }
        if let Some(next) = next.as_deref_mut() {
            next.advance::<C>();
        }
    }
}

/// A lane of the rows of a part in a stage: `C` lines of the destination.
struct Lane<'a, const C: usize> {
    from: *const u8,
    to: &'a [usize; C],
    dst: *mut u8,
}

impl<const C: usize> Lane<'_, C> {
    /// A register of each line, the rows from `register · R` on.
    ///
    /// # Safety
    /// The machine has the set; the stage has as many rows, and in each a lane from `from` on.
    #[inline(always)]
    unsafe fn turn<V: Vector, const W: usize, const R: usize>(&self, register: usize) -> [V; C] {
        let rows = ROWS[register % (LINE / V::BYTES) * R..].first_chunk().expect("R rows");
        // SAFETY: the caller promises the set, and a lane in each of the rows.
        unsafe { turn::<V, W, C>(load::<V, R, C>(self.from, rows)) }
    }

    /// Register by register, as more would not fit in an instruction set's registers.
    ///
    /// # Safety
    /// As for [`turn`](Self::turn), and a line can be written at each place.
    #[inline(always)]
    unsafe fn store<V: Vector, const W: usize, const R: usize>(&self, next: Option<&Next>, first: usize) {
        for register in 0..LINE / V::BYTES {
            // SAFETY: the caller promises the set, the rows, and a line to write at each place, of which this register
            // is a part.
            unsafe {
                let lines = self.turn::<V, W, R>(register);
                if register == 0
                    && let Some(next) = next
                {
                    next.ask::<V, C>(first, true);
                }
                for (line, to) in lines.into_iter().zip(self.to) {
                    line.store(self.dst.add(to + register * V::BYTES));
                }
            }
        }
    }

    /// Line by line: a line that is written past the caches in two parts, with others between, is read and written
    /// twice (u8 4096² with AVX2 41 ms, 23 so).
    ///
    /// # Safety
    /// As for [`store`](Self::store); each place is a line's multiple in memory, and nothing touches its line before
    /// the fence.
    #[inline(always)]
    unsafe fn stream<V: Vector, const W: usize, const R: usize>(&self, next: Option<&Next>, first: usize) {
        // SAFETY: the caller promises the set, the rows, a line to write at each place, of which these registers are
        // the parts, and the rest for stores past the caches.
        unsafe {
            let parts: [[V; C]; 2] = [self.turn::<V, W, R>(0), self.turn::<V, W, R>(1)];
            if let Some(next) = next {
                next.ask::<V, C>(first, false);
            }
            for (i, to) in self.to.iter().enumerate() {
                for (register, lines) in parts[..LINE / V::BYTES].iter().enumerate() {
                    lines[i].stream(self.dst.add(to + register * V::BYTES));
                }
            }
        }
    }
}

/// A square that is to come: the first of its lines on both sides that were not asked for yet.
struct Next {
    src: *const u8,
    step: usize,
    dst: *const u8,
    to: *const usize,
}

impl Next {
    /// The one that begins with these parts; the first of the strip, which is asked for in vain, where it is not whole.
    #[inline(always)]
    fn of<const W: usize>(strip: &Strip<'_>, dst: *const u8, top: usize, left: usize) -> Self {
        let part = const { LINE / W };
        let whole = (left + SIDE) * part <= strip.to.len() && (top + SIDE) * part <= strip.rows;
        let (left, top) = if whole { (left, top) } else { (0, 0) };
        Next {
            src: strip.src.as_ptr().wrapping_add(top * part * strip.step + left * LINE),
            step: strip.step,
            dst: dst.wrapping_add(top * LINE),
            to: strip.to[left * part..][..SIDE * part].as_ptr(),
        }
    }

    /// Asks for `C` lines from number `first` on, on both sides or where they are read.
    #[inline(always)]
    fn ask<V: Vector, const C: usize>(&self, first: usize, both: bool) {
        for line in first..first + C {
            let (row, at) = (line / SIDE, line % SIDE * LINE);
            V::prefetch(self.src.wrapping_add(row * self.step + at));
            if both {
                // SAFETY: a square has `SIDE · part` places, as `of` has seen, and is asked for once: `SIDE` diagonals
                // advance by `part` each, and have `SIDE · C` lines, `C` rows, of each lane.
                V::prefetch(self.dst.wrapping_add(unsafe { *self.to.add(row) } + at));
            }
        }
    }

    /// Goes on by `C` rows and lines, which have `SIDE · C` lines of a cache each.
    #[inline(always)]
    fn advance<const C: usize>(&mut self) {
        self.src = self.src.wrapping_add(C * self.step);
        self.to = self.to.wrapping_add(C);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streamed bytes may not be touched again before the fence.
    #[test]
    fn a_square_that_is_alone_shares_no_entry_with_another() {
        let part = 8;
        for len in SIDE * part..5 * SIDE * part {
            let parts = len.div_ceil(part);
            let mut touched = vec![0; len];
            for first in (0..parts).step_by(SIDE) {
                for tile in first..first + SIDE {
                    let start = start(tile, len, part);
                    touched[start..start + part].iter_mut().for_each(|times| *times += 1);
                }
            }
            for first in (0..parts).step_by(SIDE) {
                let mut starts = (first..first + SIDE).map(|tile| start(tile, len, part));
                let once = starts.all(|start| touched[start..start + part].iter().all(|times| *times == 1));
                assert_eq!(is_alone(first, len, part), once, "{first} of {len}");
            }
        }
    }
}
