//! Moving bytes on x86-64: copies past the caches, and tiles of a permutation turned in registers.
//!
//! A tile is N rows of a register each, N entries a register. Rounds of unpacking transpose the entries within each
//! 128-bit lane, exchanging lanes does the rest; so one network serves every width.
//! Gain, AMD EPYC Zen 4, one of 2 shared cores, thread CPU time over memcpy's, medians of 15, f32: 4000² ×4 3.97 portable,
//! 1.16 AVX2, 1.15 AVX-512 (2.01 without the prefetch); 128² in cache 6.9, 2.4, 1.9.

#![allow(unsafe_code)]

use super::super::Store;
use super::super::transpose::Block;
use std::arch::x86_64::*;

/// Ends, when it is dropped, the stores that went past the caches: what comes after is seen after them. Until then
/// nothing may touch their bytes, not even this thread (`std::arch::x86_64`, safety of non-temporal stores). A token's
/// `run` holds one, so that no kernel can forget it, nor leave without it by a panic.
pub(super) struct Fence;

impl Drop for Fence {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: part of SSE, which every x86-64 has; it touches no memory.
        unsafe { _mm_sfence() }
        #[cfg(test)]
        watch::fenced();
    }
}

/// What no result of a test would show: whether this thread's stores past the caches were fenced.
#[cfg(test)]
pub(in super::super) mod watch {
    use std::cell::Cell;

