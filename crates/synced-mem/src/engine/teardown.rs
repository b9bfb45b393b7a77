//! What puts other copies in the place of these, or gives back what holds nothing: adopting, shrinking, and the end of a
//! memory. Each waits for every queue that still uses what it frees; where that fails, the memory is leaked and said to
//! be. Callers make sure that nobody holds a slice of what goes.

use std::any::Any;
use std::mem;
use std::sync::Arc;

use crate::coherence::replicas::Slot;
use crate::coherence::uses::Uses;
use crate::engine::copies::{DeviceMemory, HostCopy, Line};
use crate::engine::events::Afterwards;
use crate::engine::state::{FIXED, HOST, State};
use crate::{Access, Block, DeviceId, Error, EventKind, HostBuffer};

impl State {
    /// Gives back the memory of every copy that holds no valid byte. Returns the queues that still use some of it.
    pub(crate) fn shrink(&mut self) -> Vec<Line> {
        for slot in (0..self.replicas.slots()).map(Slot) {
            self.free_if_stale(slot);
        }
        let retired = self.retired.iter();
        retired.flat_map(|copy| copy.uses.queues()).collect()
    }

    pub(crate) fn free_if_stale(&mut self, slot: Slot) {
        if !self.replicas.valid(slot).is_empty() {
            return;
        }
        match slot {
            HOST => {
                let copy = self.host.take();
                self.retire(copy);
            }
            FIXED => {
                let copy = self.fixed.take();
                self.retire(copy);
            }
            _ => self.free_device(slot),
        }
    }

    /// Puts host bytes in the place of whatever there was. Their length has been checked.
    pub(crate) fn adopt_host(&mut self, buffer: HostBuffer) {
        let slot = match buffer.is_writable() {
            true => HOST,
            false => FIXED,
        };
        for old in [self.host.take(), self.fixed.take()] {
            self.retire(old);
        }
        let whole = self.whole();
        if buffer.allocated() > 0 {
            self.count_bytes(EventKind::Allocate, &whole, buffer.allocated(), None);
        }
        let copy = Some(HostCopy::new(buffer));
        match slot {
            FIXED => self.fixed = copy,
            _ => self.host = copy,
        }
        self.replicas.claim(slot, whole);
    }

    /// Puts a block in the place of whatever its device had. Its contents are those after the work enqueued so far.
    pub(crate) fn adopt_device(&mut self, line: &Line, block: Box<dyn Block>, owner: Box<dyn Any + Send + Sync>) {
        let slot = self.device_slot(line.queue());
        self.free_device(slot);
        let whole = self.whole();
        if let Some(index) = Self::device_index(slot) {
            let (copy, waits) = (&mut self.devices[index], &self.waits);
            copy.home = line.clone();
            copy.memory = Some(DeviceMemory { block: Arc::from(block), line: line.clone(), owner: Some(owner) });
            // The block has no other users, so there is nobody to wait for.
            let (uses, clock) = (&mut copy.uses, &waits.clock);
            uses.enter(line, whole.clone(), Access::Write, None, clock);
        }
        self.claim(slot, &whole);
    }

    /// Puts a device's block aside, to be given back when the operation has ended.
    pub(crate) fn free_device(&mut self, slot: Slot) {
        let Some(copy) = self.device_copy(slot) else {
            return;
        };
        let Some(memory) = copy.memory.take() else {
            return;
        };
        let users = mem::replace(&mut copy.uses, Uses::new()).queues();
        let device = copy.device;
        // The order of its own queue holds even where that has failed, but not against a token under which others launch.
        let own = match Arc::strong_count(&memory.block) {
            1 if memory.owner.is_none() => Some(&memory.line),
            _ => None,
        };
        if let Some(error) = self.broken_user(&users, own) {
            mem::forget(memory);
            self.leaked(Some(device), error);
            return;
        }
        self.leaving.push(Leaving { device, memory, users });
    }

    /// The end of a device's block, when its queues have been waited for, well or not.
    pub(crate) fn left(&mut self, leaving: Leaving, settled: Result<(), Error>) {
        let Leaving { device, memory, .. } = leaving;
        if let Err(error) = settled {
            mem::forget(memory);
            self.leaked(Some(device), error);
            return;
        }
        self.later(Afterwards::DropBlock(memory.block));
        match memory.owner {
            Some(owner) => self.later(Afterwards::DropOwner(owner)),
            None => {
                let whole = self.whole();
                self.count(EventKind::Free, &whole, Some(device));
            }
        }
    }

    /// The end: everything is given back once no queue uses it.
    pub(crate) fn finish(&mut self) {
        for copy in [self.host.take(), self.fixed.take()] {
            self.retire(copy);
        }
        for copy in mem::take(&mut self.retired) {
            let lines = copy.uses.queues();
            match lines.iter().try_for_each(|line| self.synchronize(line)) {
                Ok(()) => self.discard(copy.buffer),
                Err(error) => {
                    mem::forget(copy);
                    self.leaked(None, error);
                }
            }
        }
        for slot in self.device_slots() {
            self.free_device(slot);
        }
        for leaving in mem::take(&mut self.leaving) {
            let settled = leaving.settle();
            self.left(leaving, settled);
        }
    }
}

/// A device's block that nothing valid lies in, with the queues that may still use it.
pub(crate) struct Leaving {
    device: DeviceId,
    memory: DeviceMemory,
    users: Vec<Line>,
}

impl Leaving {
    /// Makes sure that the block may be given back in the order of the queue that allocated it: after all other queues
    /// that use it. Not under the lock: it waits.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        match &self.memory.owner {
            // The owner may free at once, whatever the queue has still to do.
            Some(_) => {
                let mut users = self.users.iter();
                users.try_for_each(|line| line.queue().synchronize())
            }
            None => wait_for_all(&self.memory.line, &self.users),
        }
    }
}

/// Lets the queue that frees a block wait for all others that use it.
fn wait_for_all(line: &Line, users: &[Line]) -> Result<(), Error> {
    for user in users.iter().filter(|user| *user != line) {
        if line.queue().wait_for(&**user.queue()).is_err() {
            user.queue().synchronize()?;
        }
    }
    Ok(())
}
