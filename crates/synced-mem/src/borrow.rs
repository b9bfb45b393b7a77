//! A borrow as a caller sees it: the byte range, which has to lie within the memory; the lease, which holds the memory
//! until it is dropped and then ends the borrow; and on a device the queue, compared by identity, and the token: the
//! right to launch work on a byte range of a device's copy, on one queue.
//!
//! A token borrows the memory, so nothing can invalidate the range while launches are still being issued; its
//! destructor matters to no soundness. Kernels take [`Arg`]s, which only tokens make. Relies on the shells (`owned`,
//! `shared`), which order the queue before a token is made. Neither the memory nor the bytes are known here.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, Range, RangeBounds};
use std::sync::Arc;

use crate::access::{Access, QueueId};
use crate::device::{Block, Queue};
use crate::error::Error;

/// The bytes of a memory of `len` bytes that are asked for. Some may lie outside: see [`check`].
#[inline]
pub(crate) fn resolve(range: impl RangeBounds<usize>, len: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    start..end
}

/// Refuses a range that does not lie within a memory of `len` bytes.
pub(crate) fn check(range: Range<usize>, len: usize) -> Result<Range<usize>, Error> {
    if range.start <= range.end && range.end <= len { Ok(range) } else { Err(Error::OutOfBounds { range, len }) }
}

/// A memory whose borrows are checked at run time.
pub(crate) trait Lender: Send + Sync {
    /// A borrow has ended: which entry of the borrow table, or none for a reader of all bytes, which the table does not
    /// know.
    fn end(&self, borrow: Option<u64>);
}

pub(crate) struct Lease {
    lender: Arc<dyn Lender>,
    borrow: Option<u64>,
}

impl Lease {
    pub(crate) fn new(lender: Arc<dyn Lender>, borrow: Option<u64>) -> Self {
        Self { lender, borrow }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.lender.end(self.borrow);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

// ---- on a device ----

/// A queue, with one that stands for failed queues whose work never ends.
#[derive(Clone)]
pub(crate) struct QueueHandle {
    id: QueueId,
    queue: Arc<dyn Queue>,
    /// Whether the handle stands for queues whose work is never known to have ended.
    is_lost: bool,
}

impl QueueHandle {
    pub(crate) fn new(queue: &Arc<dyn Queue>) -> Self {
        Self { id: queue.id(), queue: Arc::clone(queue), is_lost: false }
    }

    /// A handle for this queue and others that have failed: a wait for such a handle always fails.
    pub(crate) fn lost(of: &Self) -> Self {
        Self { id: QueueId::new(), queue: Arc::clone(&of.queue), is_lost: true }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Waits for everything on the queue.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        if self.is_lost {
            Err(Error::device(self.queue.device().id(), "synchronize", "of many queues that have failed"))
        } else {
            self.queue.synchronize()
        }
    }

    /// Makes later work of this queue wait for the other queue.
    pub(crate) fn wait_for(&self, other: &Self) -> Result<(), Error> {
        if other.is_lost { other.synchronize() } else { self.queue.wait_for(&*other.queue) }
    }

    pub(crate) fn into_queue(self) -> Arc<dyn Queue> {
        self.queue
    }

    /// An error of this queue, with the name.
    pub(crate) fn named(&self, error: &Error) -> Error {
        let (device, op, what) = match error {
            Error::Device { device, op, source } => (*device, *op, source.to_string()),
            other => (self.queue.device().id(), "synchronize", other.to_string()),
        };
        if what.starts_with(&self.id.to_string()) {
            Error::device(device, op, what)
        } else {
            Error::device(device, op, format!("{}: {what}", self.id))
        }
    }
}

impl Deref for QueueHandle {
    type Target = Arc<dyn Queue>;

    fn deref(&self) -> &Arc<dyn Queue> {
        &self.queue
    }
}

impl PartialEq for QueueHandle {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl fmt::Debug for QueueHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

/// Bytes of a device's copy, borrowed to be read by work on one queue.
#[derive(Debug)]
pub struct DeviceRef<'a> {
    claimed: ClaimedRange,
    /// Of a shared memory: the dynamic borrow.
    _lease: Option<Lease>,
    borrow: PhantomData<&'a [u8]>,
}

/// Bytes of a device's copy, borrowed to be written by work on one queue, which may read them too.
#[derive(Debug)]
pub struct DeviceMut<'a> {
    token: DeviceRef<'a>,
    borrow: PhantomData<&'a mut [u8]>,
}

/// A range of a block, on a queue. A range without bytes has no block.
pub(crate) struct ClaimedRange {
    pub(crate) block: Option<Arc<dyn Block>>,
    pub(crate) range: Range<usize>,
    pub(crate) queue: Arc<dyn Queue>,
    /// For a memory with one owner: held as long as the token lives.
    pub(crate) _hold: Option<Arc<()>>,
}

/// An argument of a kernel: bytes of a device that its token allows it to read or write.
///
/// A backend's launch function takes arguments, checks that they belong to its queue, and lets the kernel touch nothing
/// else.
#[derive(Debug)]
pub struct Arg<'a> {
    claimed: &'a ClaimedRange,
    range: Range<usize>,
    access: Access,
}

