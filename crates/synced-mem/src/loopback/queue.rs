//! A loopback queue and its blocks: the backend's side of `Queue` and `Block`, all through the machine's lock.
//! Relies on `machine` for the order and on `task` for the host bytes. Decides nothing.

use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, MutexGuard};

use super::Loopback;
use super::calls::{Called, Operation};
use super::kernel::{KernelArg, Launch, Param};
use super::machine::Machine;
use super::memory::{HostBytes, Piece};
use super::schedule::State;
use super::task::{Entry, Task};
use crate::device::through_host;
use crate::{Arg, Block, Device, DeviceId, Error, Host, OriginError, Queue, QueueId};

/// Enqueues a kernel on a queue of a [`Loopback`](super::Loopback). The closure gets the bytes of `args`, in order.
///
/// The kernel runs on the thread that needs the result, with nothing locked: neither the machine nor a memory, because
/// only this function, [`Queue::wait_for`] and [`Queue::synchronize`] run kernels. A kernel's rights:
///
/// | in a kernel | |
/// |---|---|
/// | wait for another thread, use a thread pool | yes |
/// | enqueue work, launch, drop the last handle of a block, of a queue | yes; a launched kernel runs later |
/// | use a memory | yes, but for an access that has to wait for a queue |
/// | drop the last handle of a memory | yes; bytes that a queue may still use are leaked, and counted |
/// | wait for a queue of any loopback: `synchronize`, `wait_for` | [`Error::CalledFromKernel`] |
/// | hand such waiting to another thread, and wait for that thread | the kernel may hang, because that cannot be seen |
///
/// A kernel that panics fails the queue. If the kernel ran within this call, this call reports that. Otherwise every
/// later `synchronize` does, of the queue and of any queue that waited for the kernel; other work still runs.
///
/// # Errors
/// [`Error::WrongQueue`] for an argument borrowed for another queue. [`Error::Device`] when `queue` is not a
/// loopback's, when an argument that is written overlaps another, or when the kernel ran and panicked.
pub fn launch<'a>(
    queue: &dyn Queue,
    args: impl IntoIterator<Item = Arg<'a>>,
    kernel: impl FnOnce(&mut [KernelArg<'_>]) + Send + 'static,
) -> Result<(), Error> {
    let Some(queue) = (queue as &dyn Any).downcast_ref::<LoopQueue>() else {
        let message = "kernels of a loopback run on its own queues only";
        return Err(Error::device(queue.device().id(), Operation::Launch.name(), message));
    };
    // Collected before the lock is taken: the iterator is the caller's code.
    let args: Vec<Arg<'_>> = args.into_iter().collect();
    let mut call = queue.begin(Operation::Launch)?;
    let mut params = Vec::with_capacity(args.len());
    for arg in &args {
        if arg.queue() != queue.id {
            return Err(Error::WrongQueue { wanted: queue.id, got: arg.queue() });
        }
        let Range { start, end } = arg.range();
        let piece = arg.block().map(|block| call.piece(block, start, end - start)).transpose()?;
        params.push(Param::new(arg.access(), piece));
    }
    // A kernel that is refused has not been moved, and so is dropped last of all, with nothing locked: a kernel may own
    // a memory.
    if Param::conflict(&params) {
        return Err(call.misuse("an argument that is written overlaps another"));
    }
    let work = call.work(Task::Launch(Launch::new(params, Box::new(kernel))));
    let position = call.run(work)?;
    let failed = queue.device.machine.state().lane(queue.id).take_failure(position);
    failed.map_err(|message| Error::device(queue.device.id, Operation::Launch.name(), message))
}

/// A queue of a loopback.
#[derive(Debug)]
pub(super) struct LoopQueue {
    id: QueueId,
    device: Loopback,
}

/// A block of a loopback: one that a queue allocated, or a view of memory that has another owner.
#[derive(Debug)]
struct LoopBlock {
    machine: Arc<Machine>,
    device: DeviceId,
    piece: Piece,
    /// The queue that allocated the block, and will free; none for an adopted one.
    queue: Option<QueueId>,
}

/// A call of a queue that was counted and not refused, with the machine locked.
struct Call<'a> {
    queue: &'a LoopQueue,
    state: MutexGuard<'a, State>,
    called: Called,
}

