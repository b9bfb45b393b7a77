//! One memory as both shells hold it: its length, the state behind its lock, the borrow table's guard, and the threads
//! that wait for borrows to end. A `SharedMem` shares an `Inner`, a `SyncedMem` owns one. The borrow table of an owner
//! is always empty, because the compiler checks the borrows, so no check refuses. Relies on `engine` for the bytes, and
//! on `borrows` for conflicts.

use std::mem;
use std::ops::{Range, RangeBounds};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::access::{Access, Location};
use crate::borrow::{Lease, Lender, QueueHandle, check, resolve};
use crate::coherence::plan::{Bound, Dirty, Request};
use crate::coherence::replicas::HOST;
use crate::engine::serve;
use crate::engine::state::{Asked, Met, Operation, State};
use crate::error::Error;
use crate::ledger::{Account, Tenant};
use crate::shared::readers::Readers;
use crate::stats::{Observer, Stats};
use crate::sync::{Condvar, Lock, Locked, MutexGuard};

pub(crate) struct Inner {
    pub(crate) len: usize,
    pub(crate) readers: Readers,
    pub(crate) state: Lock<State>,
    /// Signalled when a borrow ends.
    released: Condvar,
}

impl Inner {
    pub(crate) fn new(state: State) -> Self {
        Self { len: state.facts().len, readers: Readers::new(), state: Lock::new(state), released: Condvar::new() }
    }

    /// Borrows bytes that lie within the memory, at least one, and brings the bytes to the place that is asked for. The
    /// borrow is entered first, to keep others away while the lock is released for waits. An access that fails takes
    /// the borrow back.
    pub(crate) fn access<T>(
        self: &Arc<Self>,
        mut asked: Asked<'_>,
        answer: impl Fn(&State, Met) -> T,
    ) -> Result<(T, Lease), Error> {
        let access = asked.intent.access();
        let Some(mut state) = self.state.enter() else { return Err(Error::Forked) };
        self.check(&state, asked.range, access)?;
        let slot = asked.by.map_or(HOST, |by| state.make_home(by));
        if let Some(by) = asked.by
            && state.own_account(slot).is_none()
        {
            state.enter_own_budget(slot, self.open_account(by)?);
        }
        let borrow = state.enter_borrow(asked.range, access, slot);
        asked.borrow = Some(borrow);
        let lease = Lease::new(self.clone(), Some(borrow));
        let door = Locked { lock: &self.state, held: Some(state) };
        let answered = serve::access(door, &asked, Bound::AllBut(0..0), answer)?;
        Ok((answered, lease))
    }

    /// The own budget of a queue's device knows this memory from now on.
    #[cold]
    fn open_account(self: &Arc<Self>, by: &QueueHandle) -> Result<Arc<Account>, Error> {
        let books = by.device().meter().ledger(by.device().id())?;
        let (account, tenant) = (books.new_account(), Arc::downgrade(self));
        books.enter(tenant, &account);
        Ok(account)
    }

    /// Refuses a borrow that is in conflict with another. For a writer the way of the readers that take no lock is
    /// closed.
    pub(crate) fn check(&self, state: &State, range: &Range<usize>, access: Access) -> Result<(), Error> {
        state.facts().borrows.check(range, access)?;
        if access == Access::Read || self.readers.close() { Ok(()) } else { Err(self.is_read(range)) }
    }

