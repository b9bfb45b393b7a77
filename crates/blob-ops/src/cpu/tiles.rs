//! Tiles of a permutation turned in registers: one text, which each instruction set fills in with its own intrinsics.
//!
//! A tile is N rows of a register each, N entries a register. Rounds of unpacking transpose the entries within each
//! 128-bit lane, exchanging lanes does the rest; so one network serves every width.
//! Knows no instruction set. What a set gains by it stands in the head of the set's file.

/// How many tiles ahead a source is asked for: a tile touches as many pages as it has rows, and no machine guesses them.
pub(super) const PREFETCHED_TILES: usize = 4;

/// Lines that are written past the caches in parts, at a time: with 32 of them 256 MiB of bytes, 4096² each, took 4.7 of
/// memcpy's time, and 3.5 through the caches (AMD EPYC Zen 4).
pub(super) const MAX_PARTIAL_LINES: usize = 8;

/// How registers of one width turn the tiles of a block. An instruction set names: the module to make, the feature it needs,
/// its register, the bytes and the 128-bit lanes of one; how it loads and stores one, at any place; how it stores one past
/// the caches, at a multiple of its bytes, and what is called once before; how it asks for a cache line; how it interleaves the
/// lower and the upper halves of the lanes of two registers, entry by entry; and how the rows exchange their lanes.
macro_rules! tiles {
    (
        $module:ident, $features:literal, $register:ty, $bytes:literal, $lanes:literal,
        $load:ident, $store:ident, $stream:ident, $begin:ident, $prefetch:ident,
        $lo8:ident $hi8:ident $lo16:ident $hi16:ident $lo32:ident $hi32:ident $lo64:ident $hi64:ident,
        $exchange:ident
    ) => {
        pub(in $crate::cpu) mod $module {
            use super::*;
            use $crate::cpu::machine::{Block, Store};
            use $crate::cpu::tiles::{MAX_PARTIAL_LINES, PREFETCHED_TILES, check, is_alone, starts};
            use $crate::plan::LINE;

            /// Bytes of a register.
            const BYTES: usize = $bytes;

            /// The whole block in tiles of `N` entries of `W` bytes each way; `false` when it is smaller than one. The
            /// last tiles overlap those before where the block is no multiple of them.
            #[target_feature(enable = $features)]
            pub(in $crate::cpu) fn tiles<const W: usize, const N: usize>(block: &mut Block<'_>) -> bool {
                const { assert!(W * N == BYTES) };
                let (xs, ys) = (block.to.len(), block.from.len());
                if xs < N || ys < N {
                    return false;
                }
                check(block.from, block.src, xs * W);
                check(block.to, block.dst, ys * W);
                let (src, dst) = (block.src.as_ptr(), block.dst.as_mut_ptr());
                let places = block.to.iter().fold(dst.addr(), |all, to| all | (dst.addr() + to));
                // Parts of more lines than a machine has buffers for would be written one by one.
                let past =
                    block.store == Store::Past && places % BYTES == 0 && (BYTES == LINE || N <= MAX_PARTIAL_LINES);
                past.then($begin);
                for x in starts(xs, N) {
                    let to: &[usize; N] = block.to[x..].first_chunk().expect("N entries from x");
                    for y in starts(ys, N) {
                        let from: &[usize; N] = block.from[y..].first_chunk().expect("N entries from y");
                        // SAFETY: `check` has seen that each of `from` plus `xs · W` bytes lies within `src`, and the
                        // `BYTES` bytes, N entries, from entry `x` on are among them.
                        let rows = unsafe { load::<W, N>(src.add(x * W), from) };
                        let lines = turn::<W, N>(rows);
                        let alone = is_alone(x, xs, N) && is_alone(y, ys, N);
                        let ahead = y + PREFETCHED_TILES * N;
                        let (x, ahead) = if ahead < ys { (x, ahead) } else { (x + N, ahead - ys) };
                        if let Some(from) = block.from.get(ahead..ahead + N) {
                            for from in from {
                                $prefetch(src.wrapping_add(from + x * W));
                            }
                        }
                        for i in 0..N {
                            let at = to[i] + y * W;
                            match past && alone {
                                // SAFETY: as for the rows, with `ys` and `dst`, which is borrowed for writing. A tile that
                                // is `alone` starts at whole tiles, so the place is a multiple of `BYTES`, as `places`
                                // and `y · W` are. No other tile of the block touches its bytes, other blocks have
                                // others, and a token whose stores go past the caches fences before the
                                // kernel's bytes are anyone's.
                                true => unsafe { $stream(dst.add(at).cast(), lines[i]) },
                                // SAFETY: as above, and any alignment will do.
                                false => unsafe { $store(dst.add(at).cast(), lines[i]) },
                            }
                        }
                    }
                }
                true
            }

            /// A register from each place.
            ///
            /// # Safety
            /// `BYTES` bytes from each place on can be read.
            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn load<const W: usize, const N: usize>(src: *const u8, from: &[usize; N]) -> [$register; N] {
                // SAFETY: the caller's promise.
                let mut rows = [unsafe { $load(src.add(from[0]).cast()) }; N];
                for i in 1..N {
                    // SAFETY: the caller's promise.
                    rows[i] = unsafe { $load(src.add(from[i]).cast()) };
                }
                rows
            }

            /// Line `i` is entry `i` of every row.
            #[target_feature(enable = $features)]
            #[inline]
            fn turn<const W: usize, const N: usize>(mut rows: [$register; N]) -> [$register; N] {
                let rounds = const { (N / $lanes).ilog2() };
                if rounds > 0 {
                    rows = shuffle::<W, N>(rows);
                }
                if rounds > 1 {
                    rows = shuffle::<W, N>(rows);
                }
                if rounds > 2 {
                    rows = shuffle::<W, N>(rows);
                }
                if rounds > 3 {
                    rows = shuffle::<W, N>(rows);
                }
                $exchange(rows)
            }

            /// A perfect shuffle of the rows of each group, entry by entry.
            #[target_feature(enable = $features)]
            #[inline]
            fn shuffle<const W: usize, const N: usize>(rows: [$register; N]) -> [$register; N] {
                let half = const { N / $lanes / 2 };
                let mut next = rows;
                for pair in 0..N / 2 {
                    let first = pair / half * half * 2 + pair % half;
                    let (a, b) = (rows[first], rows[first + half]);
                    let i = first / (2 * half) * (2 * half) + (pair % half) * 2;
                    (next[i], next[i + 1]) = match W {
                        1 => ($lo8(a, b), $hi8(a, b)),
                        2 => ($lo16(a, b), $hi16(a, b)),
                        4 => ($lo32(a, b), $hi32(a, b)),
                        _ => ($lo64(a, b), $hi64(a, b)),
                    };
                }
                next
            }
        }
    };
}

pub(super) use tiles;

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

/// Whether the tile that starts there overlaps no other: it is not the last of a ragged side, nor reaches into that one.
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
