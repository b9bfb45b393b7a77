//! Merge and split on one thread: rows that are put together from a run of each part, or taken apart.
//!
//! ```text
//! 2 to 4 runs of a register's width:  row = zip of the runs, or runs = unzip of the row
//! long runs:   for each row: for each part: copy its run
//! others:      for each block of rows: for each part: copy its run of each row
//! ```
//! The last touch source and destination line by line; past the caches through a buffer in the first-level
//! cache. Knows no axes, no threads.

use super::Isa;
use super::machine::{Kernel, Lines, MIN_STREAMED_RUN, Machine, Store};
use super::zip::{unzip, zip};
use crate::plan::LINE;

/// Bytes that go through the cache at a time.
const BUFFER: usize = 16 << 10;

/// One of the tensors that are merged: its bytes, and how many of them a row takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) run: usize,
}

impl<'a> Rows<'a> {
    /// A part of `rows` rows.
    pub(crate) fn new(bytes: &'a [u8], rows: usize) -> Self {
        let run = bytes.len() / rows;
        Rows { bytes, run }
    }
}

/// One of the tensors that a split makes.
#[derive(Debug)]
pub(crate) struct RowsMut<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) run: usize,
}

impl<'a> RowsMut<'a> {
    /// A part of `rows` rows.
    pub(crate) fn new(bytes: &'a mut [u8], rows: usize) -> Self {
        let run = bytes.len() / rows;
        RowsMut { bytes, run }
    }

    /// Splits off the first `rows` rows.
    pub(crate) fn take(&mut self, rows: usize) -> Self {
        let bytes = std::mem::take(&mut self.bytes);
        let (bytes, rest) = bytes.split_at_mut(rows * self.run);
        self.bytes = rest;
        RowsMut { bytes, run: self.run }
    }
}

/// Fills `dst` with rows of one run of each part, from the parts' row `start` on.
pub(crate) struct MergeRows<'a> {
    pub(crate) parts: &'a [Rows<'a>],
    pub(crate) start: usize,
    pub(crate) dst: &'a mut [u8],
    pub(crate) store: Store,
}

/// Fills the parts with their runs of the rows of `src`, of which each begins `row` bytes behind the one before it. The
/// runs may be less than a row: then the last row may end behind them.
pub(crate) struct SplitRows<'a, 'b> {
    pub(crate) src: &'a [u8],
    pub(crate) row: usize,
    pub(crate) parts: &'a mut [RowsMut<'b>],
    pub(crate) store: Store,
}

/// A plain copy.
pub(crate) struct CopyBytes<'a> {
    pub(crate) src: &'a [u8],
    pub(crate) dst: &'a mut [u8],
    pub(crate) store: Store,
}

impl Kernel for CopyBytes<'_> {
    type Out = ();

    #[inline(always)]
    fn run<M: Machine>(self) {
        self.store.write::<M>(self.dst, self.src);
    }
}

/// How the runs of a row move.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CopyKind {
    /// `count` runs of one width that a register takes.
    Interleave { count: usize, width: usize },
    /// Each where it belongs; those shorter than [`MIN_STREAMED_RUN`] with this store.
    Direct(Store),
    /// A block of rows at a time, past the caches through a buffer.
    Buffered,
}

impl CopyKind {
    fn of(runs: impl Iterator<Item = usize> + Clone, base: usize, store: Store) -> Self {
        let count = runs.clone().count();
        let width = runs.clone().next().unwrap_or(0);
        let equal = runs.clone().all(|run| run == width);
        let lines = runs.clone().all(|run| run % LINE == 0) && base.is_multiple_of(LINE);
        let shortest = runs.clone().min().unwrap_or(0);
        match store {
            _ if equal && matches!(count, 2..=4) && matches!(width, 1 | 2 | 4 | 8 | 16) => {
                CopyKind::Interleave { count, width }
            }
            _ if shortest >= MIN_STREAMED_RUN => CopyKind::Direct(store),
            Store::Streaming if lines => CopyKind::Direct(store),
            // A line by itself is a call: 3.3 times memcpy's time, 1.5 in blocks (64 KiB, AMD EPYC Zen 4).
            Store::Cached if shortest > LINE => CopyKind::Direct(store),
            // Past the caches a line that two runs share would be read and written twice.
            _ if runs.sum::<usize>() > BUFFER => CopyKind::Direct(Store::Cached),
            _ => CopyKind::Buffered,
        }
    }
}

/// Rows that move one way or the other. Each kind of copy is a kernel of its own: in one, the buffers of all would be
/// on the stack together where nothing is optimised, a megabyte of them.
trait MoveRows {
    fn interleave<M: Machine, const W: usize, const N: usize>(self);
    fn direct<M: Machine>(self, short: Store);
    fn buffered<M: Machine>(self);
}

