//! Memory from outside: bytes or device memory that somebody else allocated, with the owner that keeps them.
//!
//! The raw forms are unsafe: nobody but the caller knows that the memory stays. The owner is dropped when no queue and
//! no borrow uses the memory any more, or leaked with it where that cannot be known.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::engine::queue::QueueHandle;
use crate::{Access, Error, HostBuffer, Queue, SharedMem, SyncedMem};

impl SyncedMem {
    /// Adopts `len` host bytes that `owner` keeps. With [`Access::Read`] they are never written; with
    /// [`Access::Write`] they are the host's copy from now on.
    ///
    /// # Safety
    /// The bytes are initialised, readable (and writable for `Write`), and used by nobody else (for `Read`: written by
    /// nobody), until `owner` is dropped. They do not lie in the owner's own box: moving a box claims its content.
    pub unsafe fn from_raw_host(
        ptr: NonNull<u8>,
        len: usize,
        access: Access,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        // SAFETY: the caller's promise.
        Self::from_buffer(unsafe { HostBuffer::from_raw(ptr, len, access, owner) })
    }

    /// Adopts device memory that `owner` keeps; what is enqueued on `ready_on` now is finished before anybody reads it.
    ///
    /// # Safety
    /// As for [`Queue::adopt`], until `owner` is dropped.
    ///
    /// # Errors
    /// [`Error::Device`] when the backend refuses the address.
    pub unsafe fn from_raw_device(
        ready_on: &Arc<dyn Queue>,
        address: u64,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, Error> {
        let mut memory = Self::new(len);
        // SAFETY: the caller's promise.
        unsafe { memory.adopt_device(ready_on, address, len, owner)? };
        Ok(memory)
    }

    /// Puts the bytes of `owner` in the place of what there was, newer bytes on devices included (Caffe's
    /// `set_cpu_data`). They are read-only: a write copies what it needs first.
    ///
    /// # Errors
    /// [`Error::WrongLength`]; the owner is then dropped.
    pub fn adopt_host(&mut self, owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<(), Error> {
        self.adopt_buffer(HostBuffer::from_owner(owner))
    }

    /// As [`adopt_host`](Self::adopt_host), with bytes that may be written in place.
    ///
    /// # Errors
    /// [`Error::WrongLength`].
    pub fn adopt_vec(&mut self, bytes: Vec<u8>) -> Result<(), Error> {
        self.adopt_buffer(HostBuffer::from_vec(bytes))
    }

    /// As [`adopt_host`](Self::adopt_host), with raw memory.
    ///
    /// # Safety
    /// As for [`from_raw_host`](Self::from_raw_host).
    ///
    /// # Errors
    /// [`Error::WrongLength`].
    pub unsafe fn adopt_raw_host(
        &mut self,
        ptr: NonNull<u8>,
        len: usize,
        access: Access,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        self.adopt_buffer(unsafe { HostBuffer::from_raw(ptr, len, access, owner) })
    }

    fn adopt_buffer(&mut self, buffer: HostBuffer) -> Result<(), Error> {
        check_length(self.len(), buffer.len())?;
        self.reset_fast();
        let mut offered = Some(buffer);
        self.act_mut(
            |_| Ok(()),
            |state| {
                if let Some(buffer) = offered.take() {
                    state.adopt_host(buffer);
                }
                Ok(())
            },
        )
    }

    /// Puts device memory in the place of what there was, newer bytes on the host included (Caffe's `set_gpu_data`).
    ///
    /// # Safety
    /// As for [`from_raw_device`](Self::from_raw_device).
    ///
    /// # Errors
    /// [`Error::WrongLength`]; [`Error::Device`].
    pub unsafe fn adopt_device(
        &mut self,
        ready_on: &Arc<dyn Queue>,
        address: u64,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<(), Error> {
        check_length(self.len(), len)?;
        // SAFETY: the caller's promise; the owner is kept until no queue uses the block (`State::free_device`).
        let block = unsafe { ready_on.adopt(address, len)? };
        self.reset_fast();
        let mut offered = Some((block, owner));
        self.act_mut(
            |_| Ok(()),
            |state| {
                if let Some((block, owner)) = offered.take() {
                    state.adopt_device(&QueueHandle::new(ready_on), block, owner);
                }
                Ok(())
            },
        )
    }
}

impl SharedMem {
    /// Puts the bytes of `owner` in the place of what there was; all handles see them. See [`SyncedMem::adopt_host`].
    ///
    /// # Errors
    /// [`Error::WrongLength`]; [`Error::Conflict`] when somebody borrows any byte. The owner is then dropped.
    pub fn adopt_host(&self, owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<(), Error> {
        self.adopt_buffer(HostBuffer::from_owner(owner))
    }

    /// As [`adopt_host`](Self::adopt_host), with bytes that may be written in place.
    ///
    /// # Errors
    /// As [`adopt_host`](Self::adopt_host).
    pub fn adopt_vec(&self, bytes: Vec<u8>) -> Result<(), Error> {
        self.adopt_buffer(HostBuffer::from_vec(bytes))
    }

    /// As [`adopt_host`](Self::adopt_host), with raw memory.
    ///
    /// # Safety
    /// As for [`SyncedMem::from_raw_host`].
    ///
    /// # Errors
    /// As [`adopt_host`](Self::adopt_host).
    pub unsafe fn adopt_raw_host(
        &self,
        ptr: NonNull<u8>,
        len: usize,
        access: Access,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        self.adopt_buffer(unsafe { HostBuffer::from_raw(ptr, len, access, owner) })
    }

    fn adopt_buffer(&self, buffer: HostBuffer) -> Result<(), Error> {
        check_length(self.len(), buffer.len())?;
        // What is refused is dropped here, outside the lock: its owner's destructor is user code.
        let mut offered = Some(buffer);
        self.inner.act(|state| {
            state.borrows.check(&state.whole(), Access::Write)?;
            if let Some(buffer) = offered.take() {
                state.adopt_host(buffer);
            }
            Ok(())
        })
    }

    /// Puts device memory in the place of what there was; all handles see it. See [`SyncedMem::adopt_device`].
    ///
    /// # Safety
    /// As for [`SyncedMem::from_raw_device`].
    ///
    /// # Errors
    /// [`Error::WrongLength`]; [`Error::Conflict`] when somebody borrows any byte; [`Error::Device`].
    pub unsafe fn adopt_device(
        &self,
        ready_on: &Arc<dyn Queue>,
        address: u64,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<(), Error> {
        check_length(self.len(), len)?;
        // SAFETY: the caller's promise; the owner is kept until no queue uses the block (`State::free_device`).
        let block = unsafe { ready_on.adopt(address, len)? };
        // As above.
        let mut offered = Some((block, owner));
        self.inner.act(|state| {
            state.borrows.check(&state.whole(), Access::Write)?;
            if let Some((block, owner)) = offered.take() {
                state.adopt_device(&QueueHandle::new(ready_on), block, owner);
            }
            Ok(())
        })
    }
}

fn check_length(wanted: usize, got: usize) -> Result<(), Error> {
    match wanted == got {
        true => Ok(()),
        false => Err(Error::WrongLength { wanted, got }),
    }
}
