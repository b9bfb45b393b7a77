//! A transfer without the lock begins and ends: the changes of the facts. Pure, as they are.

use super::Facts;
use crate::access::Access;
use crate::coherence::moving::{Landing, Moving};
use crate::coherence::replicas::{ORIGIN, Slot};

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
