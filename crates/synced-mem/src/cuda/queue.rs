//! Queues and blocks of a GPU: the backend's side of `Queue` and `Block`. Relies on `stream` for the order, on
//! `staging` for pageable host bytes and on `pinned` to know which host bytes are not. Decides nothing.

use std::any::Any;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::sys;

use super::Cuda;
use super::context::Context;
use super::driver::{memory_type, ordinal};
use super::failure::{Failure, answer};
use super::stopped::Stopped;
use super::stream::Stream;
use super::{pinned, staging};
use crate::access::QueueId;
use crate::device::{Block, Device, Host, Queue};
use crate::error::Error;
use crate::origin::OriginError;

/// A queue of a GPU.
pub(super) struct CudaQueue {
    id: QueueId,
    device: Cuda,
    stream: Arc<Stream>,
}

/// A block of a GPU's memory.
struct CudaBlock {
    /// The stream in whose order the block is freed; of adopted memory, one of the device.
    stream: Arc<Stream>,
    address: u64,
    len: usize,
    owner: Owner,
}

/// How a block is given back.
#[derive(Debug)]
enum Owner {
    Pool,
    /// Of a GPU without pools.
    Driver,
    Adopted,
    /// Host memory, which is only read.
    Host,
}

/// The kernels of this crate's users rely on such addresses, which the driver's own blocks have.
const ALIGN: usize = 256;

impl CudaQueue {
    pub(super) fn new(device: Cuda) -> Result<Self, Error> {
        let context = device.context();
        let stream = context.run("queue", || Stream::new(context))?;
        Ok(Self { id: QueueId::new(), device, stream: Arc::new(stream) })
    }

    /// The queue of a stream that another library made.
    pub(super) fn adopt(device: Cuda, stream: Stream) -> Self {
        Self { id: QueueId::new(), device, stream: Arc::new(stream) }
    }

    /// The queue of a GPU that a queue is.
    pub(super) fn of(queue: &dyn Queue) -> Option<&Self> {
        (queue as &dyn Any).downcast_ref()
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.device.context()
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Runs calls about this queue's context alone.
    fn run<R>(&self, op: &'static str, calls: impl FnOnce() -> Result<R, Failure>) -> Result<R, Error> {
        self.context().run(op, calls)
    }

    /// An error that says nothing about the state of this queue's context.
    pub(super) fn error(&self, op: &'static str, what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::device(self.context().id, op, what)
    }

    /// The address of `block[at..at + len]`, of a block of this backend.
    fn part<'a>(
        &self,
        op: &'static str,
        block: &'a dyn Block,
        at: usize,
        len: usize,
    ) -> Result<(&'a CudaBlock, u64), Error> {
        self.context().process.check()?;
        let own = (block as &dyn Any).downcast_ref::<CudaBlock>();
        let own = own.ok_or_else(|| self.error(op, "a block of another backend"))?;
        if at.checked_add(len).is_some_and(|end| end <= own.len) {
            Ok((own, own.address + at as u64))
        } else {
            Err(self.error(op, format!("{len} bytes from {at} of a block of {} bytes", own.len)))
        }
    }

    /// The same of a block of this device.
    fn own(&self, op: &'static str, block: &dyn Block, at: usize, len: usize) -> Result<u64, Error> {
        let (block, address) = self.part(op, block, at, len)?;
        if matches!(block.owner, Owner::Host) {
            Err(self.error(op, "host bytes, which are only read"))
        } else if Arc::ptr_eq(block.stream.context(), self.context()) {
            Ok(address)
        } else {
            Err(self.error(op, "a block of another GPU"))
        }
    }

    /// Memory from the pool, or from the driver where the GPU has none.
    fn memory(&self, len: usize) -> Result<(u64, Owner), Failure> {
        let mut address = 0;
        match self.context().pool() {
            Some(pool) => {
                // SAFETY: pool and stream live and are of one GPU; the call writes an address.
                let code = unsafe { sys::cuMemAllocFromPoolAsync(&mut address, len, pool, self.stream.raw()) };
                answer("cuMemAllocFromPoolAsync", code).map(|()| (address, Owner::Pool))
            }
            None => {
                // SAFETY: the call writes an address.
                let code = unsafe { sys::cuMemAlloc_v2(&mut address, len) };
                answer("cuMemAlloc", code).map(|()| (address, Owner::Driver))
            }
        }
    }

    fn block(&self, address: u64, len: usize, owner: Owner) -> Box<dyn Block> {
        Box::new(CudaBlock { stream: Arc::clone(&self.stream), address, len, owner })
    }
}

