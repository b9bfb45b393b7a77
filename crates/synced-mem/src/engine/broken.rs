//! Queues that have failed, and how a memory goes on without them: what they may still touch is left to them, and what
//! is valid elsewhere stays usable. The list saves waits and stops a failure from spreading; no soundness rests on it.
//! A queue that works again is taken off it. It relies on `replicas` for what is held elsewhere.

use std::ops::Range;

use crate::access::Access;
use crate::coherence::ranges::Ranges;
use crate::coherence::replicas::Slot;
use crate::device::Block;
use crate::engine::copies::HostCopy;
use crate::engine::queue::QueueHandle;
use crate::engine::state::{HOST, State};
use crate::engine::waits::Stop;
use crate::error::Error;

/// At most this many are remembered of those that no copy names any more. A forgotten one is found out again.
const MAX_BROKEN: usize = 64;

impl State {
    /// A queue's failure lasts. What it was to deliver is not trusted, and what it may use is left to it.
    pub(crate) fn queue_failed(&mut self, queue: &QueueHandle, error: &Error) {
        self.invalidate_after_error(queue);
        self.waits.broken.add(queue, error);
        let broken = &self.waits.broken;
        for copy in self.devices.iter_mut().filter(|copy| copy.home == *queue) {
            let mut users = copy.uses.queues();
            users.reverse();
            users.extend(copy.memory.as_ref().map(|memory| memory.queue.clone()));
            // A queue of another device may have read this copy as well.
            let fits = |user: &QueueHandle| user.device().id() == copy.device && !broken.has(user);
            if let Some(home) = users.into_iter().find(fits) {
                copy.home = home;
            }
        }
        self.sweep();
        self.forget_broken();
    }

    /// Forgets the oldest of too many broken queues. Not one that a copy names: it would be waited for again, and an
    /// operation that found them out in turns would not end. What they read of host copies is read for ever.
    fn forget_broken(&mut self) {
        let unused = self.waits.broken.oldest_past(MAX_BROKEN, |queue| !queue.is_lost() && !self.needs(queue));
        for queue in unused {
            if self.hosts().any(|copy| copy.uses.has(&queue)) {
                let lost = self.waits.broken.lost(&queue);
                let clock = self.waits.clock.clone();
                self.host_copies_mut().for_each(|copy| copy.uses.hand_over(&queue, &lost, &clock));
            }
            self.waits.broken.remove(&queue);
        }
    }

    /// Whether some copy has been used by this queue, or would be, but for reads of host copies.
    fn needs(&self, queue: &QueueHandle) -> bool {
        let writes = self.hosts().any(|copy| !copy.uses.only_reads(queue));
        writes || self.devices.iter().any(|copy| copy.uses.has(queue) || copy.home == *queue)
    }

    fn hosts(&self) -> impl Iterator<Item = &HostCopy> {
        let staged = self.staged.iter().map(|staged| &staged.copy);
        self.host.iter().chain(&self.adopted).chain(&self.retired).chain(staged)
    }

    /// Gives up the device copies that a broken queue may use, where other copies hold all their bytes: the next access
    /// makes a new one. Those that it may have written go first, because the others are as they should be.
    pub(crate) fn abandon_to_broken(&mut self) -> Result<(), Stop> {
        if self.waits.broken.is_empty() {
            return Ok(());
        }
        self.waits.broken.forget_dropped();
        for access in [Access::Read, Access::Write] {
            for slot in self.device_slots() {
                if self.meets_broken(slot, access) && self.is_held_elsewhere(slot, &(0..0)) {
                    self.finish_working_queues(slot, &(0..0))?;
                    self.free_device(slot);
                    self.replicas.give_up(slot, &self.whole());
                }
            }
        }
        Ok(())
    }

    /// Whether this access to a device copy would have to wait for a broken queue: a read only for one that writes.
    pub(crate) fn meets_broken(&self, slot: Slot, access: Access) -> bool {
        if self.waits.broken.is_empty() {
            return false;
        }
        let copy = Self::device_index(slot).and_then(|index| self.devices.get(index));
        copy.is_some_and(|copy| {
            let waits = copy.uses.waits(None, &self.whole(), access, &self.waits.waited);
            self.waits.broken.has_any(&waits)
        })
    }

