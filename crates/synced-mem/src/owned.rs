//! `SyncedMem`: one memory with a single owner, whose borrows the compiler checks.
//!
//! Relies on one rule: `&self` may only add valid copies, only `&mut self` may change, free or replace one. So
//! `host(&self)` is a plain slice, two threads may read at once, and a device token outlives no invalidation. A
//! `SyncedMem` owns the memory that a `SharedMem` shares, and adds the way to all host bytes without a lock.

mod adopt;
pub(crate) mod scope;

use std::fmt;
use std::ops::{Range, RangeBounds};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use crate::access::{Head, Intent, Location};
use crate::borrow::{ClaimedRange, DeviceMut, DeviceRef, QueueHandle, check, resolve};
use crate::coherence::plan::{Bound, Dirty, Request};
use crate::device::Queue;
use crate::engine::serve;
use crate::engine::state::{Asked, Met, Operation, State};
use crate::error::Error;
use crate::host::buffer::dangling;
use crate::host::pool::HostPool;
use crate::shared::inner::Inner;
use crate::stats::{Observer, Stats};
use crate::sync::{AtomicPtr, Locked, Ordering};

/// A memory of a fixed length, coherent between the host and any number of devices.
///
/// A new one allocates nothing and reads as zeros. Bytes are moved when they are needed where they are not valid, and
/// only those.
///
/// ```
/// use std::sync::Arc;
/// use synced_mem::loopback::{self, Loopback, Mode};
/// use synced_mem::{Device, Head, SyncedMem};
///
/// let device = Loopback::new(Mode::Deferred); // host memory that plays a device
/// let queue = device.queue()?;
/// let mut memory = SyncedMem::new(1 << 20);
/// memory.host_mut(..)?[7] = 42;
/// let mut token = memory.device_mut(&queue, ..)?; // uploads
/// loopback::launch(&*queue, [token.arg_mut()], |args| args[0].bytes_mut()[7] += 1)?;
/// drop(token);
/// assert_eq!(memory.head(), Head::AtDevice);
/// assert_eq!(memory.host(..)?[7], 43); // downloads, once
/// assert_eq!((memory.head(), memory.stats().downloads.count), (Head::Synced, 1));
/// # Ok::<(), synced_mem::Error>(())
/// ```
///
/// The types forbid:
///
/// ```compile_fail
/// # use synced_mem::SyncedMem;
/// let mut memory = SyncedMem::new(8);
/// let bytes = memory.host(..).unwrap();
/// memory.host_mut(..).unwrap()[0] = 1; // invalidates what `bytes` shows
/// assert_eq!(bytes[0], 0);
/// ```
/// ```compile_fail
/// # use synced_mem::{loopback::{Loopback, Mode}, Device, SyncedMem};
/// let queue = Loopback::new(Mode::Deferred).queue().unwrap();
/// let mut memory = SyncedMem::new(8);
/// let token = memory.device(&queue, ..).unwrap();
/// memory.host_mut(..).unwrap()[0] = 1; // launches with `token` could still read
/// drop(token.arg());
/// ```
/// ```compile_fail
/// # use synced_mem::{loopback::{Loopback, Mode}, Device, SyncedMem};
/// let queue = Loopback::new(Mode::Deferred).queue().unwrap();
/// let memory = SyncedMem::new(8);
/// let mut token = memory.device(&queue, ..).unwrap();
/// token.arg_mut(); // a reading token makes no writable argument
/// ```
pub struct SyncedMem {
    /// The start of the host bytes, once all are valid and no queue writes them; null before. Set under `&self` while
    /// the lock is held; reset under `&mut self` only.
    fast: AtomicPtr<u8>,
    inner: Inner,
}

impl SyncedMem {
    /// A memory of `len` zero bytes. Allocates nothing.
    pub fn new(len: usize) -> Self {
        Self::from_state(State::new(len, None))
    }

    /// A memory of `len` zero bytes whose host memory comes from a pool, and goes back to it.
    pub fn new_in(len: usize, pool: &HostPool) -> Self {
        Self::from_state(State::new(len, Some(pool.clone())))
    }

