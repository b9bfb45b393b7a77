//! Tiles of a permutation turned in registers: one text over a [`Vector`], which each instruction set implements.
//!
//! ```text
//! for each tile of N × N entries of W bytes, a register holding N:
//!     rows[i]  = N entries at from[y + i], x           load
//!     repeat log₂(N / lanes) times:                    transposes the entries within each 128-bit lane
//!         rows = perfect shuffle of each group of rows, by unpacking pairs entry by entry
//!     lines    = lanes of the rows exchanged           line i is entry i of every row
//!     N entries at to[x + i], y = lines[i]             store
//! ```
//! Knows no instruction set. What a set gains by it stands in the head of the set's file.

#![allow(unsafe_code)]

use super::machine::{Block, Store};
use crate::plan::LINE;

/// How many tiles ahead a source is asked for: a tile touches as many pages as it has rows, and no machine guesses
/// them.
const PREFETCHED_TILES: usize = 4;

/// Lines that are written past the caches in parts, at a time: with 32 of them 256 MiB of bytes, 4096² each, took 4.7
/// of memcpy's time, and 3.5 through the caches (AMD EPYC Zen 4).
const MAX_PARTIAL_LINES: usize = 8;

/// A register of an instruction set. Its methods are `#[inline(always)]`, or they would be calls in every tile.
///
/// # Safety
/// The methods run only on a machine that has the instruction set; `load`, `store` and `stream` only where `BYTES`
/// bytes from the place on can be read or written, `stream` only at a multiple of `BYTES`.
pub(super) trait Vector: Copy {
    /// Bytes of a register.
    const BYTES: usize = size_of::<Self>();

    unsafe fn load(place: *const u8) -> Self;
    unsafe fn store(self, place: *mut u8);

    /// Stores past the caches where the set can.
    unsafe fn stream(self, place: *mut u8);

    /// Called once before stores past the caches.
    fn begin_streaming() {}

    /// Asks for a cache line, which need not exist.
    fn prefetch(place: *const u8);

    /// The lower halves of the lanes of two registers, interleaved by entries of `W` bytes, and the upper halves.
    unsafe fn unpack<const W: usize>(self, other: Self) -> (Self, Self);

    /// Of L lanes, lane `l` of row `g · N/L + c` becomes lane `g` of row `l · N/L + c`: nothing where there is one
    /// lane.
    #[inline(always)]
    unsafe fn exchange<const N: usize>(rows: [Self; N]) -> [Self; N] {
        rows
    }
}

/// The whole block in tiles of `N` entries of `W` bytes each way; `false` when it is smaller than one. The last tiles
/// overlap those before where the block is no multiple of them.
///
/// # Safety
/// The machine has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn tiles<V: Vector, const W: usize, const N: usize>(block: &mut Block<'_>) -> bool {
    const { assert!(W * N == V::BYTES) };
    let (xs, ys) = (block.to.len(), block.from.len());
    if xs < N || ys < N {
        return false;
    }
    check(block.from, block.src, xs * W);
    check(block.to, block.dst, ys * W);
    let (src, dst) = (block.src.as_ptr(), block.dst.as_mut_ptr());
    let places = block.to.iter().fold(dst.addr(), |all, to| all | (dst.addr() + to));
    // Parts of more lines than a machine has buffers for would be written one by one.
    let aligned = places.is_multiple_of(V::BYTES) && (V::BYTES == LINE || N <= MAX_PARTIAL_LINES);
    let past = block.store == Store::Past && aligned;
    past.then(V::begin_streaming);
    for x in starts(xs, N) {
        let to: &[usize; N] = block.to[x..].first_chunk().expect("N entries from x");
        for y in starts(ys, N) {
            let from: &[usize; N] = block.from[y..].first_chunk().expect("N entries from y");
            // SAFETY: the machine has the set. `check` has seen that each of `from` plus `xs · W` bytes lies within
            // `src`, and the `BYTES` bytes, N entries, from entry `x` on are among them.
            let lines = unsafe { turn::<V, W, N>(load(src.add(x * W), from)) };
            prefetch_ahead::<V, W, N>(block.src, block.from, x, y);
            let alone = is_alone(x, xs, N) && is_alone(y, ys, N);
            for i in 0..N {
                let at = to[i] + y * W;
                match past && alone {
                    // SAFETY: as for the rows, with `ys` and `dst`, which is borrowed for writing. A tile that is
                    // `alone` starts at whole tiles, so the place is a multiple of `BYTES`, as `places` and `y · W`
                    // are. No other tile of the block touches its bytes, other blocks have others, and a token whose
                    // stores go past the caches fences before the kernel's bytes are anyone's.
                    true => unsafe { lines[i].stream(dst.add(at)) },
                    // SAFETY: as above, and any alignment will do.
                    false => unsafe { lines[i].store(dst.add(at)) },
                }
            }
        }
    }
    true
}

