//! Tiles of a permutation turned in registers: one text over a [`Vector`], which each instruction set implements.
//!
//! ```text
//! for each strip of x, two lines of the source wide: for each line of y in the destination:
//!     ask for the lines of the strip that come later
//!     where the rows share the sets of a cache: copy them side by side first
//!     for each tile of C entries x and R entries y, a register holding R of W bytes:
//!         rows[i]  = C = R: R entries at from[y + i], x            load
//!                    else: in lane l, C entries at from[y + l · C + i], x
//!         repeat log₂(16 / W) times:                    transposes the entries within each 128-bit lane
//!             rows = perfect shuffle of each group of rows, by unpacking pairs entry by entry
//!         lines    = C = R: lanes of the rows exchanged            line i is entry i of every row
//!         R entries at to[x + i], y = lines[i]          store
//! ```
//! Knows no instruction set. The gain of a set stands in the head of the set's file.

#![allow(unsafe_code)]

use super::machine::{Block, Fetch, Store};
use crate::plan::LINE;
use std::ops::Range;

/// Bytes of a lane, within which entries are transposed.
pub(super) const LANE: usize = 16;

/// Bytes of the source's rows that are turned before the next rows are, as machines fetch lines in pairs: 1024² of f32
/// take 1.4 of memcpy's time and 1.8 a line at a time, 4000² × 4 2.1 and 3.0 (Intel Xeon, AVX-512).
const STRIP: usize = 2 * LINE;

/// How many entries ahead, and at least a tile, a strip is asked for: a tile touches as many pages as it has rows, and
/// no machine guesses them.
const AHEAD: usize = 32;

/// Lines that are written past the caches in parts, at a time: with 32 of them 256 MiB of bytes, 4096² each, took 4.7
/// of memcpy's time, and 3.5 through the caches (AMD EPYC Zen 4).
const MAX_PARTIAL_LINES: usize = 8;

/// A register of an instruction set. Its methods are `#[inline(always)]`, or they would be calls in every tile.
///
/// # Safety
/// The methods run only on a machine that has the instruction set; `load`, `store` and `stream` only where `BYTES`
/// bytes from the place on can be read or written, `stream` only at a multiple of `BYTES`; `gather` only where the
/// bytes of a lane can be read from each place on.
pub(super) trait Vector: Copy {
    /// Bytes of a register.
    const BYTES: usize = size_of::<Self>();

    unsafe fn load(place: *const u8) -> Self;

    /// Lane `l` from `place(l)`.
    #[inline(always)]
    unsafe fn gather(place: impl Fn(usize) -> *const u8) -> Self {
        const { assert!(Self::BYTES == LANE) };
        // SAFETY: `BYTES` are a lane here, and the caller promises that a lane can be read from each place.
        unsafe { Self::load(place(0)) }
    }

    unsafe fn store(self, place: *mut u8);

    /// Stores past the caches where the set can.
    unsafe fn stream(self, place: *mut u8);

    /// Called once before stores past the caches.
    fn begin_streaming() {}

    /// Asks for a cache line to read, which need not exist.
    fn prefetch(place: *const u8);

    /// Asks for one to write.
    fn prefetch_mut(place: *mut u8);

    /// The lower halves of the lanes of two registers, interleaved by entries of `W` bytes, and the upper halves.
    unsafe fn unpack<const W: usize>(self, other: Self) -> (Self, Self);

    /// Of L lanes, lane `l` of row `g · N/L + c` becomes lane `g` of row `l · N/L + c`: nothing where there is one
    /// lane.
    #[inline(always)]
    unsafe fn exchange<const N: usize>(rows: [Self; N]) -> [Self; N] {
        rows
    }
}

