//! `SharedMem`: one memory behind any number of handles; borrows are byte ranges, checked at run time.
//!
//! A conflict is an error at once, a caller waits for a borrow only by request, and the lock is not held while user
//! code runs. Relies on `state` for the copies, and forms references to borrowed ranges only, from raw pointers.

mod copy;
#[allow(unsafe_code)]
pub(crate) mod guards;
pub(crate) mod inner;
mod readers;

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use self::inner::{Inner, Waiter};
use crate::access::{Access, Head, Intent, Location};
use crate::borrow::{ClaimedRange, DeviceMut, DeviceRef, Lease, QueueHandle, check, resolve};
use crate::coherence::plan::{Dirty, Request};
use crate::device::Queue;
use crate::engine::state::{Asked, Lacking, Met, Operation, State};
use crate::error::Error;
use crate::host::pool::HostPool;
use crate::shared::guards::{HostMut, HostRef};
use crate::stats::{Observer, Stats};

/// A handle to a memory of a fixed length; a clone shares the memory (Caffe's `ShareData`).
///
/// Any number of readers may overlap; a writer that overlaps another borrow, of any copy, gets [`Error::Conflict`].
/// Disjoint and empty ranges never conflict. A leaked guard keeps a range borrowed until the process ends, which is
/// safe.
///
/// ```
/// use synced_mem::SharedMem;
///
/// let memory = SharedMem::new(16);
/// let (previous, mut current) = (memory.host(0..8)?, memory.host_mut(8..16)?);
/// current.copy_from_slice(&previous);
/// assert!(memory.host(4..12).is_err()); // overlaps the writer
/// # Ok::<(), synced_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedMem {
    pub(crate) inner: Arc<Inner>,
}

impl SharedMem {
    /// A memory of `len` zero bytes. Allocates no bytes until the first touch.
    pub fn new(len: usize) -> Self {
        Self::from_state(State::new(len, None))
    }

    /// A memory of `len` zero bytes whose host memory comes from a pool, and goes back to it.
    pub fn new_in(len: usize, pool: &HostPool) -> Self {
        Self::from_state(State::new(len, Some(pool.clone())))
    }

    pub(crate) fn from_state(state: State) -> Self {
        Self { inner: Arc::new(Inner::new(state)) }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// Whether both handles lead to the same memory.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    // ---- the host ----

    /// Borrows bytes for reading: `..` for all of them. Brings the missing bytes to the host, and no others.
    ///
    /// Reading all bytes takes no lock from the second time on, until some are written or leave the host.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Conflict`] with a writer, [`Error::OutOfMemory`], [`Error::Device`].
    pub fn host(&self, range: impl RangeBounds<usize>) -> Result<HostRef, Error> {
        let range = resolve(range, self.len());
        if range == (0..self.len())
            && let Some(start) = self.inner.readers.enter()
        {
            return Ok(HostRef::new(start, self.len(), Lease::new(self.inner.clone(), None)));
        }
        self.borrow_host(range, Intent::Read)
    }

    /// Borrows bytes for writing: all other bytes stay valid in place.
    ///
    /// # Errors
    /// As [`host`](Self::host), and [`Error::Conflict`] with any other borrow.
    pub fn host_mut(&self, range: impl RangeBounds<usize>) -> Result<HostMut, Error> {
        self.borrow_host(resolve(range, self.len()), Intent::Write).map(HostMut::new)
    }

    /// Borrows bytes for a caller who writes all of them: no byte is moved or filled. Before the write the values are
    /// unspecified: zeros, old values, or leftovers in a block of an [unzeroed pool](crate::HostPool::unzeroed).
    ///
    /// # Errors
    /// As [`host_mut`](Self::host_mut).
    pub fn host_overwrite(&self, range: impl RangeBounds<usize>) -> Result<HostMut, Error> {
        self.borrow_host(resolve(range, self.len()), Intent::Overwrite).map(HostMut::new)
    }

    fn borrow_host(&self, range: Range<usize>, intent: Intent) -> Result<HostRef, Error> {
        let range = check(range, self.len())?;
        if range.is_empty() {
            return Ok(HostRef::empty());
        }
        let start = |state: &State, met: Met| {
            let start = state.host_ptr(met.slot, range.start);
            if intent == Intent::Read && range == (0..self.len()) {
                // All bytes are valid there and no queue writes them, and this borrow keeps writers away until the lock
                // is released; from then on a writer closes the way first.
                self.inner.readers.open(start);
            }
            start
        };
        let (start, lease) = self.inner.access(Asked::new(None, &range, intent), start)?;
        Ok(HostRef::new(start, range.len(), lease))
    }

    // ---- devices ----

    /// Borrows bytes on the queue's device, to be read by work on that queue.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Conflict`] with a writer, [`Error::DeviceOutOfMemory`], [`Error::Device`].
    pub fn device(&self, queue: &Arc<dyn Queue>, range: impl RangeBounds<usize>) -> Result<DeviceRef<'static>, Error> {
        let (claimed, lease) = self.borrow_device(queue, resolve(range, self.len()), Intent::Read)?;
        Ok(DeviceRef::new(claimed, lease))
    }

