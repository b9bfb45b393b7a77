//! The users of copies and of buffers that are read no more: which are too many, or unknown to be over, and which
//! queues a memory can forget. Pure, as the facts are.

use super::{Facts, MAX_RETIRED, MAX_USERS};
use crate::coherence::replicas::HOSTS;
use crate::coherence::uses::{Uses, each_once};

impl<Q> Facts<Q> {
    /// Finds out which tokens without a guard are gone, where a copy has too many users.
    pub(crate) fn release_holds(&mut self) {
        for copy in self.copies.iter_mut().filter(|copy| copy.uses.len() > MAX_USERS) {
            copy.uses.release_holds(&self.clock);
        }
    }

    /// The same on the host, before a wait: then the wait ends the work under tokens that are gone.
    pub(crate) fn release_host_holds(&mut self) {
        let hosts = self.copies[..HOSTS].iter_mut().map(|copy| &mut copy.uses);
        hosts.chain(&mut self.retired).for_each(|uses| uses.release_holds(&self.clock));
    }
}

impl<Q: Clone + PartialEq> Facts<Q> {
    /// For each copy with more than [`MAX_USERS`] users: the oldest users that could go. Host copies count where
    /// devices read them where they lie; otherwise each upload is of bytes that were written since, so that queues do
    /// not pile up.
    pub(crate) fn excess_users(&self) -> Vec<Q> {
        let (hosts, devices) = self.copies.split_at(HOSTS);
        let shares = devices.iter().any(|copy| copy.shares_host);
        let copies = hosts.iter().filter(|_| shares).chain(devices);
        each_once(copies.flat_map(|copy| copy.uses.oldest_past(MAX_USERS, |queue: &Q| !self.broken.has(queue))))
    }

    /// The queues that use the oldest retired buffers, where these are too many. The memory may never wait for these
    /// queues again for another reason, and batch after batch would pile up.
    pub(crate) fn users_of_retired(&self) -> Vec<Q> {
        let too_many = self.retired.len().saturating_sub(MAX_RETIRED);
        each_once(self.retired.iter().take(too_many).flat_map(Uses::queues).collect::<Vec<_>>().iter())
    }

    /// Whether some copy has been used by this queue, or would be, but for reads of host copies.
    pub(crate) fn needs(&self, queue: &Q) -> bool {
        let (hosts, devices) = self.copies.split_at(HOSTS);
        let mut hosts = hosts.iter().map(|copy| &copy.uses).chain(&self.retired);
        let mut devices = devices.iter();
        hosts.any(|uses| !uses.only_reads(queue))
            || devices.any(|copy| copy.uses.has(queue) || copy.home.as_ref() == Some(queue))
    }

    /// Reads of host copies by one queue are entered as reads by another.
    pub(crate) fn hand_over(&mut self, from: &Q, to: &Q) {
        let (hosts, _) = self.copies.split_at_mut(HOSTS);
        let hosts = hosts.iter_mut().map(|copy| &mut copy.uses).chain(&mut self.retired);
        hosts.for_each(|uses| uses.hand_over(from, to, &self.clock));
    }

    /// Whether a host copy or a retired buffer is used by this queue.
    pub(crate) fn host_is_used_by(&self, queue: &Q) -> bool {
        self.copies[..HOSTS].iter().map(|copy| &copy.uses).chain(&self.retired).any(|uses| uses.has(queue))
    }
}
