//! Keeps the sets of valid ranges small, so that asking them stays cheap.
//! `replicas` says which gap to close or which range to drop; this does it. A failure here is nobody's error: the bound
//! is exceeded until the next access.

use std::ops::Range;

use crate::Access;
use crate::coherence::borrows::Borrows;
use crate::coherence::replicas::Slot;
use crate::engine::state::{FIXED, HOST, State};
use crate::engine::step::{Stop, unless_failed};

/// Who is sure that nobody holds a plain slice of the memory, so that valid bytes may be given up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sole {
    /// The caller has the memory to itself, but for the borrows in the table.
    Yes,
    /// There may be plain slices.
    No,
}

impl State {
    /// Keeps the number of valid ranges of each copy bounded. Where that fails the bound is exceeded until the next
    /// access; it is nobody's error.
    pub(crate) fn tidy(&mut self, sole: Sole) -> Result<(), Stop> {
        if self.replicas.is_bounded() {
            return Ok(());
        }
        // The host last: what is moved for the others may pass through it.
        for slot in (0..self.replicas.slots()).rev().map(Slot) {
            // What was scattered on the host were single rows of something large: the gaps between them are far larger.
            if (slot, sole) == (HOST, Sole::Yes) {
                unless_failed(self.drop_ranges(slot))?;
            }
            if slot != FIXED {
                self.close_gaps(slot)?;
            }
            if sole == Sole::Yes && slot != HOST {
                unless_failed(self.drop_ranges(slot))?;
            }
        }
        Ok(())
    }

    /// As `tidy`, for an owner who is about to write `range`, where it is now: it is no gap to close, and its buffer is not
    /// replaced, though the table does not know it.
    pub(crate) fn tidy_around(&mut self, slot: Slot, range: Range<usize>) -> Result<(), Stop> {
        if self.replicas.is_bounded() || range.is_empty() {
            return Ok(());
        }
        let id = self.borrows.insert(range, Access::Write, slot);
        self.host_writers += 1;
        let tidied = self.tidy(Sole::Yes);
        self.host_writers -= 1;
        self.borrows.remove(id);
        tidied
    }

    /// Closes the smallest gaps of a copy that has too many ranges, but for those that are being written.
    fn close_gaps(&mut self, slot: Slot) -> Result<(), Stop> {
        let free = |borrows: &Borrows, gap: &Range<usize>| !borrows.writes(gap);
        while let Some(gap) = self.replicas.gap_to_close(slot, |gap| free(&self.borrows, gap)) {
            let line = self.device_copy(slot).map(|copy| copy.home.clone());
            if unless_failed(self.bring(slot, &gap, line.as_ref()))?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Gives up the smallest ranges of a copy that still has too many, where another copy holds them too and nobody
    /// borrows them. Adopted bytes cannot be written, so what they alone hold is first copied to our own memory.
    fn drop_ranges(&mut self, slot: Slot) -> Result<(), Stop> {
        while self.replicas.crowded(slot).is_some() {
            let free = |range: &Range<usize>| !self.borrows.touches(range);
            let range = match self.replicas.range_to_drop(slot, free) {
                Some(range) => Some(range),
                None => self.copy_smallest(slot)?,
            };
            let Some(range) = range else { break };
            // What others are only about to have is not theirs yet.
            self.settle_others(slot, &range)?;
            self.replicas.give_up(slot, &range);
        }
        Ok(())
    }

    fn copy_smallest(&mut self, slot: Slot) -> Result<Option<Range<usize>>, Stop> {
        let free = |range: &Range<usize>| slot == FIXED && !self.borrows.touches(range);
        let ranges = self.replicas.valid(slot).iter().filter(free);
        let Some(smallest) = ranges.min_by_key(|range| range.len()) else {
            return Ok(None);
        };
        self.make_host()?;
        self.bring(HOST, &smallest, None)?;
        Ok(Some(smallest))
    }
}
