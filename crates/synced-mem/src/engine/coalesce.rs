//! Keeps the sets of valid ranges short, so that asking them stays cheap. `replicas` says which gap to close or which
//! range to give up; this does it. Where it fails, the bound is exceeded until the next access, and the failure is
//! counted.

use std::ops::Range;

use crate::coherence::replicas::Slot;
use crate::engine::state::{ADOPTED, HOST, State};
use crate::engine::waits::Stop;

impl State {
    /// Closes the gaps of copies that have too many ranges. Gives up nothing, so plain slices stay as they are.
    pub(crate) fn close_gaps(&mut self) -> Result<(), Stop> {
        if self.replicas.is_bounded() {
            return Ok(());
        }
        self.slots_from_the_last().try_for_each(|slot| self.close_gaps_of(slot, &(0..0)))
    }

    /// Keeps the number of valid ranges of each copy bounded, for a caller who knows that there are no plain slices but
    /// of the `busy` bytes: those that it is about to write. Borrowed bytes stay as they are.
    pub(crate) fn coalesce(&mut self, busy: &Range<usize>) -> Result<(), Stop> {
        if self.replicas.is_bounded() {
            return Ok(());
        }
        // So that the host's buffer is not replaced meanwhile.
        let writers = usize::from(!busy.is_empty());
        self.host_writers += writers;
        let coalesced = self.slots_from_the_last().try_for_each(|slot| self.coalesce_slot(slot, busy));
        self.host_writers -= writers;
        coalesced
    }

    fn coalesce_slot(&mut self, slot: Slot, busy: &Range<usize>) -> Result<(), Stop> {
        match slot {
            // What was scattered on the host were single rows of something large: the gaps between them are far larger.
            HOST => {
                self.drop_ranges(slot, busy)?;
                self.close_gaps_of(slot, busy)
            }
            _ => {
                self.close_gaps_of(slot, busy)?;
                self.drop_ranges(slot, busy)
            }
        }
    }

    /// The host comes last: what is moved for the others may pass through it.
    fn slots_from_the_last(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.replicas.slots()).rev().map(Slot)
    }

    /// Closes the smallest gaps of a copy that has too many ranges, but for those that are being written.
    fn close_gaps_of(&mut self, slot: Slot, busy: &Range<usize>) -> Result<(), Stop> {
        let is_free = |state: &Self, gap: &Range<usize>| !meet(gap, busy) && !state.borrows.writes(gap);
        while let Some(gap) = self.replicas.gap_to_close(slot, |gap| slot != ADOPTED && is_free(self, gap)) {
            let home = self.device_copy(slot).map(|copy| copy.home.clone());
            if let Err(stop) = self.make_valid(slot, &gap, home.as_ref()) {
                return self.tolerate(stop);
            }
        }
        Ok(())
    }

    fn drop_ranges(&mut self, slot: Slot, busy: &Range<usize>) -> Result<(), Stop> {
        self.try_drop_ranges(slot, busy).or_else(|stop| self.tolerate(stop))
    }

    /// Gives up the smallest ranges of a copy that still has too many, where another copy holds them too and they are
    /// not borrowed. Adopted bytes cannot be written, so what they alone hold is first copied to our own memory.
    fn try_drop_ranges(&mut self, slot: Slot, busy: &Range<usize>) -> Result<(), Stop> {
        let is_free = |state: &Self, range: &Range<usize>| !meet(range, busy) && !state.borrows.touches(range);
        while self.replicas.crowded(slot).is_some() {
            let held = self.replicas.range_to_drop(slot, |range| is_free(self, range));
            let range = match (held, slot) {
                (None, ADOPTED) => {
                    let ranges = self.replicas.valid(slot).iter().filter(|range| is_free(self, range));
                    ranges.min_by_key(|range| range.len())
                }
                (held, _) => held,
            };
            let Some(range) = range else { break };
            if slot == ADOPTED && !self.replicas.only_in(slot, &range).is_empty() {
                self.make_host()?;
                self.make_valid(HOST, &range, None)?;
            }
            // Bytes that are still on their way to other copies do not count.
            self.finish_elsewhere(slot, &range)?;
            self.replicas.give_up(slot, &range);
        }
        Ok(())
    }

    /// No access asked for this: a failure is counted and reported, and a wait is still made.
    fn tolerate(&mut self, stop: Stop) -> Result<(), Stop> {
        match stop {
            Stop::Fail(error) => {
                self.failed(error);
                Ok(())
            }
            wait => Err(wait),
        }
    }
}

fn meet(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}
