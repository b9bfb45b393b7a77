//! Takes a piece of the source apart into tensors, copied or rounded.
//!
//! Tensors that the pass cannot handle are read separately: `sink` writes them all.

use blob_io::{Checkpoint, Error};

use crate::hash;
use crate::planned::{How, Planned};
use crate::transform::Reports;

/// If the average run is shorter than this, gathering runs is faster than moving each one separately.
pub(crate) const SCATTERED: u64 = 4096;

/// The moves of a plan, in the source's order.
#[derive(Debug)]
pub(crate) struct Moves<'a> {
    checkpoint: &'a Checkpoint,
    tensors: &'a [Planned],
    moves: Vec<Move>,
}

/// Bytes of the source that go to a place in a tensor.
#[derive(Debug)]
struct Move {
    from: u64,
    len: u64,
    tensor: usize,
    /// The offset among the tensor's bytes as read.
    to: u64,
}

impl<'a> Moves<'a> {
    /// The moves, and the tensors that must be read separately: all of them where no pass goes over the source.
    pub(crate) fn of(checkpoint: &'a Checkpoint, tensors: &'a [Planned], has_pass: bool) -> (Self, Vec<usize>) {
        let mut moves: Vec<Move> = Vec::with_capacity(tensors.len());
        let mut separate = Vec::new();
        for (tensor, planned) in tensors.iter().enumerate() {
            match planned.how {
                How::Kept => {}
                How::Copy if has_pass && is_in_pass_order(checkpoint, planned) => {
                    let mut to = 0;
                    for run in checkpoint.entries()[planned.entry].segments() {
                        let (from, len) = (run.offset, run.count * run.stride);
                        moves.push(Move { from, len, tensor, to });
                        to += len;
                    }
                }
                _ => separate.push(tensor),
            }
        }
        // Where moves begin together, they stay in the order of the tensors.
        moves.sort_unstable_by_key(|m| (m.from, m.tensor, m.to));
        // The pass handles each byte once, so arrays that share bytes are read separately.
        let mut end = 0;
        let mut shared = Vec::new();
        for step in &moves {
            if step.from < end {
                shared.push(step.tensor);
            }
            end = end.max(step.from + step.len);
        }
        shared.sort_unstable();
        shared.dedup();
        moves.retain(|m| shared.binary_search(&m.tensor).is_err());
        separate.extend(shared);
        (Self { checkpoint, tensors, moves }, separate)
    }

    /// Calls `put` with the bytes of each tensor in a piece of the source, and with the offset of these bytes in the
    /// tensor. `at` is the piece's offset.
    pub(crate) fn piece<'t>(
        &self,
        at: u64,
        bytes: &[u8],
        tally: &dyn Fn(usize) -> &'t Reports,
        put: &impl Fn(usize, u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let end = at + bytes.len() as u64;
        let first = self.moves.partition_point(|m| m.from + m.len <= at);
        for step in self.moves[first..].iter().take_while(|m| m.from < end) {
            let (a, b) = (step.from.max(at), (step.from + step.len).min(end));
            let (within, bytes) = (a - step.from, &bytes[(a - at) as usize..(b - at) as usize]);
            if self.tensors[step.tensor].casts.is_empty() {
                put(step.tensor, step.to + within, bytes)?
            } else {
                self.rounded(step, within, bytes, tally(step.tensor), put)?
            }
        }
        Ok(())
    }

    /// Rounds the elements that begin in these bytes; the missing end of the last one is read from the source.
    fn rounded(
        &self,
        step: &Move,
        within: u64,
        bytes: &[u8],
        tally: &Reports,
        put: &impl Fn(usize, u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let tensor = &self.tensors[step.tensor];
        let width = tensor.read_as.size() as u64;
        let (first, end) = (within.next_multiple_of(width), within + bytes.len() as u64);
        if first >= end {
            return Ok(());
        }
        let put = |element: u64, bytes: &[u8]| {
            tensor.round(step.to + element * width, bytes, tally, |at, bytes| put(step.tensor, at, bytes))
        };
        let whole = end / width * width;
        put(first / width, &bytes[(first - within) as usize..(whole - within) as usize])?;
        if whole == end {
            return Ok(());
        }
        let (begun, mut element) = (&bytes[(whole - within) as usize..], [0; 8]);
        let element = &mut element[..width as usize];
        element[..begun.len()].copy_from_slice(begun);
        hash::read(self.checkpoint, self.checkpoint.source(), step.from + end, &mut element[begun.len()..])?;
        put(whole / width, element)
    }
}

/// Whether a tensor's bytes can be moved in the order of the pass.
fn is_in_pass_order(checkpoint: &Checkpoint, planned: &Planned) -> bool {
    let entry = &checkpoint.entries()[planned.entry];
    // Checksums run along a tensor, so the runs must come in the tensor's order.
    let ordered = entry.segments().is_sorted_by_key(|run| run.offset);
    // Many small runs: a reader gathers several into one larger piece.
    let runs = entry.segments().len() as u64;
    let scattered = runs > 16 && entry.byte_len() / runs < SCATTERED;
    // The reader compares the checksum that the source stores.
    let checked = entry.checked_len().is_some();
    ordered && !scattered && !checked
}
