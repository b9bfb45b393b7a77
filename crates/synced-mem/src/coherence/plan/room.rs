//! Taking bytes away from a copy: bytes that no other copy holds go elsewhere first, and have arrived there when the
//! copy gives them up.

use std::cmp::Reverse;
use std::ops::ControlFlow::{Break, Continue};
use std::ops::Range;

use crate::access::Access;
use crate::coherence::plan::{Bound, Dirty, NOTHING, Next, Plan, Planner, Refusal, Step, perform, wait};
use crate::coherence::ranges::{Ranges, meet};
use crate::coherence::replicas::{ADOPTED, HOST, ORIGIN, Slot};
use crate::error::Error;

impl<Q: Clone + PartialEq> Planner<'_, Q> {
    /// Of a device, or of the origin: bytes that no other copy holds go to the host.
    pub(super) fn evict_to_host(&self, slot: Slot, range: &Range<usize>, dirty: Dirty) -> Plan<Q> {
        let alone = self.facts.replicas.only_in(slot, range);
        if let Some(first) = alone.iter().next() {
            may_move(first, dirty == Dirty::Move)?;
            self.alloc(HOST)?;
        }
        alone.iter().try_for_each(|part| self.bring(HOST, &part))?;
        // The copy is the way back if a transfer fails, so the copy goes only when the bytes have arrived.
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
        // Bytes that an upload may still read are kept until the queue has been synchronised.
        self.give_up(HOST, range)?;
        self.give_up(ADOPTED, range)
    }

    /// The parts of `range` that neither a device nor the origin holds, though the host does.
    pub(super) fn only_on_host(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let replicas = &self.facts.replicas;
        let hosts = [HOST, ADOPTED].into_iter().flat_map(|slot| replicas.valid(slot).within(range));
        let mut alone: Vec<_> = hosts.collect();
        for slot in self.facts.device_slots().chain([ORIGIN]) {
            let valid = replicas.valid(slot);
            alone = alone.iter().flat_map(|part| valid.missing(part).iter().collect::<Vec<_>>()).collect();
        }
        alone.sort_by_key(|part| part.start);
        alone
    }

    /// Goes on when the first device that takes these bytes has them. Devices are tried from the one that holds the
    /// most; devices whose queue has failed come last. If an upload fails, the host's copy is the only one, so the host
    /// keeps its bytes until then.
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

    /// Goes on when each byte of `range` that the copy holds has arrived in the other copies that hold the byte, unless
    /// the origin has the byte. Bytes that the copy does not hold are no matter: other threads may go on writing that
    /// elsewhere.
    pub(super) fn delivered(&self, slot: Slot, range: &Range<usize>) -> Plan<Q> {
        let (replicas, mut held) = (&self.facts.replicas, Ranges::new());
        replicas.valid(slot).within(range).for_each(|part| held.insert(part));
        if slot != ORIGIN {
            replicas.valid(ORIGIN).within(range).for_each(|part| held.remove(&part));
        }
        held.iter().try_for_each(|held| {
            self.replace_host(None, &held, Access::Read, &NOTHING)?;
            wait(None, self.facts.deliverers(slot, &held, &self.so_far.waited))
        })
    }

    /// Goes on when a copy holds nothing of the range, and no memory for nothing.
    pub(super) fn give_up(&self, slot: Slot, range: &Range<usize>) -> Plan<Q> {
        let valid = self.facts.replicas.valid(slot);
        if valid.overlaps(range) {
            return perform(Step::GiveUp { slot, range: range.clone() });
        }
        if slot == ORIGIN || !valid.is_empty() || !self.facts.copy(slot).has_memory {
            return Continue(());
        }
        // Memory that a thread uses is kept until that thread has settled.
        self.settled(|moving| moving.concerns(slot))?;
        perform(Step::GiveUp { slot, range: range.clone() })
    }

    // ---- bounding ----

    /// Goes on when no copy has too many ranges, or nothing can be done about it. The host comes last: bytes that are
    /// moved for the other copies may pass through the host.
    pub(super) fn bound(&self, bound: &Bound) -> Plan<Q> {
        if self.facts.replicas.is_bounded() {
            return Continue(());
        }
        for slot in self.facts.slots().rev() {
            // Bytes for a copy that takes none would pass through the host in vain, each time that the host drops them.
            let takes = !self.so_far.failed.contains(&slot);
            let close = |busy| {
                if takes { self.unless_failed(self.close_gap(slot, busy)) } else { Continue(()) }
            };
            let drop = |busy| self.unless_failed(self.drop_range(slot, busy));
            match bound {
                Bound::Gaps => close(&NOTHING)?,
                // Scattered ranges on the host were single rows of something large: the gaps between rows are far
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

    /// Closes the smallest gap of a copy that has too many ranges, but for those that are being written, and those that
    /// would have to be read from the origin.
    pub(super) fn close_gap(&self, slot: Slot, busy: &Range<usize>) -> Plan<Q> {
        let facts = self.facts;
        let gap = facts.replicas.gap_to_close(slot, |gap| {
            let is_free = slot != ADOPTED && !meet(gap, busy) && !facts.borrows.writes(gap);
            is_free && facts.replicas.only_in(ORIGIN, gap).is_empty()
        });
        gap.map_or(Continue(()), |gap| self.bring(slot, &gap))
    }

    /// Gives up the smallest range of a copy that still has too many, where another copy holds that range too and no
    /// borrow touches it. Adopted memory cannot be written, so bytes that it alone holds are first copied to our own
    /// memory.
    pub(super) fn drop_range(&self, slot: Slot, busy: &Range<usize>) -> Plan<Q> {
        let replicas = &self.facts.replicas;
        let Some(valid) = replicas.crowded(slot) else {
            return Continue(());
        };
        let is_free = |range: &Range<usize>| {
            let is_moving = self.facts.outside.iter().any(|moving| meet(&moving.range, range));
            !meet(range, busy) && !self.facts.borrows.touches(range) && !is_moving
        };
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

    /// No access asked for this, so a step that has failed is left out.
    pub(super) fn unless_failed(&self, plan: Plan<Q>) -> Plan<Q> {
        let failed = |step: &Step| self.so_far.failed.contains(&step.slot()) && !matches!(step, Step::GiveUp { .. });
        match &plan {
            Break(Ok(Next::Perform(steps))) if steps.few.iter().flatten().any(failed) => Continue(()),
            Break(Ok(Next::Outside(step))) if failed(step) => Continue(()),
            _ => plan,
        }
    }
}

/// Refuses to move bytes that a copy alone holds.
fn may_move<Q>(first: Range<usize>, may_move: bool) -> Plan<Q> {
    if may_move { Continue(()) } else { Break(Err(Refusal::Error(Error::OnlyCopy { range: first }))) }
}
