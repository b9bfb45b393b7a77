//! Waiting for queues, and what follows from it: which host bytes may be touched, which buffers nobody uses any more, and
//! which bytes are not to be trusted after a failure. It relies on `ordering` for whom to wait for.

use std::ops::Range;

use crate::after::Afterwards;
use crate::copies::{HostCopy, Line};
use crate::replicas::Slot;
use crate::state::{HOST, State};
use crate::{Access, Error, EventKind, HostBuffer};

/// So many host buffers wait for their queues at most, where these work.
const MOST_RETIRED: usize = 2;

impl State {
    /// Waits until no queue can touch `range` of a host copy in a way that conflicts with `access`.
    pub(crate) fn settle_host(
        &mut self,
        slot: Slot,
        range: &Range<usize>,
        access: Access,
    ) -> Result<(), Error> {
        let empty = self.len == 0;
        let Some(copy) = self.host_copy(slot) else {
            return Ok(());
        };
        if copy.uses.is_empty() || empty {
            return Ok(());
        }
        for line in copy.uses.waits(None, range, access) {
            self.synchronize(&line)?;
        }
        if let Some(copy) = self.host_copy(slot) {
            copy.uses.settle(range, access);
        }
        Ok(())
    }

    /// Puts a host copy aside until no queue uses it.
    pub(crate) fn retire(&mut self, copy: Option<HostCopy>) {
        self.retired.extend(copy);
        self.sweep();
        // Nobody may ever synchronise the queue through this memory again, and batch after batch would pile up.
        while self.retired.len() > MOST_RETIRED {
            let lines = self.retired[0].uses.queues();
            if lines.iter().any(|line| self.synchronize(line).is_err()) {
                return;
            }
        }
    }

    /// Frees the retired copies that no queue uses any more.
    fn sweep(&mut self) {
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

    /// Waits for everything on a queue. The transfers that it carried for host copies are then over.
    pub(crate) fn synchronize(&mut self, line: &Line) -> Result<(), Error> {
        if let Err(error) = line.queue().synchronize() {
            self.distrust(line);
            return Err(error);
        }
        let copies = self.host.iter_mut().chain(&mut self.fixed);
        for copy in copies.chain(&mut self.retired) {
            copy.uses.finish(line);
            copy.arrived(line);
        }
        self.sweep();
        Ok(())
    }

    /// A queue has failed: what it was to download may not have arrived, so the host does not hold it, wherever another
    /// copy does. Nobody has a slice of these bytes, because nobody gets one before its queue has been synchronised.
    fn distrust(&mut self, line: &Line) {
        let Some(copy) = &mut self.host else { return };
        for range in copy.arrived(line).iter() {
            let only = self.replicas.only_in(HOST, &range);
            for shared in only.missing(&range).iter() {
                self.replicas.give_up(HOST, &shared);
            }
        }
    }

    /// Waits until every byte of `range` has arrived in the copies that hold it, but for one: what that one gives up is
    /// then really there.
    pub(crate) fn settle_others(&mut self, slot: Slot, range: &Range<usize>) -> Result<(), Error> {
        self.settle_host(HOST, range, Access::Read)?;
        for other in self.device_slots().filter(|&other| other != slot) {
            if !self.replicas.valid(other).overlaps(range) {
                continue;
            }
            let Some(copy) = self.device_copy(other) else {
                continue;
            };
            for line in copy.uses.waits(None, range, Access::Read) {
                self.synchronize(&line)?;
            }
        }
        Ok(())
    }
}
