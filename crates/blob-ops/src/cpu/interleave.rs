//! Blocks of a permutation with a side of two to four entries: a few rows zipped into one, one unzipped into a few, or
//! both.
//!
//! ```text
//! planes[j][i] = of row i of the source every `outs`-th entry, from the j-th on      i < ins, j < outs
//! row j of the destination = an entry of planes[j][0], one of planes[j][1], …, again and again
//! ```
//! In parts that stay in the first-level cache, so that each line of source and destination is touched once; tiles end
//! within a line at every step. 256 MiB of f32 over memcpy's time, one thread of an AMD EPYC Zen 4: B (0, 6), four
//! entries each, 4.4 in tiles and 1.5 here. Small matrices that lie one behind the other on both sides need no planes:
//! B (5, 6), 16 × 4 again and again, 1.40 through planes and 0.74 so (Intel Xeon, AVX-512, 128 MiB past the caches).

use super::machine::{Lines, MIN_STREAMED_RUN, Machine, Store};
use super::zip::{unzip, unzip_short, zip};
use crate::plan::{Blocks, LINE, ONE, Stride, Strides, Walk};
use std::ops::Range;

/// Most rows on a side.
const MAX_SIDE: usize = 4;

/// Bytes of a plane: 16 planes, and a row of four, stay in the first-level cache.
const PLANE_BYTES: usize = 512;

/// Bytes of a row that are handled at a time where no planes are needed, in the first-level cache.
const ROW_BYTES: usize = 8 << 10;

/// `ins` rows of the source become `outs` rows of the destination.
pub(super) struct Interleave {
    ins: Stride,
    outs: Stride,
    /// The axis along the rows: a step takes `outs` entries of a source's row, and `ins` of a destination's.
    along: Stride,
    /// An axis whose entries continue the rows on at least one side.
    again: Stride,
    outer: Strides,
}

/// The contents of the planes at a time: some entries of `again`, and for each the same range along the rows.
struct Chunk {
    again: Range<usize>,
    along: Range<usize>,
}

impl Interleave {
    /// `None` where the sides have other counts.
    #[inline(always)]
    pub(super) fn of(blocks: &Blocks) -> Option<Self> {
        let run = blocks.run;
        let short = |axis: &Stride| (2..=MAX_SIDE).contains(&axis.len) && axis.len * run < LINE;
        let (ins, outs, along) = match (blocks.x.as_slice(), blocks.y.as_slice()) {
            ([outs, along], [ins]) | ([outs], [ins, along]) if short(ins) && short(outs) => (*ins, *outs, *along),
            ([along], [ins]) if short(ins) && along.to == ins.len * run => (*ins, ONE, *along),
            ([outs], [along]) if short(outs) && along.from == outs.len * run => (ONE, *outs, *along),
            _ => return None,
        };
        if along.from != outs.len * run || along.to != ins.len * run {
            return None;
        }
        let mut outer = Strides::default();
        let mut again = ONE;
        for axis in blocks.outer.as_slice() {
            let continues = axis.from == along.len * along.from || axis.to == along.len * along.to;
            if again == ONE && continues { again = *axis } else { outer.push(*axis) }
        }
        Some(Interleave { ins, outs, along, again, outer })
    }

    /// Moves all entries, of `W` bytes.
    #[inline(always)]
    pub(super) fn run<M: Machine, const W: usize>(&self, src: &[u8], dst: &mut [u8], store: Store) {
        let long = self.again == ONE || self.along.len * W >= MIN_STREAMED_RUN;
        match (self.ins.len, self.outs.len) {
            (2, 1) if long => self.zip::<M, W, 2>(src, dst, store),
            (3, 1) if long => self.zip::<M, W, 3>(src, dst, store),
            (4, 1) if long => self.zip::<M, W, 4>(src, dst, store),
            (1, 2) if long => self.unzip::<M, W, 2>(src, dst, store),
            (1, 3) if long => self.unzip::<M, W, 3>(src, dst, store),
            (1, 4) if long => self.unzip::<M, W, 4>(src, dst, store),
            (2, 1) if self.is_dense() => self.matrices::<M>(src, dst, store, zip_matrix::<W, 2>),
            (3, 1) if self.is_dense() => self.matrices::<M>(src, dst, store, zip_matrix::<W, 3>),
            (4, 1) if self.is_dense() => self.matrices::<M>(src, dst, store, zip_matrix::<W, 4>),
            (1, 2) if self.is_dense() => self.matrices::<M>(src, dst, store, unzip_matrix::<W, 2>),
            (1, 3) if self.is_dense() => self.matrices::<M>(src, dst, store, unzip_matrix::<W, 3>),
            (1, 4) if self.is_dense() => self.matrices::<M>(src, dst, store, unzip_matrix::<W, 4>),
            _ => self.by_planes::<M, W>(src, dst, store),
        }
    }

