//! Moving bytes on x86-64: copies past the caches, and tiles of a permutation turned in registers.
//!
//! Gain, AMD EPYC Zen 4, one of 2 shared cores, thread CPU time over memcpy's, medians of 15, f32: 4000² ×4 3.97
//! portable, 1.16 AVX2, 1.15 AVX-512 (2.01 without the prefetch); 128² in cache 6.9, 2.4, 1.9. Lines asked for before
//! they are written, and lanes gathered for entries of one and two bytes, are worth, Intel Xeon with AMX, AVX-512:
//! 1024² f32 in cache 1.8 to 1.4, u8 3.5 to 2.0, 4096² u8 past the caches 5.2 to 1.5
//! (benches/record/2026-11-23-moves.md).

#![allow(unsafe_code)]

use super::super::machine::{Block, Strip};
use super::super::tiles::{Vector, tiles};
use super::bands::bands;
use super::diagonals::{diagonals, in_place};
use std::arch::x86_64::*;

/// Ends, when it is dropped, the stores that went past the caches: later accesses are seen later. Until then
/// nothing may touch their bytes, not even this thread (`std::arch::x86_64`, safety of non-temporal stores). A token's
/// `run` holds one, so that no kernel can leave unfenced, by a panic either.
pub(super) struct Fence;

impl Drop for Fence {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: part of SSE, which every x86-64 has; touches no memory.
        unsafe { _mm_sfence() }
        #[cfg(test)]
        watch::fenced();
    }
}

/// A fact that no result of a test would show: whether this thread's stores past the caches were fenced.
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

/// Before stores past the caches that a [`Fence`] will end.
#[inline(always)]
fn begin() {
    #[cfg(test)]
    watch::streamed();
}

/// Asks for a cache line to read, which need not exist, in the second-level cache: 4000² × 4 of f32 take 0.84 of
/// memcpy's time, and 1.32 when it is asked for in the first (A (0, 6) 0.99 and 1.45; AMD EPYC Zen 4, one thread).
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
            begin();
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

stream!(stream_avx512, "avx512f", 64, _mm512_loadu_si512, _mm512_stream_si512);
stream!(stream_avx2, "avx2", 32, _mm256_loadu_si256, _mm256_stream_si256);

/// A register as a [`Vector`], with its intrinsics; `tiles` on it, compiled with its instruction set.
macro_rules! vector {
    (
        $register:ty, $features:literal, $tiles:ident,
        $(bands $bands:ident, diagonals $diagonals:ident, in_place $in_place:ident, gather $gather:ident, exchange $exchange:ident,)?
        load $load:ident, store $store:ident, stream $stream:ident,
        unpack $([$width:literal $low:ident $high:ident])*
    ) => {
        impl Vector for $register {
            #[inline(always)]
            unsafe fn load(place: *const u8) -> Self {
                // SAFETY: the caller promises the instruction set, and a register's bytes to read.
                unsafe { $load(place.cast()) }
            }
            #[inline(always)]
            unsafe fn store(self, place: *mut u8) {
                // SAFETY: the caller promises the instruction set, and a register's bytes to write.
                unsafe { $store(place.cast(), self) }
            }
            #[inline(always)]
            unsafe fn stream(self, place: *mut u8) {
                // SAFETY: the caller promises the instruction set, and a register's bytes to write, at a multiple of
                // their number.
                unsafe { $stream(place.cast(), self) }
            }
            #[inline(always)]
            fn begin_streaming() {
                begin();
            }
            #[inline(always)]
            fn prefetch(place: *const u8) {
                prefetch(place);
            }
            #[inline(always)]
            fn prefetch_mut(place: *mut u8) {
                // SAFETY: part of SSE, which every x86-64 has; a hint, which never faults, whatever the address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
            }
            #[inline(always)]
            unsafe fn unpack<const W: usize>(self, other: Self) -> (Self, Self) {
                // SAFETY: registers alone, and the caller promises the instruction set.
                unsafe {
                    match W {
                        $($width => ($low(self, other), $high(self, other)),)*
                        _ => unreachable!("no tile has entries of {W} bytes"),
                    }
                }
            }
            $(#[inline(always)]
            unsafe fn gather(place: impl Fn(usize) -> *const u8) -> Self {
                // SAFETY: the caller promises the instruction set, and a lane's bytes to read from each place.
                unsafe { $gather(place) }
            }
            #[inline(always)]
            unsafe fn exchange<const N: usize>(rows: [Self; N]) -> [Self; N] {
                // SAFETY: registers alone, and the caller promises the instruction set.
                unsafe { $exchange(rows) }
            })?
        }

        /// See [`tiles`].
        #[target_feature(enable = $features)]
        pub(super) fn $tiles<const W: usize, const R: usize, const C: usize>(block: &mut Block<'_>) -> bool {
            // SAFETY: this function runs only where its instruction set is.
            unsafe { tiles::<$register, W, R, C>(block) }
        }

        $(/// See [`bands`].
        #[target_feature(enable = $features)]
        pub(super) fn $bands<const W: usize, const R: usize, const C: usize>(block: &mut Block<'_>) -> bool {
            // SAFETY: this function runs only where its instruction set is.
            unsafe { bands::<$register, W, R, C>(block) }
        }

        /// See [`diagonals`].
        #[target_feature(enable = $features)]
        pub(super) fn $diagonals<const W: usize, const R: usize, const C: usize>(strip: &mut Strip<'_>) -> bool {
            // SAFETY: this function runs only where its instruction set is.
            unsafe { diagonals::<$register, W, R, C>(strip) }
        }

        /// See [`in_place`]. Not inlined, or its stages were room on the stack of others too.
        #[target_feature(enable = $features)]
        #[inline(never)]
        pub(super) fn $in_place<const W: usize, const R: usize, const C: usize>(matrix: &mut [u8], row: usize) -> bool {
            // SAFETY: this function runs only where its instruction set is.
            unsafe { in_place::<$register, W, R, C>(matrix, row) }
        })?
    };
}

