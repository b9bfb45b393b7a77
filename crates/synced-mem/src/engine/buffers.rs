//! The memory of copies, from its allocation or adoption to its end. What a queue may still use is put aside and given
//! back later; where it can never be known to be unused, it is leaked, counted and reported.
//! Callers make sure that no slices of what is freed are left.

use std::any::Any;
use std::mem;
use std::sync::Arc;

use crate::access::Access;
use crate::coherence::replicas::Slot;
use crate::coherence::uses::Uses;
use crate::device::Block;
use crate::engine::copies::{DeviceMemory, FreedBlock, HostCopy};
use crate::engine::events::Deferred;
use crate::engine::queue::QueueHandle;
use crate::engine::state::{ADOPTED, HOST, State};
use crate::error::Error;
use crate::host::buffer::HostBuffer;
use crate::stats::EventKind;

impl State {
    // ---- made ----

    /// Makes sure that the host has memory of its own. Nothing in it becomes valid.
    pub(crate) fn make_host(&mut self) -> Result<(), Error> {
        if self.host.is_none() {
            self.host = Some(HostCopy::new(self.new_host_buffer()?));
        }
        Ok(())
    }

    /// A new host buffer, counted.
    pub(crate) fn new_host_buffer(&mut self) -> Result<HostBuffer, Error> {
        let buffer = match &self.pool {
            Some(pool) => pool.take(self.len)?,
            None => HostBuffer::zeroed(self.len)?,
        };
        self.count_buffer(EventKind::Allocate, buffer.allocated());
        Ok(buffer)
    }

    /// Makes sure that a device copy has a block, from its home queue. Nothing in it becomes valid.
    pub(crate) fn make_device(&mut self, index: usize) -> Result<(), Error> {
        if self.devices[index].memory.is_some() {
            return Ok(());
        }
        let block = self.devices[index].home.alloc(self.len)?;
        self.put_block(index, block);
        Ok(())
    }

    /// A new block of a device copy's home queue.
    pub(crate) fn put_block(&mut self, index: usize, block: Box<dyn Block>) {
        let whole = self.whole();
        let copy = &mut self.devices[index];
        // A block may have been in use until now, in the order of this queue: others wait for it before they use it.
        copy.uses.enter(&copy.home, whole.clone(), Access::Write, None, &self.waits.clock);
        copy.memory = Some(DeviceMemory { block: Arc::from(block), queue: copy.home.clone(), owner: None });
        self.count(EventKind::Allocate, &whole, Self::slot_at(index));
    }

    /// Puts host bytes in the place of whatever there was. Their length has been checked.
    pub(crate) fn adopt_host(&mut self, buffer: HostBuffer) {
        for old in [self.host.take(), self.adopted.take()] {
            self.retire(old);
        }
        self.count_buffer(EventKind::Allocate, buffer.allocated());
        let (slot, copy) = match buffer.is_writable() {
            true => (HOST, &mut self.host),
            false => (ADOPTED, &mut self.adopted),
        };
        *copy = Some(HostCopy::new(buffer));
        self.claim(slot, &self.whole());
    }

    /// Puts a block in the place of whatever its device had. Its contents are those after the work enqueued so far.
    pub(crate) fn adopt_device(
        &mut self,
        queue: &QueueHandle,
        block: Box<dyn Block>,
        owner: Box<dyn Any + Send + Sync>,
    ) {
        let slot = self.device_slot(queue);
        self.free_device(slot);
        let whole = self.whole();
        if let Some(index) = Self::device_index(slot) {
            let copy = &mut self.devices[index];
            copy.home = queue.clone();
            copy.memory = Some(DeviceMemory { block: Arc::from(block), queue: queue.clone(), owner: Some(owner) });
            // The block has no other users, so there is nothing to wait for.
            copy.uses.enter(queue, whole.clone(), Access::Write, None, &self.waits.clock);
        }
        self.claim(slot, &whole);
    }

    // ---- put aside ----

