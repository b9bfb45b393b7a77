//! Host memory playing a device, for tests: every promise of a backend is kept, and no more than the promises.
//! Relies on `device` for those. All device bytes lie under the one lock of a machine, so that no misuse of a
//! block is undefined behaviour: [`Report::misuses`] lists each. Device addresses are numbers that nothing points to;
//! only host pointers are real.
//! Leaves out speed: tasks run on the calling thread, under that lock, and kernels on copies, with nothing locked.

mod calls;
mod kernel;
mod machine;
mod memory;
mod queue;
mod schedule;
mod task;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use machine::Machine;
use memory::Piece;
use queue::LoopQueue;

use crate::{Device, DeviceId, Error, Host, Meter, Queue};

pub use calls::{Fault, Operation};
pub use kernel::KernelArg;
pub use machine::Mode;
pub use queue::launch;

/// A device of host memory.
///
/// * Fresh bytes are `0xA5`, and so is what is read of a block that has been freed.
/// * Devices made by [`sibling`](Self::sibling) share a machine: their queues wait for each other and copy directly.
///   Two devices made by [`new`](Self::new) are foreign: waiting synchronises the other queue, and neither reaches the
///   other.
/// * A queue that is dropped with work pending leaves the work behind. It runs when it is needed; what nothing has
///   needed when the last handle to the machine is dropped never runs, which nothing can tell.
pub struct Loopback {
    id: DeviceId,
    machine: Arc<Machine>,
    meter: Arc<Meter>,
}

/// A device's state, from [`Loopback::report`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The bytes of all blocks allocated and not yet dropped. Those of [`Loopback::external`] do not count.
    pub bytes_in_use: usize,
    /// How many blocks are allocated and not yet dropped.
    pub live_blocks: usize,
    /// How many tasks are enqueued on this device's queues and have not run.
    pub pending: usize,
    /// Uses of the machine's devices that broke a promise of the caller, each in words: bytes beyond a block, a block
    /// of another device, one that was freed before the work that uses it ran.
    pub misuses: Vec<String>,
}

impl Loopback {
    /// The first device of a new machine.
    pub fn new(mode: Mode) -> Arc<Self> {
        Self::on(Arc::new(Machine::new(mode)))
    }

    /// Another device of the same machine.
    pub fn sibling(&self) -> Arc<Self> {
        Self::on(Arc::clone(&self.machine))
    }

    fn on(machine: Arc<Machine>) -> Arc<Self> {
        let id = DeviceId::new();
        machine.state().add_device(id);
        let meter = Arc::new(Meter::default());
        Arc::new(Self { id, machine, meter })
    }

    /// Allocations fail from now on that would make [`Report::bytes_in_use`] exceed `bytes`.
    pub fn set_limit(&self, bytes: usize) {
        self.machine.state().account(self.id).limit = bytes;
    }

    /// Makes a later call on this device fail: the next one for `nth` 1, the one after it for 2. Several may be told in
    /// advance.
    pub fn fail(&self, operation: Operation, nth: u64, fault: Fault) {
        self.machine.state().account(self.id).fail(operation, nth, fault);
    }

    /// From now on a block that is dropped is given out again by its queue, to the next allocation of that length: at
    /// once, though the queue may carry work that uses it, and with what it then holds, as a stream-ordered allocator
    /// does. Uses of a dropped block are then no longer found.
    pub fn reuse_blocks(&self) {
        self.machine.state().account(self.id).reuses = true;
    }

    /// From now on uploads and downloads wait for all earlier work, kernels too, and then give this answer. Where it is
    /// [`Host::Done`], a download has ended, and an upload has read the host bytes and is pending, as are those of
    /// pageable memory by a GPU. Where it is [`Host::Pending`], both are pending. The bytes of [`Queue::upload_from`]
    /// are pending in either case. A kernel that uses a memory has to leave bytes alone that are on their way. Before
    /// the first memory is on the device.
    pub fn stage_transfers(&self, answer: Host) {
        self.machine.state().account(self.id).stages = Some(answer);
    }

    /// From now on the device [shares the host's memory](Device::shares_host). Before the first memory is on the
    /// device.
    pub fn share_host(&self) {
        self.machine.state().account(self.id).shares_host = true;
    }

