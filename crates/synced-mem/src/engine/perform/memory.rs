//! The memory of copies, from allocation to end. Memory that a queue may still use is put aside and given back
//! later; memory that can never be known to be unused is leaked, counted and reported. The plan makes sure that no
//! slice of freed memory is left.

use std::any::Any;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use crate::access::Access;
use crate::borrow::QueueHandle;
use crate::coherence::replicas::{ADOPTED, HOST, ORIGIN, Slot};
use crate::coherence::uses::Uses;
use crate::device::Block;
use crate::engine::events::{Deferred, Pending};
use crate::engine::state::{DeviceMemory, FreedBlock, State};
use crate::error::Error;
use crate::host::buffer::HostBuffer;
use crate::stats::{EventKind, Observer};

impl State {
    // ---- made ----

    /// `stock` is a buffer that is there already.
    pub(crate) fn alloc(&mut self, slot: Slot, stock: &mut Option<HostBuffer>) -> Result<(), Error> {
        if slot.is_host() {
            let buffer = self.new_host_buffer(stock)?;
            self.put_host(slot, buffer);
            return Ok(());
        }
        let block = self.new_block(slot)?;
        self.put_block(slot, block);
        Ok(())
    }

    pub(crate) fn new_host_buffer(&mut self, stock: &mut Option<HostBuffer>) -> Result<HostBuffer, Error> {
        let buffer = match (stock.take(), &self.pool) {
            (Some(buffer), _) => buffer,
            (None, Some(pool)) => pool.take(self.facts.len)?,
            (None, None) => HostBuffer::zeroed(self.facts.len)?,
        };
        self.count_buffer(EventKind::Allocate, buffer.allocated());
        Ok(buffer)
    }

    pub(crate) fn put_host(&mut self, slot: Slot, buffer: HostBuffer) {
        self.facts.put_memory(slot, buffer.is_lent());
        self.has_room(slot);
        self.hosts[slot.0] = Some(buffer);
        self.facts.device_slots().for_each(|device| self.see_host(device, slot));
    }

    /// How a device gets at the memory of a host copy.
    pub(crate) fn see_host(&mut self, device: Slot, host: Slot) {
        let (Some(buffer), Some(index)) = (&self.hosts[host.0], device.device()) else { return };
        let known = &mut self.facts.copies[device.0];
        let Some(home) = &known.home else { return };
        let (start, len) = (buffer.ptr(), buffer.len());
        known.stages[host.0] = home.is_staged(start, len);
        if known.shares_host && !buffer.is_lent() {
            // SAFETY: the buffer has `len` initialised bytes. Tokens to read alone get the view, and each is entered as
            // a use of this host copy (`hand_out`), so that no one writes or frees bytes that a token has, or that work
            // launched under the token may still read, before that queue has been synchronised.
            let view = unsafe { home.view(start, len) };
            known.shares_host = view.is_some();
            self.devices[index].views[host.0] = view.map(Arc::from);
        }
    }

    /// A new block of a device copy's home queue.
    pub(crate) fn new_block(&self, slot: Slot) -> Result<Box<dyn Block>, Error> {
        self.home(slot)?.alloc(self.facts.len)
    }

    pub(crate) fn put_block(&mut self, slot: Slot, block: Box<dyn Block>) {
        let (Some(index), Some(queue)) = (slot.device(), self.facts.copy(slot).home.clone()) else {
            return;
        };
        let whole = self.facts.whole();
        self.facts.put_memory(slot, false);
        self.has_room(slot);
        // A block may have been in use until now, in the order of this queue: other queues wait for this one before
        // they use the block.
        self.facts.enter(slot, &queue, &whole, Access::Write, None);
        self.devices[index].memory = Some(DeviceMemory { block: Arc::from(block), queue, owner: None });
        self.events.count_on(EventKind::Allocate, &whole, self.facts.copy(slot));
    }