    fn from_state(state: State) -> Self {
        Self { fast: AtomicPtr::new(ptr::null_mut()), inner: Inner::new(state) }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    // ---- the host ----

    /// Bytes on the host: `..` for all of them. Nothing else is moved. Takes no lock once all bytes have been read.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::OutOfMemory`], or [`Error::Device`] when a download fails; no copy is lost.
    #[inline]
    pub fn host(&self, range: impl RangeBounds<usize>) -> Result<&[u8], Error> {
        let range = resolve(range, self.inner.len);
        // Acquire: with the Release below, a thread that sees the pointer sees the bytes that were moved before it was
        // set.
        if let Some(start) = NonNull::new(self.fast.load(Ordering::Acquire)) {
            // SAFETY: the pointer is set when all `len` bytes there are valid and no queue writes them, and reset under
            // `&mut self` before that changes; the bytes are initialised, and no valid byte is written under `&self`.
            let bytes = unsafe { slice::from_raw_parts(start.as_ptr(), self.inner.len) };
            if let Some(bytes) = bytes.get(range.clone()) {
                return Ok(bytes);
            }
        }
        self.fetch_host(range)
    }

    /// The first time. Apart, so that [`host`](Self::host) stays small enough to be inlined in other crates.
    #[cold]
    fn fetch_host(&self, range: Range<usize>) -> Result<&[u8], Error> {
        let range = check(range, self.inner.len)?;
        if range.is_empty() {
            return Ok(&[]);
        }
        let start = self.access(Asked::new(None, &range, Intent::Read), |state, met| {
            let start = state.host_ptr(met.slot, range.start);
            if range == (0..self.inner.len) {
                // Under the lock under which all bytes were found valid.
                self.fast.store(start.as_ptr(), Ordering::Release);
            }
            start
        })?;
        // SAFETY: these bytes are valid at `start` and no queue writes them (`Request::Host` has been met). The buffer
        // stays and valid bytes stay as they are while `self` is borrowed: under `&self` copies are only added.
        Ok(unsafe { slice::from_raw_parts(start.as_ptr(), range.len()) })
    }

    /// Bytes on the host, for writing: no other copy of them is valid afterwards, and all other bytes stay valid in
    /// place.
    ///
    /// # Errors
    /// As [`host`](Self::host); the memory is then unchanged.
    pub fn host_mut(&mut self, range: impl RangeBounds<usize>) -> Result<&mut [u8], Error> {
        self.write_host(resolve(range, self.inner.len), Intent::Write)
    }

    /// Bytes on the host, for a caller who writes all of them: no byte is moved or filled. Before the write the values
    /// are unspecified: zeros, old values, or leftovers in a block of an [unzeroed pool](HostPool::unzeroed).
    ///
    /// # Errors
    /// As [`host`](Self::host).
    pub fn host_overwrite(&mut self, range: impl RangeBounds<usize>) -> Result<&mut [u8], Error> {
        self.write_host(resolve(range, self.inner.len), Intent::Overwrite)
    }

    fn write_host(&mut self, range: Range<usize>, intent: Intent) -> Result<&mut [u8], Error> {
        let range = check(range, self.inner.len)?;
        let start = if range.is_empty() {
            dangling()
        } else {
            self.access_mut(Asked::new(None, &range, intent), |state, met| state.host_ptr(met.slot, range.start))?
        };
        if range == (0..self.inner.len) {
            // All bytes are valid there again, so the next read needs no lock.
            self.fast.store(start.as_ptr(), Ordering::Relaxed);
        }
        // SAFETY: a met `Request::Host` gave `start` for bytes of the host's own memory that are initialised, writable
        // and valid in this copy alone, and that no queue uses; or there are none, and `start` is dangling and aligned.
        // The buffer stays while `self` is borrowed, and `&mut self` makes this the only reference to the bytes.
        Ok(unsafe { slice::from_raw_parts_mut(start.as_ptr(), range.len()) })
    }

    // ---- devices ----

    /// Bytes on the queue's device, for work on that queue: `..` for all of them. Uploads the missing bytes, and waits
    /// for nothing.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::DeviceOutOfMemory`], [`Error::Device`]; no copy is lost.
    pub fn device(&self, queue: &Arc<dyn Queue>, range: impl RangeBounds<usize>) -> Result<DeviceRef<'_>, Error> {
        let range = self.inner.range(range)?;
        if range.is_empty() {
            return Ok(DeviceRef::new(ClaimedRange::empty(queue), None));
        }
        let by = QueueHandle::new(queue);
        let (block, hold) = self.access(Asked::new(Some(&by), &range, Intent::Read), |state, met| {
            (state.block_for(met.slot, &by), met.hold)
        })?;
        Ok(DeviceRef::new(ClaimedRange { block, range, queue: by.into_queue(), _hold: hold }, None))
    }

