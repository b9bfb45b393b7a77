//! Waiting for queues, and what follows from it: which host bytes may be touched, which buffers nobody uses any more, and
//! which bytes are not to be trusted after a failure. It relies on `ordering` for whom to wait for.

use std::ops::Range;

use crate::coherence::replicas::Slot;
use crate::engine::copies::{HostCopy, Line};
use crate::engine::events::Afterwards;
use crate::engine::state::{FIXED, HOST, State};
use crate::engine::step::Stop;
use crate::{Access, Error, EventKind, HostBuffer};

/// At most this many uses a device copy has, by queue and kind of access, before the queues of the oldest are waited for.
/// Otherwise a queue for each request would be kept until the next write, and asked at each access.
const MOST_USERS: usize = 64;
/// How many host buffers are kept until their queues are idle, at most, unless a queue is broken.
const MOST_RETIRED: usize = 2;

impl State {
    /// Stops for the queues that can still touch `range` of a host copy in a way that conflicts with `access`.
    pub(crate) fn settle_host(&mut self, slot: Slot, range: &Range<usize>, access: Access) -> Result<(), Stop> {
        if slot == HOST {
            self.renew_host(None, range, access, &(0..0))?;
        }
        Stop::unless_waited(None, self.host_waits(slot, range, access))
    }

    fn host_waits(&self, slot: Slot, range: &Range<usize>, access: Access) -> Vec<Line> {
        let copy = match slot {
            HOST => &self.host,
            FIXED => &self.fixed,
            _ => return Vec::new(),
        };
        match copy {
            Some(copy) if self.len > 0 => copy.uses.waits(None, range, access, &self.waits.waited),
            _ => Vec::new(),
        }
    }

    /// Puts a host copy aside until no queue uses it.
    pub(crate) fn retire(&mut self, copy: Option<HostCopy>) {
        self.retired.extend(copy);
        self.sweep();
    }

    /// Whether there is more to do than what an operation is for.
    pub(crate) fn is_untidy(&self) -> bool {
        !self.replicas.is_bounded()
            || self.retired.len() > MOST_RETIRED
            || !self.leaving.is_empty()
            || self.crowd().next().is_some()
    }

    /// The oldest users of the device copies that have too many, of those that could go.
    fn crowd(&self) -> impl Iterator<Item = &Line> {
        let copies = self.devices.iter();
        let works = |line: &Line| !self.waits.broken.has(line);
        copies.flat_map(move |copy| copy.uses.oldest_past(MOST_USERS, works))
    }

    /// Stops for the oldest users of device copies that have too many.
    pub(crate) fn settle_users(&mut self) -> Result<(), Stop> {
        for copy in self.devices.iter_mut().filter(|copy| copy.uses.len() > MOST_USERS) {
            copy.uses.release_holds(&self.waits.clock);
        }
        self.wait_at_first(self.crowd().cloned().collect())
    }

    /// Stops for the queues that use the oldest retired copies, where these are too many: nobody may ever synchronise
    /// these queues through this memory again, and batch after batch would pile up.
    pub(crate) fn settle_retired(&mut self) -> Result<(), Stop> {
        self.sweep();
        let too_many = self.retired.len().saturating_sub(MOST_RETIRED);
        let oldest = self.retired.iter().take(too_many);
        self.wait_at_first(oldest.flat_map(|copy| copy.uses.queues()).collect())
    }

    /// Stops for these queues, but only the first time: other threads may add users for as long as this one waits.
    pub(crate) fn wait_at_first(&self, queues: Vec<Line>) -> Result<(), Stop> {
        if !self.waits.waited.is_empty() {
            return Ok(());
        }
        let mut each = Vec::with_capacity(queues.len());
        for line in queues {
            if !each.contains(&line) {
                each.push(line);
            }
        }
        Stop::unless_waited(None, each)
    }

    /// Frees the retired copies that no queue uses any more, and leaves to a broken queue what it may use.
    pub(crate) fn sweep(&mut self) {
        let broken = &self.waits.broken;
        if !broken.is_empty() {
            let used = |copy: &mut HostCopy| copy.uses.queues().iter().any(|line| broken.has(line));
            let used: Vec<_> = self.retired.extract_if(.., used).collect();
            used.into_iter().for_each(|copy| self.leave_host(copy));
        }
        let idle = |copy: &mut HostCopy| copy.uses.is_empty();
        let idle: Vec<_> = self.retired.extract_if(.., idle).collect();
        for copy in idle {
            self.discard(copy.buffer);
        }
    }

    /// Frees a host buffer, once the lock is released: its owner's destructor is user code.
    pub(crate) fn discard(&mut self, buffer: HostBuffer) {
        let whole = self.whole();
        if buffer.allocated() > 0 {
            self.count_bytes(EventKind::Free, &whole, buffer.allocated(), None);
        }
        self.after.push(Afterwards::Drop(buffer));
    }

    /// Waits for everything on a queue, where nobody else can want the lock: at the end of a memory, and for the bytes
    /// of a lent slice.
    pub(crate) fn synchronize(&mut self, line: &Line) -> Result<(), Error> {
        let began = self.waits.clock.begin();
        let synchronized = line.queue().synchronize();
        self.waits.clock.end(began);
        match &synchronized {
            Ok(()) => self.finished(line, began),
            Err(_) => self.distrust(line),
        }
        synchronized
    }

    /// A wait for a queue that began then has ended well. The transfers that it carried for host copies are over.
    pub(crate) fn finished(&mut self, line: &Line, began: u64) {
        let copies = self.host.iter_mut().chain(&mut self.fixed);
        for copy in copies.chain(&mut self.retired) {
            copy.uses.finish(line, began);
            copy.arrived(line, began);
        }
        self.devices.iter_mut().for_each(|copy| copy.uses.finish(line, began));
        self.sweep();
    }

    /// A queue has failed: what it was to download may not have arrived, so the host does not hold it, wherever another
    /// copy does. Nobody has a slice of these bytes, because nobody gets one before its queue has been synchronised.
    pub(crate) fn distrust(&mut self, line: &Line) {
        let Some(copy) = &mut self.host else { return };
        let lost: Vec<_> = copy.awaited_from(|by| by == line).collect();
        for range in lost {
            let only = self.replicas.only_in(HOST, &range);
            for shared in only.missing(&range).iter() {
                self.replicas.give_up(HOST, &shared);
                copy.expect_no_more(line, &shared);
            }
        }
    }

    /// Stops until every byte of `range` has arrived in the copies that hold it, but for one: what that one gives up is
    /// then really there.
    pub(crate) fn settle_others(&mut self, slot: Slot, range: &Range<usize>) -> Result<(), Stop> {
        self.renew_host(None, range, Access::Read, &(0..0))?;
        Stop::unless_waited(None, self.deliverers(slot, range))
    }

    /// The queues that may still write `range` in the copies that hold it, but for one.
    pub(crate) fn deliverers(&self, slot: Slot, range: &Range<usize>) -> Vec<Line> {
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
