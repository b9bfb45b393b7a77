//! What the handles of a `SharedMem` share: the state behind its lock, and how threads wait for borrows to end.
//! Everything that borrows goes through `access`. It relies on `engine` for the bytes, and on `borrows` for conflicts.

use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::access::{Access, Intent};
use crate::coherence::replicas::Slot;
use crate::engine::state::State;
use crate::engine::step;
use crate::engine::waits::Stop;
use crate::error::Error;
use crate::lease::{Borrow, Lease, Lender};
use crate::shared::readers::Readers;
use crate::sync::{Condvar, Mutex, MutexGuard};

pub(crate) struct Inner {
    pub(crate) len: usize,
    pub(crate) readers: Readers,
    pub(crate) state: Mutex<State>,
    /// Signalled when a borrow ends.
    released: Condvar,
}

impl Inner {
    pub(crate) fn new(state: State) -> Self {
        Self { len: state.len, readers: Readers::new(), state: Mutex::new(state), released: Condvar::new() }
    }

    /// Borrows bytes that lie within the memory, at least one, and brings them where `bring` wants them. The borrow is
    /// entered first, so that it keeps others away while the bytes are waited for with the lock released; it is taken
    /// back when they cannot be had.
    pub(crate) fn access<T>(
        self: &Arc<Self>,
        range: &Range<usize>,
        intent: Intent,
        slot: impl FnOnce(&mut State) -> Slot,
        mut bring: impl FnMut(&mut State, &mut Lease) -> Result<T, Stop>,
    ) -> Result<(T, Lease), Error> {
        let mut state = self.lock();
        self.check(&state, range, intent.access())?;
        let slot = slot(&mut state);
        let borrow = state.borrows.insert(range.clone(), intent.access(), slot);
        let mut lease = Lease::new(self.clone(), Some(borrow));
        let brought = self.act_held(Some(state), |state| bring(state, &mut lease))?;
        Ok((brought, lease))
    }

    /// Refuses a borrow that is in conflict with another. For a writer it closes the way of the readers that take no
    /// lock.
    pub(crate) fn check(&self, state: &State, range: &Range<usize>, access: Access) -> Result<(), Error> {
        state.borrows.check(range, access)?;
        match access == Access::Read || self.readers.close() {
            true => Ok(()),
            false => Err(self.is_read(range)),
        }
    }

    /// The error where a reader that the table does not know is in the way.
    pub(crate) fn is_read(&self, range: &Range<usize>) -> Error {
        let (held, held_range) = (Access::Read, 0..self.len);
        Error::Conflict { wanted: Access::Write, wanted_range: range.clone(), held, held_range }
    }

    /// Entered even when poisoned: a state changes only after its action succeeded, so a panic leaves a valid one.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a step under the lock, and what it left to do after the lock is released: that is user code.
    pub(crate) fn with<R>(&self, step: impl FnOnce(&mut State) -> R) -> R {
        step::with_lock(&self.state, step)
    }

    /// An operation that is checked against the live borrows each time that it has the lock. It waits outside the lock.
    pub(crate) fn act<R>(&self, step: impl FnMut(&mut State) -> Result<R, Stop>) -> Result<R, Error> {
        self.act_held(None, step)
    }

    /// The same by a caller that may hold the lock already.
    fn act_held<'a, R>(
        &'a self,
        held: Option<MutexGuard<'a, State>>,
        step: impl FnMut(&mut State) -> Result<R, Stop>,
    ) -> Result<R, Error> {
        let state = &self.state;
        let door = step::Locked { state, lock: held };
        step::act(door, |state| state.coalesce(&(0..0)), step)
    }
}

impl Lender for Inner {
    fn end(&self, borrow: &Borrow) {
        if borrow.id.is_none() && !self.readers.leave() {
            return;
        }
        let mut state = self.lock();
        if let Some(id) = borrow.id {
            state.release(id);
            state.host_writers -= usize::from(borrow.writes_host);
        }
        let wakes = state.borrows.waiting > 0;
        state.borrows.ended += u64::from(wakes);
        let pending = state.take_pending();
        drop(state);
        // Before the user code, which may take its time, or panic.
        if wakes {
            self.released.notify_all();
        }
        if let Some(pending) = pending {
            pending.run();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.with(State::end);
    }
}

/// A thread that waits for borrows to end. While it lives, each end is counted.
pub(crate) struct Waiter<'a> {
    inner: &'a Inner,
    /// How many had ended when it looked last.
    seen: u64,
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        let mut state = inner.lock();
        state.borrows.waiting += 1;
        inner.readers.set_awaited(true);
        let seen = state.borrows.ended;
        Self { inner, seen }
    }

    /// Waits until a borrow has ended since it looked last, or since it was made, or until the time is over.
    pub(crate) fn wait(&mut self, left: Duration) {
        let mut state = self.inner.lock();
        if state.borrows.ended == self.seen {
            let waited = self.inner.released.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.seen = state.borrows.ended;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        state.borrows.waiting -= 1;
        self.inner.readers.set_awaited(state.borrows.waiting > 0);
    }
}
