//! Memory from outside: bytes or device memory that were allocated elsewhere, with the owner that keeps the bytes.
//!
//! The raw forms are unsafe: only the caller knows that the memory stays. The owner is dropped when no queue and
//! no borrow uses the memory any more, or leaked with it where that cannot be known.

use std::any::Any;
use std::sync::Arc;

use crate::borrow::QueueHandle;
use crate::coherence::plan::Request;
use crate::device::Queue;
use crate::engine::state::{Brings, Operation, State};
use crate::error::Error;
use crate::host::buffer::HostBuffer;
use crate::origin::Origin;
use crate::owned::SyncedMem;
use crate::shared::SharedMem;

/// The bytes that [`adopt`](SyncedMem::adopt) takes, in a memory of their own.
impl From<HostBuffer> for SyncedMem {
    fn from(buffer: HostBuffer) -> Self {
        let mut state = State::new(buffer.len(), None);
        if !buffer.is_empty() {
            state.adopt_host(buffer);
        }
        Self::from_state(state)
    }
}

/// A memory over a vector's bytes, which are not copied.
impl From<Vec<u8>> for SyncedMem {
    fn from(bytes: Vec<u8>) -> Self {
        HostBuffer::from(bytes).into()
    }
}

impl SyncedMem {
    /// A memory of the bytes of an origin, each of which is read when the byte is first needed, and once, unless the
    /// byte is evicted meanwhile. Allocates nothing. Bytes that are written are no longer those of the origin, which is
    /// never written itself.
    pub fn of(origin: Arc<dyn Origin>) -> Self {
        Self::from_state(State::of(origin))
    }
}

impl SharedMem {
    /// A memory of the bytes of an origin. See [`SyncedMem::of`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use synced_mem::{Head, Location, Origin, OriginError, SharedMem};
    ///
    /// struct Squares;
    ///
    /// impl Origin for Squares {
    ///     fn len(&self) -> usize {
    ///         16
    ///     }
    ///
    ///     fn read(&self, at: usize, out: &mut [u8]) -> Result<(), OriginError> {
    ///         out.iter_mut().zip(at..).for_each(|(byte, at)| *byte = (at * at) as u8);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let memory = SharedMem::of(Arc::new(Squares));
    /// assert_eq!(memory.head(), Head::AtOrigin);
    /// assert_eq!(memory.host(3..5)?[..], [9, 16]);
    /// assert_eq!(memory.stats().origin_reads.bytes, 2);
    /// memory.evict_clean(Location::Host, ..)?; // the bytes can be had again
    /// # Ok::<(), synced_mem::Error>(())
    /// ```
    pub fn of(origin: Arc<dyn Origin>) -> Self {
        SyncedMem::of(origin).into()
    }
}

impl From<HostBuffer> for SharedMem {
    fn from(buffer: HostBuffer) -> Self {
        SyncedMem::from(buffer).into()
    }
}

impl From<Vec<u8>> for SharedMem {
    fn from(bytes: Vec<u8>) -> Self {
        SyncedMem::from(bytes).into()
    }
}

/// The same memory behind a handle that can be cloned and that checks borrows at run time.
impl From<SyncedMem> for SharedMem {
    fn from(memory: SyncedMem) -> Self {
        Self { inner: Arc::new(memory.inner) }
    }
}

impl SyncedMem {
    /// Puts these bytes in the place of all bytes, newer ones on devices included (Caffe's `set_cpu_data`): a vector,
    /// which is written in place, or bytes with an [owner](HostBuffer::from_owner), of which a write copies the part
    /// that it needs.
    ///
    /// # Errors
    /// [`Error::WrongLength`]; the bytes are then dropped.
    pub fn adopt(&mut self, bytes: impl Into<HostBuffer>) -> Result<(), Error> {
        let adoption = host_adoption(self.len(), bytes.into())?;
        self.replace(adoption)
    }

