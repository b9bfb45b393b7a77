//! `SharedMem`: one memory behind any number of handles; borrows are byte ranges, checked when they are taken.
//! A conflict is an error at once, nobody ever waits for a borrow, and the lock is not held while user code runs.
//! It relies on `HostBuffer` for the bytes; it forms references to borrowed ranges only, from raw pointers.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::host::{self, HostBuffer};
use crate::{Access, Error, SyncedMem};

/// A handle to a memory of a fixed length; cloning it shares the memory (Caffe's `ShareData`).
///
/// Any number of readers may overlap; a writer overlaps nobody, or gets [`Error::Conflict`]. Disjoint and empty ranges
/// never conflict. A guard that is leaked keeps its range borrowed for ever, which is safe.
#[derive(Clone)]
pub struct SharedMem {
    inner: Arc<Inner>,
}

/// Bytes borrowed for reading. Holds the memory alive and dereferences to the same place for its whole life.
pub struct HostRef {
    lease: Lease,
}

/// Bytes borrowed for writing. Holds the memory alive and dereferences to the same place for its whole life.
pub struct HostMut {
    lease: Lease,
}

struct Inner {
    len: usize,
    state: Mutex<State>,
}

/// Invariant: a live guard over a non-empty range is an entry of `borrows`, and its bytes lie in `host` or, for a reader
/// that was there before adopted bytes were first written, in one of `retired`.
struct State {
    host: Option<HostBuffer>,
    retired: Vec<HostBuffer>,
    borrows: Borrows,
}

/// Why a range is borrowed.
#[derive(Clone, Copy)]
enum Intent {
    Read,
    Write,
    Overwrite,
}

impl SharedMem {
    /// A memory of `len` zero bytes. Allocates no bytes until the first touch.
    pub fn new(len: usize) -> Self {
        Self::from_memory(len, None)
    }

    /// Takes over a vector's bytes without copying them.
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        SyncedMem::from_vec(bytes).into_shared()
    }

    /// Adopts the bytes of `owner` without copying them; a write copies them first. See [`HostBuffer::from_owner`].
    pub fn from_owner(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        SyncedMem::from_owner(owner).into_shared()
    }

    pub(crate) fn from_memory(len: usize, host: Option<HostBuffer>) -> Self {
        let state = Mutex::new(State {
            host,
            retired: Vec::new(),
            borrows: Borrows::default(),
        });
        Self {
            inner: Arc::new(Inner { len, state }),
        }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// Whether the memory was ever touched or adopted; otherwise it is not allocated anywhere and reads as zeros.
    pub fn is_initialized(&self) -> bool {
        self.inner.lock().host.is_some()
    }

    /// Whether both handles lead to the same memory.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Borrows a byte range for reading.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Conflict`] with a writer, [`Error::OutOfMemory`] at the first touch.
    pub fn host(&self, range: Range<usize>) -> Result<HostRef, Error> {
        let lease = self.lease(range, Intent::Read)?;
        Ok(HostRef { lease })
    }

    /// Borrows a byte range for writing.
    ///
    /// The first write to adopted bytes copies them all; readers that were there before keep seeing the adopted bytes.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Conflict`] with anybody, [`Error::OutOfMemory`] at the first touch or copy.
    pub fn host_mut(&self, range: Range<usize>) -> Result<HostMut, Error> {
        let lease = self.lease(range, Intent::Write)?;
        Ok(HostMut { lease })
    }

    /// Borrows a byte range for a caller who writes all of it: none of it is copied for its sake.
    /// What it holds before that is unspecified: zeros, or what was there.
    ///
    /// # Errors
    /// As [`host_mut`](Self::host_mut).
    pub fn host_overwrite(&self, range: Range<usize>) -> Result<HostMut, Error> {
        let lease = self.lease(range, Intent::Overwrite)?;
        Ok(HostMut { lease })
    }

    fn lease(&self, range: Range<usize>, intent: Intent) -> Result<Lease, Error> {
        let len = self.inner.len;
        if range.start > range.end || range.end > len {
            return Err(Error::OutOfBounds { range, len });
        }
        let mut state = self.inner.lock();
        let access = intent.access();
        state.borrows.check(&range, access)?;
        if range.is_empty() && len != 0 {
            // Nothing to see, so nothing to allocate or copy.
            return Ok(Lease::nothing(&self.inner));
        }
        let unused = state.prepare(len, &range, intent)?;
        let lease = state.grant(&self.inner, range, access);
        drop(state);
        // An owner's destructor is user code: it runs after the lock is released, when the lease can already be dropped.
        drop(unused);
        Ok(lease)
    }
}

