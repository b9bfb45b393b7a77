//! AVX2 and AVX-512 on x86-64: the same kernels, compiled once more with wider registers.
//!
//! A token exists only where the instruction set runs.
//! `x86/moves.rs` holds the intrinsics that move bytes. The one intrinsic here is the prefetch: statistics of 256 MiB
//! of f32 take 0.53 of memcpy's rate without and 0.65 with it (AMD EPYC Zen 3, 1 of 2 cores, AVX2, thread CPU time,
//! medians of 9). Anything else the vectoriser makes of the portable loops.

#![allow(unsafe_code)]

mod bands;
mod diagonals;
mod moves;

use super::machine::{Block, Kernel, Machine, Strip};
use super::stores::Processor;
use std::arch::x86_64::{__cpuid, _MM_HINT_T1, _mm_prefetch};

/// Proof that this machine runs AVX2, and FMA, which came along.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        let both = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        both.then_some(Avx2(()))
    }

    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[target_feature(enable = "avx2,fma")]
        fn with_avx2<K: Kernel>(kernel: K) -> K::Out {
            kernel.run::<OnAvx2>()
        }
        let _fence = moves::Fence;
        // SAFETY: `with_avx2` is safe except that it needs AVX2 and FMA. The field of `Avx2` is private; only
        // `Avx2::detect` and `Avx512::avx2` build one, the first after the machine has said that it has both, the other
        // from a token that says the same; an instruction set does not go away.
        unsafe { with_avx2(kernel) }
    }
}

/// Proof that this machine runs AVX-512 with F, BW, DQ and VL, and AVX2, FMA and F16C, which compilers take F to imply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        let implied =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let all = implied
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        all.then_some(Avx512(()))
    }

    /// AVX-512 implies AVX2, see `detect`.
    pub(crate) fn avx2(self) -> Avx2 {
        Avx2(())
    }

    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
        fn with_avx512<K: Kernel>(kernel: K) -> K::Out {
            kernel.run::<OnAvx512>()
        }
        let _fence = moves::Fence;
        // SAFETY: `with_avx512` is safe except that it needs these four features and the three that
        // avx512f implies to the compiler. The field of `Avx512` is private and only `detect` builds one, after the
        // machine has named all seven; they do not go away.
        unsafe { with_avx512(kernel) }
    }
}

/// This processor's report; empty under Miri, which has no processor.
pub(crate) fn processor() -> Option<Processor> {
    if cfg!(miri) {
        return None;
    }
    #[allow(unused_unsafe)] // later than the oldest Rust promised, it is a safe function
    let leaf = |leaf| {
        // SAFETY: every x86-64 has the instruction and the leaves 0 and 1, and is asked for a later one only where leaf
        // 0 names it; it touches no memory.
        unsafe { __cpuid(leaf) }
    };
    let (name, about) = (leaf(0), leaf(1));
    let features = if name.eax >= 7 { leaf(7).edx } else { 0 };
    Some(Processor::new([name.ebx, name.edx, name.ecx], about.eax, features))
}

/// A machine with AVX2. Private, and only `Avx2::run` and `OnAvx512` name it, so that its methods run where a token
/// exists: `Avx512::detect` has asked for AVX2 too.
enum OnAvx2 {}

impl Machine for OnAvx2 {
    const FUSED: bool = true;

    #[inline(always)]
    fn prefetch(bytes: &[u8]) {
        prefetch(bytes);
    }

    #[inline(always)]
    fn stream(dst: &mut [u8], src: &[u8]) {
        // SAFETY: safe except that it needs AVX2, which this machine has: only the `run` of a token names this type,
        // and a token is made after the machine has named AVX2.
        unsafe { moves::stream_avx2(dst, src) }
    }