    /// Puts device memory that `owner` keeps in the place of all bytes, newer ones on the host included (Caffe's
    /// `set_gpu_data`). Work that is enqueued on `ready_on` now is finished before the memory is read.
    ///
    /// # Safety
    /// As for [`Queue::adopt`], until `owner` is dropped.
    ///
    /// # Errors
    /// [`Error::WrongLength`]; [`Error::Device`] when the backend refuses the address.
    pub unsafe fn adopt_device(
        &mut self,
        ready_on: &Arc<dyn Queue>,
        address: u64,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<(), Error> {
        // SAFETY: the caller says that `len` bytes at `address` are memory of the queue's device, and in no other use
        // until `owner`, which is passed on, is dropped.
        let adoption = unsafe { device_adoption(self.len(), ready_on, address, len, owner)? };
        self.replace(adoption)
    }

    fn replace(&mut self, adoption: Option<Operation<'_>>) -> Result<(), Error> {
        self.reset_fast();
        adoption.map_or(Ok(()), |adoption| self.inner.adopt(adoption))
    }
}

impl SharedMem {
    /// Puts these bytes in the place of all bytes; all handles see the new ones. See [`SyncedMem::adopt`].
    ///
    /// # Errors
    /// [`Error::WrongLength`]; [`Error::Conflict`] when any byte is borrowed. The bytes are then dropped.
    pub fn adopt(&self, bytes: impl Into<HostBuffer>) -> Result<(), Error> {
        host_adoption(self.len(), bytes.into())?.map_or(Ok(()), |adoption| self.inner.adopt(adoption))
    }

    /// Puts device memory in the place of all bytes; all handles see the new ones. See [`SyncedMem::adopt_device`].
    ///
    /// # Safety
    /// As for [`SyncedMem::adopt_device`].
    ///
    /// # Errors
    /// [`Error::WrongLength`]; [`Error::Conflict`] when any byte is borrowed; [`Error::Device`].
    pub unsafe fn adopt_device(
        &self,
        ready_on: &Arc<dyn Queue>,
        address: u64,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<(), Error> {
        // SAFETY: the caller says that `len` bytes at `address` are memory of the queue's device, and in no other use
        // until `owner`, which is passed on, is dropped.
        let adoption = unsafe { device_adoption(self.len(), ready_on, address, len, owner)? };
        adoption.map_or(Ok(()), |adoption| self.inner.adopt(adoption))
    }
}

/// The adoption of bytes; none for a memory that has none.
fn host_adoption(wanted: usize, buffer: HostBuffer) -> Result<Option<Operation<'static>>, Error> {
    check_length(wanted, buffer.len())?;
    let is_empty = buffer.is_empty();
    Ok((!is_empty)
        .then(|| Operation { brings: Some(Box::new(Brings::Buffer(buffer))), ..Operation::new(Request::Adopt) }))
}

/// The adoption of device memory, with its owner; none for a memory that has no bytes.
///
/// # Safety
/// As for [`Queue::adopt`], until the owner is dropped, which is kept until no queue uses the block.
unsafe fn device_adoption(
    wanted: usize,
    ready_on: &Arc<dyn Queue>,
    address: u64,
    len: usize,
    owner: Box<dyn Any + Send + Sync>,
) -> Result<Option<Operation<'static>>, Error> {
    check_length(wanted, len)?;
    if len == 0 {
        return Ok(None);
    }
    // SAFETY: the caller says that `len` bytes at `address` are memory of the queue's device, and in no other use until
    // the owner is dropped. The operation holds the owner beside the block, and so does the memory, until no queue uses
    // the block.
    let block = unsafe { ready_on.adopt(address, len)? };
    let brings = Some(Box::new(Brings::Block(QueueHandle::new(ready_on), block, owner)));
    Ok(Some(Operation { brings, ..Operation::new(Request::Adopt) }))
}

fn check_length(wanted: usize, got: usize) -> Result<(), Error> {
    if wanted == got { Ok(()) } else { Err(Error::WrongLength { wanted, got }) }
}
