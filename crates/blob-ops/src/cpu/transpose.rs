//! Blocks of a permutation: entries that are neighbours along one axis in the source, along another in the destination.
//!
//! ```text
//! for each tile of one cache line of entries each way:
//!     for each of its rows y:  tile[x][y] = src[from[y] + x]       a buffer in the first-level cache
//!     for each of its lines x: dst[to[x] + y] = tile[x]
//! in place: each square below the diagonal changes places with its mirror image, both transposed
//! ```
//! So each line of source and destination is touched once. Plain Rust; `tiles.rs` does the same in registers.

use super::machine::{Block, Fetch, Kernel, Lines, Machine, Store};
use crate::plan::LINE;

/// Entries of two bytes or one make tiles of 32 × 32: a buffer of 2 KiB at most.
const TILE_SIDE: usize = 32;

impl Block<'_> {
    /// Moves all entries, with the machine's own kernel where it has one.
    #[inline(always)]
    pub(crate) fn run<M: Machine, const W: usize>(mut self) {
        if !M::tiles::<W>(&mut self) {
            self.run_plainly::<W>();
        }
    }

    /// In plain Rust. Not inlined, or its tile were room on the stack wherever a block is moved, each page of which
    /// costs a store.
    #[inline(never)]
    fn run_plainly<const W: usize>(self) {
        let side = (LINE / W).min(TILE_SIDE);
        let mut tile = [[[0; W]; TILE_SIDE]; TILE_SIDE];
        for (group, to) in self.to.chunks(side).enumerate() {
            for (y, from) in self.from.chunks(side).enumerate() {
                gather::<W>(self.src, from, group * side * W, to.len(), &mut tile);
                for (line, to) in tile.iter().zip(to) {
                    let line = line[..from.len()].as_flattened();
                    let to = to + y * side * W;
                    self.dst[to..to + line.len()].copy_from_slice(line);
                }
            }
        }
    }
}

/// `tile[x][y]`, read row by row of the source.
#[inline(always)]
fn gather<const W: usize>(
    src: &[u8],
    from: &[usize],
    x: usize,
    len: usize,
    tile: &mut [[[u8; W]; TILE_SIDE]; TILE_SIDE],
) {
    for (y, from) in from.iter().enumerate() {
        let row = &src[from + x..][..len * W];
        for (line, entry) in tile.iter_mut().zip(row.as_chunks::<W>().0) {
            line[y % TILE_SIDE] = *entry;
        }
    }
}

/// Square matrices one behind the other, to be transposed where they are.
pub(crate) struct Square<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) side: usize,
    pub(crate) width: usize,
    pub(crate) fetch: Fetch,
}

impl Kernel for Square<'_> {
    type Out = ();

    #[inline(always)]
    fn run<M: Machine>(self) {
        let (side, fetch) = (self.side, self.fetch);
        // One for all widths, or each would have its own room on the stack, a page of which costs a store.
        let buffer = &mut Lines([[0; SQUARE_ROW]; SQUARE_SIDE]);
        for matrix in self.bytes.chunks_mut(side * side * self.width) {
            match self.width {
                1 => in_place::<M, 1>(matrix, side, fetch, buffer),
                2 => in_place::<M, 2>(matrix, side, fetch, buffer),
                4 => in_place::<M, 4>(matrix, side, fetch, buffer),
                8 => in_place::<M, 8>(matrix, side, fetch, buffer),
                width => unreachable!("no element has {width} bytes"),
            }
        }
    }
}

/// Along diagonals where the rows share the sets of a cache, else square by square.
#[inline(always)]
fn in_place<M: Machine, const W: usize>(matrix: &mut [u8], side: usize, fetch: Fetch, buffer: &mut Buffer) {
    let row = side * W;
    let done = fetch == Fetch::Squares && share_sets(row) && M::squares_in_place::<W>(matrix, row);
    if !done {
        square::<M, W>(matrix, side, fetch, buffer);
    }
}

/// Bytes of a row of the squares that change places. Over memcpy's time, f32, entry by entry and so: 1024² 21.6 and 3.6
/// with squares of 32 rows in two buffers (one thread of an AMD EPYC Zen 4); those and these, of 64 rows in one: 128²
/// 2.7 and 2.0, 1024² 1.3 and 1.1, u8 4.0 and 2.3 (Intel Xeon, AVX-512).
const SQUARE_ROW: usize = 4 * LINE;

/// Their rows, at most.
const SQUARE_SIDE: usize = 64;

/// A square, in the first-level cache.
type Buffer = Lines<[[u8; SQUARE_ROW]; SQUARE_SIDE]>;

/// Whether rows this far apart begin in at most four sets of a first-level cache, whose sets come again after 4 KiB.
pub(crate) fn share_sets(stride: usize) -> bool {
    const APART: usize = 1 << 10;
    stride.is_multiple_of(APART)
}

/// Each square below the diagonal and its mirror image change places transposed, one by way of a
/// buffer in the first-level cache, as those on the diagonal are.
#[inline(always)]
fn square<M: Machine, const W: usize>(matrix: &mut [u8], side: usize, fetch: Fetch, buffer: &mut Buffer) {
    let (step, stride) = ((SQUARE_ROW / W).min(SQUARE_SIDE), side * W);
    let apart: [usize; SQUARE_SIDE] = std::array::from_fn(|row| row * stride);
    let close: [usize; SQUARE_SIDE] = std::array::from_fn(|row| row * SQUARE_ROW);
    let Lines(buffer) = buffer;
    let store = Store::Cached;
    for top in (0..side).step_by(step) {
        for left in (0..=top).step_by(step) {
            let (rows, columns) = (step.min(side - top), step.min(side - left));
            let (above, below) = matrix.split_at_mut(top * stride);
            let (src, dst) = (&below[left * W..], buffer.as_flattened_mut());
            Block { src, dst, from: &apart[..rows], to: &close[..columns], store, fetch }.run::<M, W>();
            let mirror = left * stride + top * W;
            if left < top {
                let (src, dst) = (&above[mirror..], &mut below[left * W..]);
                Block { src, dst, from: &apart[..columns], to: &apart[..rows], store, fetch }.run::<M, W>();
            }
            for (row, line) in apart.iter().zip(&buffer[..columns]) {
                let to = &mut matrix[mirror + row..][..rows * W];
                match to.first_chunk_mut::<SQUARE_ROW>() {
                    Some(to) => *to = *line,
                    None => to.copy_from_slice(&line[..rows * W]),
                }
            }
        }
    }
}