    #[inline(always)]
    fn squares<const W: usize>(strip: &mut Strip<'_>) -> bool {
        // SAFETY: safe except that these need AVX2, which this machine has: only the `run` of a token names this type,
        // and a token is made after the machine has named AVX2.
        unsafe {
            match W {
                1 => moves::diagonals_avx2::<1, 32, 16>(strip),
                2 => moves::diagonals_avx2::<2, 16, 8>(strip),
                4 => moves::diagonals_avx2::<4, 8, 4>(strip),
                8 => moves::diagonals_avx2::<8, 4, 2>(strip),
                _ => false,
            }
        }
    }

    #[inline(always)]
    fn squares_in_place<const W: usize>(matrix: &mut [u8], row: usize) -> bool {
        // SAFETY: safe except that these need AVX2, which this machine has: only the `run` of a token names this type,
        // and a token is made after the machine has named AVX2.
        unsafe {
            match W {
                1 => moves::in_place_avx2::<1, 32, 16>(matrix, row),
                2 => moves::in_place_avx2::<2, 16, 8>(matrix, row),
                4 => moves::in_place_avx2::<4, 8, 4>(matrix, row),
                8 => moves::in_place_avx2::<8, 4, 2>(matrix, row),
                _ => false,
            }
        }
    }

    #[inline(always)]
    fn tiles<const W: usize>(block: &mut Block<'_>) -> bool {
        // SAFETY: safe except that these need AVX2, which this machine has (only its token's `run` names this type),
        // and SSE2, which every x86-64 has.
        unsafe {
            match W {
                1 if moves::bands_avx2::<1, 32, 16>(block) => true,
                2 if moves::bands_avx2::<2, 16, 8>(block) => true,
                4 if moves::bands_avx2::<4, 8, 4>(block) => true,
                8 if moves::bands_avx2::<8, 4, 2>(block) => true,
                1 => moves::tiles_avx2::<1, 32, 16>(block) || moves::tiles_sse2::<1, 16, 16>(block),
                2 => moves::tiles_avx2::<2, 16, 8>(block) || moves::tiles_sse2::<2, 8, 8>(block),
                4 => moves::tiles_avx2::<4, 8, 8>(block) || moves::tiles_sse2::<4, 4, 4>(block),
                8 => moves::tiles_avx2::<8, 4, 4>(block) || moves::tiles_sse2::<8, 2, 2>(block),
                16 => moves::tiles_avx2::<16, 2, 2>(block) || moves::tiles_sse2::<16, 1, 1>(block),
                _ => false,
            }
        }
    }
}

/// A machine with AVX-512. Private, and only `Avx512::run` names it.
enum OnAvx512 {}

impl Machine for OnAvx512 {
    const FUSED: bool = true;

    #[inline(always)]
    fn prefetch(bytes: &[u8]) {
        prefetch(bytes);
    }

    #[inline(always)]
    fn stream(dst: &mut [u8], src: &[u8]) {
        // SAFETY: safe except that it needs AVX-512 with F and BW, which this machine has: only the token's `run` names
        // this type.
        unsafe { moves::stream_avx512(dst, src) }
    }

    #[inline(always)]
    fn squares<const W: usize>(strip: &mut Strip<'_>) -> bool {
        // SAFETY: safe except that these need AVX-512 with F and BW, which this machine has: only the token's `run`
        // names this type.
        unsafe {
            match W {
                1 => moves::diagonals_avx512::<1, 64, 16>(strip),
                2 => moves::diagonals_avx512::<2, 32, 8>(strip),
                4 => moves::diagonals_avx512::<4, 16, 4>(strip),
                8 => moves::diagonals_avx512::<8, 8, 2>(strip),
                _ => false,
            }
        }
    }

    #[inline(always)]
    fn squares_in_place<const W: usize>(matrix: &mut [u8], row: usize) -> bool {
        // SAFETY: safe except that these need AVX-512 with F and BW, which this machine has: only the token's `run`
        // names this type.
        unsafe {
            match W {
                1 => moves::in_place_avx512::<1, 64, 16>(matrix, row),
                2 => moves::in_place_avx512::<2, 32, 8>(matrix, row),
                4 => moves::in_place_avx512::<4, 16, 4>(matrix, row),
                8 => moves::in_place_avx512::<8, 8, 2>(matrix, row),
                _ => false,
            }
        }
    }