impl LoopQueue {
    pub(super) fn new(device: Loopback) -> Self {
        let id = QueueId::new();
        device.machine.state().open(id, device.id);
        Self { id, device }
    }

    fn begin(&self, operation: Operation) -> Result<Call<'_>, Error> {
        self.device.machine.process.check()?;
        let mut state = self.device.machine.state();
        let called = state.account(self.device.id).call(operation)?;
        Ok(Call { queue: self, state, called })
    }

    /// The block, if of this machine.
    fn own<'a>(&self, block: &'a dyn Block) -> Option<&'a LoopBlock> {
        (block as &dyn Any)
            .downcast_ref::<LoopBlock>()
            .filter(|block| Arc::ptr_eq(&block.machine, &self.device.machine))
    }

    fn block(&self, piece: Piece, queue: Option<QueueId>) -> Box<dyn Block> {
        Box::new(LoopBlock { machine: Arc::clone(&self.device.machine), device: self.device.id, piece, queue })
    }
}

impl Call<'_> {
    /// `block[at..at + len]` of a block of this device.
    fn piece(&mut self, block: &dyn Block, at: usize, len: usize) -> Result<Piece, Error> {
        match self.queue.own(block) {
            Some(own) if own.device == self.queue.device.id => self.part(own, at, len),
            _ => Err(self.misuse("a block of another device")),
        }
    }

    /// Some bytes of a block of this machine.
    fn part(&mut self, block: &LoopBlock, at: usize, len: usize) -> Result<Piece, Error> {
        let Some(end) = at.checked_add(len).filter(|end| *end <= block.len()) else {
            return Err(self.misuse(&format!("bytes {at}..{at}+{len} of a block of {} bytes", block.len())));
        };
        Ok(block.piece.part(at..end))
    }

    /// Notes a broken promise of the caller, and gives the error that says so.
    fn misuse(&mut self, what: &str) -> Error {
        let (device, name) = (self.queue.device.id, self.called.operation.name());
        self.state.memory.misuses.push(format!("{device}: {name}: {what}"));
        self.called.failed(what)
    }

    /// The work of the call, whole or broken off.
    fn work(&self, task: Task) -> Entry {
        match self.called.broken_off() {
            Some(message) => task.broken_off(message),
            None => Entry::Work(task),
        }
    }

    /// Enqueues work of a call that may be made with a memory locked, and ends the call.
    fn enqueue(mut self, task: Task) -> Result<Host, Error> {
        let (entry, queue) = (self.work(task), self.queue.id);
        let position = self.state.append(queue, entry);
        let mut state = self.queue.device.machine.after_locked_call(self.state, queue);
        let is_over = state.done(queue) > position && state.lane(queue).failure().is_ok();
        self.called.end(if is_over { Host::Done } else { Host::Pending })
    }

    /// Enqueues a transfer after all earlier work has ended. One that is `Done` has left the host bytes then: a
    /// download has ended, and an upload goes on with bytes of its own, as through pinned chunks.
    fn transfer(mut self, task: Task, answer: Host) -> Result<Host, Error> {
        let LoopQueue { id: queue, device } = self.queue;
        let (machine, queue) = (&device.machine, *queue);
        self.called.refuse_kernels(queue)?;
        self.state = machine.while_held(self.state, device.id);
        let earlier = self.state.lane(queue).tail();
        self.state = machine.run_until(self.state, queue, earlier);
        if answer == Host::Pending {
            let entry = self.work(task);
            return self.run(entry).map(|_| Host::Pending);
        }
        self.state.lane(queue).failure().map_err(|message| self.called.failed(&message))?;
        let is_upload = matches!(task, Task::Upload { .. });
        let entry = self.work(task.with_own_bytes());
        let position = self.state.append(queue, entry);
        let mut state = if is_upload {
            machine.after_call(self.state, queue, position)
        } else {
            machine.run_until(self.state, queue, position + 1)
        };
        let failure = state.lane(queue).failure();
        drop(state);
        failure.map_err(|message| self.called.failed(&message))?;
        self.called.end(Host::Done)
    }

    /// Enqueues a transfer of host bytes, as the device does.
    fn move_host_bytes(mut self, task: Task) -> Result<Host, Error> {
        match self.state.account(self.queue.device.id).stages {
            Some(answer) => self.transfer(task, answer),
            None => self.enqueue(task),
        }
    }

    /// Enqueues, and runs the mode's work, kernels too; gives the position of the entry.
    fn run(mut self, entry: Entry) -> Result<u64, Error> {
        let position = self.state.append(self.queue.id, entry);
        drop(self.queue.device.machine.after_call(self.state, self.queue.id, position));
        self.called.end(position)
    }
}