// SAFETY: the promises, by number.
// 1: `id` and `device` are set once, by `new`, and the id is fresh.
// 2: a stream is in order; a staged transfer is a row of copies there.
// 3: an event at the other's tail, of this backend; any other queue is synchronised.
// 4: the driver's own; copies through staging chunks that are not synchronised touch no host bytes of the caller.
// 5: one length for both sides of each copy, within blocks checked here; a chunk that a function fills goes whole.
// 6: pinned bytes are named by copies on the stream alone; others are touched during the call, and those of a view by
//    kernels and copies, which the stream has done with when it is synchronised.
// 7: the driver's own, freed in the order of the stream, or after it was synchronised.
// 8: a context that has failed fails every call; a wait for another GPU's stream asks for that GPU's context when the
//    waiting stream is synchronised (`Stream::check_foreign`). A call fails before it enqueues, or has enqueued a part
//    of its copies.
// 9: pageable bytes alone go through chunks that are waited for, and a block is pinned for its whole life; nothing
//    here names `SyncedMem` or `SharedMem`, and no host function is ever enqueued.
// 10: every GPU is reached from every other, by a copy that needs no access between them.
unsafe impl Queue for CudaQueue {
    fn id(&self) -> QueueId {
        self.id
    }

    fn device(&self) -> &dyn Device {
        &self.device
    }

    fn alloc(&self, len: usize) -> Result<Box<dyn Block>, Error> {
        let context = self.context();
        context.process.check()?;
        if len == 0 || len > context.total {
            return Err(Error::DeviceOutOfMemory { device: context.id, bytes: len });
        }
        match context.enter().and_then(|_here| self.memory(len)) {
            Ok((address, owner)) => Ok(self.block(address, len, owner)),
            Err(failure) if failure.is_out_of_memory() => {
                Err(Error::DeviceOutOfMemory { device: context.id, bytes: len })
            }
            Err(failure) => Err(self.error("alloc", context.note(failure))),
        }
    }

    fn make_room(&self, len: usize) -> Result<bool, Error> {
        let context = self.context();
        if len > context.total {
            return Err(Error::DeviceOutOfMemory { device: context.id, bytes: len });
        }
        // Freed blocks wait in the pool, in pieces that may not fit, or for the work before them.
        self.run("make_room", || context.trim()).map(|()| true)
    }

    unsafe fn adopt(&self, address: u64, len: usize) -> Result<Box<dyn Block>, Error> {
        const DEVICE: u32 = 2;
        let context = self.context();
        for end in [address, address.saturating_add(len as u64).saturating_sub(1).max(address)] {
            let (kind, ordinal) = self.run("adopt", || Ok((memory_type(end)?, ordinal(end)?)))?;
            if kind != DEVICE || ordinal as usize != context.ordinal {
                return Err(self.error("adopt", format!("{address:#x} is no memory of this GPU")));
            }
        }
        Ok(self.block(address, len, Owner::Adopted))
    }

    fn is_staged(&self, host: NonNull<u8>, len: usize) -> bool {
        // In a forked process no transfer works.
        !(self.context().process.is_current() && pinned::contains(host, len))
    }

    unsafe fn view(&self, host: NonNull<u8>, len: usize) -> Option<Box<dyn Block>> {
        let is_read = self.context().shares_host && host.addr().get().is_multiple_of(ALIGN);
        // The address is the host's own: the GPU has the host's tables of pages.
        is_read.then(|| self.block(host.as_ptr().expose_provenance() as u64, len, Owner::Host))
    }