    #[inline(always)]
    fn tiles<const W: usize>(block: &mut Block<'_>) -> bool {
        // SAFETY: safe except that these need AVX-512 with F and BW, which this machine has: only the token's `run`
        // names this type.
        let wide = unsafe {
            match W {
                1 if moves::bands_avx512::<1, 64, 16>(block) => true,
                2 if moves::bands_avx512::<2, 32, 8>(block) => true,
                4 if moves::bands_avx512::<4, 16, 4>(block) => true,
                8 if moves::bands_avx512::<8, 8, 2>(block) => true,
                1 => moves::tiles_avx512::<1, 64, 16>(block),
                2 => moves::tiles_avx512::<2, 32, 8>(block),
                4 => moves::tiles_avx512::<4, 16, 16>(block),
                8 => moves::tiles_avx512::<8, 8, 8>(block),
                16 => moves::tiles_avx512::<16, 4, 4>(block),
                _ => false,
            }
        };
        wide || OnAvx2::tiles::<W>(block)
    }
}

#[inline(always)]
fn prefetch(bytes: &[u8]) {
    // SAFETY: the instruction is a hint that reads nothing and never faults, whatever the address; it is part of SSE,
    // which every x86-64 has.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(bytes.as_ptr().cast()) }
}

#[cfg(test)]
mod tests {
    use super::super::Isa;
    use super::super::copy::{CopyBytes, MergeRows, Rows, RowsMut, SplitRows};
    use super::super::element::Fill;
    use super::super::machine::{Block, Fetch, Kernel, Machine, Store, Strip};
    use super::super::permute::Permute;
    use super::moves::watch;
    use crate::plan::Permutation;

    /// Nothing else shows it: this thread sees its own stores, and on most days others do too.
    #[test]
    fn no_kernel_leaves_stores_past_the_caches_unfenced() {
        let src = vec![1; 64 << 10];
        for isa in Isa::available() {
            let mut dst = vec![0; 64 << 10];
            run_each(isa, &src[..48 << 10], |name, work| {
                let before = watch::stores().0;
                let at = dst.as_ptr().align_offset(64);
                work(&mut dst[at..][..48 << 10]);
                let (begun, open) = watch::stores();
                assert_eq!(begun > before, isa != Isa::Portable, "{name} on {isa:?}");
                assert_eq!(open, 0, "{name} on {isa:?}");
            });
        }
    }

