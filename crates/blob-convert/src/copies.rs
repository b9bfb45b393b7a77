//! Copies ranges of an existing file into the output unchanged, with several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use blob_io::layout::Copied;
use blob_io::{Checkpoint, Error};

use crate::hash::{self, PIECE};
use crate::threads::{lock, run_shares};
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
    // The index of the current range, and the number of bytes that threads have taken from that range.
    let (next, failed) = (Mutex::new((0, 0)), AtomicBool::new(false));
    let take = || {
        let mut next = lock(&next);
        let (range, done) = *next;
        let copied = copies.get(range)?;
        let len = (copied.len - done).min(PIECE as u64);
        *next = if done + len == copied.len { (range + 1, 0) } else { (range, done + len) };
        Some((copied.from + done, copied.to + done, len as usize))
    };
    let work = || {
        let longest = copies.iter().map(|copied| copied.len).max().unwrap_or(0);
        let mut buf = vec![0; longest.min(PIECE as u64) as usize];
        while let Some((from, to, len)) = take().filter(|_| !failed.load(Ordering::Relaxed)) {
            let bytes = &mut buf[..len];
            hash::read(base, base.source(), from, bytes)?;
            write(to, bytes)?;
            watch.step(0)?;
        }
        Ok(())
    };
    let bytes: u64 = copies.iter().map(|copied| copied.len).sum();
    run_shares((threads, bytes.div_ceil(PIECE as u64)), &failed, work).map(drop)
}
