//! The one door to the synchronisation primitives, so that loom can take their place in its models; and a value behind
//! a lock, with the ways there that an operation may have. It leaves out `Arc`: this crate's use of it is std's own
//! business, and loom's cannot hold a trait object.

use std::sync::PoisonError;

use crate::fork::Process;

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
