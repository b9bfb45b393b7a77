//! The traits of a backend: devices, their in-order queues, and the blocks of memory that the queues allocate.
//!
//! The traits are `unsafe` to implement, because this crate rests the soundness of safe functions on their promises.
//! Declarations alone, with the upload of a backend that has no way of its own: no name of a backend, no coherence.

use std::any::Any;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::access::{DeviceId, QueueId};
use crate::error::Error;
use crate::meter::Meter;
use crate::origin::OriginError;

/// A place with memory of its own, such as a GPU. A backend of yours gets memory from here, not kernels: those of
/// `blob-ops` are for CUDA alone, and work on the blobs of other devices is done on the host.
///
/// # Safety
/// * `id` always answers the same, and no other device ever answers the same.
/// * `queue` makes queues of this device that keep the promises of [`Queue`], and `host_block` keeps the ninth of them:
///   a memory is locked when its pool asks for a block.
/// * Where `dlpack` has a name, other libraries mean this device by that name, and the same addresses.
pub unsafe trait Device: fmt::Debug + Any + Send + Sync {
    /// Which device this is.
    fn id(&self) -> DeviceId;

    /// The name of the device, for people.
    fn name(&self) -> String;

    /// A new queue of this device.
    ///
    /// # Errors
    /// [`Error::Device`] when the backend has none to give.
    fn queue(&self) -> Result<Arc<dyn Queue>, Error>;

    /// Where the traffic of all memories on this device is counted. A backend keeps and returns one meter.
    fn meter(&self) -> &Meter;

    /// DLPack's kind and number of the device, by which other libraries know it; none without such a name.
    fn dlpack(&self) -> Option<(i32, i32)> {
        None
    }

    /// Whether this device shares the host's memory, so that its work reads host bytes where they lie
    /// ([`Queue::view`]). A memory then takes no block there for reads, and copies nothing; for writes it does. The
    /// answer is the same at any time.
    fn shares_host(&self) -> bool {
        false
    }

    /// A block of `len` host bytes, `len` not 0, that this device's transfers use in place, such as pinned memory;
    /// `None` where the device has no such kind. [`HostPool::of`](crate::HostPool::of) takes its blocks from here.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Device`].
    fn host_block(&self, len: usize) -> Result<Option<Box<dyn HostBlock>>, Error> {
        let _ = len;
        Ok(None)
    }
}

/// Host memory with an owner of its own, freed when dropped.
///
/// # Safety
/// `start` and `len` always answer the same: `len` initialised bytes of one allocation from `start`, a multiple of 256,
/// which any thread may read and write until the block is dropped, and which nothing else touches by itself.
pub unsafe trait HostBlock: Any + Send + Sync {
    /// The first byte.
    fn start(&self) -> NonNull<u8>;

    /// The number of bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whether a transfer may still use the host bytes after the call that enqueued the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Host {
    /// The transfer does not. The host bytes of a download are right: all earlier work has taken effect, and none has
    /// failed.
    Done,
    /// The transfer may, until a `synchronize` of the queue has returned `Ok`.
    Pending,
}

/// An in-order stream of work on one device.
///
/// Every function that moves bytes only *enqueues*: the work may take effect at once, or at any time until
/// [`synchronize`](Self::synchronize) returns.
///
/// # Safety
/// An implementation promises, and safe code relies on the promises:
/// 1. **Identity.** `id` always answers the same, no other queue ever answers it, and `device` is always the same.
/// 2. **Order.** Work of one queue takes effect in the order in which it was enqueued.
/// 3. **Waiting.** What is enqueued after `wait_for(other)` has returned `Ok` takes effect after everything that was
///    enqueued on `other` before the call, whatever backend `other` belongs to.
/// 4. **Synchronising.** When `synchronize` returns `Ok`, everything enqueued on this queue before, and everything it
///    waits for, has taken effect: that work touches no host byte any more, and its writes are visible to the
///    calling thread.
/// 5. **Exactness.** `upload`, `upload_from`, `download` and `copy` move exactly the named bytes, `fill` sets exactly
///    the named bytes to zero, and nothing else is written.
/// 6. **Host bytes.** They are touched by `upload` (read) and `download` (written) only, and by work that reads a
///    [`view`](Self::view): only the named ones, as they are when the work takes effect, and not after the call that
///    said [`Host::Done`], nor after a `synchronize` that returned `Ok`.
/// 7. **Allocation.** `alloc` gives a block of at least `len` bytes that no other block overlaps. Dropping it frees it
///    not before everything enqueued so far on the queue that allocated it has taken effect.
/// 8. **Errors.** A call that fails may have enqueued its work or not, but breaks no promise of this list. A queue on
///    which work was lost fails at every later `synchronize`, and so does every queue that was made to wait for it
///    since. Once it is known to have failed, `wait_for` it fails and enqueues nothing, so that the failure goes no
///    further.
/// 9. **Innocence.** No call, [`Device::host_block`] included, uses a memory of this crate, nor panics, except that
///    `upload_from` passes on what its function does. Only `synchronize`, `wait_for`, `make_room` and `upload_from`,
///    and the transfers that `is_staged` names, wait for the device, or for code that uses a memory, such as a kernel;
///    all others may be called with the memory locked.
/// 10. **Ways.** `reaches` answers the same for a device at any time, by every queue of this one's device, and yes for
///     that device itself. It enqueues nothing and touches no block. Where it says yes, `copy` takes blocks of it.
///     `is_staged` answers the same for host bytes while they are allocated, by every queue of this one's device, and
///     no for every part of bytes of which it says no.
///
/// Every function may be called from any thread. Moving 0 bytes is no error and does nothing.
pub unsafe trait Queue: fmt::Debug + Any + Send + Sync {
    /// Which queue this is.
    fn id(&self) -> QueueId;

