//! The transfers of a memory that a thread makes without the lock: the facts name the bytes meanwhile. Pure, as the
//! facts are; the plan decides who waits for such a transfer.

use std::ops::Range;

use crate::access::Access;
use crate::coherence::facts::Facts;
use crate::coherence::replicas::{ORIGIN, Slot};

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
    fn accesses(&self) -> [(Slot, Access); 2] {
        [(self.from, Access::Read), (self.to, Access::Write)]
    }
}

impl<Q> Facts<Q> {
    /// Whether a transfer from one copy to another ends with its step: one of a lent slice, or one that may wait for
    /// the device.
    pub(crate) fn is_staged(&self, from: Slot, to: Slot) -> bool {
        let (host, device) = if from.is_host() { (from, to) } else { (to, from) };
        let is_transfer = host.is_host() && !device.is_host();
        is_transfer && (self.copy(host).is_lent || self.copy(device).stages[host.0])
    }
}

impl<Q: Clone + PartialEq> Facts<Q> {
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
