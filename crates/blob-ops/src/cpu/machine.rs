//! Kernels, and the offers of an instruction set to them: the words that kernels and instruction sets have in common.
//!
//! ```text
//! isa.run(kernel)  →  with the set's registers: kernel.run::<M>()  →  M::prefetch, M::stream, M::squares, M::tiles
//! ```
//! Kernels are plain Rust; each set compiles them again. Knows no dtypes, and not which sets there are.

use crate::plan::LINE;

/// Work that any machine can do. `run` is `#[inline(always)]`, or wider registers would not reach it.
pub(crate) trait Kernel {
    type Out;
    fn run<M: Machine>(self) -> Self::Out;
}

/// The offers of an instruction set besides wider registers.
pub(crate) trait Machine {
    /// Whether a product and a sum are one instruction.
    const FUSED: bool = false;

    /// Asks for the cache line in which `bytes` start.
    fn prefetch(bytes: &[u8]);

    /// Copies between slices of one length, past the caches where it can.
    #[inline(always)]
    fn stream(dst: &mut [u8], src: &[u8]) {
        dst.copy_from_slice(src);
    }

    /// Moves a strip in squares; `false`, and nothing is moved, where there is no kernel for it.
    #[inline(always)]
    fn squares<const W: usize>(_: &mut Strip<'_>) -> bool {
        false
    }

    /// Transposes a matrix of rows of `row` bytes where it is, in squares; `false`, and nothing is moved, where there
    /// is no kernel for it.
    #[inline(always)]
    fn squares_in_place<const W: usize>(_matrix: &mut [u8], _row: usize) -> bool {
        false
    }

    /// Moves a block in tiles; `false`, and nothing is moved, where there is no kernel for it.
    #[inline(always)]
    fn tiles<const W: usize>(_: &mut Block<'_>) -> bool {
        false
    }
}

/// Any machine.
pub(crate) struct Portable;

impl Machine for Portable {
    #[inline(always)]
    fn prefetch(_: &[u8]) {}
}

/// A block of a permutation. Entry `(x, y)`, of `W` bytes, is at `from[y] + x · W` in the source and at `to[x] + y · W`
/// in the destination.
///
/// The lines that begin at `to` do not overlap: where they are stored past the caches no byte is written twice before
/// the fence. They are those of a plan, whose strides keep them apart.
pub(crate) struct Block<'a> {
    pub(crate) src: &'a [u8],
    pub(crate) dst: &'a mut [u8],
    pub(crate) from: &'a [usize],
    pub(crate) to: &'a [usize],
    pub(crate) store: Store,
    pub(crate) fetch: Fetch,
}

/// A block whose rows are equally far apart in the source: entry `(x, y)`, of `W` bytes, is at `y · step + x · W` in
/// the source and at `to[x] + y · W` in the destination. The lines that begin at `to` do not overlap, as a block's do
/// not.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code))]
pub(crate) struct Strip<'a> {
    pub(crate) src: &'a [u8],
    pub(crate) dst: &'a mut [u8],
    pub(crate) rows: usize,
    pub(crate) step: usize,
    pub(crate) columns: usize,
    /// Of the columns, and of some that come later.
    pub(crate) to: &'a [usize],
    pub(crate) store: Store,
}

/// Bytes of a square along each side: a strip has at least as many of each row, and of each line.
pub(crate) const SQUARE: usize = 4 * LINE;

/// Who fetches the lines of a block. The bits do not depend on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fetch {
    /// Kernels ask for them before they read or write them.
    Asked,
    /// The processor, by itself.
    Unasked,
    /// Kernels ask for a square while they turn the one before, where they turn squares, and else as in `Asked`.
    Squares,
}

/// Scratch that begins with a cache line, because the stack may lie at any 16 bytes. Registers that straddle two lines
/// cost a third more: 0.72 to 0.97 of memcpy's time for NHWC to NCHW with three channels (37 MiB). Where such a one is
/// read just after it was written, the read waits for the caches: 132 ms in place of 12 for 128 MiB of f16 to f32 by
/// one thread (AMD EPYC Zen 4, AVX-512).
#[repr(align(64))]
pub(crate) struct Lines<T>(pub(crate) T);

/// How a destination is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Store {
    /// Through the caches.
    Cached,
    /// Past them: whole lines, or runs so long that their ends do not matter. No line is read before it is overwritten.
    Streaming,
}

/// Runs of at least as many bytes are written past the caches whatever their alignment: they have few ends.
pub(crate) const MIN_STREAMED_RUN: usize = 1 << 10;

impl Store {
    /// For runs of this many bytes, shorter than a page, one behind the other from the start of `dst`. A line that is
    /// written past the caches in two parts is read and written twice.
    pub(crate) fn of_runs(self, run: usize, dst: &[u8]) -> Self {
        let lines = run.is_multiple_of(LINE) && dst.as_ptr().addr().is_multiple_of(LINE);
        if lines { self } else { Store::Cached }
    }

    /// Writes `src` over `dst`, which is as long.
    #[inline(always)]
    pub(crate) fn write<M: Machine>(self, dst: &mut [u8], src: &[u8]) {
        match self {
            Store::Cached => dst.copy_from_slice(src),
            Store::Streaming => M::stream(dst, src),
        }
    }
}