    /// Bytes on the queue's device, to be written by work on that queue: no other copy of them is valid afterwards, and
    /// all other bytes stay valid in place.
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn device_mut(
        &mut self,
        queue: &Arc<dyn Queue>,
        range: impl RangeBounds<usize>,
    ) -> Result<DeviceMut<'_>, Error> {
        self.write_device(queue, resolve(range, self.inner.len), Intent::Write)
    }

    /// Bytes on the queue's device, for work that writes all of them: no byte is moved or filled. Before the write the
    /// values are unspecified.
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn device_overwrite(
        &mut self,
        queue: &Arc<dyn Queue>,
        range: impl RangeBounds<usize>,
    ) -> Result<DeviceMut<'_>, Error> {
        self.write_device(queue, resolve(range, self.inner.len), Intent::Overwrite)
    }

    /// Starts bringing bytes to the queue's device. See [`SharedMem::upload`](crate::SharedMem::upload).
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn upload(&self, queue: &Arc<dyn Queue>, range: impl RangeBounds<usize>) -> Result<(), Error> {
        self.device(queue, range).map(drop)
    }

    fn write_device(
        &mut self,
        queue: &Arc<dyn Queue>,
        range: Range<usize>,
        intent: Intent,
    ) -> Result<DeviceMut<'_>, Error> {
        let range = check(range, self.inner.len)?;
        if range.is_empty() {
            return Ok(DeviceMut::new(ClaimedRange::empty(queue), None));
        }
        let by = QueueHandle::new(queue);
        let (block, hold) = self.access_mut(Asked::new(Some(&by), &range, intent), |state, met| {
            (state.block_for(met.slot, &by), met.hold)
        })?;
        Ok(DeviceMut::new(ClaimedRange { block, range, queue: by.into_queue(), _hold: hold }, None))
    }

    /// Starts bringing bytes to the host; the next [`host`](Self::host) only waits for them.
    ///
    /// # Errors
    /// As [`host`](Self::host).
    pub fn prefetch_host(&self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        let range = self.inner.range(range)?;
        if range.is_empty() {
            return Ok(());
        }
        let operation = Operation::new(Request::Prefetch { range });
        serve::act(Locked::from(&self.inner.state), operation, Bound::Gaps, |_| Ok(()))
    }

    // ---- places and costs ----

    /// Where the newest bytes are, as Caffe sees it. Of no bytes: [`Head::Uninitialized`].
    pub fn head(&self) -> Head {
        self.inner.with(|state| state.facts().replicas.head())
    }

    /// Whether all these bytes are valid at a location. Of no bytes, all are; bytes outside the memory are valid
    /// nowhere.
    pub fn valid_on(&self, location: Location, range: impl RangeBounds<usize>) -> bool {
        self.inner.valid_on(location, range)
    }

    /// The cost of this memory so far. Lock-free reads are not counted.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// Tells `observer` the events of this memory from now on.
    pub fn set_observer(&mut self, observer: Arc<dyn Observer>) {
        self.inner.set_observer(observer);
    }

    // ---- giving room back ----

    /// Takes bytes away from a location: `..` for all of them. Those that no other copy holds are moved first: from a
    /// device to the host, from the host to a device that has been used before. A copy without bytes is freed.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::OnlyCopy`] when there is nowhere to move them; as [`host`](Self::host). Nothing
    /// is lost.
    pub fn evict(&mut self, location: Location, range: impl RangeBounds<usize>) -> Result<(), Error> {
        self.take_away(location, range, Dirty::Move)
    }

    /// Takes bytes away from a location, as [`evict`](Self::evict), if other copies hold all of them: nothing is moved.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::OnlyCopy`] when they do not.
    pub fn evict_clean(&mut self, location: Location, range: impl RangeBounds<usize>) -> Result<(), Error> {
        self.take_away(location, range, Dirty::Refuse)
    }

    fn take_away(&mut self, location: Location, range: impl RangeBounds<usize>, dirty: Dirty) -> Result<(), Error> {
        self.reset_fast();
        self.inner.evict(location, range, dirty)
    }

    /// Frees the memory of all copies that hold no valid byte.
    pub fn shrink(&mut self) {
        // Bytes that are read without the lock are all valid, so their copy stays.
        self.inner.shrink();
    }

    // ---- under whose borrow ----

    /// An access under `&self`: copies are only added. The wait is outside the lock.
    fn access<R>(&self, asked: Asked<'_>, answer: impl Fn(&State, Met) -> R) -> Result<R, Error> {
        let Some(state) = self.inner.state.enter() else { return Err(Error::Forked) };
        serve::access(Locked { lock: &self.inner.state, held: Some(state) }, &asked, Bound::Gaps, answer)
    }

    /// An access under `&mut self` that hands out bytes of one copy: those of others may be given up.
    fn access_mut<R>(&mut self, asked: Asked<'_>, answer: impl Fn(&State, Met) -> R) -> Result<R, Error> {
        self.inner.state.process().check()?;
        self.reset_fast();
        serve::access(self.inner.state.get_mut(), &asked, Bound::AllBut(asked.range.clone()), answer)
    }

    pub(crate) fn reset_fast(&mut self) {
        // Relaxed: `&mut self` already orders this against every other access.
        self.fast.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

impl fmt::Debug for SyncedMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncedMem").field("len", &self.len()).field("head", &self.head()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::shared::SharedMem;

    const fn assert_send_sync<T: Send + Sync + 'static>() {}
    const _: () = assert_send_sync::<SyncedMem>();

    #[test]
    fn new_allocates_nothing_and_reads_as_zeros() {
        let huge = SyncedMem::new(usize::MAX);
        assert_eq!(huge.len(), usize::MAX);
        assert!(huge.head() == Head::Uninitialized);
        for len in [1, 63, 64, 65, 4095, 4096, 4097] {
            let memory = SyncedMem::new(len);
            assert_eq!(memory.head(), Head::Uninitialized);
            assert_eq!(memory.host(..).unwrap(), vec![0; len]);
            assert_eq!(memory.head(), Head::AtHost);
        }
    }

    #[test]
    fn a_failed_allocation_changes_nothing() {
        let mut memory = SyncedMem::new(usize::MAX);
        assert!(matches!(memory.host(..), Err(Error::OutOfMemory { bytes: usize::MAX })));
        assert!(memory.host_mut(..).is_err());
        assert!(memory.host_overwrite(..).is_err());
        assert!(memory.head() == Head::Uninitialized);
    }

    #[test]
    fn threads_that_read_at_once_allocate_once() {
        for _ in 0..20 {
            let memory = SyncedMem::new(1000);
            let start = Barrier::new(4);
            let addresses: Vec<usize> = thread::scope(|scope| {
                let readers = [(); 4].map(|()| {
                    scope.spawn(|| {
                        start.wait();
                        memory.host(..).unwrap().as_ptr().addr()
                    })
                });
                readers.into_iter().map(|r| r.join().unwrap()).collect()
            });
            assert_eq!(memory.stats().allocations.count, 1);
            assert!(addresses.iter().all(|&address| address == addresses[0]));
        }
    }

    #[test]
    fn a_read_takes_no_lock_after_the_first() {
        let memory = SyncedMem::new(8);
        memory.host(..).unwrap();
        thread::scope(|scope| {
            let _state = memory.inner.lock();
            // Would never return if it took the lock that is held here.
            let reader = scope.spawn(|| memory.host(..).unwrap().len());
            while !reader.is_finished() {
                thread::yield_now();
            }
        });
    }

    #[test]
    fn a_panic_under_the_lock_leaves_the_memory_usable() {
        let memory = SyncedMem::new(1);
        thread::scope(|scope| {
            let panicking = scope.spawn(|| memory.inner.with(|_| panic!("expected")));
            assert!(panicking.join().is_err());
        });
        assert_eq!(memory.host(..).unwrap(), [0]);
    }

    #[test]
    fn into_shared_keeps_the_bytes() {
        let mut memory = SyncedMem::new(4);
        memory.host_mut(..).unwrap()[3] = 8;
        let address = memory.host(..).unwrap().as_ptr();
        let shared = SharedMem::from(memory);
        let bytes = shared.host(0..4).unwrap();
        assert_eq!((&bytes[..], bytes.as_ptr()), (&[0, 0, 0, 8][..], address));
        assert!(!SharedMem::from(SyncedMem::new(4)).is_initialized());
    }
}
