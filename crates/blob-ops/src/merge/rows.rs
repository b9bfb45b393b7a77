//! Rows of runs to threads: many rows are shared out by rows, few by pieces of their runs, those of many parts by
//! parts.
//!
//! Relies on parts whose runs make up the row; `cpu/copy.rs` moves the bytes of a piece. Nothing here allocates.

use crate::cpu::copy::{CopyBytes, MergeRows, Rows, RowsMut, SplitRows};
use crate::cpu::machine::{Kernel, Machine, Store};
use crate::cpu::{Exec, Isa};
use crate::place::INLINE_GUARDS;
use crate::plan::LINE;
use crate::threads;
use smallvec::SmallVec;

/// Fills `dst`, which is not empty, with rows of one run of each part.
pub(crate) fn merge(exec: Exec, parts: &[Rows<'_>], dst: &mut [u8]) {
    let Exec { isa, store, pieces } = exec;
    let row: usize = parts.iter().map(|part| part.run).sum();
    let rows = (dst.len() / row).div_ceil(pieces);
    if pieces > dst.len() / row {
        // Pieces that end within a line would both write the line.
        let len = dst.len().div_ceil(pieces).next_multiple_of(LINE);
        return threads::chunks(dst, len, |index, dst| {
            let start = index * len;
            isa.run(MergeRange { parts, start, dst, store });
        });
    }
    threads::chunks(dst, rows * row, |index, dst| {
        MergeRows { parts, start: index * rows, dst, store }.run(isa);
    });
}

/// Fills `dst` with the rows' bytes from `start` on, wherever in a row that is.
struct MergeRange<'a> {
    parts: &'a [Rows<'a>],
    start: usize,
    dst: &'a mut [u8],
    store: Store,
}

impl Kernel for MergeRange<'_> {
    type Out = ();

    #[inline(always)]
    fn run<M: Machine>(self) {
        let length: usize = self.parts.iter().map(|part| part.run).sum();
        let (mut row, mut skip) = (self.start / length, self.start % length);
        let mut rest = self.dst;
        while !rest.is_empty() {
            for part in self.parts {
                if skip >= part.run {
                    skip -= part.run;
                    continue;
                }
                let src = &part.bytes[row * part.run..][skip..part.run];
                let (dst, after) = rest.split_at_mut(src.len().min(rest.len()));
                self.store.write::<M>(dst, &src[..dst.len()]);
                (rest, skip) = (after, 0);
            }
            row += 1;
        }
    }
}

/// Fills the parts with runs of the rows of `src`, which is not empty.
pub(crate) fn split(exec: Exec, src: &[u8], parts: &mut [RowsMut<'_>]) {
    let Exec { isa, store, pieces } = exec;
    let row = parts.iter().map(|part| part.run).sum();
    let work = SplitRows { src, row, parts, store };
    divide(isa, pieces, work);
}

/// Cuts the work in two, and the halves again, until there are `pieces` pieces: between rows where there are enough of
/// them and few parts, else between parts. A part that is left alone is cut wherever possible.
fn divide(isa: Isa, pieces: usize, work: SplitRows<'_, '_>) {
    let (parts, rows) = (work.parts.len(), work.src.len().div_ceil(work.row));
    if pieces == 1 {
        whole(isa, work);
    } else if parts <= INLINE_GUARDS && rows >= pieces || parts == 1 && rows > 1 {
        between_rows(isa, pieces, work);
    } else if parts > 1 {
        between_parts(isa, pieces, work);
    } else {
        within_a_run(isa, pieces, work);
    }
}

/// Not inlined: the buffers that the kernel has on the stack would be there once for every level of [`divide`].
#[inline(never)]
fn whole(isa: Isa, work: SplitRows<'_, '_>) {
    // Parts without extent, which have no rows to count.
    if work.parts.iter().any(|part| part.run > 0) {
        work.run(isa);
    }
}

/// At most [`INLINE_GUARDS`] parts: each has a share in the first half, and the list of these is on the stack.
fn between_rows(isa: Isa, pieces: usize, work: SplitRows<'_, '_>) {
    let SplitRows { src, row, parts, store } = work;
    let rows = src.len().div_ceil(row);
    let above = rows / 2;
    let (left, right) = share(pieces, above, rows);
    let some = parts.iter_mut().map(|part| part.take(above));
    let mut some: SmallVec<[RowsMut<'_>; INLINE_GUARDS]> = some.collect();
    let (src, rest) = src.split_at(above * row);
    let (above, below) = (SplitRows { src, row, parts: &mut some, store }, SplitRows { src: rest, row, parts, store });
    threads::both(|| divide(isa, left, above), || divide(isa, right, below));
}

/// At least two parts: the rows of those behind begin where the runs of those in front end.
fn between_parts(isa: Isa, pieces: usize, work: SplitRows<'_, '_>) {
    let SplitRows { src, row, parts, store } = work;
    let all: usize = parts.iter().map(|part| part.run).sum();
    let mut end = 0;
    let half = parts.iter().position(|part| {
        end += part.run;
        2 * end >= all
    });
    let middle = half.map_or(1, |part| part + 1).min(parts.len() - 1);
    let (first, last) = parts.split_at_mut(middle);
    let run: usize = first.iter().map(|part| part.run).sum();
    let (left, right) = share(pieces, run, all);
    let (first, last) =
        (SplitRows { src, row, parts: first, store }, SplitRows { src: &src[run..], row, parts: last, store });
    threads::both(|| divide(isa, left, first), || divide(isa, right, last));
}

/// One run of one part.
fn within_a_run(isa: Isa, pieces: usize, work: SplitRows<'_, '_>) {
    let (src, store) = (work.src, work.store);
    for RowsMut { bytes, .. } in work.parts {
        let len = bytes.len().div_ceil(pieces).next_multiple_of(LINE);
        threads::chunks(bytes, len.max(LINE), |index, dst| {
            let src = &src[index * len..][..dst.len()];
            isa.run(CopyBytes { src, dst, store });
        });
    }
}

/// How many of the pieces a part of the whole gets, and how many the rest: in proportion, and at least one each.
fn share(pieces: usize, part: usize, whole: usize) -> (usize, usize) {
    let left = (pieces * part / whole.max(1)).clamp(1, pieces - 1);
    (left, pieces - left)
}
