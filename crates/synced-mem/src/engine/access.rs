//! Accesses: what a range of a copy needs before it is read, written or overwritten, and what changes with that.
//! It relies on `transfer` to move what is missing; callers have checked the borrows.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::{Access, Intent};
use crate::coherence::replicas::Slot;
use crate::device::Queue;
use crate::device::token::ClaimedRange;
use crate::engine::queue::QueueHandle;
use crate::engine::state::{ADOPTED, HOST, State};
use crate::engine::waits::Stop;

impl State {
    /// The first byte of `range` on the host, ready for `intent`, and the copy it lies in. A write takes the range's
    /// validity from all other copies.
    pub(crate) fn host(&mut self, range: &Range<usize>, intent: Intent) -> Result<(NonNull<u8>, Slot), Stop> {
        let slot = self.host_slot(range, intent);
        if slot == HOST {
            self.make_host()?;
        }
        match intent {
            Intent::Overwrite => self.renew_host(None, range, Access::Write, range)?,
            _ => self.make_valid(slot, range, None)?,
        }
        self.finish_on_host(slot, range, intent.access())?;
        if intent != Intent::Read {
            self.claim(HOST, range);
        }
        Ok((self.host_ptr(slot, range.start), slot))
    }

    /// Adopted bytes serve readers for as long as they hold the range and our own memory does not.
    fn host_slot(&self, range: &Range<usize>, intent: Intent) -> Slot {
        let adopted =
            intent == Intent::Read && self.replicas.holds(ADOPTED, range) && !self.replicas.holds(HOST, range);
        if adopted { ADOPTED } else { HOST }
    }

    /// Starts bringing `range` to the host and returns without waiting for it.
    pub(crate) fn prefetch_host(&mut self, range: &Range<usize>) -> Result<(), Stop> {
        let slot = self.host_slot(range, Intent::Read);
        if slot == HOST {
            self.make_host()?;
        }
        self.make_valid(slot, range, None)
    }

    /// A range of the copy on the queue's device, ready for work of this queue. A write takes the range's validity from
    /// all other copies.
    pub(crate) fn device(
        &mut self,
        queue: &Arc<dyn Queue>,
        range: &Range<usize>,
        intent: Intent,
        guard: Option<u64>,
    ) -> Result<(ClaimedRange, Slot), Stop> {
        let slot = self.device_slot(queue);
        let Some(index) = Self::device_index(slot) else {
            return Ok((ClaimedRange::empty(queue), slot));
        };
        self.set_home(index, queue)?;
        if intent == Intent::Overwrite
            && let Some(block) = self.alloc_past_broken(slot, range)?
        {
            // Nothing fails from here on: the queue has not failed, and the new block has no other user to wait for.
            self.replace_block(index, block, range);
        }
        self.make_device(index)?;
        if intent != Intent::Overwrite {
            self.make_valid(slot, range, None)?;
        }
        let (copy, access) = (&mut self.devices[index], intent.access());
        self.waits.order(&mut copy.uses, &copy.home, range, access, guard)?;
        let hold = match guard {
            None => copy.uses.hold(&copy.home, range, access),
            Some(_) => None,
        };
        let block = copy.memory.as_ref().map(|memory| Arc::clone(&memory.block));
        if intent != Intent::Read {
            self.claim(slot, range);
        }
        let (range, queue) = (range.clone(), Arc::clone(queue));
        Ok((ClaimedRange { block, range, queue, _hold: hold }, slot))
    }

    /// Work for a device copy runs on this queue from now on, unless it has failed.
    pub(crate) fn set_home(&mut self, index: usize, queue: &Arc<dyn Queue>) -> Result<(), Stop> {
        if !self.waits.broken.is_empty() {
            self.waits.refuse_broken(&QueueHandle::new(queue))?;
        }
        if !self.devices[index].home.is(&**queue) {
            self.devices[index].home = QueueHandle::new(queue);
        }
        Ok(())
    }

    /// The guard of a device token is gone: no more launches come from it.
    pub(crate) fn release(&mut self, borrow: u64) {
        let slot = self.borrows.remove(borrow);
        if let Some(index) = slot.and_then(Self::device_index) {
            let uses = &mut self.devices[index].uses;
            uses.release(borrow, &self.waits.clock);
        }
    }

    /// Takes the validity of `range` from all other copies.
    pub(crate) fn claim(&mut self, slot: Slot, range: &Range<usize>) {
        self.replicas.claim(slot, range.clone());
        self.retire_staged(|staged| staged.overlaps(range));
        if self.adopted.is_some() && self.replicas.valid(ADOPTED).is_empty() {
            let adopted = self.adopted.take();
            self.retire(adopted);
        }
    }
}