    /// The next of the [staged](Self::stage_transfers) transfers waits in its call, before anything of it is done,
    /// until the hold is dropped. Another hold is for the next transfer.
    pub fn hold_transfer(&self) -> Hold {
        let (machine, device) = (Arc::clone(&self.machine), self.id);
        Hold { number: machine.hold(device), machine, device }
    }

    /// How often an operation was called on this device so far, failed calls included.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.machine.state().account(self.id).calls(operation)
    }

    /// The allocations and the pending work of this device now, and the users' misuses.
    pub fn report(&self) -> Report {
        let mut state = self.machine.state();
        let (pending, misuses) = (state.pending(self.id), state.memory.misuses.clone());
        let account = state.account(self.id);
        Report { bytes_in_use: account.in_use, live_blocks: account.live, pending, misuses }
    }

    /// Device memory with a separate owner, to be adopted.
    ///
    /// # Errors
    /// [`Error::DeviceOutOfMemory`] when the host has no room.
    pub fn external(&self, len: usize) -> Result<ExternalBlock, Error> {
        let slot = self.machine.state().memory.allocate(self.id, len);
        let slot = slot.ok_or(Error::DeviceOutOfMemory { device: self.id, bytes: len })?;
        let machine = Arc::clone(&self.machine);
        Ok(ExternalBlock { machine, slot, len })
    }

    /// The device as its queues hold it.
    fn handle(&self) -> Self {
        Self { id: self.id, machine: Arc::clone(&self.machine), meter: Arc::clone(&self.meter) }
    }
}

// SAFETY: `id` is drawn once by `on` and copied only by `handle`, for the same device. `LoopQueue` keeps the promises
// of `Queue`, as stated there.
unsafe impl Device for Loopback {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn name(&self) -> String {
        format!("loopback, {:?}", self.machine.mode)
    }

    fn queue(&self) -> Result<Arc<dyn Queue>, Error> {
        self.machine.process.check()?;
        self.machine.state().account(self.id).call(Operation::Queue)?;
        Ok(Arc::new(LoopQueue::new(self.handle())))
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn shares_host(&self) -> bool {
        self.machine.process.is_current() && self.machine.state().account(self.id).shares_host
    }

    fn dlpack(&self) -> Option<(i32, i32)> {
        /// `kDLExtDev`, which is for tests.
        const EXTENSION: i32 = 12;
        Some((EXTENSION, i32::try_from(self.id.number()).ok()?))
    }
}

impl fmt::Debug for Loopback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loopback").field("id", &self.id).field("mode", &self.machine.mode).finish_non_exhaustive()
    }
}

/// Keeps a transfer waiting. See [`Loopback::hold_transfer`].
#[derive(Debug)]
pub struct Hold {
    machine: Arc<Machine>,
    device: DeviceId,
    number: u64,
}

impl Hold {
    /// Waits until the transfer has begun, and waits. False if that takes longer than `patience`.
    pub fn has_begun(&self, patience: Duration) -> bool {
        self.machine.is_held_within(self.device, self.number, patience)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.machine.process.is_current() {
            self.machine.release(self.device, self.number);
        }
    }
}

/// Memory of a [`Loopback`] whose owner is not a queue: what [`Queue::adopt`] is for.
///
/// Dropping the block frees the memory at once, whatever work is pending there; such work is then listed as a misuse.
#[derive(Debug)]
pub struct ExternalBlock {
    machine: Arc<Machine>,
    slot: u64,
    len: usize,
}

impl ExternalBlock {
    /// The start, as the device counts.
    pub fn address(&self) -> u64 {
        self.slot
    }

    /// Lets `work` read and write the bytes as they are now, pending work not done. It must not use the device.
    pub fn with_bytes<R>(&self, work: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut state = self.machine.state();
        let piece = Piece::new(self.slot, 0..self.len);
        work(state.memory.write(&piece).unwrap_or_default())
    }
}

impl Drop for ExternalBlock {
    fn drop(&mut self) {
        if self.machine.process.is_current() {
            self.machine.state().memory.free(self.slot);
        }
    }
}