impl Inner {
    /// Entered even when poisoned: each change of the state is its last step, so a panic leaves a valid one.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Makes `host` present, and writable where `intent` says so. Returns a replaced buffer that nobody can see any more.
    fn prepare(
        &mut self,
        len: usize,
        range: &Range<usize>,
        intent: Intent,
    ) -> Result<Option<HostBuffer>, Error> {
        let Some(host) = &mut self.host else {
            self.host = Some(HostBuffer::zeroed(len)?);
            return Ok(None);
        };
        let hole = match intent {
            Intent::Write if !host.is_writable() => 0..0,
            Intent::Overwrite if !host.is_writable() => range.clone(),
            _ => return Ok(None),
        };
        let copy = host.copy_except(hole)?;
        let adopted = mem::replace(host, copy);
        if self.borrows.is_empty() {
            return Ok(Some(adopted));
        }
        self.retired.push(adopted);
        Ok(None)
    }

    /// Enters a borrow that has been checked over a buffer that has been prepared.
    fn grant(&mut self, inner: &Arc<Inner>, range: Range<usize>, access: Access) -> Lease {
        let (Some(host), false) = (&self.host, range.is_empty()) else {
            return Lease::nothing(inner);
        };
        Lease {
            // SAFETY: `lease` checked `range.start <= len`, and `host` has `len` bytes.
            ptr: unsafe { host.ptr().add(range.start) },
            len: range.len(),
            borrow: Some(self.borrows.insert(range, access)),
            inner: Arc::clone(inner),
        }
    }
}

impl Intent {
    fn access(self) -> Access {
        match self {
            Intent::Read => Access::Read,
            Intent::Write | Intent::Overwrite => Access::Write,
        }
    }
}

/// A borrow that has been granted: the bytes at `ptr` are this lease's to read or write until it is dropped.
struct Lease {
    inner: Arc<Inner>,
    ptr: NonNull<u8>,
    len: usize,
    /// Which entry of the table this is; an empty lease has none.
    borrow: Option<u64>,
}

// SAFETY: a lease is an `Arc` over a `Send + Sync` state and a pointer to bytes that its entry in the borrow table
// reserves; it behaves as `&[u8]` or `&mut [u8]`, which may both be sent.
unsafe impl Send for Lease {}
// SAFETY: as above; through `&Lease` the bytes are only read.
unsafe impl Sync for Lease {}