vector!(
    __m512i, "avx512f,avx512bw", tiles_avx512, bands bands_avx512, diagonals diagonals_avx512,
    in_place in_place_avx512,
    gather four_lanes, exchange lanes_of_four,
    load _mm512_loadu_si512, store _mm512_storeu_si512, stream _mm512_stream_si512,
    unpack [1 _mm512_unpacklo_epi8 _mm512_unpackhi_epi8] [2 _mm512_unpacklo_epi16 _mm512_unpackhi_epi16]
        [4 _mm512_unpacklo_epi32 _mm512_unpackhi_epi32] [8 _mm512_unpacklo_epi64 _mm512_unpackhi_epi64]
);

vector!(
    __m256i, "avx2", tiles_avx2, bands bands_avx2, diagonals diagonals_avx2,
    in_place in_place_avx2,
    gather two_lanes, exchange lanes_of_two,
    load _mm256_loadu_si256, store _mm256_storeu_si256, stream _mm256_stream_si256,
    unpack [1 _mm256_unpacklo_epi8 _mm256_unpackhi_epi8] [2 _mm256_unpacklo_epi16 _mm256_unpackhi_epi16]
        [4 _mm256_unpacklo_epi32 _mm256_unpackhi_epi32] [8 _mm256_unpacklo_epi64 _mm256_unpackhi_epi64]
);

vector!(
    __m128i, "sse2", tiles_sse2,
    load _mm_loadu_si128, store _mm_storeu_si128, stream _mm_stream_si128,
    unpack [1 _mm_unpacklo_epi8 _mm_unpackhi_epi8] [2 _mm_unpacklo_epi16 _mm_unpackhi_epi16]
        [4 _mm_unpacklo_epi32 _mm_unpackhi_epi32] [8 _mm_unpacklo_epi64 _mm_unpackhi_epi64]
);

/// Lane `l` from `place(l)`.
///
/// # Safety
/// 16 bytes can be read from each place on.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn four_lanes(place: impl Fn(usize) -> *const u8) -> __m512i {
    // SAFETY: the caller promises 16 bytes to read from each place.
    let lane = |l| unsafe { _mm_loadu_si128(place(l).cast()) };
    let lanes = _mm512_mask_broadcast_i32x4(_mm512_castsi128_si512(lane(0)), 0x00F0, lane(1));
    let lanes = _mm512_mask_broadcast_i32x4(lanes, 0x0F00, lane(2));
    _mm512_mask_broadcast_i32x4(lanes, 0xF000, lane(3))
}

/// Lane `l` from `place(l)`, of two.
///
/// # Safety
/// 16 bytes can be read from each place on.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn two_lanes(place: impl Fn(usize) -> *const u8) -> __m256i {
    // SAFETY: the caller promises 16 bytes to read from each of the two places.
    unsafe { _mm256_loadu2_m128i(place(1).cast(), place(0).cast()) }
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
