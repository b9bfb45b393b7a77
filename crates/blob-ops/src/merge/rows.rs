//! Rows of runs to tasks for the threads: many rows are shared out by rows, few by pieces of their runs.
//!
//! Relies on parts whose runs make up the row; `cpu/copy.rs` moves what is in a task.

use crate::cpu::copy::{Copy, Cut, Join, Part, PartMut};
use crate::cpu::{Means, Store};
use crate::threads;

/// Fills `dst` with rows of one run of each part. It is not empty.
pub(crate) fn join(means: Means, parts: &[Part<'_>], dst: &mut [u8]) {
    let Means { isa, store, pieces } = means;
    let row: usize = parts.iter().map(|part| part.run).sum();
    let rows = (dst.len() / row).div_ceil(pieces);
    if pieces > dst.len() / row {
        let limit = dst.len().div_ceil(pieces);
        let copies = copies(dst, parts).flat_map(|(src, dst)| cuts(src, dst, limit, store));
        return threads::run(copies.collect(), |task| isa.run(task));
    }
    let tasks = dst.chunks_mut(rows * row).enumerate();
    let tasks = tasks.map(|(index, dst)| Join {
        parts,
        start: index * rows,
        dst,
        store,
    });
    threads::run(tasks.collect(), |task| isa.run(task));
}

/// Fills the parts with their runs of the rows of `src`. It is not empty.
pub(crate) fn cut(means: Means, src: &[u8], mut parts: Vec<PartMut<'_>>) {
    let Means { isa, store, pieces } = means;
    let row: usize = parts.iter().map(|part| part.run).sum();
    let rows = (src.len() / row).div_ceil(pieces);
    if pieces == 1 {
        let parts = &mut parts;
        return isa.run(Cut { src, parts, store });
    }
    if pieces > src.len() / row {
        let limit = src.len().div_ceil(pieces);
        let copies = copies_back(src, row, parts);
        let copies = copies.flat_map(|(src, dst)| cuts(src, dst, limit, store));
        return threads::run(copies.collect(), |task| isa.run(task));
    }
    let mut tasks = Vec::with_capacity(pieces);
    for src in src.chunks(rows * row) {
        let rows = src.len() / row;
        let some = parts.iter_mut().map(|part| part.take(rows));
        tasks.push((src, some.collect::<Vec<_>>()));
    }
    threads::run(tasks, |(src, mut parts)| {
        let parts = &mut parts;
        isa.run(Cut { src, parts, store });
    });
}

/// Every run of every row: where it is, where it goes.
fn copies<'a>(
    dst: &'a mut [u8],
    parts: &'a [Part<'a>],
) -> impl Iterator<Item = (&'a [u8], &'a mut [u8])> {
    let row = parts.iter().map(|part| part.run).sum();
    dst.chunks_mut(row).enumerate().flat_map(move |(row, dst)| {
        let mut rest = dst;
        parts.iter().map(move |part| {
            let run = rest.split_off_mut(..part.run);
            let run = run.expect("the runs make up the row");
            (&part.bytes[row * part.run..][..part.run], run)
        })
    })
}

/// As [`copies`], part by part.
fn copies_back<'a>(
    src: &'a [u8],
    row: usize,
    parts: Vec<PartMut<'a>>,
) -> impl Iterator<Item = (&'a [u8], &'a mut [u8])> {
    let mut end = 0;
    let parts = parts.into_iter().filter(|part| part.run > 0);
    parts.flat_map(move |part| {
        let start = end;
        end += part.run;
        let rows = src
            .chunks(row)
            .map(move |row| &row[start..start + part.run]);
        rows.zip(part.bytes.chunks_mut(part.run))
    })
}

/// One copy as several of at most `limit` bytes.
fn cuts<'a>(
    src: &'a [u8],
    dst: &'a mut [u8],
    limit: usize,
    store: Store,
) -> impl Iterator<Item = Copy<'a>> {
    let pairs = src.chunks(limit).zip(dst.chunks_mut(limit));
    pairs.map(move |(src, dst)| Copy { src, dst, store })
}