    /// Borrows bytes on the queue's device, to be written by work on that queue.
    ///
    /// # Errors
    /// As [`device`](Self::device), and [`Error::Conflict`] with any other borrow.
    pub fn device_mut(
        &self,
        queue: &Arc<dyn Queue>,
        range: impl RangeBounds<usize>,
    ) -> Result<DeviceMut<'static>, Error> {
        let (claimed, lease) = self.borrow_device(queue, resolve(range, self.len()), Intent::Write)?;
        Ok(DeviceMut::new(claimed, lease))
    }

    /// Borrows bytes on the queue's device, for work that writes all of them: no byte is moved.
    ///
    /// # Errors
    /// As [`device_mut`](Self::device_mut).
    pub fn device_overwrite(
        &self,
        queue: &Arc<dyn Queue>,
        range: impl RangeBounds<usize>,
    ) -> Result<DeviceMut<'static>, Error> {
        let (claimed, lease) = self.borrow_device(queue, resolve(range, self.len()), Intent::Overwrite)?;
        Ok(DeviceMut::new(claimed, lease))
    }

    /// Starts bringing bytes to the queue's device, where they stay valid on the host too (Caffe's `async_gpu_push`).
    /// Bytes of a pool of pinned memory move while the host goes on.
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn upload(&self, queue: &Arc<dyn Queue>, range: impl RangeBounds<usize>) -> Result<(), Error> {
        self.device(queue, range).map(drop)
    }

    fn borrow_device(
        &self,
        queue: &Arc<dyn Queue>,
        range: Range<usize>,
        intent: Intent,
    ) -> Result<(ClaimedRange, Option<Lease>), Error> {
        let range = check(range, self.len())?;
        if range.is_empty() {
            return Ok((ClaimedRange::empty(queue), None));
        }
        let by = QueueHandle::new(queue);
        let asked = Asked::new(Some(&by), &range, intent);
        let (block, lease) = self.inner.access(asked, |state, met| state.block_for(met.slot, &by))?;
        Ok((ClaimedRange { block, range, queue: by.into_queue(), _hold: None }, Some(lease)))
    }

    /// Tries `access` again after a conflict, each time that a borrow of this memory has ended, until the time is over.
    /// The conflict that is left then is the error. Where a [`Budget`](crate::Budget) or its device lacks room, it is
    /// tried again each millisecond: the end of any borrow of any of its memories may make room.
    ///
    /// A thread that waits for a guard of its own, or for one of another memory, waits until the time is over.
    ///
    /// ```
    /// use std::time::Duration;
    /// use synced_mem::SharedMem;
    ///
    /// let memory = SharedMem::new(16);
    /// let reader = memory.host(..)?;
    /// let other = std::thread::spawn(move || drop(reader));
    /// memory.with_timeout(Duration::from_secs(60), |memory| memory.host_mut(8..))?.fill(1);
    /// # other.join().unwrap();
    /// # Ok::<(), synced_mem::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `access`.
    pub fn with_timeout<R>(
        &self,
        timeout: Duration,
        mut access: impl FnMut(&Self) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let start = Instant::now();
        let mut waiter = None;
        loop {
            let result = access(self);
            let left = timeout.saturating_sub(start.elapsed());
            match result {
                Err(Error::Conflict { .. }) if !left.is_zero() => {}
                Err(ref error) if error.may_pass() && !left.is_zero() => {
                    thread::sleep(left.min(Duration::from_millis(1)));
                    continue;
                }
                result => return result,
            }
            match &mut waiter {
                // From here on no end of a borrow is missed, so `access` is tried once more before the first wait.
                None => waiter = Some(Waiter::new(&self.inner)),
                Some(waiter) => waiter.wait(left),
            }
        }
    }

    // ---- moving ahead of time, and back ----

    /// Starts bringing bytes to the host.
    ///
    /// # Errors
    /// As [`host`](Self::host).
    pub fn prefetch_host(&self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        let range = self.inner.range(range)?;
        if range.is_empty() {
            return Ok(());
        }
        let operation = Operation::new(Request::Prefetch { range: range.clone() });
        self.inner.act(operation, |state| self.inner.check(state, &range, Access::Read))
    }

    /// Takes bytes away from a location. See [`SyncedMem::evict`](crate::SyncedMem::evict).
    ///
    /// # Errors
    /// [`Error::Conflict`] when bytes there are borrowed; as [`SyncedMem::evict`](crate::SyncedMem::evict).
    pub fn evict(&self, location: Location, range: impl RangeBounds<usize>) -> Result<(), Error> {
        self.inner.evict(location, range, Dirty::Move)
    }

    /// Takes bytes away from a location if other copies hold all of them. See
    /// [`SyncedMem::evict_clean`](crate::SyncedMem::evict_clean).
    ///
    /// # Errors
    /// [`Error::Conflict`] when bytes there are borrowed; as [`SyncedMem::evict_clean`](crate::SyncedMem::evict_clean).
    pub fn evict_clean(&self, location: Location, range: impl RangeBounds<usize>) -> Result<(), Error> {
        self.inner.evict(location, range, Dirty::Refuse)
    }

    /// Frees the memory of all copies that hold no valid byte.
    pub fn shrink(&self) {
        self.inner.shrink();
    }

    // ---- places and costs ----

    /// Where the newest bytes are, as Caffe sees it. Of no bytes: [`Head::Uninitialized`].
    pub fn head(&self) -> Head {
        self.inner.with(|state| state.facts().replicas.head())
    }

    /// Whether all these bytes are valid at a location. See [`SyncedMem::valid_on`](crate::SyncedMem::valid_on).
    pub fn valid_on(&self, location: Location, range: impl RangeBounds<usize>) -> bool {
        self.inner.valid_on(location, range)
    }

    /// Whether any byte was ever touched or adopted; otherwise the memory reads as zeros and takes no room.
    pub fn is_initialized(&self) -> bool {
        self.inner.with(|state| state.facts().replicas.is_written())
    }

    /// The cost of this memory so far. Reads that took no lock are not counted.
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// Tells `observer` the events of this memory from now on.
    pub fn set_observer(&self, observer: Arc<dyn Observer>) {
        self.inner.set_observer(observer);
    }
}