/// The whole block in tiles of `C` entries x, `R` entries y, of `W` bytes; `false` when it is smaller than one. The
/// last tiles overlap those before where the block is no multiple of them.
///
/// # Safety
/// The machine has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn tiles<V: Vector, const W: usize, const R: usize, const C: usize>(block: &mut Block<'_>) -> bool {
    const { assert!(W * R == V::BYTES && (C == R || C * W == LANE) && C <= 16) };
    let (xs, ys) = (block.to.len(), block.from.len());
    if xs < C || ys < R {
        return false;
    }
    check(block.from, block.src, xs * W);
    check(block.to, block.dst, ys * W);
    let dst = block.dst.as_ptr().addr();
    let places = block.to.iter().fold(dst, |all, to| all | (dst + to));
    // Parts of more lines than a machine has buffers for would be written one by one.
    let aligned = places.is_multiple_of(V::BYTES) && (V::BYTES == LINE || R <= MAX_PARTIAL_LINES);
    let past = block.store == Store::Streaming && aligned;
    past.then(V::begin_streaming);
    let mut stage = (C != R && xs * ys * W >= STAGED_BYTES && share_sets::<W>(block.from)).then(Stage::cleared);
    for strip in groups(xs, C, STRIP / (W * C)) {
        let left = start(strip.start, xs, C);
        let whole = left * W + STRIP <= xs * W;
        for line in groups(ys, R, LINE / V::BYTES) {
            if block.fetch != Fetch::Unasked {
                for y in line.clone() {
                    ask_rows::<V, W, R>(block, strip.start * C, start(y, ys, R));
                }
            }
            let top = start(line.start, ys, R);
            let staged = stage.as_mut().filter(|_| whole).map(|stage| {
                let last = start(line.end - 1, ys, R) + R;
                stage.fill(&block.src[left * W..], &block.from[top..last])
            });
            for x in strip.clone() {
                for y in line.clone() {
                    let (x, y) = (start(x, xs, C), start(y, ys, R));
                    let (src, from) = match staged {
                        Some(rows) => (&rows[(x - left) * W..], &STAGED[y - top..]),
                        None => (&block.src[x * W..], &block.from[y..]),
                    };
                    let from = from.first_chunk().expect("R entries from y");
                    // SAFETY: the caller promises that the machine has the set; `check` has seen both sides, and each
                    // tile lies within them. A stage holds the rows from `top` on and of each the entries from `left`
                    // on.
                    unsafe { tile::<V, W, R, C>(block, src.as_ptr(), from, x, y, past) };
                }
            }
        }
    }
    true
}

/// Bytes of a block from which on its rows are staged: a stage is cleared for each.
const STAGED_BYTES: usize = 4 * size_of::<Stage>();

/// Rows of a strip, copied side by side.
#[repr(align(64))]
struct Stage([[u8; STRIP]; LINE]);

/// Where the rows of a [`Stage`] begin.
const STAGED: [usize; LINE] = {
    let mut places = [0; LINE];
    let mut row = 0;
    while row < LINE {
        places[row] = row * STRIP;
        row += 1;
    }
    places
};

impl Stage {
    /// Not inlined: the room is cleared only where it is used.
    #[inline(never)]
    fn cleared() -> Self {
        Stage([[0; STRIP]; LINE])
    }

    /// A strip of `src` from each place on.
    #[inline(always)]
    fn fill(&mut self, src: &[u8], from: &[usize]) -> &[u8] {
        for (row, from) in self.0.iter_mut().zip(from) {
            *row = *src[*from..].first_chunk().expect("a whole strip");
        }
        self.0.as_flattened()
    }
}

/// Whether 16 and more of the rows that make a line of the destination share a set of a first-level cache, which has 8
/// to 12 places: sets come again after 4 KiB. Of such a row a lane is read at a time, and its line would be gone before
/// the next. Over memcpy's time, without a stage and with it: 4096² of u8 3.7 and 2.1, of f16 2.3 and 1.9; 1024² 3.9
/// and 2.5, 4.3 and 2.9 (AMD EPYC Zen 4, AVX-512).
pub(super) fn share_sets<const W: usize>(from: &[usize]) -> bool {
    /// Entries of `W` bytes in a line times this, over 4 KiB, are 16.
    const APART: usize = 1 << 10;
    matches!(from, [first, second, ..] if second.wrapping_sub(*first).is_multiple_of(APART * W))
}

