//! A loopback queue and its blocks: the backend's side of `Queue` and `Block`, all of it through the machine's lock.
//! It relies on `machine` for the order and on `task` for the host bytes. It decides nothing.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, MutexGuard};

use super::machine::{Called, Entry, Machine, State};
use super::memory::Piece;
use super::run::Failure;
use super::task::{HostSource, HostTarget, Task};
use super::{Loopback, Operation};
use crate::{Block, Device, DeviceId, Error, Queue, QueueId};

/// A queue of a loopback.
pub(super) struct LoopQueue {
    pub(super) id: QueueId,
    pub(super) device: Loopback,
}

/// A block of a loopback: one that a queue allocated, or a view of memory that somebody else owns.
struct LoopBlock {
    machine: Arc<Machine>,
    device: DeviceId,
    piece: Piece,
    /// The queue that allocated it, and frees it; none for an adopted one.
    queue: Option<QueueId>,
}

impl LoopQueue {
    pub(super) fn new(device: Loopback) -> Self {
        let id = QueueId::new();
        device.machine.state().open(id, device.id);
        Self { id, device }
    }

    /// `block[at..at + len]`, if it is that of a block of this device.
    pub(super) fn piece(
        &self,
        state: &mut State,
        operation: Operation,
        block: &dyn Block,
        at: usize,
        len: usize,
    ) -> Result<Piece, Error> {
        match self.own(block) {
            Some(own) if own.device == self.device.id => own.part(state, operation, at, len),
            _ => Err(state.misuse(self.device.id, operation, "a block of another device")),
        }
    }

    /// Enqueues the work of a call, and ends the call.
    pub(super) fn enqueue(&self, state: MutexGuard<'_, State>, called: Called, task: Task) -> Result<u64, Error> {
        let entry = match called.broken_off() {
            Some(message) => task.broken_off(message),
            None => Entry::Work(task),
        };
        self.append(state, called, entry)
    }

    fn append(&self, state: MutexGuard<'_, State>, called: Called, entry: Entry) -> Result<u64, Error> {
        let device = self.device.id;
        let position = self.device.machine.enqueue(state, self.id, entry);
        let position = position.map_err(|_| Error::deadlock(self.id, called.operation.name()))?;
        called.end(device, position)
    }

    /// The block, if it is one of this machine.
    fn own<'a>(&self, block: &'a dyn Block) -> Option<&'a LoopBlock> {
        (block as &dyn Any)
            .downcast_ref::<LoopBlock>()
            .filter(|block| Arc::ptr_eq(&block.machine, &self.device.machine))
    }

    fn block(&self, piece: Piece, queue: Option<QueueId>) -> Box<dyn Block> {
        Box::new(LoopBlock { machine: Arc::clone(&self.device.machine), device: self.device.id, piece, queue })
    }
}

impl LoopBlock {
    /// Some of its bytes, for work of its own or of a sibling device.
    fn part(&self, state: &mut State, operation: Operation, at: usize, len: usize) -> Result<Piece, Error> {
        let Some(end) = at.checked_add(len).filter(|end| *end <= self.len()) else {
            let what = format!("bytes {at}..{at}+{len} of a block of {} bytes", self.len());
            return Err(state.misuse(self.device, operation, &what));
        };
        let start = self.piece.range.start;
        Ok(Piece { slot: self.piece.slot, range: start + at..start + end })
    }
}

// SAFETY: the promises, by number.
// 1: `id` and `device` are set once, by `new`, and the id is fresh.
// 2: a lane is a FIFO of which only the front is taken, and not while a kernel of it runs (`Machine::step`).
// 3: a wait is an entry of the lane, which is not passed before the other lane has come as far as its tail was; a queue
//    of another machine or backend is synchronised.
// 4: `Machine::synchronize` runs the lane to its tail; entries run under the lock, or, kernels, between two locks, on the
//    calling thread or on one that has released the lock since.
// 5: a task moves `Piece`s and host bytes of equal length, made here from one `len`, within blocks checked here.
// 6: host bytes are named by tasks only, and a task is gone once it has run.
// 7: a slot is a vector of its own; its free is an entry of the lane, or happens when the lane has nothing left to do, or
//    it is given out again by that lane only, whose work on the new block comes later.
// 8: an error returns before something is enqueued, or after all of it is; a wait asks first whether the other has failed.
// 9: nothing here names `SyncedMem` or `SharedMem`. A kernel may (`launch`), and is the caller's code.
// 10: which machine a device belongs to is set once, and is all that is asked.
// 11: `Turn` knows which thread runs which kernel and what each thread waits for.
unsafe impl Queue for LoopQueue {
    fn id(&self) -> QueueId {
        self.id
    }

    fn device(&self) -> &dyn Device {
        &self.device
    }

    fn alloc(&self, len: usize) -> Result<Box<dyn Block>, Error> {
        let device = self.device.id;
        let mut state = self.device.machine.state();
        let called = state.call(device, Operation::Alloc)?;
        let account = state.account(device);
        let in_use = account.in_use.checked_add(len);
        let in_use = in_use.filter(|bytes| *bytes <= account.limit);
        let in_use = in_use.ok_or(Error::device_out_of_memory(device, len))?;
        let reused = state.reuse(self.id, len);
        let slot = reused.or_else(|| state.memory.allocate(device, len));
        let slot = slot.ok_or(Error::device_out_of_memory(device, len))?;
        let account = state.account(device);
        account.in_use = in_use;
        account.live += 1;
        // A block that is not handed out is freed without the lock.
        drop(state);
        let range = 0..len;
        called.end(device, self.block(Piece { slot, range }, Some(self.id)))
    }

