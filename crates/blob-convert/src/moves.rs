//! Where the source's bytes go while the pass goes over them, a piece at a time: copied as they are, or rounded on the way.
//!
//! A tensor that cannot be made so is read on its own after the pass.

use blob_core::DType;
use blob_io::Error;

use crate::cast::{BLOCK, cast, overflowed};
use crate::hash;
use crate::plan::Plan;
use crate::planned::{How, Planned};
use crate::transform::Tally;

/// Where runs are shorter than this on average, gathering them is faster than writing each on its own.
const SCATTERED: u64 = 4096;

/// The moves of a plan, in the source's order.
#[derive(Debug)]
pub(crate) struct Moves<'a> {
    plan: &'a Plan<'a>,
    moves: Vec<Move>,
}

/// Bytes of the source that go to a place in a tensor.
#[derive(Debug)]
struct Move {
    from: u64,
    len: u64,
    tensor: usize,
    /// The place among the tensor's bytes as they are read.
    to: u64,
}

impl<'a> Moves<'a> {
    /// The moves, and the tensors that must be read on their own.
    pub(crate) fn of(plan: &'a Plan<'a>) -> (Self, Vec<usize>) {
        let mut moves: Vec<Move> = Vec::new();
        let mut apart = Vec::new();
        for (tensor, planned) in plan.tensors.iter().enumerate() {
            match planned.how {
                How::Kept => {}
                How::Copy if goes_by(plan, planned) => {
                    let mut to = 0;
                    for run in plan.checkpoint.entries()[planned.entry].segments() {
                        let (from, len) = (run.offset, run.count * run.stride);
                        moves.push(Move { from, len, tensor, to });
                        to += len;
                    }
                }
                _ => apart.push(tensor),
            }
        }
        moves.sort_by_key(|m| m.from);
        // Arrays that share bytes: the pass finds one move for each byte, so they are read on their own.
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
        apart.extend(shared);
        (Self { plan, moves }, apart)
    }

    /// Hands a piece of the source, which stands at `at`, to the tensors that its bytes are of, each with its place there.
    pub(crate) fn piece(
        &self,
        at: u64,
        bytes: &[u8],
        tally: &Tally,
        put: &impl Fn(usize, u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let end = at + bytes.len() as u64;
        let first = self.moves.partition_point(|m| m.from + m.len <= at);
        for step in self.moves[first..].iter().take_while(|m| m.from < end) {
            let (a, b) = (step.from.max(at), (step.from + step.len).min(end));
            let (within, bytes) = (a - step.from, &bytes[(a - at) as usize..(b - at) as usize]);
            match self.plan.tensors[step.tensor].casts.is_empty() {
                true => put(step.tensor, step.to + within, bytes)?,
                false => self.rounded(step, within, bytes, tally, put)?,
            }
        }
        Ok(())
    }

    /// Rounds the elements that begin in these bytes; what is lacking of the last one is read.
    fn rounded(
        &self,
        step: &Move,
        within: u64,
        bytes: &[u8],
        tally: &Tally,
        put: &impl Fn(usize, u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let tensor = &self.plan.tensors[step.tensor];
        let width = tensor.read_as.size() as u64;
        let (first, end) = (within.next_multiple_of(width), within + bytes.len() as u64);
        if first >= end {
            return Ok(());
        }
        let put = |element: u64, bytes: &[u8]| {
            let mut at = (step.to / width + element) * tensor.spec.dtype.size() as u64;
            for block in bytes.chunks(BLOCK * width as usize) {
                let rounded = all_casts(tensor, block, tally);
                put(step.tensor, at, &rounded)?;
                at += rounded.len() as u64;
            }
            Ok(())
        };
        let whole = end / width * width;
        put(first / width, &bytes[(first - within) as usize..(whole - within) as usize])?;
        if whole == end {
            return Ok(());
        }
        let (begun, mut element) = (&bytes[(whole - within) as usize..], [0; 8]);
        let element = &mut element[..width as usize];
        element[..begun.len()].copy_from_slice(begun);
        let checkpoint = self.plan.checkpoint;
        hash::read(checkpoint, checkpoint.source(), step.from + end, &mut element[begun.len()..])?;
        put(whole / width, element)
    }
}

/// Elements of a tensor, rounded to one dtype after the other.
fn all_casts(tensor: &Planned, bytes: &[u8], tally: &Tally) -> Vec<u8> {
    let round = |(bytes, from): (Vec<u8>, DType), to: &DType| {
        let mut target = Vec::new();
        let lost = cast((from, &bytes), *to, &mut target);
        if lost > 0 {
            tally.lost(&tensor.spec.name, lost, overflowed(*to));
        }
        (target, *to)
    };
    tensor.casts.iter().fold((bytes.to_vec(), tensor.read_as), round).0
}

/// Whether a tensor's bytes can be dealt with where the pass finds them.
fn goes_by(plan: &Plan<'_>, planned: &Planned) -> bool {
    let entry = &plan.checkpoint.entries()[planned.entry];
    // Checksums run along a tensor, so its runs must come in their order.
    let ordered = entry.segments().is_sorted_by_key(|run| run.offset);
    // Many small runs: a reader gathers them into larger pieces.
    let runs = entry.segments().len() as u64;
    let scattered = runs > 16 && entry.byte_len() / runs < SCATTERED;
    // The reader compares the checksum that the source has of the array.
    let checked = entry.checked_len().is_some();
    ordered && !scattered && !checked
}
