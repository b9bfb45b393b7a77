//! Bytes on their way: those that a queue has yet to deliver, and the transfers that a thread makes without the lock,
//! which the facts name meanwhile. Pure, as the facts are; the plan decides who waits for them.

use std::ops::Range;

use super::{CopyFacts, Facts};
use crate::access::Access;
use crate::coherence::ranges::Ranges;
use crate::coherence::replicas::{HOST, ORIGIN, Slot};
use crate::coherence::uses::Waited;

/// Bytes that a queue has yet to deliver.
#[derive(Debug)]
pub(super) struct Arriving<Q> {
    pub(super) queue: Q,
    /// When the last of it was entered.
    pub(super) last: u64,
    ranges: Ranges,
}

/// Bytes that a thread without the lock brings from a copy, or from the origin, to a copy. Meanwhile both copies keep
/// their memory, the bytes stay valid where they come from, and no one else writes them on either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) from: Slot,
    pub(crate) to: Slot,
    pub(crate) range: Range<usize>,
}

/// How a transfer has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landing {
    /// Whether the bytes are there, or will be when the queue has done its work.
    pub(crate) is_there: bool,
    /// Whether the queue may still work on the device's copy.
    pub(crate) uses_device: bool,
    /// Whether the queue may still use the host's copy.
    pub(crate) uses_host: bool,
}

impl Moving {
    /// Whether this is one of the two copies.
    pub(crate) fn concerns(&self, slot: Slot) -> bool {
        self.from == slot || self.to == slot
    }

    /// The access to each side.
    pub(crate) fn accesses(&self) -> [(Slot, Access); 2] {
        [(self.from, Access::Read), (self.to, Access::Write)]
    }
}

impl<Q: Clone + PartialEq> Facts<Q> {
    // ---- delivered by a queue ----

    /// The queues that may still write `range` in the copies that hold it, but for one.
    pub(crate) fn deliverers(&self, slot: Slot, range: &Range<usize>, waited: &Waited<Q>) -> Vec<Q> {
        let mut queues = self.copy(HOST).uses.waits(None, range, Access::Read, waited);
        for other in self.device_slots().filter(|&other| other != slot) {
            if self.replicas.valid(other).overlaps(range) {
                queues.extend(self.copy(other).uses.waits(None, range, Access::Read, waited));
            }
        }
        queues.dedup();
        queues
    }

    /// The working queues that have yet to deliver bytes of this copy to other copies. The `overwritten` bytes do not
    /// count.
    pub(crate) fn working_deliverers(&self, slot: Slot, overwritten: &Range<usize>, waited: &Waited<Q>) -> Vec<Q> {
        let mut queues = Vec::new();
        for held in self.replicas.valid(slot).iter() {
            let mut kept = Ranges::of(held);
            kept.remove(overwritten);
            for part in kept.iter() {
                queues.extend(self.deliverers(slot, &part, waited));
            }
        }
        queues.retain(|queue| !self.broken.has(queue));
        queues.dedup();
        queues
    }

    /// The bytes that queues of this kind have yet to deliver to a host copy. From a failed queue the bytes may never
    /// come.
    pub(crate) fn awaited(&self, slot: Slot, mut kind: impl FnMut(&Q) -> bool) -> impl Iterator<Item = Range<usize>> {
        let theirs = self.copy(slot).arriving.iter().filter(move |arriving| kind(&arriving.queue));
        theirs.flat_map(|arriving| arriving.ranges.iter())
    }

    /// A queue will write `range` of a host copy.
    pub(crate) fn arrive(&mut self, slot: Slot, queue: &Q, range: &Range<usize>) {
        self.enter(slot, queue, range, Access::Write, None);
        let arriving = &mut self.copies[slot.0].arriving;
        arriving.retain_mut(|arriving| {
            arriving.ranges.remove(range);
            !arriving.ranges.is_empty()
        });
        let (clock, last) = (&self.clock, self.clock.now());
        let mut ours = arriving.iter_mut().filter(|arriving| arriving.queue == *queue);
        match ours.find(|arriving| !clock.separates(arriving.last)) {
            Some(arriving) => {
                arriving.ranges.insert(range.clone());
                arriving.last = last;
            }
            None => arriving.push(Arriving { queue: queue.clone(), last, ranges: Ranges::of(range.clone()) }),
        }
    }

    /// A queue has failed: the bytes that it was to deliver may not have arrived, so the host gives up those which
    /// another copy holds. There is no slice of these bytes yet, because none is handed out before the queue has been
    /// synchronised.
    pub(crate) fn distrust(&mut self, queue: &Q) {
        let lost: Vec<_> = self.awaited(HOST, |by| by == queue).collect();
        for range in lost {
            let only = self.replicas.only_in(HOST, &range);
            for shared in only.missing(&range).iter() {
                self.replicas.give_up(HOST, &shared);
                self.copies[HOST.0].expect_no_more(queue, &shared);
            }
        }
    }

    // ---- moved by a thread ----

    /// A thread begins a transfer, on a queue if one of the sides is a device.
    pub(crate) fn depart(&mut self, moving: &Moving, queue: Option<&Q>) {
        for (slot, access) in moving.accesses().into_iter().filter(|(slot, _)| slot.device().is_some()) {
            queue.into_iter().for_each(|queue| self.enter(slot, queue, &moving.range, access, None));
        }
        self.outside.push(moving.clone());
    }

    /// A transfer has ended, well or not. What the queue may still do is entered again: a wait that began during the
    /// transfer knows nothing of the work that the transfer has enqueued since.
    pub(crate) fn land(&mut self, moving: &Moving, queue: Option<&Q>, landing: Landing) {
        self.outside.retain(|other| other != moving);
        for (slot, access) in moving.accesses().into_iter().filter(|(slot, _)| *slot != ORIGIN) {
            let is_used = if slot.is_host() { landing.uses_host } else { landing.uses_device };
            match (queue.filter(|_| is_used), slot.is_host(), access) {
                (None, ..) => {}
                (Some(queue), true, Access::Write) => self.arrive(slot, queue, &moving.range),
                (Some(queue), ..) => self.enter(slot, queue, &moving.range, access, None),
            }
        }
        if !landing.is_there {
            return;
        }
        self.replicas.add(moving.to, moving.range.clone());
        if let Some(queue) = queue.filter(|queue| self.broken.has(queue)) {
            // The failure was found out during the transfer, when these bytes were not yet expected.
            self.distrust(queue);
        }
    }
}

impl<Q: PartialEq> CopyFacts<Q> {
    /// No delivery of these bytes by this queue is expected any more.
    fn expect_no_more(&mut self, queue: &Q, range: &Range<usize>) {
        self.arriving.retain_mut(|arriving| {
            if arriving.queue == *queue {
                arriving.ranges.remove(range);
            }
            !arriving.ranges.is_empty()
        });
    }
}
