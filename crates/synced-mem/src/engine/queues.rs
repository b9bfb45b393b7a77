//! Which queues an operation must wait for, and what the end of a wait means: uses that are over, bytes that have
//! arrived, and bytes that are not to be trusted after a failure. It relies on `uses` for what conflicts.

use std::ops::Range;

use crate::access::Access;
use crate::coherence::replicas::Slot;
use crate::engine::queue::QueueHandle;
use crate::engine::state::{ADOPTED, HOST, State};
use crate::engine::waits::Stop;
use crate::error::Error;

/// At most this many uses a device copy has, by queue and kind of access, before the queues of the oldest are waited
/// for. Otherwise a queue for each request would be kept until the next write, and asked at each access.
const MAX_USERS: usize = 64;
/// How many host buffers are kept until their queues are idle, at most, unless a queue is broken.
const MAX_RETIRED: usize = 2;

impl State {
    /// Stops for the queues that can still touch `range` of a host copy in a way that conflicts with `access`.
    pub(crate) fn finish_on_host(&mut self, slot: Slot, range: &Range<usize>, access: Access) -> Result<(), Stop> {
        if slot == HOST {
            self.renew_host(None, range, access, &(0..0))?;
        }
        Stop::unless_waited(None, self.host_waits(slot, range, access))
    }

    fn host_waits(&self, slot: Slot, range: &Range<usize>, access: Access) -> Vec<QueueHandle> {
        let copy = match slot {
            HOST => &self.host,
            ADOPTED => &self.adopted,
            _ => return Vec::new(),
        };
        match copy {
            Some(copy) => copy.uses.waits(None, range, access, &self.waits.waited),
            None => Vec::new(),
        }
    }

    /// Whether there is more to do than what an operation is for.
    pub(crate) fn is_untidy(&self) -> bool {
        !self.replicas.is_bounded()
            || self.retired.len() > MAX_RETIRED
            || !self.freed.is_empty()
            || self.crowd().next().is_some()
    }

    /// The oldest users of the device copies that have too many, of those that could go.
    fn crowd(&self) -> impl Iterator<Item = &QueueHandle> {
        let copies = self.devices.iter();
        let works = |queue: &QueueHandle| !self.waits.broken.has(queue);
        copies.flat_map(move |copy| copy.uses.oldest_past(MAX_USERS, works))
    }

    /// Stops for the oldest users of device copies that have too many.
    pub(crate) fn finish_oldest_users(&mut self) -> Result<(), Stop> {
        for copy in self.devices.iter_mut().filter(|copy| copy.uses.len() > MAX_USERS) {
            copy.uses.release_holds(&self.waits.clock);
        }
        self.wait_at_first(self.crowd().cloned().collect())
    }

    /// Stops for the queues that use the oldest retired copies, where these are too many. The memory may never wait for
    /// these queues again for another reason, and batch after batch would pile up.
    pub(crate) fn finish_retired(&mut self) -> Result<(), Stop> {
        self.sweep();
        let too_many = self.retired.len().saturating_sub(MAX_RETIRED);
        let oldest = self.retired.iter().take(too_many);
        self.wait_at_first(oldest.flat_map(|copy| copy.uses.queues()).collect())
    }

    /// Stops for these queues, but only the first time: other threads may add users for as long as this one waits.
    pub(crate) fn wait_at_first(&self, queues: Vec<QueueHandle>) -> Result<(), Stop> {
        if !self.waits.waited.is_empty() {
            return Ok(());
        }
        let mut each = Vec::with_capacity(queues.len());
        for queue in queues {
            if !each.contains(&queue) {
                each.push(queue);
            }
        }
        Stop::unless_waited(None, each)
    }

    /// Waits for everything on a queue, at the end of a memory: nothing else can want the lock.
    pub(crate) fn synchronize(&mut self, queue: &QueueHandle) -> Result<(), Error> {
        let began = self.waits.clock.begin();
        let synchronized = queue.synchronize();
        self.waits.clock.end(began);
        match &synchronized {
            Ok(()) => self.wait_ended(queue, began),
            Err(_) => self.invalidate_after_error(queue),
        }
        synchronized
    }

    /// A wait for a queue that began then has ended well. The transfers that it carried for host copies are over.
    pub(crate) fn wait_ended(&mut self, queue: &QueueHandle, began: u64) {
        for copy in self.host_copies_mut() {
            copy.uses.finish(queue, began);
            copy.arrived(queue, began);
        }
        self.devices.iter_mut().for_each(|copy| copy.uses.finish(queue, began));
        self.sweep();
    }

    /// A queue has failed: what it was to download may not have arrived, so the host does not hold it, wherever another
    /// copy does. There is no slice of these bytes yet, because none is handed out before the queue has been
    /// synchronised.
    pub(crate) fn invalidate_after_error(&mut self, queue: &QueueHandle) {
        self.retire_staged(|staged| staged.copy.uses.queues().contains(queue));
        let Some(copy) = &mut self.host else { return };
        let lost: Vec<_> = copy.awaited_from(|by| by == queue).collect();
        for range in lost {
            let only = self.replicas.only_in(HOST, &range);
            for shared in only.missing(&range).iter() {
                self.replicas.give_up(HOST, &shared);
                copy.expect_no_more(queue, &shared);
            }
        }
    }

    /// Stops until every byte of `range` has arrived in the copies that hold it, but for one: what that one gives up is
    /// then really there.
    pub(crate) fn finish_elsewhere(&mut self, slot: Slot, range: &Range<usize>) -> Result<(), Stop> {
        self.renew_host(None, range, Access::Read, &(0..0))?;
        Stop::unless_waited(None, self.deliverers(slot, range))
    }

    /// The queues that may still write `range` in the copies that hold it, but for one.
    pub(crate) fn deliverers(&self, slot: Slot, range: &Range<usize>) -> Vec<QueueHandle> {
        let mut queues = self.host_waits(HOST, range, Access::Read);
        for other in self.device_slots().filter(|&other| other != slot) {
            let Some(index) = Self::device_index(other) else {
                continue;
            };
            if self.replicas.valid(other).overlaps(range) {
                let uses = &self.devices[index].uses;
                let waits = uses.waits(None, range, Access::Read, &self.waits.waited);
                queues.extend(waits);
            }
        }
        queues.dedup();
        queues
    }
}