/// The `C` entries from `x` on and the `R` from `y` on, which the block has; they are read at `from` in `src`.
///
/// # Safety
/// The machine has the instruction set of `V`. `C` entries can be read at each of `from`, and [`check`] has seen the
/// block's destination; `past` only where all of `to` are multiples of `BYTES` in memory.
#[inline(always)]
unsafe fn tile<V: Vector, const W: usize, const R: usize, const C: usize>(
    block: &mut Block<'_>,
    src: *const u8,
    from: &[usize; R],
    x: usize,
    y: usize,
    past: bool,
) {
    let to: &[usize; C] = block.to[x..].first_chunk().expect("C entries from x");
    // SAFETY: the machine has the set, and the caller promises `C` entries, all that is read, at each of `from`.
    let lines = unsafe {
        let rows = turn::<V, W, C>(load::<V, R, C>(src, from));
        if C == R { V::exchange(rows) } else { rows }
    };
    if !past && block.fetch != Fetch::Unasked {
        ask_lines::<V, W, R, C>(block, x, y);
    }
    let alone = is_alone(x, block.to.len(), C) && is_alone(y, block.from.len(), R);
    let dst = block.dst.as_mut_ptr();
    for i in 0..C {
        let at = to[i] + y * W;
        if past && alone {
            // SAFETY: the caller promises that `check` has seen `dst`, which is borrowed for writing: the `BYTES`
            // bytes, R entries, from entry `y` on lie within. A tile that is `alone` starts at whole tiles, so the
            // place is a multiple of `BYTES`, as `to` and `y · W` are. No other tile of the block touches its bytes,
            // other blocks have others, and a token whose stores go past the caches fences before the kernel's bytes
            // are anyone's.
            unsafe { lines[i].stream(dst.add(at)) };
        } else {
            // SAFETY: the caller promises that `check` has seen `dst`, which is borrowed for writing: the `BYTES`
            // bytes, R entries, from entry `y` on lie within. A plain store takes any alignment.
            unsafe { lines[i].store(dst.add(at)) };
        }
    }
}

/// Where the tile is that comes [`AHEAD`] later, in the next strip perhaps.
#[inline(always)]
fn ahead<const W: usize, const R: usize>(block: &Block<'_>, x: usize, y: usize) -> (usize, usize) {
    let (y, ys) = (y + const { if R > AHEAD { R } else { AHEAD } }, block.from.len());
    if y < ys { (x, y) } else { (x + STRIP / W, y - ys) }
}

/// Asks for the rows of a strip that come later.
#[inline(always)]
fn ask_rows<V: Vector, const W: usize, const R: usize>(block: &Block<'_>, x: usize, y: usize) {
    let (x, y) = ahead::<W, R>(block, x, y);
    if let Some(from) = block.from.get(y..).and_then(|from| from.first_chunk::<R>()) {
        for from in from {
            for line in 0..STRIP / LINE {
                V::prefetch(block.src.as_ptr().wrapping_add(from + x * W + line * LINE));
            }
        }
    }
}

/// Asks for the lines in which a later tile is written.
#[inline(always)]
fn ask_lines<V: Vector, const W: usize, const R: usize, const C: usize>(block: &mut Block<'_>, x: usize, y: usize) {
    let (x, y) = ahead::<W, R>(block, x, y);
    let to = block.to.get(x..).and_then(|to| to.first_chunk::<C>());
    if let Some(to) = to.filter(|_| V::BYTES >= LINE || (y * W).is_multiple_of(LINE)) {
        for to in to {
            V::prefetch_mut(block.dst.as_mut_ptr().wrapping_add(to + y * W));
        }
    }
}

/// The entries of a tile. Where its rows fill a register, one from each place; else a lane from each, so that lane `l`
/// of register `i` is row `l · C + i`.
///
/// # Safety
/// The machine has the set, and the bytes of `C` entries can be read from each place on.
#[inline(always)]
pub(super) unsafe fn load<V: Vector, const R: usize, const C: usize>(src: *const u8, from: &[usize; R]) -> [V; C] {
    let row = |i: usize| {
        let i = i % C;
        // SAFETY: the caller promises that `C` entries can be read from each place on: a register where C = R, else a
        // lane.
        unsafe { if C == R { V::load(src.add(from[i])) } else { V::gather(|lane| src.add(from[lane * C + i])) } }
    };
    // Written out: a loop of so many loads is not unrolled, and its rows would lie in memory (bytes in the
    // second-level cache 23 times memcpy's time, and 8 so; Intel Xeon, AVX-512).
    let all = [
        [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)],
        [row(8), row(9), row(10), row(11), row(12), row(13), row(14), row(15)],
    ];
    *all.as_flattened().first_chunk().expect("at most 16 registers")
}

