//! Memories over borrowed slices, for as long as a closure runs.
//!
//! No queue ever sees a lent slice: its bytes go to and from devices through a buffer of our own, and each such
//! transfer is finished before the call returns. So nothing is left to settle when the scope ends, not even after a
//! panic or a leak. The scope owns the memories and hands out references; it leaves out everything that would let one
//! escape.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::Access;
use crate::borrow::DeviceMut;
use crate::device::Queue;
use crate::error::Error;
use crate::host::buffer::HostBuffer;
use crate::owned::SyncedMem;

/// Runs `work` with a [`Scope`] that makes memories over borrowed slices. At its end, slices lent for writing get the
/// newest bytes.
///
/// ```
/// use synced_mem::loopback::{self, Loopback, Mode};
/// use synced_mem::{Device, scope};
///
/// let queue = Loopback::new(Mode::Deferred).queue()?;
/// let (input, mut output) = ([1u8, 2, 3], [0u8; 3]);
/// scope(|scope| {
///     let input = scope.lend(&input);
///     let mut output = scope.lend_mut(&mut output);
///     let (source, mut target) = (input.device(&queue, ..)?, output.device_overwrite(&queue, ..)?);
///     loopback::launch(&*queue, [source.arg(), target.arg_mut()], |args| {
///         let [source, target] = args else { unreachable!() };
///         target.bytes_mut().copy_from_slice(source.bytes());
///     })
/// })??;
/// assert_eq!(output, [1, 2, 3]);
/// # Ok::<(), synced_mem::Error>(())
/// ```
///
/// A memory cannot leave the scope:
///
/// ```compile_fail
/// let bytes = [1u8, 2, 3];
/// let escaped = synced_mem::scope(|scope| scope.lend(&bytes));
/// ```
/// ```compile_fail
/// let mut bytes = [1u8, 2, 3];
/// synced_mem::scope(|scope| {
///     let mut lent = scope.lend_mut(&mut bytes);
///     std::mem::replace(&mut *lent, synced_mem::SyncedMem::new(3)); // no `&mut SyncedMem` to be had
/// });
/// ```
///
/// # Errors
/// [`Error::Device`], [`Error::OutOfMemory`] when the newest bytes of a slice lent for writing cannot be brought back;
/// `work` has run, and the slice holds older bytes there.
pub fn scope<'env, R>(work: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> Result<R, Error> {
    let owned = Owned::default();
    let scope = Scope { owned: &owned, scope: PhantomData, env: PhantomData };
    let result = work(&scope);
    owned.bring_back().map(|()| result)
}

/// Makes memories over borrowed slices. See [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    owned: &'scope Owned,
    /// Invariant in both, like std's thread scope: neither may be stretched or shrunk to let a memory out.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The memories of a scope, freed at the end, after a panic too.
#[derive(Default)]
struct Owned {
    memories: RefCell<Vec<NonNull<SyncedMem>>>,
}

/// A memory over a slice that is lent for writing. Everything that only reads or adds copies is [`SyncedMem`]'s.
#[derive(Debug)]
pub struct LentMut<'scope> {
    memory: &'scope mut SyncedMem,
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// A memory over bytes that are only read.
    pub fn lend(&'scope self, bytes: &'env [u8]) -> &'scope SyncedMem {
        let start = NonNull::from(bytes).cast();
        // SAFETY: the bytes are borrowed for `'env`, which outlives the scope, and the scope frees the memory.
        let buffer = unsafe { HostBuffer::lent(start, bytes.len(), Access::Read) };
        let memory = self.owned.keep(buffer);
        // SAFETY: `keep` leaked a box that is freed after `'scope` only; no other reference to it is ever made.
        unsafe { memory.as_ref() }
    }

    /// A memory over bytes that may be written, in place.
    pub fn lend_mut(&'scope self, bytes: &'env mut [u8]) -> LentMut<'scope> {
        let len = bytes.len();
        let start = NonNull::from(bytes).cast();
        // SAFETY: the bytes are borrowed mutably for `'env`, which outlives the scope, so nothing else uses them
        // while the memory lives, and the scope frees the memory.
        let buffer = unsafe { HostBuffer::lent(start, len, Access::Write) };
        let mut memory = self.owned.keep(buffer);
        LentMut {
            // SAFETY: `keep` leaked a box that is freed after `'scope` only; this is the only reference to the memory
            // that is ever made.
            memory: unsafe { memory.as_mut() },
        }
    }
}

impl Owned {
    fn keep(&self, buffer: HostBuffer) -> NonNull<SyncedMem> {
        let memory = Box::new(SyncedMem::from(buffer));
        let memory = NonNull::from(Box::leak(memory));
        self.memories.borrow_mut().push(memory);
        memory
    }

    /// Brings the newest bytes to the slices: these are the host's own memory. Called when `'scope` is over.
    fn bring_back(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for &memory in &*self.memories.borrow() {
            // SAFETY: the box lives until `drop`, and the references that `lend` and `lend_mut` made have ended.
            let back = unsafe { memory.as_ref() }.host(..).map(drop);
            result = result.and(back);
        }
        result
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        for memory in self.memories.get_mut().drain(..) {
            // SAFETY: `keep` leaked this box, and only this takes it back, once; `'scope` is over.
            drop(unsafe { Box::from_raw(memory.as_ptr()) });
        }
    }
}

impl LentMut<'_> {
    /// See [`SyncedMem::host_mut`].
    ///
    /// # Errors
    /// As there.
    pub fn host_mut(&mut self, range: impl RangeBounds<usize>) -> Result<&mut [u8], Error> {
        self.memory.host_mut(range)
    }

    /// See [`SyncedMem::host_overwrite`].
    ///
    /// # Errors
    /// As there.
    pub fn host_overwrite(&mut self, range: impl RangeBounds<usize>) -> Result<&mut [u8], Error> {
        self.memory.host_overwrite(range)
    }

    /// See [`SyncedMem::device_mut`].
    ///
    /// # Errors
    /// As there.
    pub fn device_mut(
        &mut self,
        queue: &Arc<dyn Queue>,
        range: impl RangeBounds<usize>,
    ) -> Result<DeviceMut<'_>, Error> {
        self.memory.device_mut(queue, range)
    }

    /// See [`SyncedMem::device_overwrite`].
    ///
    /// # Errors
    /// As there.
    pub fn device_overwrite(
        &mut self,
        queue: &Arc<dyn Queue>,
        range: impl RangeBounds<usize>,
    ) -> Result<DeviceMut<'_>, Error> {
        self.memory.device_overwrite(queue, range)
    }
}

impl Deref for LentMut<'_> {
    type Target = SyncedMem;

    fn deref(&self) -> &SyncedMem {
        self.memory
    }
}