    /// A block of entries of `W` bytes, as the machine's own kernel moves it.
    struct Tiled<'a, const W: usize>(Block<'a>);

    impl<const W: usize> Kernel for Tiled<'_, W> {
        type Out = bool;

        #[inline(always)]
        fn run<M: Machine>(mut self) -> bool {
            M::tiles::<W>(&mut self.0)
        }
    }

    /// The order of the rows of a block, on both sides.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Order {
        Even,
        /// The last two change places.
        Uneven,
        /// From the last to the first, equally far apart.
        Descending,
    }

    /// The rows of both sides are `gap` bytes apart.
    fn check_block<const W: usize>(isa: Isa, columns: usize, rows: usize, gap: usize, order: Order, fetch: Fetch) {
        let (step, line) = (columns * W + gap, rows * W + gap);
        let src: Vec<u8> = (0..step * rows).map(|i| (i ^ i >> 8 ^ i >> 15) as u8 ^ (i % 251) as u8).collect();
        let mut from: Vec<usize> = (0..rows).map(|y| y * step).collect();
        let mut to: Vec<usize> = (0..columns).map(|x| x * line).collect();
        match order {
            Order::Uneven if rows > 2 && columns > 2 => {
                from.swap(rows - 2, rows - 1);
                to.swap(columns - 2, columns - 1);
            }
            Order::Descending => {
                from.reverse();
                to.reverse();
            }
            Order::Even | Order::Uneven => {}
        }
        let (mut dst, store) = (vec![0xA5; line * columns], Store::Cached);
        let mut want = dst.clone();
        for (y, from) in from.iter().enumerate() {
            for (x, to) in to.iter().enumerate() {
                want[to + y * W..][..W].copy_from_slice(&src[from + x * W..][..W]);
            }
        }
        let block = Block { src: &src, dst: &mut dst, from: &from, to: &to, store, fetch };
        let moved = isa.run(Tiled::<W>(block));
        assert_eq!(moved, isa != Isa::Portable && columns.min(rows) * W >= 16, "{columns} × {rows}, {isa:?}");
        assert!(!moved || dst == want, "{columns} × {rows} of {W} bytes, {gap} apart, {fetch:?}, {isa:?}");
    }

    /// Of a line and a lane, of an entry more or less, and of several; on each processor, whoever fetches the lines.
    #[test]
    fn blocks_of_every_width_and_ragged_side() {
        fn each<const W: usize>(isa: Isa, fetch: Fetch) {
            use Order::{Descending, Even, Uneven};
            let (lane, line) = (16 / W, 64 / W);
            for columns in
                [lane - 1, lane, lane + 1, 5 * lane + 1, line + lane + 1].into_iter().filter(|side| *side > 0)
            {
                for rows in [line - 1, line, line + 1, 3 * line - 1] {
                    for (gap, order) in [(0, Even), (W, Even), (7, Even), (7, Uneven), (7, Descending)] {
                        check_block::<W>(isa, columns, rows, gap, order, fetch);
                    }
                }
            }
        }
        for isa in Isa::available() {
            for fetch in [Fetch::Asked, Fetch::Unasked, Fetch::Squares] {
                each::<1>(isa, fetch);
                each::<2>(isa, fetch);
                each::<4>(isa, fetch);
                each::<8>(isa, fetch);
            }
        }
    }

    /// A strip of entries of `W` bytes, as the machine's own kernel moves it.
    struct Turned<'a, const W: usize>(Strip<'a>);

    impl<const W: usize> Kernel for Turned<'_, W> {
        type Out = bool;

        #[inline(always)]
        fn run<M: Machine>(mut self) -> bool {
            M::squares::<W>(&mut self.0)
        }
    }

    fn check_squares<const W: usize>(isa: Isa, columns: usize, rows: usize, store: Store) {
        let (step, line) = ((columns * W).next_multiple_of(1 << 10), (rows * W).next_multiple_of(64) + 64);
        let src: Vec<u8> = (0..step * rows).map(|i| (i ^ i >> 8 ^ i >> 15) as u8 ^ (i % 251) as u8).collect();
        let mut room = vec![0xA5; line * columns + 64];
        let aligned = room.as_ptr().align_offset(64);
        // The lines of the destination change places in pairs, and behind them more are named than there is room for.
        let to: Vec<usize> =
            (0..2 * columns).map(|x| if x ^ 1 < columns { (x ^ 1) * line } else { x * line }).collect();
        let mut want = room[aligned..].to_vec();
        for y in 0..rows {
            for (x, to) in to[..columns].iter().enumerate() {
                want[to + y * W..][..W].copy_from_slice(&src[y * step + x * W..][..W]);
            }
        }
        let (src, to, dst) = (src.as_slice(), to.as_slice(), &mut room[aligned..]);
        let turned = isa.run(Turned::<W>(Strip { src, dst, rows, step, columns, to, store }));
        assert_eq!(turned, isa != Isa::Portable);
        assert!(!turned || room[aligned..] == want, "{columns} × {rows} of {W} bytes, {store:?}, {isa:?}");
    }

    /// Of whole squares, which are four lines, and of a part more or less, an entry more or less, and both.
    #[test]
    fn squares_of_every_width_and_ragged_side() {
        fn each<const W: usize>(isa: Isa, store: Store) {
            let line = 64 / W;
            let sides = [4 * line, 4 * line + 1, 5 * line, 7 * line - 1, 8 * line];
            for xs in sides {
                for ys in sides {
                    check_squares::<W>(isa, xs, ys, store);
                }
            }
        }
        for isa in Isa::available() {
            for store in [Store::Cached, Store::Streaming] {
                each::<1>(isa, store);
                each::<2>(isa, store);
                each::<4>(isa, store);
                each::<8>(isa, store);
            }
        }
    }

    /// A matrix of entries of `W` bytes, as the machine's own kernel transposes it.
    struct Mirrored<'a, const W: usize>(&'a mut [u8], usize);

    impl<const W: usize> Kernel for Mirrored<'_, W> {
        type Out = bool;

        #[inline(always)]
        fn run<M: Machine>(self) -> bool {
            M::squares_in_place::<W>(self.0, self.1)
        }
    }

    fn check_in_place<const W: usize>(isa: Isa, row: usize) {
        let side = row / W;
        let src: Vec<u8> = (0..row * side).map(|i| (i ^ i >> 8 ^ i >> 15) as u8 ^ (i % 251) as u8).collect();
        let mut want = src.clone();
        for y in 0..side {
            for x in 0..side {
                want[x * row + y * W..][..W].copy_from_slice(&src[y * row + x * W..][..W]);
            }
        }
        let mut matrix = src.clone();
        let turned = isa.run(Mirrored::<W>(&mut matrix, row));
        assert_eq!(turned, isa != Isa::Portable && row.is_multiple_of(256), "rows of {row} bytes, {isa:?}");
        let want = if turned { want } else { src };
        assert!(matrix == want, "rows of {row} bytes, {W} each, {isa:?}");
    }

    /// Of one square, of more, and of rows that are no whole squares, which stay as they are.
    #[test]
    fn matrices_of_whole_squares_in_place() {
        for isa in Isa::available() {
            for row in [256, 512, 768, 1280, 64, 320] {
                check_in_place::<1>(isa, row);
                check_in_place::<2>(isa, row);
                check_in_place::<4>(isa, row);
                check_in_place::<8>(isa, row);
            }
        }
    }

    /// Every kernel that moves bytes and may store them past the caches, once.
    fn run_each(isa: Isa, src: &[u8], mut past: impl FnMut(&str, &mut dyn FnMut(&mut [u8]))) {
        let store = Store::Streaming;
        past("copy", &mut |dst| isa.run(CopyBytes { src, dst, store }));
        past("fill", &mut |y| {
            let value = [1, 2, 3, 4];
            isa.run(Fill { y, value, store });
        });
        for run in [1, 3, 64, 4096] {
            let part = Rows { bytes: &src[..src.len() / 2], run };
            let parts = &[part, part];
            past("merge", &mut |dst| {
                let start = 0;
                MergeRows { parts, start, dst, store }.run(isa);
            });
            past("split", &mut |dst| {
                let (one, other) = dst.split_at_mut(src.len() / 2);
                let parts = &mut [one, other].map(|bytes| RowsMut { bytes, run });
                let row = 2 * run;
                SplitRows { src, row, parts, store }.run(isa);
            });
        }
        let swaps: [(&[usize], &[usize], usize); 5] = [
            (&[64, 192], &[1, 0], 4),
            (&[16 << 10, 3], &[1, 0], 1),
            (&[3, 16 << 10], &[1, 0], 1),
            (&[2, 12, 2048], &[1, 0, 2], 1),
            (&[2, 192, 128], &[1, 0, 2], 1),
        ];
        for (dims, order, size) in swaps {
            let plan = Permutation::new(dims, order, size);
            past("permute", &mut |dst| {
                Permute { plan: &plan, src, dst, store }.run(isa);
            });
        }
    }
}