    /// Adopted bytes to memory of our own.
    pub(super) fn copy_adopted(&mut self, range: &Range<usize>) {
        let (from, to) = (self.host_ptr(ADOPTED, range.start), self.host_ptr(HOST, range.start));
        // SAFETY: both lie in buffers of `len` bytes, and `range` is within that. They are two buffers, the second
        // writable (slot HOST holds no other kind). No queue writes the first or uses the second (waited for). No
        // reference points into this range of HOST: the bytes are not valid there, and only valid bytes are referred
        // to.
        unsafe { to.copy_from_nonoverlapping(from, range.len()) };
    }

    // ---- put aside ----

    /// Puts the memory of all copies without a valid byte aside.
    pub(crate) fn free_stale(&mut self) {
        self.facts.slots().for_each(|slot| self.free_if_stale(slot));
    }

    /// Puts the memory of a copy aside if the copy has no valid byte, and no thread moves bytes there.
    pub(crate) fn free_if_stale(&mut self, slot: Slot) {
        if self.facts.replicas.valid(slot).is_empty() && !self.facts.outside.iter().any(|moving| moving.concerns(slot))
        {
            if slot.is_host() { self.retire(slot) } else { self.free_device(slot) }
        }
    }

    /// Lets go of an origin of which no byte is what the memory holds, once the lock is released: an origin's
    /// destructor is user code.
    #[cold]
    pub(crate) fn leave_origin_if_stale(&mut self) {
        if self.origin.is_some() && self.facts.replicas.valid(ORIGIN).is_empty() {
            self.origin.take().into_iter().for_each(|origin| self.events.defer(Deferred::DropOwner(Box::new(origin))));
        }
    }

    /// Puts a host copy aside until no queue uses the buffer.
    pub(crate) fn retire(&mut self, slot: Slot) {
        let uses = self.facts.take_memory(slot);
        self.release_room(slot);
        let views = self.devices.iter_mut().filter_map(|copy| copy.views[slot.0].take());
        views.for_each(|view| self.events.defer(Deferred::DropBlock(view)));
        if let Some(buffer) = self.hosts[slot.0].take() {
            self.set_aside(buffer, uses);
        }
    }

    pub(crate) fn set_aside(&mut self, buffer: HostBuffer, uses: Uses<QueueHandle>) {
        self.retired.push(buffer);
        self.facts.retired.push(uses);
        self.sweep();
    }

    /// Frees the buffers put aside that no queue uses any more, and leaks those that a broken queue may use.
    pub(crate) fn sweep(&mut self) {
        for index in (0..self.retired.len()).rev() {
            let uses = &self.facts.retired[index];
            let is_lost = !self.facts.broken.is_empty() && self.facts.broken.has_any(&uses.queues());
            if is_lost || uses.is_empty() {
                let (buffer, uses) = (self.retired.remove(index), self.facts.retired.remove(index));
                match self.failure_of(&uses.queues()) {
                    Some(error) => self.leak(HOST, buffer, error),
                    None => self.discard(buffer),
                }
            }
        }
    }

    /// Puts a device's block aside, to be given back when the operation has ended.
    pub(crate) fn free_device(&mut self, slot: Slot) {
        let Some(memory) = slot.device().and_then(|index| self.devices[index].memory.take()) else {
            return;
        };
        self.release_room(slot);
        let users = self.facts.take_memory(slot).queues();
        // The order of its own queue holds even where that has failed, but not against a token under which others
        // launch.
        let own = match Arc::strong_count(&memory.block) {
            1 if memory.owner.is_none() => Some(&memory.queue),
            _ => None,
        };
        let others: Vec<_> = users.iter().filter(|user| Some(*user) != own).cloned().collect();
        match self.failure_of(&others) {
            Some(error) => self.leak(slot, memory, error),
            None => self.freed.push(FreedBlock { slot, memory, users }),
        }
    }