    thread_local! {
        static BEGUN: Cell<u64> = const { Cell::new(0) };
        static OPEN: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn streamed() {
        BEGUN.set(BEGUN.get() + 1);
        OPEN.set(OPEN.get() + 1);
    }

    pub(super) fn fenced() {
        OPEN.set(0);
    }

    /// How often this thread has begun to store past the caches, and how often since its last fence.
    pub(in super::super::super) fn stores() -> (u64, u64) {
        (BEGUN.get(), OPEN.get())
    }
}

/// How many tiles ahead a source is asked for: a tile touches as many pages as it has rows, and no machine guesses them.
const AHEAD: usize = 4;

/// Asks for a cache line, which need not exist, in the second-level cache: 4000² × 4 of f32 take 0.84 of memcpy's time,
/// and 1.32 when it is asked for in the first (A (0, 6) 0.99 and 1.45; AMD EPYC Zen 4, one thread).
#[inline(always)]
fn prefetch(place: *const u8) {
    // SAFETY: a hint, part of SSE, that never faults whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(place.cast()) }
}

/// Copies past the caches with one width of register.
macro_rules! stream {
    ($name:ident, $features:literal, $bytes:literal, $load:ident, $stream:ident) => {
        /// Copies between slices of one length; whole registers at aligned places go past the caches.
        #[target_feature(enable = $features)]
        pub(super) fn $name(dst: &mut [u8], src: &[u8]) {
            assert_eq!(dst.len(), src.len());
            #[cfg(test)]
            watch::streamed();
            let head = dst.as_ptr().align_offset($bytes).min(dst.len());
            let (start, dst) = dst.split_at_mut(head);
            // A copy of no bytes is a call all the same, and two of them took as long as a line of 64 bytes.
            if head > 0 {
                start.copy_from_slice(&src[..head]);
            }
            let (whole, end) = dst.as_chunks_mut::<$bytes>();
            let (from, rest) = src[head..].as_chunks::<$bytes>();
            for (to, from) in whole.iter_mut().zip(from) {
                // SAFETY: both are references to as many bytes as are read and written; `head` bytes brought `to` to a
                // multiple of that, as the stream asks.
                unsafe { $stream(to.as_mut_ptr().cast(), $load(from.as_ptr().cast())) }
            }
            if !end.is_empty() {
                end.copy_from_slice(rest);
            }
        }
    };
}

stream!(
    stream_avx512,
    "avx512f",
    64,
    _mm512_loadu_si512,
    _mm512_stream_si512
);
stream!(
    stream_avx2,
    "avx2",
    32,
    _mm256_loadu_si256,
    _mm256_stream_si256
);

/// How one width of register turns a tile.
macro_rules! tiles {
    (
        $module:ident, $features:literal, $register:ty, $bytes:literal, $lanes:literal,
        $load:ident, $store:ident, $stream:ident,
        $lo8:ident $hi8:ident $lo16:ident $hi16:ident $lo32:ident $hi32:ident $lo64:ident $hi64:ident,
        $exchange:ident
    ) => {
        pub(in super::super) mod $module {
            use super::*;

            /// Bytes of a register.
            const BYTES: usize = $bytes;

            /// The whole block in tiles of `N` entries of `W` bytes each way; `false` when it is smaller than one. The
            /// last tiles overlap those before where the block is no multiple of them.
            #[target_feature(enable = $features)]
            pub(in super::super) fn tiles<const W: usize, const N: usize>(
                block: &mut Block<'_>,
            ) -> bool {
                const { assert!(W * N == BYTES) };
                let (xs, ys) = (block.to.len(), block.from.len());
                if xs < N || ys < N {
                    return false;
                }
                check(block.from, block.src, xs * W);
                check(block.to, block.dst, ys * W);
                let (src, dst) = (block.src.as_ptr(), block.dst.as_mut_ptr());
                let places = block
                    .to
                    .iter()
                    .fold(dst.addr(), |all, to| all | (dst.addr() + to));
                let past = block.store == Store::Past && places % BYTES == 0;
                #[cfg(test)]
                past.then(watch::streamed);
                for x in starts(xs, N) {
                    let to: &[usize; N] = block.to[x..].first_chunk().expect("N entries from x");
                    for y in starts(ys, N) {
                        let from: &[usize; N] =
                            block.from[y..].first_chunk().expect("N entries from y");
                        // SAFETY: `check` has seen that each of `from` plus `xs · W` bytes lies within `src`, and the
                        // `BYTES` bytes, N entries, from entry `x` on are among them.
                        let rows = unsafe { load::<W, N>(src.add(x * W), from) };
                        let lines = turn::<W, N>(rows);
                        let alone = is_alone(x, xs, N) && is_alone(y, ys, N);
                        let ahead = y + AHEAD * N;
                        let (x, ahead) = if ahead < ys {
                            (x, ahead)
                        } else {
                            (x + N, ahead - ys)
                        };
                        if let Some(from) = block.from.get(ahead..ahead + N) {
                            for from in from {
                                prefetch(src.wrapping_add(from + x * W));
                            }
                        }
                        for i in 0..N {
                            let at = to[i] + y * W;
                            match past && alone {
                                // SAFETY: as for the rows, with `ys` and `dst`, which is borrowed for writing. A tile that
                                // is `alone` starts at whole tiles, so the place is a multiple of `BYTES`, as `places`
                                // and `y · W` are. No other tile of the block touches its bytes, other blocks have
                                // others, and the token fences before the kernel's bytes are anyone's.
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
            unsafe fn load<const W: usize, const N: usize>(
                src: *const u8,
                from: &[usize; N],
            ) -> [$register; N] {
                // SAFETY: the caller's promise.
                let mut rows = [unsafe { $load(src.add(from[0]).cast()) }; N];
                for i in 1..N {
                    // SAFETY: the caller's promise.
                    rows[i] = unsafe { $load(src.add(from[i]).cast()) };
                }
                rows
            }

            /// Whether `len` bytes from every place on lie within `bytes`.
            fn check(places: &[usize], bytes: &[u8], len: usize) {
                let last = places.iter().fold(0, |last, &place| place.max(last));
                let room = bytes.len().checked_sub(len);
                assert!(
                    room.is_some_and(|room| last <= room),
                    "the plan lies within its memory"
                );
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

tiles!(
    avx512, "avx512f,avx512bw", __m512i, 64, 4,
    _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512,
    _mm512_unpacklo_epi8 _mm512_unpackhi_epi8 _mm512_unpacklo_epi16 _mm512_unpackhi_epi16
    _mm512_unpacklo_epi32 _mm512_unpackhi_epi32 _mm512_unpacklo_epi64 _mm512_unpackhi_epi64,
    lanes_of_four
);

tiles!(
    avx2, "avx2", __m256i, 32, 2,
    _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256,
    _mm256_unpacklo_epi8 _mm256_unpackhi_epi8 _mm256_unpacklo_epi16 _mm256_unpackhi_epi16
    _mm256_unpacklo_epi32 _mm256_unpackhi_epi32 _mm256_unpacklo_epi64 _mm256_unpackhi_epi64,
    lanes_of_two
);

tiles!(
    sse2, "sse2", __m128i, 16, 1,
    _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128,
    _mm_unpacklo_epi8 _mm_unpackhi_epi8 _mm_unpacklo_epi16 _mm_unpackhi_epi16
    _mm_unpacklo_epi32 _mm_unpackhi_epi32 _mm_unpacklo_epi64 _mm_unpackhi_epi64,
    lanes_of_one
);

/// Where tiles of `n` start in a row of `len`, the last one so that it ends with the row.
#[inline(always)]
fn starts(len: usize, n: usize) -> impl Iterator<Item = usize> {
    (0..len.div_ceil(n)).map(move |tile| (tile * n).min(len - n))
}

/// Whether the tile that starts there overlaps no other: it is not the last of a ragged side, nor reaches into that one.
fn is_alone(start: usize, len: usize, n: usize) -> bool {
    len.is_multiple_of(n) || start + 2 * n <= len
}

/// Lane `l` of row `g · N/4 + c` becomes lane `g` of row `l · N/4 + c`.
#[target_feature(enable = "avx512f")]
#[inline]
fn lanes_of_four<const N: usize>(rows: [__m512i; N]) -> [__m512i; N] {
    let group = const { N / 4 };
    let mut lines = rows;
    for c in 0..group {
        let (a, b) = (rows[c], rows[group + c]);
        let (d, e) = (rows[2 * group + c], rows[3 * group + c]);
        let even = _mm512_shuffle_i32x4::<0x88>(a, b);
        let odd = _mm512_shuffle_i32x4::<0xDD>(a, b);
        let even_2 = _mm512_shuffle_i32x4::<0x88>(d, e);
        let odd_2 = _mm512_shuffle_i32x4::<0xDD>(d, e);
        lines[c] = _mm512_shuffle_i32x4::<0x88>(even, even_2);
        lines[group + c] = _mm512_shuffle_i32x4::<0x88>(odd, odd_2);
        lines[2 * group + c] = _mm512_shuffle_i32x4::<0xDD>(even, even_2);
        lines[3 * group + c] = _mm512_shuffle_i32x4::<0xDD>(odd, odd_2);
    }
    lines
}

/// Lane `l` of row `g · N/2 + c` becomes lane `g` of row `l · N/2 + c`.
#[target_feature(enable = "avx2")]
#[inline]
fn lanes_of_two<const N: usize>(rows: [__m256i; N]) -> [__m256i; N] {
    let group = const { N / 2 };
    let mut lines = rows;
    for c in 0..group {
        let (a, b) = (rows[c], rows[group + c]);
        lines[c] = _mm256_permute2x128_si256::<0x20>(a, b);
        lines[group + c] = _mm256_permute2x128_si256::<0x31>(a, b);
    }
    lines
}

/// Nothing to exchange.
#[inline(always)]
fn lanes_of_one<const N: usize>(rows: [__m128i; N]) -> [__m128i; N] {
    rows
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