    /// Whether copies that no broken queue may have written hold all that this one does, but for the `spare` bytes.
    fn is_held_elsewhere(&self, slot: Slot, spare: &Range<usize>) -> bool {
        let trusted = |other: &Slot| *other != slot && !self.meets_broken(*other, Access::Read);
        let others = (0..self.replicas.slots()).map(Slot).filter(trusted);
        let others: Vec<_> = others.map(|other| self.replicas.valid(other)).collect();
        self.replicas.valid(slot).iter().all(|held| {
            let mut alone = Ranges::of(held.clone());
            alone.remove(spare);
            for other in &others {
                other.within(&held).for_each(|part| alone.remove(&part));
            }
            alone.is_empty()
        })
    }

    /// Stops until the working queues have delivered what other copies hold of this one's bytes, but for the `spare`
    /// ones.
    fn finish_working_queues(&self, slot: Slot, spare: &Range<usize>) -> Result<(), Stop> {
        let mut queues = Vec::new();
        for held in self.replicas.valid(slot).iter() {
            let mut kept = Ranges::of(held);
            kept.remove(spare);
            for part in kept.iter() {
                queues.extend(self.deliverers(slot, &part));
            }
        }
        queues.retain(|queue| !self.waits.broken.has(queue));
        queues.dedup();
        Stop::unless_waited(None, queues)
    }

    /// For a device copy of which `range` is to be overwritten: a new block, if a broken queue may use the one that is
    /// there, and if nothing but that range would be lost with it. It changes nothing.
    pub(crate) fn alloc_past_broken(&self, slot: Slot, range: &Range<usize>) -> Result<Option<Box<dyn Block>>, Stop> {
        let Some(index) = Self::device_index(slot) else {
            return Ok(None);
        };
        if self.waits.broken.is_empty()
            || !self.meets_broken(slot, Access::Write)
            || !self.is_held_elsewhere(slot, range)
        {
            return Ok(None);
        }
        self.finish_working_queues(slot, range)?;
        Ok(Some(self.devices[index].home.alloc(self.len)?))
    }

    /// Puts a block from [`alloc_past_broken`](Self::alloc_past_broken) in the place of the one that is there, when
    /// nothing can fail any more. Only `range` is valid in it, and only there.
    pub(crate) fn replace_block(&mut self, index: usize, block: Box<dyn Block>, range: &Range<usize>) {
        let (slot, whole) = (Self::slot_at(index), self.whole());
        self.free_device(slot);
        self.put_block(index, block);
        self.claim(slot, range);
        for rest in [whole.start..range.start, range.end..whole.end] {
            self.replicas.give_up(slot, &rest);
        }
    }

    /// Where an access to the host's own memory would have to wait for a broken queue: puts a copy of the valid bytes
    /// in its place. The `spare` bytes are about to be overwritten. Changes nothing while a guard writes there, or
    /// where bytes would be lost that only that queue could have delivered.
    pub(crate) fn renew_host(
        &mut self,
        by: Option<&QueueHandle>,
        range: &Range<usize>,
        access: Access,
        spare: &Range<usize>,
    ) -> Result<(), Stop> {
        let (broken, waited) = (&self.waits.broken, &self.waits.waited);
        let Some(copy) = self.host.as_ref().filter(|_| !broken.is_empty()) else {
            return Ok(());
        };
        let waits = copy.uses.waits(by, range, access, waited);
        if !broken.has_any(&waits) || self.host_writers > 0 {
            return Ok(());
        }
        let valid = self.replicas.valid(HOST);
        let is_lost = |lost: Range<usize>| {
            let mut lost = Ranges::of(lost);
            lost.remove(spare);
            lost.iter().any(|lost| valid.overlaps(&lost))
        };
        if copy.awaited_from(|queue| broken.has(queue)).any(is_lost) {
            return Ok(());
        }
        let mut writers = copy.uses.waits(None, &self.whole(), Access::Read, waited);
        writers.retain(|queue| !broken.has(queue));
        Stop::unless_waited(None, writers)?;
        let buffer = self.new_host_buffer()?;
        self.copy_valid_host(&buffer);
        let old = self.host.replace(HostCopy::new(buffer));
        old.into_iter().for_each(|old| self.leak_host(old));
        Ok(())
    }
}
