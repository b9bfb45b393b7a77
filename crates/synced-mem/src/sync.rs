//! The one door to the synchronisation primitives, so that loom can take their place in its models; and a value behind
//! a lock, with the ways there that an operation may have. A fork copies locks, but not the threads that hold them, so
//! a lock knows its process: a child process never waits for a lock from before the fork. The file leaves out `Arc`:
//! this crate's use of `Arc` is std's own business, and loom's cannot hold a trait object.

#[cfg(not(all(target_os = "linux", not(miri))))]
mod blind;
#[cfg(feature = "cuda")]
pub(crate) mod first;
#[cfg(all(target_os = "linux", not(miri)))]
#[allow(unsafe_code)]
mod watched;

use std::sync::PoisonError;
use std::sync::atomic::AtomicU32;

#[cfg(not(all(target_os = "linux", not(miri))))]
use blind::watch;
#[cfg(all(target_os = "linux", not(miri)))]
use watched::watch;

use crate::error::Error;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use loom::thread_local;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::thread_local;

/// A value behind a lock, which is taken only in the process that made it.
pub(crate) struct Lock<S> {
    value: Mutex<S>,
    /// Signalled when a thread has settled its work outside the lock.
    settled: Condvar,
    process: Process,
}

impl<S> Lock<S> {
    pub(crate) fn new(value: S) -> Self {
        Self { value: Mutex::new(value), settled: Condvar::new(), process: Process::current() }
    }

    /// The process that made the lock.
    pub(crate) fn process(&self) -> Process {
        self.process
    }

    /// None in a forked process. Entered even when poisoned: a state changes only after its action succeeded, so a
    /// panic leaves a valid one.
    #[inline]
    pub(crate) fn enter(&self) -> Option<MutexGuard<'_, S>> {
        let is_ours = self.process.is_current();
        is_ours.then(|| self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`enter`](Self::enter), where no error can be returned. Panics in a forked process.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, S> {
        self.process.expect_current();
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get_mut(&mut self) -> &mut S {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A way to the value: through its lock, or by reference.
pub(crate) trait Door<S> {
    /// Runs `step` while nothing else changes the value.
    fn with<R>(&mut self, step: impl FnOnce(&mut S) -> R) -> R;

    /// While other threads are `busy` outside the lock: waits until one has settled its work.
    fn settle(&mut self, _busy: impl Fn(&S) -> bool) {}

    /// Tells other threads that this one has settled its work outside the lock.
    fn settled(&mut self) {}
}

impl<S> Door<S> for &mut S {
    fn with<R>(&mut self, step: impl FnOnce(&mut S) -> R) -> R {
        step(self)
    }
}

/// A lock that an operation holds already when it begins: facts that were found under the lock are then still true.
/// Later the lock is taken again.
pub(crate) struct Locked<'a, S> {
    pub(crate) lock: &'a Lock<S>,
    pub(crate) held: Option<MutexGuard<'a, S>>,
}

impl<'a, S> From<&'a Lock<S>> for Locked<'a, S> {
    fn from(lock: &'a Lock<S>) -> Self {
        Self { lock, held: None }
    }
}

impl<S> Door<S> for Locked<'_, S> {
    fn with<R>(&mut self, step: impl FnOnce(&mut S) -> R) -> R {
        step(&mut self.held.take().unwrap_or_else(|| self.lock.lock()))
    }

    fn settle(&mut self, busy: impl Fn(&S) -> bool) {
        let value = self.lock.lock();
        if busy(&value) {
            drop(self.lock.settled.wait(value));
        }
    }

    fn settled(&mut self) {
        self.lock.settled.notify_all();
    }
}

// ---- forks ----

/// The number of forks between the first process and this one, since a lock was first made.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, by which a fork is told from the parents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The calling process. Its children will know that they are others.
    pub(crate) fn current() -> Self {
        watch();
        // Relaxed: the number changes in the only thread of a new process.
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is the calling process.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }

    /// # Errors
    /// [`Error::Forked`] in another process.
    #[inline]
    pub(crate) fn check(self) -> Result<(), Error> {
        if self.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Panics in another process.
    #[inline]
    pub(crate) fn expect_current(self) {
        assert!(self.is_current(), "{}", Error::Forked);
    }
}
