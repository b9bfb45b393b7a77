//! Copies bytes from one shared memory to another, on the side where the newest bytes are. The two memories are never
//! locked at once: the source's bytes are borrowed first, then the destination is locked. Relies on the borrows of both
//! ranges, which keep the bytes meanwhile.

use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use crate::access::{Access, Intent};
use crate::borrow::{ClaimedRange, DeviceRef, QueueHandle};
use crate::coherence::plan::Request;
use crate::coherence::ranges::meet;
use crate::device::Queue;
use crate::engine::state::{Asked, Brings, Lacking, Operation};
use crate::error::Error;
use crate::shared::SharedMem;

/// Where a copy runs.
enum Side {
    /// The source was never written: the destination gets zeros, the source stays untouched.
    Zeros,
    Host,
    Device(Arc<dyn Queue>),
}

impl SharedMem {
    /// Copies `source[range]` to `self[at..]`.
    ///
    /// Where the source lacks the fewest bytes: on a device or on the host; of equals, on a device that the destination
    /// is on already, else on the host. No old byte of the destination is moved. Copying a range onto itself changes
    /// nothing.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] in either memory; [`Error::Conflict`] when another borrow writes the source or borrows
    /// the destination, or when they overlap; [`Error::OutOfMemory`], [`Error::Device`]. [`Error`] says what the
    /// destination holds then.
    pub fn copy_from(&self, at: usize, source: &Self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        let range = source.inner.range(range)?;
        let to = self.inner.range(at..at.saturating_add(range.len()))?;
        if range.is_empty() || (self.ptr_eq(source) && to == range) {
            return Ok(());
        }
        if self.ptr_eq(source) && meet(&range, &to) {
            return Err(Error::Conflict {
                wanted: Access::Write,
                wanted_range: to,
                held: Access::Read,
                held_range: range,
            });
        }
        match self.side(source, &range)? {
            Side::Zeros => self.host_overwrite(to)?.fill(0),
            Side::Host => self.copy_on_host(to, source, range)?,
            Side::Device(queue) => {
                let token = source.read_for_copy(&queue, &range)?;
                let copied = self.copy_on_device(&to, &token, &queue);
                drop(token);
                match copied {
                    // No room for the destination there; the host may have some.
                    Err(Error::DeviceOutOfMemory { .. } | Error::Exhausted { .. } | Error::OverBudget { .. }) => {
                        self.copy_on_host(to, source, range)?;
                    }
                    copied => copied?,
                }
            }
        }
        Ok(())
    }

    fn side(&self, source: &Self, range: &Range<usize>) -> Result<Side, Error> {
        let preferred = self.inner.with(|state| state.devices_with_bytes());
        source.inner.with(|state| {
            source.inner.check(state, range, Access::Read)?;
            if !state.facts().is_written_in(range) {
                return Ok(Side::Zeros);
            }
            let Lacking { host, devices, .. } = state.lacking_by_place(range);
            let rank =
                |(queue, lacking): &(Arc<dyn Queue>, usize)| (*lacking, !preferred.contains(&queue.device().id()));
            let best = devices.into_iter().min_by_key(rank);
            Ok(best.filter(|best| rank(best) < (host, true)).map_or(Side::Host, |(queue, _)| Side::Device(queue)))
        })
    }

    /// The source's bytes on a device. Nobody asked for them there, so the source was last used where it was before.
    fn read_for_copy(&self, queue: &Arc<dyn Queue>, range: &Range<usize>) -> Result<DeviceRef<'static>, Error> {
        let by = QueueHandle::new(queue);
        let asked = Asked { is_for_another: true, ..Asked::new(Some(&by), range, Intent::Read) };
        let (block, lease) = self.inner.access(asked, |state, met| state.block_for(met.slot, &by))?;
        let claimed = ClaimedRange { block, range: range.clone(), queue: by.into_queue(), _hold: None };
        Ok(DeviceRef::new(claimed, Some(lease)))
    }

    fn copy_on_host(&self, to: Range<usize>, source: &Self, range: Range<usize>) -> Result<(), Error> {
        let bytes = source.host(range)?;
        self.host_overwrite(to)?.copy_from_slice(&bytes);
        Ok(())
    }

    fn copy_on_device(&self, to: &Range<usize>, from: &DeviceRef<'_>, queue: &Arc<dyn Queue>) -> Result<(), Error> {
        let request = Request::Receive { by: QueueHandle::new(queue), range: to.clone() };
        let operation = Operation { brings: Some(Box::new(Brings::Bytes(from))), ..Operation::new(request) };
        self.inner.act(operation, |state| self.inner.check(state, to, Access::Write))
    }
}