/// Asks for the source of a tile that comes [`PREFETCHED_TILES`] later, in the next row of tiles perhaps.
#[inline(always)]
fn prefetch_ahead<V: Vector, const W: usize, const N: usize>(src: &[u8], from: &[usize], x: usize, y: usize) {
    let (ahead, ys) = (y + PREFETCHED_TILES * N, from.len());
    let (x, ahead) = if ahead < ys { (x, ahead) } else { (x + N, ahead - ys) };
    for from in from.get(ahead..ahead + N).unwrap_or_default() {
        V::prefetch(src.as_ptr().wrapping_add(from + x * W));
    }
}

/// A register from each place.
///
/// # Safety
/// The machine has the set, and `BYTES` bytes from each place on can be read.
#[inline(always)]
unsafe fn load<V: Vector, const N: usize>(src: *const u8, from: &[usize; N]) -> [V; N] {
    // SAFETY: the caller's promise.
    let mut rows = [unsafe { V::load(src.add(from[0])) }; N];
    for i in 1..N {
        // SAFETY: the caller's promise.
        rows[i] = unsafe { V::load(src.add(from[i])) };
    }
    rows
}

/// Line `i` is entry `i` of every row.
///
/// # Safety
/// The machine has the set.
#[inline(always)]
unsafe fn turn<V: Vector, const W: usize, const N: usize>(mut rows: [V; N]) -> [V; N] {
    let rounds = const { (N * 16 / V::BYTES).ilog2() };
    // SAFETY: the caller's promise.
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
        V::exchange(rows)
    }
}

/// A perfect shuffle of the rows of each group, entry by entry.
///
/// # Safety
/// The machine has the set.
#[inline(always)]
unsafe fn shuffle<V: Vector, const W: usize, const N: usize>(rows: [V; N]) -> [V; N] {
    let half = const { N * 16 / V::BYTES / 2 };
    let mut next = rows;
    for pair in 0..N / 2 {
        let first = pair / half * half * 2 + pair % half;
        let i = first / (2 * half) * (2 * half) + (pair % half) * 2;
        // SAFETY: the caller's promise.
        (next[i], next[i + 1]) = unsafe { rows[first].unpack::<W>(rows[first + half]) };
    }
    next
}

/// Whether `len` bytes from every place on lie within `bytes`.
pub(super) fn check(places: &[usize], bytes: &[u8], len: usize) {
    let last = places.iter().fold(0, |last, &place| place.max(last));
    let room = bytes.len().checked_sub(len);
    assert!(room.is_some_and(|room| last <= room), "the plan lies within its memory");
}

/// Where tiles of `n` start in a row of `len`, the last one so that it ends with the row.
#[inline(always)]
pub(super) fn starts(len: usize, n: usize) -> impl Iterator<Item = usize> {
    (0..len.div_ceil(n)).map(move |tile| (tile * n).min(len - n))
}

/// Whether the tile that starts there overlaps no other: it is not the last of a ragged side, nor reaches into that
/// one.
pub(super) fn is_alone(start: usize, len: usize, n: usize) -> bool {
    len.is_multiple_of(n) || start + 2 * n <= len
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is streamed may not be touched again before the fence.
    #[test]
    fn a_tile_that_is_alone_shares_no_entry_with_another() {
        for n in [1, 2, 4, 8, 16, 32] {
            for len in n..5 * n {
                for start in starts(len, n) {
                    let others = starts(len, n).filter(|other| *other != start);
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