    /// Why the first of these queues that is broken is so.
    pub(crate) fn failure_of(&self, queues: &[QueueHandle]) -> Option<Error> {
        self.facts.broken.first_of(queues).map(|(queue, error)| queue.named(error))
    }

    /// Frees a host buffer, once the lock is released: the owner's destructor is user code.
    pub(crate) fn discard(&mut self, buffer: HostBuffer) {
        self.count_buffer(EventKind::Free, buffer.allocated());
        self.events.defer(Deferred::DropBuffer(buffer));
    }

    /// Leaks memory of a copy: a queue may still use the memory, and no wait can tell.
    pub(crate) fn leak(&mut self, slot: Slot, memory: impl Any, error: Error) {
        mem::forget(memory);
        let whole = self.facts.whole();
        let queue = self.facts.copy(slot).home.as_deref();
        self.events.count(EventKind::Leak, whole, self.facts.len, queue, Some(error));
    }

    /// The end of a device's block, when its queues have been waited for, well or not.
    pub(crate) fn end_block(&mut self, freed: FreedBlock, finished: Result<(), Error>) {
        let FreedBlock { slot, memory, .. } = freed;
        if let Err(error) = finished {
            self.leak(slot, memory, error);
            return;
        }
        self.events.defer(Deferred::DropBlock(memory.block));
        match memory.owner {
            Some(owner) => self.events.defer(Deferred::DropOwner(owner)),
            None => self.events.count_on(EventKind::Free, &self.facts.whole(), self.facts.copy(slot)),
        }
    }

    /// The blocks that the tidying thread is to give back. Without any, tidying is over. That is decided under the lock
    /// under which they were looked for, because a thread that frees a block meanwhile leaves the block to the tidying
    /// thread.
    pub(crate) fn take_freed(&mut self) -> Vec<FreedBlock> {
        let freed = mem::take(&mut self.freed);
        self.is_tidying = !freed.is_empty();
        freed
    }

    /// Tidying is over, but for these blocks. Gives the work for the time when the lock has been released.
    pub(crate) fn end_tidying(&mut self, mut put_off: Vec<FreedBlock>) -> Option<Pending> {
        self.freed.append(&mut put_off);
        self.events.take_pending()
    }

    /// Forgets the uses of tokens without a guard that are gone.
    pub(crate) fn release_holds(&mut self) {
        self.facts.release_holds();
    }

    /// The end of the memory: each buffer and block is given back once no queue uses it. Gives the work for afterwards.
    pub(crate) fn end(&mut self) -> Option<Pending> {
        [HOST, ADOPTED].into_iter().for_each(|slot| self.retire(slot));
        let uses = mem::take(&mut self.facts.retired);
        for (buffer, uses) in mem::take(&mut self.retired).into_iter().zip(uses) {
            match uses.queues().iter().try_for_each(QueueHandle::synchronize) {
                Ok(()) => self.discard(buffer),
                Err(error) => self.leak(HOST, buffer, error),
            }
        }
        self.facts.device_slots().for_each(|slot| self.free_device(slot));
        for freed in mem::take(&mut self.freed) {
            let finished = freed.finish_uses();
            self.end_block(freed, finished);
        }
        self.events.take_pending()
    }

    // ---- events ----

    /// So many threads wait for borrows to end.
    pub(crate) fn set_waiting(&mut self, threads: usize) {
        self.facts.borrows.waiting = threads;
    }

    /// Events are told to another observer from now on. Gives the old one, whose destructor is user code.
    pub(crate) fn replace_observer(&mut self, observer: Arc<dyn Observer>) -> Option<Arc<dyn Observer>> {
        self.events.observer.replace(observer)
    }

    /// Counts a host buffer that was allocated or freed, by size.
    pub(crate) fn count_buffer(&mut self, kind: EventKind, allocated: usize) {
        if allocated > 0 {
            self.events.count(kind, self.facts.whole(), allocated, None, None);
        }
    }
}