struct Interleaved<R, const W: usize, const N: usize>(R);
struct Direct<R>(R, Store);
struct Buffered<R>(R);

impl<R: MoveRows, const W: usize, const N: usize> Kernel for Interleaved<R, W, N> {
    type Out = ();
    #[inline(always)]
    fn run<M: Machine>(self) {
        self.0.interleave::<M, W, N>();
    }
}

impl<R: MoveRows> Kernel for Direct<R> {
    type Out = ();
    #[inline(always)]
    fn run<M: Machine>(self) {
        self.0.direct::<M>(self.1);
    }
}

impl<R: MoveRows> Kernel for Buffered<R> {
    type Out = ();
    #[inline(always)]
    fn run<M: Machine>(self) {
        self.0.buffered::<M>();
    }
}

fn run<R: MoveRows>(isa: Isa, kind: CopyKind, rows: R) {
    macro_rules! interleaved {
        ($width:expr, $count:expr, $(($w:literal: $($n:literal)*))*) => {
            match ($width, $count) {
                $($(($w, $n) => isa.run(Interleaved::<R, $w, $n>(rows)),)*)*
                (width, count) => unreachable!("{count} runs of {width} bytes are not interleaved"),
            }
        };
    }
    match kind {
        CopyKind::Interleave { count, width } => {
            interleaved!(width, count, (1: 2 3 4) (2: 2 3 4) (4: 2 3 4) (8: 2 3 4) (16: 2 3 4))
        }
        CopyKind::Direct(short) => isa.run(Direct(rows, short)),
        CopyKind::Buffered => isa.run(Buffered(rows)),
    }
}

impl MergeRows<'_> {
    pub(crate) fn run(self, isa: Isa) {
        let runs = self.parts.iter().map(|part| part.run);
        let kind = CopyKind::of(runs, self.dst.as_ptr().addr(), self.store);
        run(isa, kind, self);
    }
}

impl MoveRows for MergeRows<'_> {
    #[inline(always)]
    fn direct<M: Machine>(self, short: Store) {
        let mut rest = self.dst;
        let mut row = self.start;
        while !rest.is_empty() {
            for part in self.parts {
                let (dst, after) = rest.split_at_mut(part.run);
                let store = if part.run < MIN_STREAMED_RUN { short } else { self.store };
                store.write::<M>(dst, &part.bytes[row * part.run..][..part.run]);
                rest = after;
            }
            row += 1;
        }
    }

    #[inline(always)]
    fn buffered<M: Machine>(self) {
        let row: usize = self.parts.iter().map(|part| part.run).sum();
        let rows = BUFFER / row;
        let blocks = self.dst.chunks_mut(rows * row).enumerate();
        let blocks = blocks.map(|(block, dst)| (self.start + block * rows, dst));
        if self.store == Store::Cached {
            // Without the buffer, which takes longer to clear than a short merge.
            return blocks.for_each(|(start, dst)| gather(self.parts, start, dst, row));
        }
        let Lines(buffer) = &mut Lines([0; BUFFER]);
        for (start, dst) in blocks {
            let buffer = &mut buffer[..dst.len()];
            gather(self.parts, start, buffer, row);
            M::stream(dst, buffer);
        }
    }

    #[inline(always)]
    fn interleave<M: Machine, const W: usize, const N: usize>(self) {
        let parts: [&[u8]; N] = std::array::from_fn(|k| &self.parts[k].bytes[self.start * W..]);
        if self.store == Store::Cached {
            // As above.
            return zip::<W, N>(parts.map(|part| &part[..self.dst.len() / N]), self.dst);
        }
        let Lines(buffer) = &mut Lines([0; BUFFER]);
        let step = BUFFER / (W * N) * W * N;
        for (block, dst) in self.dst.chunks_mut(step).enumerate() {
            let parts = parts.map(|part| &part[block * step / N..][..dst.len() / N]);
            let buffer = &mut buffer[..dst.len()];
            zip::<W, N>(parts, buffer);
            M::stream(dst, buffer);
        }
    }
}

