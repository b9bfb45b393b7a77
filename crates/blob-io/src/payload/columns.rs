//! Column-major arrays, put into row-major order: the whole array is held for that.

use std::io;

use super::{Stored, Trouble, check_alloc, swap, width};
use crate::entry::Entry;
use crate::error::Error;
use crate::limits::Limits;
use crate::wire::source::Source;

/// Column-major to row-major: the whole array is needed, so `max_alloc` bounds it.
pub(super) fn reordered(
    source: &dyn Source,
    entry: &Entry,
    limits: &Limits,
    chunk: usize,
    sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
) -> Result<(), Trouble> {
    let total = entry.byte_len();
    check_alloc(entry, total, limits)?;
    let mut columns = room(entry, total)?;
    columns.resize(total as usize, 0);
    let mut stored = Stored::open(source, entry, limits)?;
    stored.next(&mut columns)?;
    stored.finish()?;
    let width = width(entry);
    if entry.swapped {
        swap(&mut columns, width);
    }
    let dims = entry.shape.dims();
    // The stride of axis k in column-major order: the product of the dims before it.
    let strides: Vec<usize> = dims
        .iter()
        .scan(width, |stride, d| {
            let this = *stride;
            *stride *= d;
            Some(this)
        })
        .collect();
    let mut index = vec![0; dims.len()];
    let mut at = 0;
    let mut rows = Vec::with_capacity(chunk.min(columns.len()));
    for _ in 0..entry.shape.count() {
        rows.extend_from_slice(&columns[at..at + width]);
        if rows.len() == chunk {
            sink(&rows).map_err(Trouble::Sink)?;
            rows.clear();
        }
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < dims[axis] {
                break;
            }
            at -= strides[axis] * dims[axis];
            index[axis] = 0;
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    sink(&rows).map_err(Trouble::Sink)
}

/// An empty buffer with room for `bytes`, or an error where memory does not have it.
fn room(entry: &Entry, bytes: u64) -> Result<Vec<u8>, Trouble> {
    let mut buffer = Vec::new();
    let room = usize::try_from(bytes).map(|n| buffer.try_reserve_exact(n));
    if let Ok(Ok(())) = room {
        return Ok(buffer);
    }
    let offset = entry.offset().unwrap_or(0);
    let source = io::ErrorKind::OutOfMemory.into();
    Err(Trouble::Io { offset, source })
}
