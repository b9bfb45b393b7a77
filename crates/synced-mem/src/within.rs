//! Borrowing from a `SharedMem`: checking a range against the live borrows, at once or with patience, and granting it.
//! It relies on `borrows` for the conflicts and on `state` for the bytes. Nobody waits for a borrow without a time limit;
//! a borrow is entered before its bytes are waited for, and taken back when they cannot be had.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::access::Intent;
use crate::coherence::replicas::Slot;
use crate::device::token::{ClaimedRange, DeviceLease};
use crate::engine::state::{HOST, State};
use crate::shared::guards::Lease;
use crate::sync::MutexGuard;
use crate::{Access, DeviceMut, DeviceRef, Error, HostMut, HostRef, Queue, SharedMem};

/// The same memory, for borrows that wait: see [`SharedMem::within`].
#[derive(Debug)]
pub struct Within<'a> {
    memory: &'a SharedMem,
    /// For each borrow. None: no patience.
    timeout: Option<Duration>,
}

impl<'a> Within<'a> {
    pub(crate) fn new(memory: &'a SharedMem, timeout: Duration) -> Self {
        let timeout = Some(timeout);
        Self { memory, timeout }
    }

    pub(crate) fn at_once(memory: &'a SharedMem) -> Self {
        let timeout = None;
        Self { memory, timeout }
    }

    /// As [`SharedMem::host`].
    ///
    /// # Errors
    /// As [`SharedMem::host`]; the conflict that is left when the time is over.
    pub fn host(&self, range: Range<usize>) -> Result<HostRef, Error> {
        self.lease(range, Intent::Read).map(HostRef::new)
    }

    /// As [`SharedMem::host_mut`].
    ///
    /// # Errors
    /// As [`host`](Self::host).
    pub fn host_mut(&self, range: Range<usize>) -> Result<HostMut, Error> {
        self.lease(range, Intent::Write).map(HostMut::new)
    }

    /// As [`SharedMem::host_overwrite`].
    ///
    /// # Errors
    /// As [`host`](Self::host).
    pub fn host_overwrite(&self, range: Range<usize>) -> Result<HostMut, Error> {
        self.lease(range, Intent::Overwrite).map(HostMut::new)
    }

    /// As [`SharedMem::device`].
    ///
    /// # Errors
    /// As [`SharedMem::device`]; the conflict that is left when the time is over.
    pub fn device(&self, queue: &Arc<dyn Queue>, range: Range<usize>) -> Result<DeviceRef<'static>, Error> {
        let (span, lease) = self.device_lease(queue, range, Intent::Read)?;
        Ok(DeviceRef::new(span, lease))
    }

    /// As [`SharedMem::device_mut`].
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn device_mut(&self, queue: &Arc<dyn Queue>, range: Range<usize>) -> Result<DeviceMut<'static>, Error> {
        let (span, lease) = self.device_lease(queue, range, Intent::Write)?;
        Ok(DeviceMut::new(span, lease))
    }

    /// As [`SharedMem::device_overwrite`].
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn device_overwrite(&self, queue: &Arc<dyn Queue>, range: Range<usize>) -> Result<DeviceMut<'static>, Error> {
        let (span, lease) = self.device_lease(queue, range, Intent::Overwrite)?;
        Ok(DeviceMut::new(span, lease))
    }

    fn lease(&self, range: Range<usize>, intent: Intent) -> Result<Lease, Error> {
        let inner = &self.memory.inner;
        let entered = self.enter(&range, intent, |_| HOST)?;
        let (checked, borrow) = (entered.checked, entered.borrow);
        let mut lease = Lease::entered(Arc::clone(inner), borrow.map(|(_, id)| id));
        inner.act_held(entered.held, |state| {
            let (ptr, _) = state.host(&checked, intent)?;
            // An empty range is borrowed from nobody.
            let access = if range.is_empty() { Access::Read } else { intent.access() };
            lease.grant(state, ptr, range.len(), access);
            Ok(())
        })?;
        Ok(lease)
    }

    fn device_lease(
        &self,
        queue: &Arc<dyn Queue>,
        range: Range<usize>,
        intent: Intent,
    ) -> Result<(ClaimedRange, Option<DeviceLease>), Error> {
        let inner = &self.memory.inner;
        let slot = |state: &mut State| state.device_slot(queue);
        let entered = self.enter(&range, intent, slot)?;
        let (checked, borrow) = (entered.checked, entered.borrow);
        let lease = borrow.map(|(_, id)| DeviceLease::new(inner.clone(), id));
        let guard = borrow.map(|(_, id)| id);
        let (span, _) = inner.act_held(entered.held, |state| state.device(queue, &checked, intent, guard))?;
        Ok((span, lease))
    }

    /// Enters a borrow of a range that has bytes, after waiting for others to end if there is time. From now on it keeps
    /// others away, so that the bytes can be waited for with the lock released.
    fn enter(
        &self,
        range: &Range<usize>,
        intent: Intent,
        slot: impl FnOnce(&mut State) -> Slot,
    ) -> Result<Entered<'a>, Error> {
        let inner = &self.memory.inner;
        let deadline = self.timeout.and_then(deadline);
        let mut state = inner.lock();
        let checked = state.check(range)?;
        while let Err(conflict) = state.borrows.check(&checked, intent.access()) {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            match left {
                None | Some(Duration::ZERO) => return Err(conflict),
                Some(left) => state = inner.wait(state, left),
            }
        }
        if range.is_empty() {
            return Ok(Entered { checked, borrow: None, held: Some(state) });
        }
        let slot = slot(&mut state);
        let id = state.borrows.insert(range.clone(), intent.access(), slot);
        Ok(Entered { checked, borrow: Some((slot, id)), held: Some(state) })
    }
}

/// A borrow that stands in the table, before its bytes are there.
struct Entered<'a> {
    /// As `State::check` gives it.
    checked: Range<usize>,
    /// None for a range without bytes.
    borrow: Option<(Slot, u64)>,
    /// The lock, for the first step of what brings the bytes.
    held: Option<MutexGuard<'a, State>>,
}

/// When patience ends. A timeout that goes past the end of time is as good as a century.
fn deadline(timeout: Duration) -> Option<Instant> {
    let (now, century) = (Instant::now(), Duration::from_secs(u32::MAX.into()));
    now.checked_add(timeout).or(now.checked_add(century))
}