// SAFETY: the promises, by number.
// 1: `id` and `device` are set once, by `new`, and the id is fresh.
// 2: a lane is a FIFO of which only the front is taken, and not while a kernel of that lane runs (`Machine::step`).
// 3: a wait is an entry of the lane, which is not passed before the other lane has come as far as the tail was; a queue
//    of another machine or backend is synchronised.
// 4: `Machine::run_all` runs the lane to the tail; entries run under the lock, or, kernels, between two locks, on the
//    calling thread or on one that has released the lock since.
// 5: a task moves `Piece`s and host bytes of equal length, made here from one `len`, within blocks checked here.
// 6: host bytes are named by tasks only, of views too, and a task is gone after the run, which is asked before a call
//    says `Done`, or has been waited for.
// 7: a slot is a vector of its own; the free is an entry of the lane, or happens when the lane has nothing left to do,
//    or the slot is given out again by that lane only, whose work on the new block comes later.
// 8: an error returns before anything is enqueued, or after everything is; a wait asks first whether the other has
//    failed.
// 9: transfers run kernels only where `is_staged` says so; nothing here names `SyncedMem` or `SharedMem`. A kernel may
//    (`launch`), and is the caller's code.
// 10: which machine a device belongs to is set once, and is all that is asked; transfers are staged from the first on.
unsafe impl Queue for LoopQueue {
    fn id(&self) -> QueueId {
        self.id
    }

    fn device(&self) -> &dyn Device {
        &self.device
    }

    fn alloc(&self, len: usize) -> Result<Box<dyn Block>, Error> {
        let Call { mut state, called, .. } = self.begin(Operation::Alloc)?;
        let slot = state.allocate(self.id, len);
        // A block that is not handed out is freed without the lock.
        drop(state);
        let slot = slot.ok_or(Error::DeviceOutOfMemory { device: self.device.id, bytes: len })?;
        called.end(self.block(Piece::new(slot, 0..len), Some(self.id)))
    }

    unsafe fn adopt(&self, address: u64, len: usize) -> Result<Box<dyn Block>, Error> {
        let mut call = self.begin(Operation::Adopt)?;
        let Some(piece) = call.state.memory.find(self.device.id, address, len) else {
            return Err(call.misuse(&format!("no memory of this device: {len} bytes at {address:#x}")));
        };
        call.called.end(self.block(piece, None))
    }

    unsafe fn view(&self, host: NonNull<u8>, len: usize) -> Option<Box<dyn Block>> {
        // SAFETY: the caller promises `len` bytes at `host` that are readable and unchanged while work that reads them
        // is enqueued, and the bytes of the piece are read by such work alone: by its tasks, and when a kernel begins.
        self.device.shares_host().then(|| self.block(unsafe { Piece::of_host(host, len) }, None))
    }

    unsafe fn upload(&self, to: &dyn Block, at: usize, from: NonNull<u8>, len: usize) -> Result<Host, Error> {
        let mut call = self.begin(Operation::Upload)?;
        let to = call.piece(to, at, len)?;
        // SAFETY: the caller's contract says that the bytes are readable and unchanged until a `synchronize` has
        // returned `Ok`. By then the task has run and is dropped (promise 4); until then the bytes are as `new`
        // demands.
        let from = unsafe { HostBytes::new(from, len) };
        call.move_host_bytes(Task::Upload { to, from })
    }

    fn is_staged(&self, _: NonNull<u8>, _: usize) -> bool {
        let machine = &self.device.machine;
        machine.process.is_current() && machine.state().account(self.device.id).stages.is_some()
    }

