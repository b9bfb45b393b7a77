//! Which bytes of the source go where, in the source's order. Pure; it reads headers only.

use crate::plan::Plan;
use crate::planned::How;

/// Runs shorter than this on average cost more to write one by one than to gather.
const SCATTERED: u64 = 4096;

/// Bytes of the source that go to a place in a tensor as they are.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) from: u64,
    pub(crate) len: u64,
    pub(crate) tensor: usize,
    pub(crate) to: u64,
}

/// The plain tensors' moves in the source's order, and the tensors that are read apart.
pub(crate) fn moves(plan: &Plan<'_>) -> (Vec<Move>, Vec<usize>) {
    let mut moves: Vec<Move> = Vec::new();
    let mut apart = Vec::new();
    for (tensor, planned) in plan.tensors.iter().enumerate() {
        let entry = &plan.checkpoint.entries()[planned.entry];
        // Checksums run along a tensor, so its runs must come in their order.
        let ordered = entry.segments().is_sorted_by_key(|run| run.offset());
        // Many small runs: gathered into larger writes elsewhere.
        let runs = entry.segments().len() as u64;
        let scattered = runs > 16 && planned.byte_len() / runs < SCATTERED;
        // A checksum of the source's own is compared where the reader sees every byte.
        let checked = entry.checked_len().is_some();
        if planned.how != How::Copy || !ordered || scattered || checked {
            apart.push(tensor);
            continue;
        }
        let mut to = 0;
        for run in entry.segments() {
            let len = run.count() * run.stride();
            let from = run.offset();
            moves.push(Move { from, len, tensor, to });
            to += len;
        }
    }
    moves.sort_by_key(|m| m.from);
    // Two arrays over the same bytes: a pass that keeps one window of moves cannot serve both.
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
    (moves, apart)
}