    unsafe fn adopt(&self, address: u64, len: usize) -> Result<Box<dyn Block>, Error> {
        let device = self.device.id;
        let mut state = self.device.machine.state();
        let called = state.call(device, Operation::Adopt)?;
        let Some(piece) = state.memory.find(device, address, len) else {
            let what = format!("no memory of this device: {len} bytes at {address:#x}");
            return Err(state.misuse(device, Operation::Adopt, &what));
        };
        called.end(device, self.block(piece, None))
    }

    unsafe fn upload(&self, to: &dyn Block, at: usize, from: NonNull<u8>, len: usize) -> Result<(), Error> {
        let mut state = self.device.machine.state();
        let called = state.call(self.device.id, Operation::Upload)?;
        let to = self.piece(&mut state, Operation::Upload, to, at, len)?;
        // SAFETY: the caller's contract says that the bytes are readable and unchanged until a `synchronize` has
        // returned `Ok`. By then the task has run and is dropped (promise 4); until then they are as `new` wants them.
        let from = unsafe { HostSource::new(from, len) };
        self.enqueue(state, called, Task::Upload { to, from }).map(drop)
    }

    unsafe fn download(&self, from: &dyn Block, at: usize, to: NonNull<u8>, len: usize) -> Result<(), Error> {
        let mut state = self.device.machine.state();
        let called = state.call(self.device.id, Operation::Download)?;
        let from = self.piece(&mut state, Operation::Download, from, at, len)?;
        // SAFETY: as for `upload`: until then the bytes are writable, and used by nobody else.
        let to = unsafe { HostTarget::new(to, len) };
        self.enqueue(state, called, Task::Download { from, to }).map(drop)
    }

    fn reaches(&self, other: &dyn Device) -> bool {
        (other as &dyn Any)
            .downcast_ref::<Loopback>()
            .is_some_and(|other| Arc::ptr_eq(&other.machine, &self.device.machine))
    }

    unsafe fn copy(
        &self,
        to: &dyn Block,
        to_at: usize,
        from: &dyn Block,
        from_at: usize,
        len: usize,
    ) -> Result<(), Error> {
        let mut state = self.device.machine.state();
        let called = state.call(self.device.id, Operation::Copy)?;
        let to = self.piece(&mut state, Operation::Copy, to, to_at, len)?;
        let Some(from) = self.own(from) else {
            let what = "a block of a device that this queue does not reach";
            return Err(state.misuse(self.device.id, Operation::Copy, what));
        };
        let from = from.part(&mut state, Operation::Copy, from_at, len)?;
        if to.overlaps(&from) {
            let what = "source and target overlap";
            return Err(state.misuse(self.device.id, Operation::Copy, what));
        }
        self.enqueue(state, called, Task::Copy { to, from }).map(drop)
    }

    unsafe fn fill(&self, block: &dyn Block, at: usize, len: usize) -> Result<(), Error> {
        let mut state = self.device.machine.state();
        let called = state.call(self.device.id, Operation::Fill)?;
        let piece = self.piece(&mut state, Operation::Fill, block, at, len)?;
        self.enqueue(state, called, Task::Fill(piece)).map(drop)
    }

    fn wait_for(&self, other: &dyn Queue) -> Result<(), Error> {
        let mut state = self.device.machine.state();
        let called = state.call(self.device.id, Operation::Wait)?;
        let sibling = (other as &dyn Any)
            .downcast_ref::<LoopQueue>()
            .filter(|other| Arc::ptr_eq(&other.device.machine, &self.device.machine));
        if let Some(other) = sibling {
            let lost = state.failure(other.id).map_err(Failure::Lost);
            lost.map_err(|lost| lost.error(self.device.id, self.id, Operation::Wait))?;
            let wait = state.wait_for(other.id);
            return self.append(state, called, wait).map(drop);
        }
        // Not under our lock: the other may be waiting for us just now.
        drop(state);
        other.synchronize()?;
        called.end(self.device.id, ())
    }

    fn synchronize(&self) -> Result<(), Error> {
        let (device, operation) = (self.device.id, Operation::Synchronize);
        let mut state = self.device.machine.state();
        let called = state.call(device, operation)?;
        let result = self.device.machine.synchronize(state, self.id);
        result.map_err(|failure| failure.error(device, self.id, operation))?;
        called.end(device, ())
    }
}

// SAFETY: `piece` is set once; the slot is this block's own until its free has run, or belongs to whom it was adopted
// from.
unsafe impl Block for LoopBlock {
    fn address(&self) -> u64 {
        self.piece.slot + self.piece.range.start as u64
    }

    fn len(&self) -> usize {
        self.piece.range.len()
    }
}

impl Drop for LoopQueue {
    fn drop(&mut self) {
        self.device.machine.state().close(self.id);
    }
}

impl Drop for LoopBlock {
    fn drop(&mut self) {
        let Some(queue) = self.queue else {
            return;
        };
        let len = self.len();
        let mut state = self.machine.state();
        let account = state.account(self.device);
        account.in_use -= len;
        account.live -= 1;
        let (slot, reuses) = (self.piece.slot, account.reuses);
        if !state.knows(queue) {
            state.memory.free(slot);
        } else if reuses {
            state.keep(queue, slot, len);
        } else {
            // Dropped within a kernel of this very queue it is freed once that has ended.
            let _ = self.machine.enqueue(state, queue, Entry::Work(Task::Free(slot)));
        }
    }
}

impl fmt::Debug for LoopQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopQueue").field("id", &self.id).field("device", &self.device).finish()
    }
}

impl fmt::Debug for LoopBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopBlock")
            .field("device", &self.device)
            .field("address", &self.address())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
