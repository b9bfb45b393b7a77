//! Device tokens: the right to launch work on a byte range of a device's copy, on one queue.
//!
//! A token borrows the memory, so nothing can invalidate the range while launches are still being issued; its
//! destructor matters to no soundness. Kernels take [`Arg`]s, which only tokens make. Relies on the shells (`owned`,
//! `shared`), which order the queue before a token is made.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range, RangeBounds};
use std::sync::Arc;

use crate::access::{Access, QueueId};
use crate::borrow::{Lease, check, resolve};
use crate::device::{Block, Queue};
use crate::error::Error;

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