/// # For wrappers
///
/// Questions of a type that is made of memories, such as a tensor or an operation on several, before the first borrow.
impl SharedMem {
    /// An order of memories, the same for their whole life: handles that lead to one memory are equal.
    pub fn ptr_cmp(&self, other: &Self) -> Ordering {
        Arc::as_ptr(&self.inner).cmp(&Arc::as_ptr(&other.inner))
    }

    /// How many handles and live guards lead to this memory.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.inner)
    }

    /// A memory of `len` zero bytes, in the pool of this one, if there is a pool.
    pub fn new_alike(&self, len: usize) -> Self {
        Self::from_state(self.inner.with(|state| state.new_alike(len)))
    }

    /// How many bytes of a range would have to be moved to the host, and to each device that this memory has been on.
    /// Bytes that were never written are moved to no place.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn lacking(&self, range: impl RangeBounds<usize>) -> Result<Lacking, Error> {
        let range = self.inner.range(range)?;
        Ok(self.inner.with(|state| state.lacking_by_place(&range)))
    }

    /// Whether a write borrow of these bytes would be refused now. Nothing changes, so a caller that needs several
    /// borrows can ask for all before the first takes effect; another thread may still come in between.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Conflict`].
    pub fn check_write(&self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        let range = self.inner.range(range)?;
        self.inner.with(|state| state.facts().borrows.check(&range, Access::Write))?;
        if self.inner.readers.are_there() && !range.is_empty() { Err(self.inner.is_read(&range)) } else { Ok(()) }
    }

    /// The address that writers of the bytes from `at` on get, if the host has memory of its own already. Without such
    /// memory writers get fresh memory, which starts at a multiple of 64.
    pub fn write_address(&self, at: usize) -> Option<usize> {
        self.inner.with(State::host_start).map(|start| start.addr().get().wrapping_add(at))
    }
}

