//! Blocks of a permutation: entries that are neighbours along one axis in the source, along another in the destination.
//!
//! Tile by tile: a tile is one cache line of entries each way, turned in registers or in a buffer in the first-level
//! cache, so that each line of source and destination is touched once. Plain Rust; `x86` has faster tiles.

use super::{Kernel, Machine, Store};
use crate::plan::LINE;

/// Entry `(x, y)`, of `W` bytes, is at `from[y] + x · W` in the source and at `to[x] + y · W` in the destination.
pub(crate) struct Block<'a> {
    pub(crate) src: &'a [u8],
    pub(crate) dst: &'a mut [u8],
    pub(crate) from: &'a [usize],
    pub(crate) to: &'a [usize],
    pub(crate) store: Store,
}

/// Entries of two bytes or one make tiles of 32 × 32: a buffer of 2 KiB at most.
const MOST: usize = 32;

impl Block<'_> {
    /// Moves all entries, with the machine's own kernel where it has one.
    #[inline(always)]
    pub(crate) fn run<M: Machine, const W: usize>(mut self) {
        if M::tiles::<W>(&mut self) {
            return;
        }
        let side = (LINE / W).min(MOST);
        let mut tile = [[[0; W]; MOST]; MOST];
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
    tile: &mut [[[u8; W]; MOST]; MOST],
) {
    for (y, from) in from.iter().enumerate() {
        let row = &src[from + x..][..len * W];
        for (line, entry) in tile.iter_mut().zip(row.as_chunks::<W>().0) {
            line[y % MOST] = *entry;
        }
    }
}

/// Square matrices one behind the other, to be transposed where they are.
pub(crate) struct Square<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) side: usize,
    pub(crate) width: usize,
}

impl Kernel for Square<'_> {
    type Out = ();

    #[inline(always)]
    fn run<M: Machine>(self) {
        let side = self.side;
        for matrix in self.bytes.chunks_mut(side * side * self.width) {
            match self.width {
                1 => square::<1>(matrix, side),
                2 => square::<2>(matrix, side),
                4 => square::<4>(matrix, side),
                8 => square::<8>(matrix, side),
                width => unreachable!("no element has {width} bytes"),
            }
        }
    }
}

/// Tiles change places with their mirror images, those on the diagonal with themselves.
#[inline(always)]
fn square<const W: usize>(matrix: &mut [u8], side: usize) {
    let tile = LINE / W;
    let matrix = matrix.as_chunks_mut::<W>().0;
    for top in (0..side).step_by(tile) {
        for left in (0..=top).step_by(tile) {
            for row in top..side.min(top + tile) {
                for column in left..row.min(left + tile) {
                    matrix.swap(row * side + column, column * side + row);
                }
            }
        }
    }
}