    /// The error where a reader that the table does not know is in the way.
    pub(crate) fn is_read(&self, range: &Range<usize>) -> Error {
        let (held, held_range) = (Access::Read, 0..self.len);
        Error::Conflict { wanted: Access::Write, wanted_range: range.clone(), held, held_range }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Asks something under the lock.
    pub(crate) fn with<R>(&self, question: impl FnOnce(&State) -> R) -> R {
        question(&self.lock())
    }

    /// An operation that is checked against the live borrows each time that the lock is taken. All waits are outside
    /// the lock.
    pub(crate) fn act(
        &self,
        operation: Operation<'_>,
        check: impl Fn(&State) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.state.process().check()?;
        serve::act(Locked::from(&self.state), operation, Bound::AllBut(0..0), check)
    }

    // ---- common to both shells ----

    /// A range within the memory, in the memory's own process.
    pub(crate) fn range(&self, range: impl RangeBounds<usize>) -> Result<Range<usize>, Error> {
        self.state.process().check()?;
        check(resolve(range, self.len), self.len)
    }

    /// Puts memory in the place of all bytes, where nothing is borrowed. Refused memory is dropped outside the lock:
    /// the owner's destructor is user code.
    pub(crate) fn adopt(&self, adoption: Operation<'_>) -> Result<(), Error> {
        self.act(adoption, |state| self.check(state, &state.facts().whole(), Access::Write))
    }

    pub(crate) fn evict(&self, at: Location, range: impl RangeBounds<usize>, dirty: Dirty) -> Result<(), Error> {
        let range = self.range(range)?;
        self.evict_unless(at, range, dirty, |_| Ok(()))
    }

    fn evict_unless(
        &self,
        at: Location,
        range: Range<usize>,
        dirty: Dirty,
        refused: impl Fn(&State) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if range.is_empty() {
            return Ok(());
        }
        let Some(slot) = self.with(|state| state.slot_at(at)) else {
            return Ok(());
        };
        self.act(Operation::new(Request::Evict { slot, range: range.clone(), dirty }), |state| {
            refused(state)?;
            for slot in state.slots_at(at) {
                state.facts().borrows.check_copy(slot, &range)?;
            }
            if at == Location::Host && !self.readers.close() {
                return Err(self.is_read(&range));
            }
            Ok(())
        })
    }

    pub(crate) fn shrink(&self) {
        serve::shrink(Locked::from(&self.state));
    }

    pub(crate) fn valid_on(&self, location: Location, range: impl RangeBounds<usize>) -> bool {
        let range = check(resolve(range, self.len), self.len);
        range.is_ok_and(|range| range.is_empty() || self.with(|state| state.is_valid_at(location, &range)))
    }

    pub(crate) fn stats(&self) -> Stats {
        self.with(State::stats)
    }

    pub(crate) fn set_observer(&self, observer: Arc<dyn Observer>) {
        // The old one's destructor is user code.
        let old = self.lock().replace_observer(observer);
        drop(old);
    }
}

impl Tenant for Inner {
    /// Refused while any thread moves bytes of this memory:
    /// it may be the calling one, whose origin or kernel needs the room, and which would wait for itself.
    fn make_way(&self, at: Location, dirty: Dirty) -> Result<(), Error> {
        let is_still = |state: &State| match state.facts().outside.first() {
            None => Ok(()),
            Some(moving) => Err(self.is_read(&moving.range)),
        };
        // Before anything else, so that not even the work that others have left behind is waited for.
        self.with(is_still)?;
        self.evict_unless(at, 0..self.len, dirty, is_still)
    }

    fn is_evictable(&self, at: Location) -> bool {
        self.with(|state| {
            let (facts, slots) = (state.facts(), state.slots_at(at));
            let others: Vec<_> = facts.holders().filter(|other| !slots.contains(other)).collect();
            let is_read = at == Location::Host && self.readers.are_there();
            facts.outside.is_empty()
                && !is_read
                && slots.into_iter().all(|slot| {
                    let is_clean = facts.replicas.valid(slot).iter().all(|held| facts.lacking(&others, &held) == 0);
                    is_clean && facts.borrows.check_copy(slot, &facts.whole()).is_ok()
                })
        })
    }

    fn was_read(&self) -> bool {
        self.readers.has_one_entered()
    }
}

impl Lender for Inner {
    fn end(&self, borrow: Option<u64>) {
        if borrow.is_none() && !self.readers.leave() {
            return;
        }
        // In a forked process the borrow never ends.
        let Some(mut state) = self.state.enter() else { return };
        let pending = state.end_borrow(borrow);
        let wakes = state.facts().borrows.waiting > 0;
        drop(state);
        // Before the user code, which may be slow, or panic.
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
        if self.state.process().is_current() {
            serve::end(self.state.get_mut());
        } else {
            mem::forget(mem::replace(self.state.get_mut(), State::new(0, None)));
        }
    }
}

/// A thread that waits for borrows to end. While a waiter lives, each end is counted.
pub(crate) struct Waiter<'a> {
    inner: &'a Inner,
    /// How many had ended at the last look.
    seen: u64,
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        let mut state = inner.lock();
        let borrows = &state.facts().borrows;
        let (seen, waiting) = (borrows.ended, borrows.waiting + 1);
        state.set_waiting(waiting);
        inner.readers.set_awaited(true);
        Self { inner, seen }
    }

    /// Waits until a borrow has ended since the last look, or until the time is over.
    pub(crate) fn wait(&mut self, left: Duration) {
        let mut state = self.inner.lock();
        if state.facts().borrows.ended == self.seen {
            let waited = self.inner.released.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.seen = state.facts().borrows.ended;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let Some(mut state) = self.inner.state.enter() else { return };
        let waiting = state.facts().borrows.waiting - 1;
        state.set_waiting(waiting);
        self.inner.readers.set_awaited(waiting > 0);
    }
}
