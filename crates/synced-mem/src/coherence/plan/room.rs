//! Taking bytes away from a copy: what it alone holds goes elsewhere first, and has arrived there when it is given up.

use std::cmp::Reverse;
use std::ops::ControlFlow::{Break, Continue};
use std::ops::Range;

use crate::access::Access;
use crate::coherence::facts::{ADOPTED, HOST};
use crate::coherence::plan::{Bound, Dirty, NOTHING, Next, Plan, Planner, Refusal, Step, meet, perform, wait};
use crate::coherence::replicas::Slot;
use crate::error::Error;

impl<Q: Clone + PartialEq> Planner<'_, Q> {
    pub(super) fn evict_device(&self, slot: Slot, range: &Range<usize>, dirty: Dirty) -> Plan<Q> {
        let alone = self.facts.replicas.only_in(slot, range);
        if let Some(first) = alone.iter().next() {
            may_move(first, dirty == Dirty::Move)?;
            self.alloc(HOST)?;
        }
        alone.iter().try_for_each(|part| self.bring(HOST, &part))?;
        // The device's copy is the way back if a transfer fails, so it goes only when the bytes have arrived.
        self.delivered(slot, range)?;
        self.give_up(slot, range)
    }

    pub(super) fn evict_host(&self, range: &Range<usize>, dirty: Dirty) -> Plan<Q> {
        let alone = self.only_on_host(range);
        if let Some(first) = alone.first() {
            may_move(first.clone(), dirty == Dirty::Move && self.facts.device_slots().next().is_some())?;
            self.refuge(&alone)?;
        }
        for slot in [HOST, ADOPTED] {
            self.delivered(slot, range)?;
        }
        // What an upload may still read is kept until its queue has been synchronised.
        self.give_up(HOST, range)?;
        self.give_up(ADOPTED, range)
    }

    /// The parts of `range` that no device holds, though the host does.
    pub(super) fn only_on_host(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let replicas = &self.facts.replicas;
        let hosts = [HOST, ADOPTED].into_iter().flat_map(|slot| replicas.valid(slot).within(range));
        let mut alone: Vec<_> = hosts.collect();
        for slot in self.facts.device_slots() {
            let valid = replicas.valid(slot);
            alone = alone.iter().flat_map(|part| valid.missing(part).iter().collect::<Vec<_>>()).collect();
        }
        alone.sort_by_key(|part| part.start);
        alone
    }

    /// Goes on when the first device that takes them has these bytes: those that hold the most already come before the
    /// others, and those whose queue has failed last. The host's copy is what is left if an upload fails, so the host
    /// keeps it until it is settled.
    pub(super) fn refuge(&self, parts: &[Range<usize>]) -> Plan<Q> {
        let facts = self.facts;
        let devices = facts.device_slots().filter(|slot| !self.so_far.failed.contains(slot));
        let best = devices.min_by_key(|slot| {
            let is_broken = facts.copy(*slot).home.as_ref().is_some_and(|home| facts.broken.has(home));
            let held: usize = facts.replicas.valid(*slot).iter().map(|held| held.len()).sum();
            (is_broken, Reverse(held))
        });
        let Some(slot) = best else {
            return Break(Err(Refusal::Failed));
        };
        facts.copy(slot).home.as_ref().map_or(Continue(()), |home| self.works(home))?;
        self.alloc(slot)?;
        parts.iter().try_for_each(|part| self.bring(slot, part))
    }

    /// Goes on when what a copy holds of `range` has arrived in the others that hold it. Not for what it does not hold:
    /// other threads may go on writing that elsewhere.
    pub(super) fn delivered(&self, slot: Slot, range: &Range<usize>) -> Plan<Q> {
        let held = self.facts.replicas.valid(slot).within(range);
        held.into_iter().try_for_each(|held| {
            self.replace_host(None, &held, Access::Read, &NOTHING)?;
            wait(None, self.facts.deliverers(slot, &held, &self.so_far.waited))
        })
    }

    /// Goes on when a copy holds nothing of the range, and no memory for nothing.
    pub(super) fn give_up(&self, slot: Slot, range: &Range<usize>) -> Plan<Q> {
        let valid = self.facts.replicas.valid(slot);
        if valid.overlaps(range) || (valid.is_empty() && self.facts.copy(slot).has_memory) {
            perform(Step::GiveUp { slot, range: range.clone() })
        } else {
            Continue(())
        }
    }

    // ---- bounding ----

    /// Goes on when no copy has too many ranges, or nothing can be done about it. The host comes last: what is moved
    /// for the others may pass through it.
    pub(super) fn bound(&self, bound: &Bound) -> Plan<Q> {
        if self.facts.replicas.is_bounded() {
            return Continue(());
        }
        for slot in self.facts.slots().rev() {
            let close = |busy| self.unless_failed(self.close_gap(slot, busy));
            let drop = |busy| self.unless_failed(self.drop_range(slot, busy));
            match bound {
                Bound::Gaps => close(&NOTHING)?,
                // What was scattered on the host were single rows of something large: the gaps between them are far
                // larger.
                Bound::AllBut(busy) if slot == HOST => {
                    drop(busy)?;
                    close(busy)?;
                }
                Bound::AllBut(busy) => {
                    close(busy)?;
                    drop(busy)?;
                }
            }
        }
        Continue(())
    }

    /// Closes the smallest gap of a copy that has too many ranges, but for those that are being written.
    pub(super) fn close_gap(&self, slot: Slot, busy: &Range<usize>) -> Plan<Q> {
        let facts = self.facts;
        let gap =
            facts.replicas.gap_to_close(slot, |gap| slot != ADOPTED && !meet(gap, busy) && !facts.borrows.writes(gap));
        gap.map_or(Continue(()), |gap| self.bring(slot, &gap))
    }

    /// Gives up the smallest range of a copy that still has too many, where another copy holds it too and it is not
    /// borrowed. Adopted bytes cannot be written, so what they alone hold is first copied to our own memory.
    pub(super) fn drop_range(&self, slot: Slot, busy: &Range<usize>) -> Plan<Q> {
        let replicas = &self.facts.replicas;
        let Some(valid) = replicas.crowded(slot) else {
            return Continue(());
        };
        let is_free = |range: &Range<usize>| !meet(range, busy) && !self.facts.borrows.touches(range);
        let mut dropped = replicas.range_to_drop(slot, is_free);
        if dropped.is_none() && slot == ADOPTED {
            dropped = valid.iter().filter(is_free).min_by_key(|range| range.len());
        }
        let Some(range) = dropped else {
            return Continue(());
        };
        if !replicas.only_in(slot, &range).is_empty() {
            self.alloc(HOST)?;
            self.bring(HOST, &range)?;
        }
        // Bytes that are still on their way to other copies do not count.
        self.replace_host(None, &range, Access::Read, &NOTHING)?;
        wait(None, self.facts.deliverers(slot, &range, &self.so_far.waited))?;
        perform(Step::GiveUp { slot, range })
    }

    /// No access asked for this: it goes on without a step that has failed.
    pub(super) fn unless_failed(&self, plan: Plan<Q>) -> Plan<Q> {
        let failed = |step: &Step| self.so_far.failed.contains(&step.slot()) && !matches!(step, Step::GiveUp { .. });
        match &plan {
            Break(Ok(Next::Perform(steps))) if steps.few.iter().flatten().any(failed) => Continue(()),
            Break(Ok(Next::Outside(step))) if failed(step) => Continue(()),
            _ => plan,
        }
    }
}

/// Refuses to move what a copy alone holds.
fn may_move<Q>(first: Range<usize>, may_move: bool) -> Plan<Q> {
    if may_move { Continue(()) } else { Break(Err(Refusal::Error(Error::OnlyCopy { range: first }))) }
}