impl<'a> DeviceRef<'a> {
    pub(crate) fn new(claimed: ClaimedRange, lease: Option<Lease>) -> Self {
        Self { claimed, _lease: lease, borrow: PhantomData }
    }

    /// The queue that may work on them.
    pub fn queue(&self) -> &Arc<dyn Queue> {
        &self.claimed.queue
    }

    /// All the bytes, as an argument that a kernel may read.
    pub fn arg(&self) -> Arg<'_> {
        Arg::new(&self.claimed, Access::Read)
    }
}

impl<'a> DeviceMut<'a> {
    pub(crate) fn new(claimed: ClaimedRange, lease: Option<Lease>) -> Self {
        Self { token: DeviceRef::new(claimed, lease), borrow: PhantomData }
    }

    /// All the bytes, as an argument that a kernel may write.
    pub fn arg_mut(&mut self) -> Arg<'_> {
        Arg::new(&self.token.claimed, Access::Write)
    }
}

/// A token to write is one to read, too.
impl<'a> Deref for DeviceMut<'a> {
    type Target = DeviceRef<'a>;

    fn deref(&self) -> &DeviceRef<'a> {
        &self.token
    }
}

impl ClaimedRange {
    /// No bytes at all.
    pub(crate) fn empty(queue: &Arc<dyn Queue>) -> Self {
        Self { block: None, range: 0..0, queue: Arc::clone(queue), _hold: None }
    }
}

impl<'a> Arg<'a> {
    fn new(claimed: &'a ClaimedRange, access: Access) -> Self {
        Self { claimed, range: claimed.range.clone(), access }
    }

    /// Some of its bytes, counted from its first.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        let (start, len) = (self.range.start, self.range.len());
        let range = check(resolve(range, len), len)?;
        Ok(Self { range: start + range.start..start + range.end, ..self })
    }

    /// Its bytes before `mid`, and those from it on.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn split_at(self, mid: usize) -> Result<(Self, Self), Error> {
        let Self { claimed, access, .. } = self;
        Ok((Self { claimed, range: self.range.clone(), access }.slice(..mid)?, self.slice(mid..)?))
    }

    /// The access that the kernel has to the bytes.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The queue that the bytes were borrowed for.
    pub fn queue(&self) -> QueueId {
        self.claimed.queue.id()
    }

    /// The block that the bytes lie in; a range without bytes has none.
    pub fn block(&self) -> Option<&dyn Block> {
        self.claimed.block.as_deref()
    }

    /// The place of the bytes in the block.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The device address of the first byte; 0 without a block. A number: for kernels, useless to the host.
    pub fn address(&self) -> u64 {
        let start = self.range.start as u64;
        self.claimed.block.as_ref().map_or(0, |block| block.address() + start)
    }
}

impl fmt::Debug for ClaimedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedRange")
            .field("range", &self.range)
            .field("queue", &self.queue.id())
            .finish_non_exhaustive()
    }
}
