//! Copies that come from another memory: where such a copy had best run, and its part on a device.
//! It relies on the source's token for the bytes that are read, and on the caller's borrow check for those overwritten.

use std::ops::Range;
use std::sync::Arc;

use crate::coherence::ranges::Ranges;
use crate::coherence::replicas::Slot;
use crate::engine::copies::order;
use crate::engine::state::State;
use crate::engine::step::Stop;
use crate::{Access, DeviceId, DeviceRef, EventKind, Queue};

impl State {
    pub(crate) fn is_written_in(&self, range: &Range<usize>) -> bool {
        let mut slots = (0..self.replicas.slots()).map(Slot);
        slots.any(|slot| self.replicas.valid(slot).overlaps(range))
    }

    /// The devices that hold any byte of this memory.
    pub(crate) fn devices_with_bytes(&self) -> Vec<DeviceId> {
        let slots = self.device_slots();
        let held = slots.filter(|&slot| !self.replicas.valid(slot).is_empty());
        held.filter_map(|slot| self.device_of(slot)).collect()
    }

    /// How many bytes of `range` are in none of these copies.
    pub(crate) fn lacking(&self, slots: &[Slot], range: &Range<usize>) -> usize {
        let mut missing = Ranges::of(range.clone());
        for &slot in slots {
            for held in self.replicas.valid(slot).within(range) {
                missing.remove(&held);
            }
        }
        missing.iter().map(|range| range.len()).sum()
    }

    /// The home queue of the device that lacks the fewest bytes of `range`, how many these are, and whether it is one of
    /// the preferred ones, which come first among equals.
    pub(crate) fn home_with(
        &self,
        range: &Range<usize>,
        preferred: &[DeviceId],
    ) -> Option<(Arc<dyn Queue>, usize, bool)> {
        let copies = self.device_slots().zip(&self.devices);
        let ranked = copies.map(|(slot, copy)| {
            let is_preferred = preferred.contains(&copy.device);
            (copy, self.lacking(&[slot], range), is_preferred)
        });
        let best = ranked.min_by_key(|&(_, lacking, is_preferred)| (lacking, !is_preferred));
        best.map(|(copy, lacking, preferred)| (Arc::clone(copy.home.queue()), lacking, preferred))
    }

    /// A copy that failed may have been enqueued all the same: the device no longer holds these bytes where another copy
    /// does.
    fn distrust_range(&mut self, slot: Slot, range: &Range<usize>) {
        let only = self.replicas.only_in(slot, range);
        for shared in only.missing(range).iter() {
            self.replicas.give_up(slot, &shared);
        }
    }

    /// Overwrites `to` with another memory's bytes, on a queue of the device that both are on. False: nothing was done,
    /// because there is nothing to move there.
    pub(crate) fn receive(
        &mut self,
        to: &Range<usize>,
        from: &DeviceRef<'_>,
        queue: &Arc<dyn Queue>,
    ) -> Result<bool, Stop> {
        let slot = self.device_slot(queue);
        let Some(index) = Self::device_index(slot) else {
            return Ok(false);
        };
        self.bring_home(index, queue)?;
        self.make_device(index)?;
        if self.len == 0 {
            return Ok(false);
        }
        let copy = &mut self.devices[index];
        let home = &copy.home;
        order(&mut copy.uses, home, to, Access::Write, None, &self.waits)?;
        let source = from.arg();
        if let (Some(memory), Some(block)) = (&copy.memory, source.block()) {
            let (start, from, len) = (to.start, source.range().start, to.len());
            // SAFETY: both ranges lie within their blocks (checked here, and by the token), and both blocks on this
            // queue's device. The destination's entry was made above; the source's when the token was, on this queue.
            let enqueued = unsafe { queue.copy(&*memory.block, start, block, from, len) };
            if let Err(error) = enqueued {
                self.distrust_range(slot, to);
                return Err(error.into());
            }
        }
        self.claim(slot, to);
        self.count(EventKind::DeviceCopy, to, Some(queue.device().id()));
        Ok(true)
    }
}
