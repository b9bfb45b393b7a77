//! Copies ranges of an existing file into the output unchanged, with several threads.

use blob_io::layout::Copied;
use blob_io::{Checkpoint, Error};

use crate::hash::{self, PIECE};
use crate::threads::in_turn;
use crate::watch::Watch;

/// Reads every range in pieces, and calls `write` with each piece and the piece's offset in the output.
pub(crate) fn copy<W>(
    base: &Checkpoint,
    copies: &[Copied],
    threads: usize,
    watch: &dyn Watch,
    write: &W,
) -> Result<(), Error>
where
    W: Fn(u64, &[u8]) -> Result<(), Error> + Sync,
{
    // How many pieces the ranges have, up to the end of each.
    let pieces = copies.iter().scan(0, |pieces, copied| {
        *pieces += copied.len.div_ceil(PIECE as u64);
        Some(*pieces)
    });
    let ends: Vec<u64> = pieces.collect();
    let longest = copies.iter().map(|copied| copied.len).max().unwrap_or(0).min(PIECE as u64) as usize;
    let done = in_turn(
        threads,
        ends.last().copied().unwrap_or(0),
        || vec![0; longest],
        |buf, piece| {
            let range = ends.partition_point(|end| *end <= piece);
            let first = if range == 0 { 0 } else { ends[range - 1] };
            let (copied, done) = (&copies[range], (piece - first) * PIECE as u64);
            let bytes = &mut buf[..(copied.len - done).min(PIECE as u64) as usize];
            hash::read(base, base.source(), copied.from + done, bytes)?;
            write(copied.to + done, bytes)?;
            watch.step(0)
        },
    );
    done.map(drop)
}
