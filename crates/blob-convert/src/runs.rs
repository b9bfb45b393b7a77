//! Reads a file of which some runs are known: all other bytes are zeros.

use std::io;
use std::ops::Range;

/// Fills `buf` with the bytes from `offset` on of a file of `len` bytes, with zeros.
///
/// # Errors
/// Bytes beyond the end.
pub(crate) fn read_zeros(len: u64, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= len);
    end.ok_or(io::ErrorKind::UnexpectedEof)?;
    buf.fill(0);
    Ok(())
}

/// Calls `fill` for each run that reaches into `buf`, which begins at `offset`: with the run, the offset in the run,
/// and that part of `buf`. The runs are in order.
pub(crate) fn read_runs<R>(
    runs: &[R],
    place: impl Fn(&R) -> Range<u64>,
    offset: u64,
    buf: &mut [u8],
    mut fill: impl FnMut(&R, u64, &mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let end = offset + buf.len() as u64;
    let first = runs.partition_point(|run| place(run).end <= offset);
    for run in runs[first..].iter().take_while(|run| place(run).start < end) {
        let Range { start, end: run_end } = place(run);
        let (from, to) = (offset.max(start), end.min(run_end));
        if from < to {
            fill(run, from - start, &mut buf[(from - offset) as usize..(to - offset) as usize])?;
        }
    }
    Ok(())
}