/// Puts together as many rows as `dst` holds.
#[inline(always)]
fn gather(parts: &[Rows<'_>], start: usize, dst: &mut [u8], row: usize) {
    let rows = dst.len() / row;
    let mut at = 0;
    for part in parts {
        let src = &part.bytes[start * part.run..][..rows * part.run];
        copy_rows(Strided { bytes: src, step: part.run }, &mut dst[at..], row, part.run);
        at += part.run;
    }
}

impl SplitRows<'_, '_> {
    pub(crate) fn run(self, isa: Isa) {
        let runs = self.parts.iter().map(|part| part.run);
        let base = self.parts.iter().fold(0, |all, part| all | part.bytes.as_ptr().addr());
        let kind = match CopyKind::of(runs, base, self.store) {
            CopyKind::Interleave { .. } if self.runs_of_a_row() < self.row => CopyKind::Buffered,
            kind => kind,
        };
        run(isa, kind, self);
    }

    fn runs_of_a_row(&self) -> usize {
        self.parts.iter().map(|part| part.run).sum()
    }

    /// `rows` rows at a time: the runs of each part, their length and where they go.
    #[inline(always)]
    fn block_of_rows(&mut self, rows: usize, mut each: impl FnMut(Strided<'_>, usize, &mut [u8])) {
        let row = self.row;
        for (block, src) in self.src.chunks(rows * row).enumerate() {
            let mut at = 0;
            for part in self.parts.iter_mut().filter(|part| part.run > 0) {
                let len = src.len().div_ceil(row) * part.run;
                let dst = &mut part.bytes[block * rows * part.run..][..len];
                let bytes = &src[at..];
                each(Strided { bytes, step: row }, part.run, dst);
                at += part.run;
            }
        }
    }
}

impl MoveRows for SplitRows<'_, '_> {
    #[inline(always)]
    fn direct<M: Machine>(self, short: Store) {
        for (row, src) in self.src.chunks(self.row).enumerate() {
            let mut rest = src;
            for part in &mut *self.parts {
                let (src, after) = rest.split_at(part.run);
                let store = if part.run < MIN_STREAMED_RUN { short } else { self.store };
                store.write::<M>(&mut part.bytes[row * part.run..][..part.run], src);
                rest = after;
            }
        }
    }

    #[inline(always)]
    fn buffered<M: Machine>(mut self) {
        let rows = BUFFER / self.runs_of_a_row();
        if self.store == Store::Cached {
            // Without the buffer, as in a merge.
            return self.block_of_rows(rows, |src, run, dst| copy_rows(src, dst, run, run));
        }
        let Lines(buffer) = &mut Lines([0; BUFFER]);
        self.block_of_rows(rows, |src, run, dst| {
            let buffer = &mut buffer[..dst.len()];
            copy_rows(src, buffer, run, run);
            M::stream(dst, buffer);
        });
    }

    #[inline(always)]
    fn interleave<M: Machine, const W: usize, const N: usize>(self) {
        if let (Store::Cached, Some(parts)) = (self.store, self.parts.first_chunk_mut::<N>()) {
            let len = self.src.len() / N;
            return unzip::<W, N>(self.src, parts.each_mut().map(|part| &mut part.bytes[..len]));
        }
        let step = BUFFER / (W * N) * W;
        let Lines(buffer) = &mut Lines([[0; BUFFER / 2]; N]);
        for (block, src) in self.src.chunks(step * N).enumerate() {
            let (start, len) = (block * step, src.len() / N);
            unzip::<W, N>(src, buffer.each_mut().map(|part| &mut part[..len]));
            for (part, buffer) in self.parts.iter_mut().zip(&*buffer) {
                M::stream(&mut part.bytes[start..][..len], &buffer[..len]);
            }
        }
    }
}

/// Runs that start every `step` bytes.
struct Strided<'a> {
    bytes: &'a [u8],
    step: usize,
}

/// Copies as many runs of `run` bytes as both sides have room for; `step` is the destination's.
#[inline(always)]
fn copy_rows(src: Strided<'_>, dst: &mut [u8], step: usize, run: usize) {
    macro_rules! constant {
        ($($len:literal)*) => {
            match run {
                0 => {}
                $($len => copy_constant::<$len>(src, dst, step),)*
                _ => copy_variable(src, dst, step, run),
            }
        };
    }
    constant!(1 2 3 4 6 8 10 12 14 16 20 24 28 32 40 48 56 64)
}

#[inline(always)]
fn copy_constant<const LEN: usize>(src: Strided<'_>, dst: &mut [u8], step: usize) {
    for (src, dst) in src.bytes.chunks(src.step).zip(dst.chunks_mut(step)) {
        if let (Some(src), Some(dst)) = (src.first_chunk::<LEN>(), dst.first_chunk_mut::<LEN>()) {
            *dst = *src;
        }
    }
}

#[inline(always)]
fn copy_variable(src: Strided<'_>, dst: &mut [u8], step: usize, run: usize) {
    for (src, dst) in src.bytes.chunks(src.step).zip(dst.chunks_mut(step)) {
        if src.len() >= run && dst.len() >= run {
            dst[..run].copy_from_slice(&src[..run]);
        }
    }
}
