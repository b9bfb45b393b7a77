//! Ways to a state: its lock, which may be held already, or a reference. They decide nothing.

use std::sync::PoisonError;

use crate::engine::state::State;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A state behind its lock.
pub(crate) struct Memory {
    state: Mutex<State>,
    /// Signalled when bytes have been brought outside the lock.
    settled: Condvar,
}

impl Memory {
    pub(crate) fn new(state: State) -> Self {
        Self { state: Mutex::new(state), settled: Condvar::new() }
    }

    /// Entered even when poisoned: a state changes only after its action succeeded, so a panic leaves a valid one.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get_mut(&mut self) -> &mut State {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What leads to a state: its lock, or a reference.
pub(crate) trait Door {
    /// Runs `step` while nothing else changes the state.
    fn with<R>(&mut self, step: impl FnOnce(&mut State) -> R) -> R;

    /// Waits until bytes have been brought outside the lock, by another thread.
    fn settle(&mut self) {}

    /// Tells other threads that bytes have been brought outside the lock.
    fn settled(&mut self) {}
}

impl Door for &mut State {
    fn with<R>(&mut self, step: impl FnOnce(&mut State) -> R) -> R {
        step(self)
    }
}

/// A lock, which may be held already when the operation begins: what was found under it is then still true. Later it is
/// taken again.
pub(crate) struct Locked<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) lock: Option<MutexGuard<'a, State>>,
}

impl<'a> From<&'a Memory> for Locked<'a> {
    fn from(memory: &'a Memory) -> Self {
        Self { memory, lock: None }
    }
}

impl Door for Locked<'_> {
    fn with<R>(&mut self, step: impl FnOnce(&mut State) -> R) -> R {
        step(&mut self.lock.take().unwrap_or_else(|| self.memory.lock()))
    }

    fn settle(&mut self) {
        let state = self.memory.lock();
        if !state.facts.outside.is_empty() {
            drop(self.memory.settled.wait(state));
        }
    }

    fn settled(&mut self) {
        self.memory.settled.notify_all();
    }
}