    /// Long rows into one, without planes.
    #[inline(always)]
    fn zip<M: Machine, const W: usize, const N: usize>(&self, src: &[u8], dst: &mut [u8], store: Store) {
        if store == Store::Cached {
            return self.zip_straight::<W, N>(src, dst);
        }
        let Lines(buffer) = &mut Lines([0; ROW_BYTES]);
        let (len, step) = (self.along.len * W, ROW_BYTES / (N * W) * W);
        for (from, to) in self.rows() {
            for start in (0..len).step_by(step) {
                let part = step.min(len - start);
                let row = &mut buffer[..part * N];
                let parts: [&[u8]; N] = std::array::from_fn(|i| &src[from + i * self.ins.from + start..][..part]);
                zip::<W, N>(parts, row);
                store.write::<M>(&mut dst[to + start * N..][..part * N], row);
            }
        }
    }

    /// One row into long ones, without planes.
    #[inline(always)]
    fn unzip<M: Machine, const W: usize, const N: usize>(&self, src: &[u8], dst: &mut [u8], store: Store) {
        if store == Store::Cached {
            return self.unzip_straight::<W, N>(src, dst);
        }
        let Lines(buffer) = &mut Lines([[0; ROW_BYTES / MAX_SIDE]; N]);
        let (len, step) = (self.along.len * W, ROW_BYTES / MAX_SIDE);
        for (from, to) in self.rows() {
            for start in (0..len).step_by(step) {
                let part = step.min(len - start);
                let row = &src[from + start * N..][..part * N];
                unzip::<W, N>(row, buffer.each_mut().map(|part| part.as_mut_slice()));
                for (j, plane) in buffer.iter().enumerate() {
                    let dst = &mut dst[to + j * self.outs.to + start..][..part];
                    store.write::<M>(dst, &plane[..part]);
                }
            }
        }
    }

    /// As [`zip`](Self::zip), through the caches: without a buffer, which takes a third of the time of 64 KiB.
    #[inline(always)]
    fn zip_straight<const W: usize, const N: usize>(&self, src: &[u8], dst: &mut [u8]) {
        let len = self.along.len * W;
        for (from, to) in self.rows() {
            let parts = std::array::from_fn(|i| &src[from + i * self.ins.from..][..len]);
            zip::<W, N>(parts, &mut dst[to..][..len * N]);
        }
    }

    /// As [`unzip`](Self::unzip), through the caches.
    #[inline(always)]
    fn unzip_straight<const W: usize, const N: usize>(&self, src: &[u8], dst: &mut [u8]) {
        let len = self.along.len * W;
        for (from, to) in self.rows() {
            let mut parts = dst[to..].chunks_mut(self.outs.to);
            let parts = std::array::from_fn(|_| {
                let part = parts.next().expect("the rows lie one behind the other");
                &mut part[..len]
            });
            unzip::<W, N>(&src[from..][..len * N], parts);
        }
    }

    /// Bytes of the entries along the rows, on both sides.
    fn matrix(&self) -> usize {
        self.along.len * self.along.from.max(self.along.to)
    }

    /// Whether entries of `again` lie one behind the other on both sides, and so do the rows in each.
    fn is_dense(&self) -> bool {
        let rows = if self.ins == ONE { self.outs.to * self.outs.len } else { self.ins.from * self.ins.len };
        [self.again.from, self.again.to, rows] == [self.matrix(); 3]
    }

    /// Short rows, many matrices at a time.
    #[inline(always)]
    fn matrices<M: Machine>(&self, src: &[u8], dst: &mut [u8], store: Store, turn: impl Fn(&[u8], &mut [u8])) {
        let Lines(buffer) = &mut Lines([0; ROW_BYTES]);
        let (matrix, len) = (self.matrix(), self.again.len * self.matrix());
        let step = ROW_BYTES / matrix * matrix;
        for (from, to) in Walk::new(&self.outer, 0) {
            let (src, dst) = (&src[from..][..len], &mut dst[to..][..len]);
            for (src, dst) in src.chunks(step).zip(dst.chunks_mut(step)) {
                let out = if store == Store::Streaming { &mut buffer[..src.len()] } else { &mut *dst };
                for (src, dst) in src.chunks(matrix).zip(out.chunks_mut(matrix)) {
                    turn(src, dst);
                }
                if store == Store::Streaming {
                    store.write::<M>(dst, &buffer[..src.len()]);
                }
            }
        }
    }

    /// Where each row starts.
    #[inline(always)]
    fn rows(&self) -> impl Iterator<Item = (usize, usize)> {
        Walk::new(&self.outer, 0).flat_map(move |(from, to)| {
            (0..self.again.len).map(move |k| (from + k * self.again.from, to + k * self.again.to))
        })
    }