    /// The device whose work this queue carries.
    fn device(&self) -> &dyn Device;

    /// A block of `len` bytes on this queue's device, `len` not 0. Its contents are unspecified.
    ///
    /// # Errors
    /// [`Error::DeviceOutOfMemory`], or [`Error::Device`].
    fn alloc(&self, len: usize) -> Result<Box<dyn Block>, Error>;

    /// After [`alloc`](Self::alloc) had no room for `len` bytes: takes back the memory that the backend keeps for later
    /// blocks, for which the call may wait for the device. Whether there may be room now, so that `alloc` is worth
    /// another try. A memory is not locked while it calls this.
    ///
    /// # Errors
    /// As [`synchronize`](Self::synchronize); [`Error::DeviceOutOfMemory`] of a length that the device never has, so
    /// that no memory there gives anything up for it.
    fn make_room(&self, len: usize) -> Result<bool, Error> {
        let _ = len;
        Ok(false)
    }

    /// A block over device memory with another owner, which may lie within a block of this very backend. Dropping
    /// it frees nothing.
    ///
    /// # Safety
    /// `len` bytes at `address` are memory of this queue's device, in no other use while the block and the work
    /// enqueued on it live.
    ///
    /// # Errors
    /// [`Error::Device`] when that is no memory of this device.
    unsafe fn adopt(&self, address: u64, len: usize) -> Result<Box<dyn Block>, Error>;

    /// Host bytes as a block of this queue's device that is only read: by kernels, and as the source of
    /// [`copy`](Self::copy). Dropping the block frees nothing. `None` where the device cannot read these bytes where
    /// they lie, and always of a device that does not [share the host's memory](Device::shares_host). A memory is
    /// locked when it calls this.
    ///
    /// # Safety
    /// `len` bytes at `host` are readable and unchanged from each call that enqueues work on the block until a
    /// `synchronize` of that call's queue has returned `Ok`. No work writes to the block.
    unsafe fn view(&self, host: NonNull<u8>, len: usize) -> Option<Box<dyn Block>> {
        let _ = (host, len);
        None
    }

    /// Enqueues a copy of `len` host bytes to `to[at..]`. The host bytes may be read during the call already.
    ///
    /// # Safety
    /// `to` is a block of this queue's device and `at + len` within it. The bytes at `from` are readable and unchanged
    /// during the call and, unless it says [`Host::Done`], until a `synchronize` has returned `Ok`. The block lives
    /// until then, or until it is dropped in order.
    ///
    /// # Errors
    /// [`Error::Device`].
    unsafe fn upload(&self, to: &dyn Block, at: usize, from: NonNull<u8>, len: usize) -> Result<Host, Error>;

    /// Whether transfers of these host bytes may wait for the device, as through memory of the backend's own. A memory
    /// is not locked while it calls [`upload`](Self::upload) or [`download`](Self::download) with such bytes.
    fn is_staged(&self, host: NonNull<u8>, len: usize) -> bool {
        let _ = (host, len);
        false
    }

    /// Enqueues a copy to `to[at..at + len]` of bytes that `fill` gives. `fill` is told a place in the block and puts
    /// the bytes from there on into all of a piece. The call asks for pieces in any order, from any thread, a piece
    /// twice if need be, and for none after its return.
    ///
    /// A backend that does not say otherwise goes through host memory, piece by piece, and waits for each.
    ///
    /// # Safety
    /// `to` is a block of this queue's device and `at + len` within it. The block lives until a `synchronize` has
    /// returned `Ok`, or until it is dropped in order.
    ///
    /// # Errors
    /// [`Error::Origin`] with an error of `fill`; [`Error::Device`], [`Error::OutOfMemory`], and as
    /// [`synchronize`](Self::synchronize). The named bytes are then unspecified.
    #[expect(clippy::type_complexity, reason = "a name would hide that any closure will do")]
    unsafe fn upload_from(
        &self,
        to: &dyn Block,
        at: usize,
        len: usize,
        fill: &(dyn Fn(usize, &mut [u8]) -> Result<(), OriginError> + Sync),
    ) -> Result<(), Error> {
        // SAFETY: the caller says that `to` is a block of this queue's device, that `at + len` lies within it, and that
        // it lives until this queue has been synchronised or it is dropped in order.
        unsafe { through_host(self, to, at..at + len, fill) }
    }