    /// Puts the memory of a copy aside if no byte of it is valid.
    pub(crate) fn free_if_stale(&mut self, slot: Slot) {
        if !self.replicas.valid(slot).is_empty() {
            return;
        }
        let copy = match slot {
            HOST => self.host.take(),
            ADOPTED => self.adopted.take(),
            _ => return self.free_device(slot),
        };
        self.retire(copy);
    }

    /// Gives back the memory of every copy that holds no valid byte. Returns the queues that still use some of it.
    pub(crate) fn shrink(&mut self) -> Vec<QueueHandle> {
        (0..self.replicas.slots()).map(Slot).for_each(|slot| self.free_if_stale(slot));
        self.retired.iter().flat_map(|copy| copy.uses.queues()).collect()
    }

    /// Puts a host copy aside until no queue uses it.
    pub(crate) fn retire(&mut self, copy: Option<HostCopy>) {
        self.retired.extend(copy);
        self.sweep();
    }

    /// Frees the retired copies that no queue uses any more, and leaks those that a broken queue may use.
    pub(crate) fn sweep(&mut self) {
        let broken = &self.waits.broken;
        if !broken.is_empty() {
            let used = |copy: &mut HostCopy| broken.has_any(&copy.uses.queues());
            let used: Vec<_> = self.retired.extract_if(.., used).collect();
            used.into_iter().for_each(|copy| self.leak_host(copy));
        }
        let idle = |copy: &mut HostCopy| copy.uses.is_empty();
        let idle: Vec<_> = self.retired.extract_if(.., idle).collect();
        idle.into_iter().for_each(|copy| self.discard(copy.buffer));
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
        // The order of its own queue holds even where that has failed, but not against a token under which others
        // launch.
        let own = match Arc::strong_count(&memory.block) {
            1 if memory.owner.is_none() => Some(&memory.queue),
            _ => None,
        };
        let others: Vec<_> = users.iter().filter(|user| Some(*user) != own).cloned().collect();
        match self.waits.broken.error(&others) {
            Some(error) => {
                mem::forget(memory);
                self.leaked(slot, error);
            }
            None => self.freed.push(FreedBlock { slot, memory, users }),
        }
    }

    // ---- ended ----

    /// Frees a host buffer, once the lock is released: its owner's destructor is user code.
    pub(crate) fn discard(&mut self, buffer: HostBuffer) {
        self.count_buffer(EventKind::Free, buffer.allocated());
        self.events.defer(Deferred::DropBuffer(buffer));
    }

    /// Leaks a host copy that a broken queue may still use.
    pub(crate) fn leak_host(&mut self, copy: HostCopy) {
        let error = self.waits.broken.error(&copy.uses.queues());
        mem::forget(copy.buffer);
        if let Some(error) = error {
            self.leaked(HOST, error);
        }
    }

    /// The end of a device's block, when its queues have been waited for, well or not.
    pub(crate) fn end_block(&mut self, freed: FreedBlock, finished: Result<(), Error>) {
        let FreedBlock { slot, memory, .. } = freed;
        if let Err(error) = finished {
            mem::forget(memory);
            self.leaked(slot, error);
            return;
        }
        self.events.defer(Deferred::DropBlock(memory.block));
        match memory.owner {
            Some(owner) => self.events.defer(Deferred::DropOwner(owner)),
            None => self.count(EventKind::Free, &self.whole(), slot),
        }
    }

    /// The end of the memory: everything is given back once no queue uses it.
    pub(crate) fn end(&mut self) {
        self.retire_staged(|_| true);
        for copy in [self.host.take(), self.adopted.take()] {
            self.retire(copy);
        }
        for copy in mem::take(&mut self.retired) {
            let queues = copy.uses.queues();
            match queues.iter().try_for_each(|queue| self.synchronize(queue)) {
                Ok(()) => self.discard(copy.buffer),
                Err(error) => {
                    mem::forget(copy.buffer);
                    self.leaked(HOST, error);
                }
            }
        }
        self.device_slots().for_each(|slot| self.free_device(slot));
        for freed in mem::take(&mut self.freed) {
            let finished = freed.finish_uses();
            self.end_block(freed, finished);
        }
    }
}