    /// Rows through planes: several short ones at a time.
    #[inline(always)]
    fn by_planes<M: Machine, const W: usize>(&self, src: &[u8], dst: &mut [u8], store: Store) {
        let Lines(planes) = &mut Lines([[[0; PLANE_BYTES]; MAX_SIDE]; MAX_SIDE]);
        let Lines(buffer) = &mut Lines([0; PLANE_BYTES * MAX_SIDE]);
        for (from, to) in Walk::new(&self.outer, 0) {
            for chunk in self.chunks(PLANE_BYTES / W) {
                for i in 0..self.ins.len {
                    self.fill::<W>(&chunk, &src[from + i * self.ins.from..], planes, i);
                }
                for (j, planes) in planes[..self.outs.len].iter().enumerate() {
                    let row = self.row::<W>(&chunk, planes, buffer);
                    let dst = &mut dst[to + j * self.outs.to..];
                    self.write::<M>(&chunk, row, dst, store);
                }
            }
        }
    }

    /// All entries, at most `most` at a time.
    #[inline(always)]
    fn chunks(&self, most: usize) -> impl Iterator<Item = Chunk> {
        let (all, len) = (self.again.len, self.along.len);
        let (many, step) = ((most / len).max(1), most.min(len));
        (0..all).step_by(many).flat_map(move |again| {
            (0..len)
                .step_by(step)
                .map(move |along| Chunk { again: again..all.min(again + many), along: along..len.min(along + step) })
        })
    }

    /// Row `i` of the source to its planes.
    #[inline(always)]
    fn fill<const W: usize>(
        &self,
        chunk: &Chunk,
        src: &[u8],
        planes: &mut [[[u8; PLANE_BYTES]; MAX_SIDE]; MAX_SIDE],
        i: usize,
    ) {
        let mut at = 0;
        for run in chunk.runs(&self.again, &self.along, |axis| axis.from) {
            let row = &src[run];
            let each = row.len() / self.outs.len;
            let [a, b, c, d] = planes.each_mut().map(|plane| &mut plane[i][at..at + each]);
            match self.outs.len {
                1 => a.copy_from_slice(row),
                2 => unzip::<W, 2>(row, [a, b]),
                3 => unzip::<W, 3>(row, [a, b, c]),
                _ => unzip::<W, 4>(row, [a, b, c, d]),
            }
            at += each;
        }
    }

    /// The row that its planes make.
    #[inline(always)]
    fn row<'a, const W: usize>(
        &self,
        chunk: &Chunk,
        planes: &'a [[u8; PLANE_BYTES]; MAX_SIDE],
        buffer: &'a mut [u8],
    ) -> &'a [u8] {
        let len = chunk.again.len() * chunk.along.len() * W;
        let [a, b, c, d] = planes.each_ref().map(|plane| &plane[..len]);
        let row = &mut buffer[..len * self.ins.len];
        match self.ins.len {
            1 => return a,
            2 => zip::<W, 2>([a, b], row),
            3 => zip::<W, 3>([a, b, c], row),
            _ => zip::<W, 4>([a, b, c, d], row),
        }
        row
    }

    /// A row to the destination.
    #[inline(always)]
    fn write<M: Machine>(&self, chunk: &Chunk, mut row: &[u8], dst: &mut [u8], store: Store) {
        for run in chunk.runs(&self.again, &self.along, |axis| axis.to) {
            let (some, rest) = row.split_at(run.len());
            store.of_runs(run.len(), &dst[run.clone()]).write::<M>(&mut dst[run], some);
            row = rest;
        }
    }
}

/// `N` rows, one behind the other, into one.
#[inline(always)]
fn zip_matrix<const W: usize, const N: usize>(src: &[u8], dst: &mut [u8]) {
    let len = src.len() / N;
    zip::<W, N>(std::array::from_fn(|row| &src[row * len..][..len]), dst);
}

/// One row into `N`, one behind the other.
#[inline(always)]
fn unzip_matrix<const W: usize, const N: usize>(src: &[u8], dst: &mut [u8]) {
    let mut rows = dst.chunks_mut(src.len() / N);
    unzip_short::<W, N>(src, std::array::from_fn(|_| rows.next().expect("N rows")));
}

impl Chunk {
    /// Where the entries lie on the side that `stride` selects: one run where `again` continues it, else one for each.
    #[inline(always)]
    fn runs(&self, again: &Stride, along: &Stride, stride: fn(&Stride) -> usize) -> impl Iterator<Item = Range<usize>> {
        let (step, entry) = (stride(again), stride(along));
        let start = self.again.start * step + self.along.start * entry;
        let len = self.along.len() * entry;
        let (count, len) =
            if self.again.len() == 1 || step == len { (1, self.again.len() * len) } else { (self.again.len(), len) };
        (0..count).map(move |k| start + k * step..start + k * step + len)
    }
}