impl Lease {
    fn nothing(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            ptr: host::dangling(),
            len: 0,
            borrow: None,
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `ptr` starts `len` initialised bytes of a buffer that stays alive: `inner` is held, and it frees no
        // buffer while an entry is in the table (`prepare`, `drop`). No writer overlaps them: the table refuses
        // conflicting entries and this lease's entry is in it; for a write lease, `&self` forbids `bytes_mut`.
        // Adopted bytes that were retired are never written at all. Empty: dangling and aligned.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    /// Only for a lease that was granted for writing: `HostMut` holds no other.
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`. The entry is a writing one, so nobody else reads or writes these bytes, in any handle;
        // `prepare` made the buffer writable, and its pointer comes from an allocation of ours or a vector's.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(id) = self.borrow else { return };
        let mut state = self.inner.lock();
        state.borrows.remove(id);
        let unused = match state.borrows.is_empty() {
            true => mem::take(&mut state.retired),
            false => Vec::new(),
        };
        drop(state);
        // Owners are dropped after the lock is released: their destructors are user code.
        drop(unused);
    }
}

/// The live borrows of one memory. Pure bookkeeping: no entry is empty, and no writer overlaps another entry.
#[derive(Default)]
struct Borrows {
    held: Vec<Borrow>,
    next: u64,
}

struct Borrow {
    id: u64,
    range: Range<usize>,
    access: Access,
}

impl Borrows {
    fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether this borrow may be added. Time linear in the number of live borrows.
    fn check(&self, range: &Range<usize>, access: Access) -> Result<(), Error> {
        let in_the_way = |held: &&Borrow| {
            let overlap = range.start.max(held.range.start) < range.end.min(held.range.end);
            overlap && (access == Access::Write || held.access == Access::Write)
        };
        match self.held.iter().find(in_the_way) {
            None => Ok(()),
            Some(held) => Err(Error::Conflict {
                wanted: access,
                wanted_range: range.clone(),
                held: held.access,
                held_range: held.range.clone(),
            }),
        }
    }

    fn insert(&mut self, range: Range<usize>, access: Access) -> u64 {
        let id = self.next;
        self.next += 1;
        self.held.push(Borrow { id, range, access });
        id
    }

    fn remove(&mut self, id: u64) {
        if let Some(index) = self.held.iter().position(|held| held.id == id) {
            self.held.swap_remove(index);
        }
    }
}

impl Deref for HostRef {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.lease.bytes()
    }
}

impl Deref for HostMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.lease.bytes()
    }
}

impl DerefMut for HostMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.lease.bytes_mut()
    }
}

impl AsRef<[u8]> for HostRef {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for SharedMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMem")
            .field("len", &self.len())
            .field("initialized", &self.is_initialized())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for HostRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostRef")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for HostMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMut")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

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
                    Err(Error::Conflict {
                        wanted,
                        wanted_range,
                        held,
                        held_range,
                    }) => {
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
    fn empty_ranges_neither_conflict_nor_allocate() {
        let memory = SharedMem::new(usize::MAX);
        let end = memory.host(usize::MAX..usize::MAX).unwrap();
        let mut start = memory.host_mut(0..0).unwrap();
        assert_eq!(
            (end.len(), start.len(), start.iter_mut().count()),
            (0, 0, 0)
        );
        assert_eq!(start.as_ptr().addr() % 64, 0);
        assert!(!memory.is_initialized());

        let none = SharedMem::new(0);
        assert!(none.is_empty() && !none.is_initialized());
        let (_a, _b) = (none.host_mut(0..0).unwrap(), none.host_mut(0..0).unwrap());
        assert!(none.is_initialized());
        assert!(SharedMem::from_vec(Vec::new()).is_initialized());
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
    fn a_forgotten_guard_locks_its_range_only() {
        let memory = SharedMem::from_owner([1, 2, 3, 4]);
        mem::forget(memory.host(0..2).unwrap());
        assert!(memory.host_mut(1..3).is_err());
        memory.host_mut(2..4).unwrap().fill(9);
        assert_eq!(*memory.host(0..4).unwrap(), [1, 2, 9, 9]);
    }

    #[test]
    fn readers_of_adopted_bytes_outlive_the_first_write() {
        let owner: Arc<[u8]> = Arc::from([1, 2, 3, 4]);
        let memory = SharedMem::from_owner(owner.clone());
        let old = memory.host(0..2).unwrap();
        assert_eq!(old.as_ptr(), owner.as_ptr());
        let mut writer = memory.host_mut(2..4).unwrap();
        writer[0] = 30;
        assert_eq!(*old, [1, 2]);
        assert_eq!(old.as_ptr(), owner.as_ptr());
        let new = memory.host(0..2).unwrap();
        assert_ne!(new.as_ptr(), owner.as_ptr());
        assert_eq!(*new, [1, 2]);
        drop(writer);
        assert_eq!(*memory.host(0..4).unwrap(), [1, 2, 30, 4]);
        assert_eq!(*owner, [1, 2, 3, 4]);
        drop(new);
        assert_eq!(Arc::strong_count(&owner), 2, "a reader is still there");
        drop(old);
        assert_eq!(Arc::strong_count(&owner), 1, "nobody can see it any more");
    }

    #[test]
    fn overwriting_a_part_of_adopted_bytes_keeps_the_rest() {
        let memory = SharedMem::from_owner([1, 2, 3, 4, 5]);
        memory.host_overwrite(1..3).unwrap().fill(9);
        assert_eq!(*memory.host(0..5).unwrap(), [1, 9, 9, 4, 5]);
        let memory = SharedMem::from_owner([1, 2]);
        memory.host_overwrite(0..0).unwrap();
        assert_eq!(*memory.host(0..2).unwrap(), [1, 2]);
    }

    #[test]
    fn a_refused_write_does_not_copy_adopted_bytes() {
        static BYTES: &[u8] = &[1, 2];
        let memory = SharedMem::from_owner(BYTES);
        let reader = memory.host(0..1).unwrap();
        assert!(memory.host_mut(0..2).is_err());
        assert_eq!(memory.host(0..2).unwrap().as_ptr(), BYTES.as_ptr());
        drop(reader);
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
            assert!(memory.host(1..2).is_ok());
        }
    }

    #[test]
    fn an_owners_destructor_may_use_the_memory() {
        for reader_first in [false, true] {
            let cell = Arc::new(Mutex::new(None));
            let memory = SharedMem::from_owner(Reentrant(cell.clone()));
            *cell.lock().unwrap() = Some(memory.clone());
            let reader = reader_first.then(|| memory.host(1..2).unwrap());
            let writer = memory.host_mut(0..1).unwrap();
            assert_eq!(cell.lock().unwrap().is_some(), reader_first);
            drop(writer);
            drop(reader);
            assert!(cell.lock().unwrap().is_none(), "the owner is gone");
        }
    }

    #[test]
    fn a_failed_allocation_changes_nothing() {
        let memory = SharedMem::new(usize::MAX);
        for access in [Access::Read, Access::Write] {
            let result = take(&memory, 0..usize::MAX, access);
            assert!(matches!(result, Err(Error::OutOfMemory { .. })));
        }
        assert!(!memory.is_initialized());
        assert!(memory.inner.lock().borrows.is_empty());
    }

    #[test]
    fn guards_can_own_other_memories() {
        let memory = SharedMem::from_vec(vec![1, 2, 3, 4]);
        let view = SharedMem::from_owner(memory.host(1..3).unwrap());
        assert_eq!(*view.host(0..2).unwrap(), [2, 3]);
        assert!(memory.host_mut(2..3).is_err());
        view.host_mut(0..1).unwrap()[0] = 9;
        assert_eq!(*memory.host(0..4).unwrap(), [1, 2, 3, 4]);
        memory.host_mut(0..4).unwrap();
    }

    #[test]
    fn threads_write_disjoint_ranges_at_once() {
        let (memory, start) = (SharedMem::from_owner([7; 64]), Barrier::new(8));
        thread::scope(|scope| {
            for part in 0..8usize {
                let (memory, start) = (memory.clone(), &start);
                scope.spawn(move || {
                    start.wait();
                    for round in 0..50u8 {
                        let mut guard = memory.host_mut(part * 8..part * 8 + 8).unwrap();
                        guard.fill(part as u8 * 16 + round % 16);
                        drop(guard);
                        thread::yield_now();
                    }
                });
            }
        });
        let bytes = memory.host(0..64).unwrap();
        let expected = (0..64).map(|i| i / 8 * 16 + 49 % 16);
        assert!(bytes.iter().copied().eq(expected));
    }

    #[test]
    fn threads_race_for_one_range_and_one_wins_at_a_time() {
        let memory = SharedMem::new(8);
        let won: u64 = thread::scope(|scope| {
            let race = || {
                let mut won = 0;
                for _ in 0..200 {
                    let Ok(mut guard) = memory.host_mut(0..8) else {
                        thread::yield_now();
                        continue;
                    };
                    let count = u64::from_ne_bytes(guard[..].try_into().unwrap());
                    guard.copy_from_slice(&(count + 1).to_ne_bytes());
                    won += 1;
                }
                won
            };
            let racers: Vec<_> = (0..4).map(|_| scope.spawn(race)).collect();
            racers.into_iter().map(|r| r.join().unwrap()).sum()
        });
        let count = u64::from_ne_bytes(memory.host(0..8).unwrap()[..].try_into().unwrap());
        assert_eq!(count, won);
    }

    /// Knuth's MMIX generator: enough to walk through states, the same way each time.
    fn next(seed: &mut u64, below: usize) -> usize {
        *seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (*seed >> 33) as usize % below
    }

    #[test]
    fn random_borrows_agree_with_a_plain_vector() {
        const LEN: usize = 12;
        for case in 0..if cfg!(miri) { 6 } else { 300 } {
            let seed = &mut (case as u64);
            let mut model: Vec<u8> = (0..LEN as u8).map(|i| i * (case % 3 != 0) as u8).collect();
            let memory = match case % 3 {
                0 => SharedMem::new(LEN),
                1 => SharedMem::from_vec(model.clone()),
                _ => SharedMem::from_owner(model.clone()),
            };
            let (mut readers, mut writers) = (Vec::new(), Vec::new());
            for step in 0..60 {
                let start = next(seed, LEN + 1);
                let range = start..start + next(seed, LEN + 1 - start);
                match next(seed, 6) {
                    0 | 1 => readers.extend(memory.host(range.clone()).map(|guard| (range, guard))),
                    2 => writers.extend(memory.host_mut(range.clone()).map(|guard| (range, guard))),
                    3 => {
                        if let Ok(mut guard) = memory.host_overwrite(range.clone()) {
                            guard.fill(step);
                            model[range.clone()].fill(step);
                            writers.push((range, guard));
                        }
                    }
                    4 if !readers.is_empty() => {
                        readers.swap_remove(next(seed, readers.len()));
                    }
                    5 if !writers.is_empty() => {
                        let (range, mut guard) = writers.swap_remove(next(seed, writers.len()));
                        guard.fill(step + 100);
                        model[range].fill(step + 100);
                    }
                    _ => {}
                }
                for (range, guard) in &readers {
                    assert_eq!(**guard, model[range.clone()], "case {case}, step {step}");
                }
                for (range, guard) in &writers {
                    assert_eq!(**guard, model[range.clone()], "case {case}, step {step}");
                }
            }
            drop((readers, writers));
            assert_eq!(*memory.host(0..LEN).unwrap(), model[..]);
        }
    }
}