    /// Enqueues a copy of `from[at..at + len]` to the host. A call with bytes that [`is_staged`](Self::is_staged) names
    /// may wait for the copy, and for earlier work of the queue.
    ///
    /// # Safety
    /// As for [`upload`](Self::upload), with the bytes at `to` writable and in no other use until then.
    ///
    /// # Errors
    /// [`Error::Device`].
    unsafe fn download(&self, from: &dyn Block, at: usize, to: NonNull<u8>, len: usize) -> Result<Host, Error>;

    /// Whether [`copy`](Self::copy) can bring bytes of that device here, whichever backend that device belongs to.
    fn reaches(&self, other: &dyn Device) -> bool;

    /// Enqueues a copy of `len` bytes from a block of this device, or of one that this queue reaches.
    ///
    /// # Safety
    /// `to` is a block of this queue's device, `from` one of a device that it [`reaches`](Self::reaches); both ranges
    /// lie within their blocks.
    ///
    /// # Errors
    /// [`Error::Device`].
    unsafe fn copy(
        &self,
        to: &dyn Block,
        to_at: usize,
        from: &dyn Block,
        from_at: usize,
        len: usize,
    ) -> Result<(), Error>;

    /// Enqueues zeros into `block[at..at + len]`.
    ///
    /// # Safety
    /// `block` is a block of this queue's device and `at + len` within it.
    ///
    /// # Errors
    /// [`Error::Device`].
    unsafe fn fill(&self, block: &dyn Block, at: usize, len: usize) -> Result<(), Error>;

    /// Makes later work of this queue wait for all work that is enqueued on `other` now.
    ///
    /// A backend that does not know the other's kind of queue may synchronise the other.
    ///
    /// # Errors
    /// [`Error::Device`]; [`Error::CalledFromKernel`] as for [`synchronize`](Self::synchronize).
    fn wait_for(&self, other: &dyn Queue) -> Result<(), Error>;

    /// Waits until everything enqueued here has taken effect.
    ///
    /// # Errors
    /// [`Error::Device`] when some of the work failed; bytes that the work was to write are then unspecified.
    /// [`Error::CalledFromKernel`] where the backend runs kernels on host threads, and one of them calls: a memory does
    /// not take that for the queue's failure.
    fn synchronize(&self) -> Result<(), Error>;
}

/// A block of device memory, freed when dropped (in the order of the queue that allocated it).
///
/// # Safety
/// `address` and `len` always answer the same; the promises of [`Queue::alloc`] hold for it.
pub unsafe trait Block: fmt::Debug + Any + Send + Sync {
    /// The address of the first byte, as the device counts. A number, not a pointer: the host may not reach that
    /// address.
    fn address(&self) -> u64;

    /// The number of bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Large enough that the waits do not matter, small enough that a machine without much memory has the room.
const PIECE: usize = 1 << 20;

/// Enqueues an upload of `range` of a block.
///
/// # Safety
/// As for [`Queue::upload_from`].
pub(crate) unsafe fn through_host<Q: Queue + ?Sized>(
    queue: &Q,
    to: &dyn Block,
    range: Range<usize>,
    fill: impl Fn(usize, &mut [u8]) -> Result<(), OriginError>,
) -> Result<(), Error> {
    if range.is_empty() {
        return Ok(());
    }
    // A queue that may not be waited for says so before the piece is in use.
    queue.synchronize()?;
    let (mut piece, bytes) = (Vec::new(), range.len().min(PIECE));
    piece.try_reserve_exact(bytes).map_err(|_| Error::OutOfMemory { bytes })?;
    piece.resize(bytes, 0_u8);
    let start = NonNull::from(&mut piece[..]).cast::<u8>();
    for at in range.clone().step_by(PIECE) {
        let part = at..range.end.min(at + PIECE);
        // SAFETY: the piece has as many bytes, initialised and writable, and no other user: the piece is new, or its
        // last upload has been synchronised.
        let out = unsafe { slice::from_raw_parts_mut(start.as_ptr(), part.len()) };
        fill(at, out).map_err(|source| Error::Origin { range: part.clone(), source })?;
        // SAFETY: the caller promises the block. The bytes of the piece are readable, and nothing changes them before
        // the queue is synchronised; where that fails, the piece is never freed.
        let host = unsafe { queue.upload(to, at, start, part.len()) };
        if !matches!(host, Ok(Host::Done))
            && let Err(error) = queue.synchronize()
        {
            mem::forget(piece);
            return Err(error);
        }
        host?;
    }
    Ok(())
}