/// Line `i` is entry `i` of every row, but for the lanes, which stay where they are.
///
/// # Safety
/// The machine has the set.
#[inline(always)]
pub(super) unsafe fn turn<V: Vector, const W: usize, const N: usize>(mut rows: [V; N]) -> [V; N] {
    let rounds = const { (LANE / W).ilog2() };
    // SAFETY: `shuffle` needs the instruction set alone, and the caller promises that the machine has it.
    unsafe {
        // Written out, as a loop's rows would not stay in registers.
        if rounds > 0 {
            rows = shuffle::<V, W, N>(rows);
        }
        if rounds > 1 {
            rows = shuffle::<V, W, N>(rows);
        }
        if rounds > 2 {
            rows = shuffle::<V, W, N>(rows);
        }
        if rounds > 3 {
            rows = shuffle::<V, W, N>(rows);
        }
        rows
    }
}

/// A perfect shuffle of the rows of each group, entry by entry.
///
/// # Safety
/// The machine has the set.
#[inline(always)]
unsafe fn shuffle<V: Vector, const W: usize, const N: usize>(rows: [V; N]) -> [V; N] {
    let half = const { if W < LANE { LANE / W / 2 } else { 1 } };
    let pair = |pair: usize| {
        let pair = pair % (N / 2).max(1);
        let first = pair / half * half * 2 + pair % half;
        // SAFETY: `unpack` needs the instruction set alone, and the caller promises that the machine has it.
        let (low, high) = unsafe { rows[first].unpack::<W>(rows[first + half]) };
        [low, high]
    };
    // As in `load`.
    let all = [pair(0), pair(1), pair(2), pair(3), pair(4), pair(5), pair(6), pair(7)];
    *all.as_flattened().first_chunk().expect("at most 16 registers")
}

/// Whether `len` bytes from every place on lie within `bytes`.
pub(super) fn check(places: &[usize], bytes: &[u8], len: usize) {
    let last = places.iter().fold(0, |last, &place| place.max(last));
    let room = bytes.len().checked_sub(len);
    assert!(room.is_some_and(|room| last <= room), "the plan lies within its memory");
}

/// The tiles of `n` that cover a row of `len`, by number, `many` at a time.
#[inline(always)]
fn groups(len: usize, n: usize, many: usize) -> impl Iterator<Item = Range<usize>> {
    let tiles = len.div_ceil(n);
    (0..tiles).step_by(many).map(move |first| first..tiles.min(first + many))
}

/// Where a tile starts, the last one so that it ends with the row.
#[inline(always)]
pub(super) fn start(tile: usize, len: usize, n: usize) -> usize {
    (tile * n).min(len - n)
}

/// Whether the tile that starts there overlaps no other: it is not the last of a ragged side, nor reaches into that
/// one.
fn is_alone(start: usize, len: usize, n: usize) -> bool {
    len.is_multiple_of(n) || start + 2 * n <= len
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streamed bytes may not be touched again before the fence.
    #[test]
    fn a_tile_that_is_alone_shares_no_entry_with_another() {
        for n in [1_usize, 2, 4, 8, 16, 32] {
            for len in n..5 * n {
                let starts = || (0..len.div_ceil(n)).map(|tile| start(tile, len, n));
                for start in starts() {
                    let others = starts().filter(|other| *other != start);
                    let mut near = others.filter(|other| other.abs_diff(start) < n);
                    let shares = near.next().is_some();
                    let whole = start.is_multiple_of(n);
                    assert_eq!(is_alone(start, len, n), !shares, "{start} of {len} by {n}");
                    assert!(whole || shares, "{start} of {len} by {n}");
                }
            }
        }
    }
}
