//! Blocks of a permutation: entries that are neighbours along one axis in the source, along another in the destination.
//!
//! ```text
//! for each tile of one cache line of entries each way:
//!     for each of its rows y:  tile[x][y] = src[from[y] + x]       a buffer in the first-level cache
//!     for each of its lines x: dst[to[x] + y] = tile[x]
//! in place: each tile below the diagonal changes places with its mirror image, both transposed
//! ```
//! So each line of source and destination is touched once. Plain Rust; `tiles.rs` does the same in registers.

use super::machine::{Block, Kernel, Machine, Store};
use crate::plan::LINE;

/// Entries of two bytes or one make tiles of 32 × 32: a buffer of 2 KiB at most.
const TILE_SIDE: usize = 32;

impl Block<'_> {
    /// Moves all entries, with the machine's own kernel where it has one.
    #[inline(always)]
    pub(crate) fn run<M: Machine, const W: usize>(mut self) {
        if M::tiles::<W>(&mut self) {
            return;
        }
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
}

impl Kernel for Square<'_> {
    type Out = ();

    #[inline(always)]
    fn run<M: Machine>(self) {
        let side = self.side;
        for matrix in self.bytes.chunks_mut(side * side * self.width) {
            match self.width {
                1 => square::<M, 1>(matrix, side),
                2 => square::<M, 2>(matrix, side),
                4 => square::<M, 4>(matrix, side),
                8 => square::<M, 8>(matrix, side),
                width => unreachable!("no element has {width} bytes"),
            }
        }
    }
}

/// Bytes of a row of the tiles that change places: two cache lines. Over memcpy's time, f32, one thread of an AMD EPYC
/// Zen 4, entry by entry and so: 128² 5.7 and 3.3, 1024² 21.6 and 3.6, 4000² × 4 3.8 and 1.0.
const TILE_ROW: usize = 2 * LINE;

/// A tile in the first-level cache, row by row.
type Tile = [[u8; TILE_ROW]; TILE_SIDE];

/// Tiles change places with their mirror images, those on the diagonal with themselves. Both are copied into buffers
/// first and transposed on the way back.
#[inline(always)]
fn square<M: Machine, const W: usize>(matrix: &mut [u8], side: usize) {
    let (step, stride) = ((TILE_ROW / W).min(TILE_SIDE), side * W);
    let mut tiles = [[[0; TILE_ROW]; TILE_SIDE]; 2];
    for top in (0..side).step_by(step) {
        for left in (0..=top).step_by(step) {
            let places = [top * stride + left * W, left * stride + top * W];
            let sides = [step.min(side - top), step.min(side - left)];
            let ahead = (left + step).min(top);
            ask::<M>(matrix, top * stride + ahead * W, stride, sides[0], step * W);
            ask::<M>(matrix, ahead * stride + top * W, stride, step, sides[0] * W);
            take(&matrix[places[0]..], stride, &mut tiles[0][..sides[0]], sides[1] * W);
            if left < top {
                take(&matrix[places[1]..], stride, &mut tiles[1][..sides[1]], sides[0] * W);
                put::<M, W>(&tiles[1], [sides[1], sides[0]], &mut matrix[places[0]..], stride);
            }
            put::<M, W>(&tiles[0], sides, &mut matrix[places[1]..], stride);
        }
    }
}

/// Prefetches the rows of a tile, which may reach past the matrix.
#[inline(always)]
fn ask<M: Machine>(matrix: &[u8], place: usize, stride: usize, rows: usize, len: usize) {
    for row in 0..rows {
        let Some(row) = matrix.get(place + row * stride..) else {
            return;
        };
        for line in row[..len.min(row.len())].chunks(LINE) {
            M::prefetch(line);
        }
    }
}

/// Copies a tile's rows of `len` bytes.
#[inline(always)]
fn take(matrix: &[u8], stride: usize, tile: &mut [[u8; TILE_ROW]], len: usize) {
    for (row, to) in tile.iter_mut().enumerate() {
        let from = &matrix[row * stride..][..len];
        match from.first_chunk::<TILE_ROW>() {
            Some(from) => *to = *from,
            None => to[..len].copy_from_slice(from),
        }
    }
}

/// Writes a tile transposed; `sides` are its rows and columns.
#[inline(always)]
fn put<M: Machine, const W: usize>(tile: &Tile, sides: [usize; 2], dst: &mut [u8], stride: usize) {
    let [rows, columns] = sides;
    let from: [usize; TILE_SIDE] = std::array::from_fn(|y| y * TILE_ROW);
    let to: [usize; TILE_SIDE] = std::array::from_fn(|x| x * stride);
    let block = Block { src: tile.as_flattened(), dst, from: &from[..rows], to: &to[..columns], store: Store::Cached };
    block.run::<M, W>();
}