    unsafe fn upload(&self, to: &dyn Block, at: usize, from: NonNull<u8>, len: usize) -> Result<Host, Error> {
        let to = self.own("upload", to, at, len)?;
        if len == 0 {
            return Ok(Host::Done);
        }
        if !pinned::contains(from, len) {
            // SAFETY: the caller promises `len` readable bytes at `from`, and a block that lives until the queue is
            // idle; `own` has checked that the block is of this GPU and holds `len` bytes at the address. `upload`
            // has read the bytes when it returns.
            self.run("upload", || unsafe { staging::upload(&self.stream, to, from, len) })?;
            return Ok(Host::Done);
        }
        self.run("upload", || {
            // SAFETY: the caller promises `len` bytes at `from` that do not change until a synchronisation, which
            // `Pending` asks for, and a block that lives as long; `own` has checked the address.
            let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), len, self.stream.raw()) };
            answer("cuMemcpyHtoDAsync", code).map(|()| Host::Pending)
        })
    }

    unsafe fn upload_from(
        &self,
        to: &dyn Block,
        at: usize,
        len: usize,
        fill: &(dyn Fn(usize, &mut [u8]) -> Result<(), OriginError> + Sync),
    ) -> Result<(), Error> {
        let to = self.own("upload_from", to, at, len)?;
        let stopped = Stopped::default();
        let uploaded = self.run("upload_from", || {
            // SAFETY: `own` has checked that the block is of this GPU and holds `len` bytes at the address; the caller
            // promises that the block lives until the queue is idle.
            unsafe { staging::upload_from(&self.stream, to, len, |before, out| stopped.gives(at + before, out, fill)) }
        });
        stopped.ended(uploaded)
    }

    unsafe fn download(&self, from: &dyn Block, at: usize, to: NonNull<u8>, len: usize) -> Result<Host, Error> {
        let from = self.own("download", from, at, len)?;
        if len == 0 {
            return Ok(Host::Done);
        }
        if !pinned::contains(to, len) {
            let waits = self.stream.foreign_waits();
            // SAFETY: the caller promises `len` writable bytes at `to` without another user, and a block that lives
            // until the queue is idle; `own` has checked that the block is of this GPU and holds `len` bytes at the
            // address. `download` has written the bytes when it returns.
            self.run("download", || unsafe { staging::download(&self.stream, from, to, len) })?;
            self.stream.check_foreign(waits).map_err(|failure| self.error("download", failure))?;
            return Ok(Host::Done);
        }
        self.run("download", || {
            // SAFETY: the caller promises `len` writable bytes at `to` without another user until a synchronisation,
            // which `Pending` asks for, and a block that lives as long; `own` has checked the address.
            let code = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_ptr().cast(), from, len, self.stream.raw()) };
            answer("cuMemcpyDtoHAsync", code).map(|()| Host::Pending)
        })
    }

    fn reaches(&self, other: &dyn Device) -> bool {
        (other as &dyn Any).is::<Cuda>()
    }

    unsafe fn copy(
        &self,
        to: &dyn Block,
        to_at: usize,
        from: &dyn Block,
        from_at: usize,
        len: usize,
    ) -> Result<(), Error> {
        let to = self.own("copy", to, to_at, len)?;
        let (block, from) = self.part("copy", from, from_at, len)?;
        let (context, other) = (self.context(), block.stream.context());
        if len == 0 {
            return Ok(());
        }
        if matches!(block.owner, Owner::Host) {
            return self.run("copy", || {
                let from = ptr::with_exposed_provenance(from as usize);
                // SAFETY: the target lies within a block of this GPU, which lives as the caller promises. The source
                // lies within host bytes that the caller of `view` promises to be readable and unchanged from this call
                // on until the queue has been synchronised.
                let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from, len, self.stream.raw()) };
                answer("cuMemcpyHtoDAsync", code)
            });
        }
        if Arc::ptr_eq(context, other) {
            return self.run("copy", || {
                // SAFETY: both ranges lie within blocks of this GPU, which live as the caller promises.
                let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, len, self.stream.raw()) };
                answer("cuMemcpyDtoDAsync", code)
            });
        }
        let (own, foreign, stream) = (context.raw(), other.raw(), self.stream.raw());
        let copied = other.works().and_then(|()| context.enter()).and_then(|_here| {
            context.meet(other);
            // SAFETY: each range was checked to lie within a block of the GPU whose context is passed beside its
            // address; the blocks live as the caller promises.
            let code = unsafe { sys::cuMemcpyPeerAsync(to, own, from, foreign, len, stream) };
            answer("cuMemcpyPeerAsync", code)
        });
        copied.map_err(|failure| self.error("copy", failure))
    }

    unsafe fn fill(&self, block: &dyn Block, at: usize, len: usize) -> Result<(), Error> {
        let to = self.own("fill", block, at, len)?;
        if len == 0 {
            return Ok(());
        }
        self.run("fill", || {
            // SAFETY: the range lies within a block of this GPU.
            answer("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(to, 0, len, self.stream.raw()) })
        })
    }

    fn wait_for(&self, other: &dyn Queue) -> Result<(), Error> {
        self.context().process.check()?;
        match Self::of(other) {
            Some(other) => self.stream.wait_for(&other.stream).map_err(|failure| self.error("wait_for", failure)),
            None => other.synchronize(),
        }
    }

    fn synchronize(&self) -> Result<(), Error> {
        let waits = self.stream.foreign_waits();
        self.run("synchronize", || self.stream.wait())?;
        self.stream.check_foreign(waits).map_err(|failure| self.error("synchronize", failure))
    }
}

impl fmt::Debug for CudaQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaQueue").field("id", &self.id).field("device", &self.device).finish_non_exhaustive()
    }
}

// SAFETY: address and length are set once; the memory is this block's alone until it is freed, or belongs to whom it
// was adopted from.
unsafe impl Block for CudaBlock {
    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl fmt::Debug for CudaBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, len, owner, .. } = self;
        write!(f, "CudaBlock({len} bytes at {address:#x}, {owner:?})")
    }
}

impl CudaBlock {
    /// Gives the memory back, once: `Drop` alone calls this.
    fn give_back(&self) -> Result<(), Failure> {
        let _here = self.stream.context().enter_to_give_back()?;
        let (address, stream) = (self.address, self.stream.raw());
        match self.owner {
            Owner::Adopted | Owner::Host => Ok(()),
            Owner::Pool => {
                // SAFETY: the memory was allocated from a pool, and is freed once, after what the stream has to do.
                answer("cuMemFreeAsync", unsafe { sys::cuMemFreeAsync(address, stream) })
            }
            Owner::Driver => {
                // Twice, in case it was the call that failed and not the work.
                self.stream.wait().or_else(|_| self.stream.wait())?;
                // SAFETY: the memory was allocated by the driver, and is freed once, after the stream's work.
                answer("cuMemFree", unsafe { sys::cuMemFree_v2(address) })
            }
        }
    }
}

impl Drop for CudaBlock {
    fn drop(&mut self) {
        let context = self.stream.context();
        if context.process.is_current() {
            context.given_back(self.give_back());
        }
    }
}