impl fmt::Debug for SharedMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMem").field("len", &self.len()).field("head", &self.head()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use super::*;
    use crate::host::buffer::HostBuffer;

    const fn assert_send_sync<T: Send + Sync + 'static>() {}
    const _: () = {
        assert_send_sync::<SharedMem>();
        assert_send_sync::<HostRef>();
        assert_send_sync::<HostMut>();
    };

    /// A guard of either kind.
    #[expect(dead_code, reason = "held for its lifetime")]
    enum Guard {
        Read(HostRef),
        Write(HostMut),
    }

    fn take(memory: &SharedMem, range: Range<usize>, access: Access) -> Result<Guard, Error> {
        match access {
            Access::Read => memory.host(range).map(Guard::Read),
            Access::Write => memory.host_mut(range).map(Guard::Write),
        }
    }

    #[test]
    fn conflicts_are_exactly_the_overlaps_with_a_writer() {
        let memory = SharedMem::new(4);
        let ranges = || (0..=4).flat_map(|start| (start..=4).map(move |end| start..end));
        let accesses = [Access::Read, Access::Write];
        for (a, b) in ranges().flat_map(|a| ranges().map(move |b| (a.clone(), b))) {
            for (first, second) in accesses.iter().flat_map(|f| accesses.map(|s| (*f, s))) {
                let common = a.clone().any(|byte| b.contains(&byte));
                let expected = common && (first == Access::Write || second == Access::Write);
                let held_guard = take(&memory, a.clone(), first).unwrap();
                match take(&memory.clone(), b.clone(), second) {
                    Ok(_) => assert!(!expected, "{first} {a:?}, {second} {b:?}"),
                    Err(Error::Conflict { wanted, wanted_range, held, held_range }) => {
                        assert!(expected, "{first} {a:?}, {second} {b:?}");
                        assert_eq!((wanted, &wanted_range), (second, &b));
                        assert_eq!((held, &held_range), (first, &a));
                    }
                    Err(other) => panic!("{other}"),
                }
                drop(held_guard);
                // The guards are gone, so nothing is in the way.
                memory.host_mut(0..4).unwrap();
            }
        }
    }

    #[test]
    fn asking_for_a_write_changes_nothing() {
        let memory = SharedMem::new(4);
        assert!(memory.check_write(0..4).is_ok() && memory.check_write(0..5).is_err());
        let reader = memory.host(0..2).unwrap();
        assert!(memory.check_write(1..4).is_err() && memory.check_write(2..4).is_ok());
        drop(reader);
        assert_eq!(memory.stats().allocations.count, 1);
        assert!(memory.host_mut(0..4).is_ok());
    }

    #[test]
    fn reading_all_bytes_takes_no_lock_after_the_first_time() {
        for memory in [SharedMem::from(vec![3; 8]), SharedMem::from(HostBuffer::from_owner([3; 8]))] {
            assert_eq!(*memory.host(0..8).unwrap(), [3; 8]);
            let state = memory.inner.lock();
            let (done, read) = mpsc::channel();
            thread::spawn({
                let memory = memory.clone();
                move || done.send(memory.host(..).unwrap()).unwrap()
            });
            // A wait here would be for the lock that is held here.
            let guard = read.recv_timeout(Duration::from_secs(20)).expect("no lock taken");
            let again = memory.host(..=7).unwrap();
            assert_eq!((&guard[..], guard.as_ptr()), (&[3; 8][..], again.as_ptr()));
            drop((again, state));
            for refused in [memory.host_mut(2..3).map(drop), memory.evict(Location::Host, 7..), memory.check_write(1..)]
            {
                match refused {
                    Err(Error::Conflict { held: Access::Read, held_range, .. }) => assert_eq!(held_range, 0..8),
                    other => panic!("{other:?}"),
                }
            }
            assert!(memory.adopt(vec![0; 8]).is_err() && memory.copy_from(1, &SharedMem::new(1), ..).is_err());
            drop(guard);
            memory.host_mut(7..).unwrap()[0] = 4;
            assert_eq!(*memory.host(..).unwrap(), [3, 3, 3, 3, 3, 3, 3, 4]);
        }
    }

    #[test]
    fn a_range_outside_is_an_error() {
        let memory = SharedMem::new(4);
        #[expect(clippy::reversed_empty_ranges, reason = "an error, not an empty range")]
        let outside = [0..5, 4..5, 5..5, 5..usize::MAX, 3..1, usize::MAX..0];
        for range in outside {
            match memory.host(range.clone()) {
                Err(Error::OutOfBounds { range: named, len }) => {
                    assert_eq!((named, len), (range.clone(), 4));
                }
                other => panic!("{range:?}: {other:?}"),
            }
            assert!(memory.host_mut(range.clone()).is_err());
            assert!(memory.host_overwrite(range).is_err());
        }
        assert!(!memory.is_initialized());
    }

    #[test]
    fn clones_share_and_guards_outlive_handles() {
        let memory = SharedMem::new(3);
        let clone = memory.clone();
        assert!(clone.ptr_eq(&memory) && !clone.ptr_eq(&SharedMem::new(3)));
        memory.host_mut(1..2).unwrap()[0] = 5;
        let guard = clone.host(0..3).unwrap();
        drop((memory, clone));
        assert_eq!(*guard, [0, 5, 0]);
    }

    #[test]
    fn readers_of_adopted_bytes_outlive_the_first_write() {
        let owner: Arc<[u8]> = Arc::from([1, 2, 3, 4]);
        let memory = SharedMem::from(HostBuffer::from_owner(owner.clone()));
        let old = memory.host(0..2).unwrap();
        assert_eq!(old.as_ptr(), owner.as_ptr());
        let mut writer = memory.host_mut(2..4).unwrap();
        writer[0] = 30;
        assert_eq!(*old, [1, 2]);
        assert_eq!(old.as_ptr(), owner.as_ptr());
        // Adopted bytes serve readers for as long as no newer ones exist.
        let new = memory.host(0..2).unwrap();
        assert_eq!(new.as_ptr(), owner.as_ptr());
        drop(writer);
        assert_eq!(*memory.host(0..4).unwrap(), [1, 2, 30, 4]);
        assert_eq!(*owner, [1, 2, 3, 4]);
        assert_eq!(memory.stats().host_copies.bytes, 4);
        drop((old, new));
        assert_eq!(Arc::strong_count(&owner), 2, "half of it is the newest");
        drop(memory.host_mut(0..2).unwrap());
        assert_eq!(Arc::strong_count(&owner), 1, "no other handle is left");
    }

    /// An owner whose destructor uses the memory that owned it.
    struct Reentrant(Arc<Mutex<Option<SharedMem>>>);

    impl AsRef<[u8]> for Reentrant {
        fn as_ref(&self) -> &[u8] {
            &[1, 2]
        }
    }

    impl Drop for Reentrant {
        fn drop(&mut self) {
            let memory = self.0.lock().unwrap().take().expect("dropped once");
            assert!(memory.is_initialized());
            assert!(memory.host(0..0).is_ok());
        }
    }

    #[test]
    fn an_owners_destructor_may_use_the_memory() {
        for reader_first in [false, true] {
            let cell = Arc::new(Mutex::new(None));
            let memory = SharedMem::from(HostBuffer::from_owner(Reentrant(cell.clone())));
            *cell.lock().unwrap() = Some(memory.clone());
            let reader = reader_first.then(|| memory.host(1..2).unwrap());
            let writer = memory.host_mut(0..1).unwrap();
            assert!(cell.lock().unwrap().is_some(), "the other half is needed");
            drop((reader, writer));
            // Two halves that are stale are a whole; the memory is used under way, and a writer is alive.
            let writer = memory.host_mut(0..1).unwrap();
            drop(memory.host_mut(1..2).unwrap());
            drop(writer);
            assert!(cell.lock().unwrap().is_none(), "the owner is gone");
        }
    }

    /// An owner whose destructor tries to write the memory that held the owner.
    struct Writes(Arc<Mutex<Option<SharedMem>>>, Arc<Mutex<Vec<bool>>>);

    impl AsRef<[u8]> for Writes {
        fn as_ref(&self) -> &[u8] {
            &[1, 2]
        }
    }

    impl Drop for Writes {
        fn drop(&mut self) {
            let memory = self.0.lock().unwrap().take().expect("dropped once");
            *self.1.lock().unwrap() = [0..1, 1..2].map(|byte| memory.host_mut(byte).is_ok()).to_vec();
        }
    }

    #[test]
    fn an_owners_destructor_finds_the_borrow_of_the_call_that_let_it_go() {
        let (cell, could) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Vec::new())));
        let memory = SharedMem::from(HostBuffer::from_owner(Writes(cell.clone(), could.clone())));
        *cell.lock().unwrap() = Some(memory.clone());
        drop(memory.host_overwrite(1..2).unwrap());
        let first = memory.host_overwrite(0..1).unwrap();
        assert_eq!(*could.lock().unwrap(), [false, true], "its own bytes alone are taken");
        drop(first);
    }

    #[test]
    fn a_failed_allocation_changes_nothing() {
        let memory = SharedMem::new(usize::MAX);
        for access in [Access::Read, Access::Write] {
            let result = take(&memory, 0..usize::MAX, access);
            assert!(matches!(result, Err(Error::OutOfMemory { .. })));
        }
        assert!(!memory.is_initialized());
        assert!(memory.inner.lock().facts().borrows.is_empty());
    }

    #[test]
    fn guards_can_own_other_memories() {
        let memory = SharedMem::from(vec![1, 2, 3, 4]);
        let view = SharedMem::from(HostBuffer::from_owner(memory.host(1..3).unwrap()));
        assert_eq!(*view.host(0..2).unwrap(), [2, 3]);
        assert!(memory.host_mut(2..3).is_err());
        view.host_mut(0..1).unwrap()[0] = 9;
        assert_eq!(*memory.host(0..4).unwrap(), [1, 2, 3, 4]);
        assert!(memory.host_mut(0..4).is_err(), "the view still reads half of it");
        view.host_mut(0..2).unwrap();
        memory.host_mut(0..4).unwrap();
    }
}