    unsafe fn upload_from(
        &self,
        to: &dyn Block,
        at: usize,
        len: usize,
        fill: &(dyn Fn(usize, &mut [u8]) -> Result<(), OriginError> + Sync),
    ) -> Result<(), Error> {
        if !self.is_staged(NonNull::dangling(), len) {
            // SAFETY: the caller says that `to` is a block of this queue's device, that `at + len` lies within it, and
            // that it lives until this queue has been synchronised or it is dropped in order.
            return unsafe { through_host(self, to, at..at + len, fill) };
        }
        // The function is the caller's code, and so runs without the lock.
        let mut bytes = vec![0; len];
        fill(at, &mut bytes).map_err(|source| Error::Origin { range: at..at + len, source })?;
        let mut call = self.begin(Operation::Upload)?;
        let to = call.piece(to, at, len)?;
        let work = call.work(Task::Put { to, bytes });
        call.run(work).map(drop)
    }

    unsafe fn download(&self, from: &dyn Block, at: usize, to: NonNull<u8>, len: usize) -> Result<Host, Error> {
        let mut call = self.begin(Operation::Download)?;
        let from = call.piece(from, at, len)?;
        // SAFETY: the caller promises that the bytes are writable and have no other user until a `synchronize` has
        // returned `Ok`. By then the task has run and is dropped (promise 4), so the bytes are as `new` demands for
        // as long as the task lives.
        let to = unsafe { HostBytes::new(to, len) };
        call.move_host_bytes(Task::Download { from, to })
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
        let mut call = self.begin(Operation::Copy)?;
        let to = call.piece(to, to_at, len)?;
        let Some(from) = self.own(from) else {
            return Err(call.misuse("a block of a device that this queue does not reach"));
        };
        let from = call.part(from, from_at, len)?;
        if to.overlaps(&from) {
            return Err(call.misuse("source and target overlap"));
        }
        call.enqueue(Task::Copy { to, from }).map(drop)
    }

    unsafe fn fill(&self, block: &dyn Block, at: usize, len: usize) -> Result<(), Error> {
        let mut call = self.begin(Operation::Fill)?;
        let piece = call.piece(block, at, len)?;
        call.enqueue(Task::Fill(piece)).map(drop)
    }

    fn wait_for(&self, other: &dyn Queue) -> Result<(), Error> {
        let mut call = self.begin(Operation::Wait)?;
        call.called.refuse_kernels(self.id)?;
        let sibling = (other as &dyn Any)
            .downcast_ref::<LoopQueue>()
            .filter(|other| Arc::ptr_eq(&other.device.machine, &self.device.machine));
        if let Some(other) = sibling {
            call.state.lane(other.id).failure().map_err(|message| call.called.failed(&message))?;
            let wait = call.state.wait_for(other.id);
            return call.run(wait).map(drop);
        }
        let Call { state, called, .. } = call;
        // Not under our lock: the other may be waiting for us just now.
        drop(state);
        other.synchronize()?;
        called.end(())
    }

    fn synchronize(&self) -> Result<(), Error> {
        let Call { state, called, .. } = self.begin(Operation::Synchronize)?;
        called.refuse_kernels(self.id)?;
        let mut state = self.device.machine.run_all(state, self.id);
        let failure = state.lane(self.id).failure();
        drop(state);
        failure.map_err(|message| called.failed(&message))?;
        called.end(())
    }
}

// SAFETY: `piece` is set once; the slot is this block's own until the free has run, or belongs to whom it was adopted
// from, or is host bytes of the caller's.
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
        if self.device.machine.process.is_current() {
            self.device.machine.state().close(self.id);
        }
    }
}

impl Drop for LoopBlock {
    fn drop(&mut self) {
        let Some(queue) = self.queue.filter(|_| self.machine.process.is_current()) else {
            return;
        };
        let mut state = self.machine.state();
        if let Some(end) = state.release(self.device, queue, self.piece.slot, self.len()) {
            state.append(queue, end);
            drop(self.machine.after_locked_call(state, queue));
        }
    }
}
