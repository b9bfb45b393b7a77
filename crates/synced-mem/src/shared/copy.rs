//! Copies bytes from one shared memory to another, on the side where the newest bytes are.
//! The two memories are never locked at once: the source's bytes are borrowed first, then the destination is locked.
//! It relies on the borrows for both ranges to stay as they are meanwhile.

use std::ops::Range;
use std::sync::Arc;

use crate::copies::order;
use crate::engine::Stop;
use crate::ranges::Ranges;
use crate::replicas::Slot;
use crate::state::{FIXED, HOST, State};
use crate::{Access, DeviceId, DeviceRef, Error, EventKind, Queue, SharedMem};

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
    /// Where the source lacks the fewest bytes: on a device or on the host; of equals, on a device that the destination is
    /// on already, else on the host. The destination's old bytes are not moved for it. Copying a range onto
    /// itself changes nothing.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] in either memory; [`Error::Conflict`] when somebody writes the source or borrows the
    /// destination, or when they overlap; [`Error::OutOfMemory`], [`Error::Device`]. The destination is then unchanged,
    /// but for a device that failed in the midst of the copy and alone held the old bytes.
    pub fn copy_from(&self, at: usize, source: &Self, range: Range<usize>) -> Result<(), Error> {
        let len = range.end.saturating_sub(range.start);
        let to = at..at.saturating_add(len);
        if self.ptr_eq(source) && to == range && to.end <= self.len() {
            return Ok(());
        }
        let overlap = range.start.max(to.start) < range.end.min(to.end);
        if self.ptr_eq(source) && overlap && to.end <= self.len() && range.end <= self.len() {
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
                let token = source.device(&queue, range.clone())?;
                let copied = match self.copy_on_device(&to, &token, &queue) {
                    // No room for the destination there; the host may have some.
                    Err(Error::DeviceOutOfMemory { .. }) => false,
                    copied => copied?,
                };
                drop(token);
                if !copied {
                    self.copy_on_host(to, source, range)?;
                }
            }
        }
        Ok(())
    }

    fn side(&self, source: &Self, range: &Range<usize>) -> Result<Side, Error> {
        let preferred = self.inner.with(|state| state.devices_with_bytes());
        source.inner.with(|state| {
            let range = state.check(range)?;
            state.borrows.check(&range, Access::Read)?;
            if range.is_empty() || !state.is_written_in(&range) {
                return Ok(Side::Zeros);
            }
            let host = state.lacking(&[HOST, FIXED], &range);
            Ok(match state.home_with(&range, &preferred) {
                Some((queue, lacking, preferred)) if (lacking, !preferred) < (host, true) => Side::Device(queue),
                _ => Side::Host,
            })
        })
    }

    fn copy_on_host(&self, to: Range<usize>, source: &Self, range: Range<usize>) -> Result<(), Error> {
        let bytes = source.host(range)?;
        self.host_overwrite(to)?.copy_from_slice(&bytes);
        Ok(())
    }

    fn copy_on_device(&self, to: &Range<usize>, from: &DeviceRef<'_>, queue: &Arc<dyn Queue>) -> Result<bool, Error> {
        self.inner.act(|state| {
            let to = state.check(to)?;
            state.borrows.check(&to, Access::Write)?;
            let copied = state.receive(&to, from, queue);
            // A block that was made for nothing goes again.
            if let (Some(slot), Ok(false) | Err(Stop::Fail(_))) = (state.slot_of(queue.device().id()), &copied) {
                state.free_if_stale(slot);
            }
            copied
        })
    }
}

impl State {
    fn is_written_in(&self, range: &Range<usize>) -> bool {
        let mut slots = (0..self.replicas.slots()).map(Slot);
        slots.any(|slot| self.replicas.valid(slot).overlaps(range))
    }

    /// The devices that hold any byte of this memory.
    fn devices_with_bytes(&self) -> Vec<DeviceId> {
        let slots = self.device_slots();
        let held = slots.filter(|&slot| !self.replicas.valid(slot).is_empty());
        held.filter_map(|slot| self.device_of(slot)).collect()
    }

    /// How many bytes of `range` are in none of these copies.
    fn lacking(&self, slots: &[Slot], range: &Range<usize>) -> usize {
        let mut missing = Ranges::of(range.clone());
        for &slot in slots {
            for held in self.replicas.valid(slot).within(range) {
                missing.remove(&held);
            }
        }
        missing.iter().map(|range| range.len()).sum()
    }

    /// The home queue of the device that lacks the fewest bytes of `range`, how many these are, and whether it is one of
    /// the preferred ones, which come first among equals.
    fn home_with(&self, range: &Range<usize>, preferred: &[DeviceId]) -> Option<(Arc<dyn Queue>, usize, bool)> {
        let copies = self.device_slots().zip(&self.devices);
        let ranked = copies.map(|(slot, copy)| {
            let is_preferred = preferred.contains(&copy.device);
            (copy, self.lacking(&[slot], range), is_preferred)
        });
        let best = ranked.min_by_key(|&(_, lacking, is_preferred)| (lacking, !is_preferred));
        best.map(|(copy, lacking, preferred)| (Arc::clone(copy.home.queue()), lacking, preferred))
    }

    /// A copy that failed may have been enqueued all the same: the device no longer holds these bytes where another copy
    /// does.
    fn distrust_range(&mut self, slot: Slot, range: &Range<usize>) {
        let only = self.replicas.only_in(slot, range);
        for shared in only.missing(range).iter() {
            self.replicas.give_up(slot, &shared);
        }
    }

    /// Overwrites `to` with another memory's bytes, on a queue of the device that both are on. False: nothing was done,
    /// because there is nothing to move there.
    fn receive(&mut self, to: &Range<usize>, from: &DeviceRef<'_>, queue: &Arc<dyn Queue>) -> Result<bool, Stop> {
        let slot = self.device_slot(queue);
        let Some(index) = Self::device_index(slot) else {
            return Ok(false);
        };
        self.bring_home(index, queue)?;
        self.make_device(index)?;
        if self.len == 0 {
            return Ok(false);
        }
        let copy = &mut self.devices[index];
        let home = &copy.home;
        order(&mut copy.uses, home, to, Access::Write, None, &self.waits)?;
        let source = from.arg();
        if let (Some(memory), Some(block)) = (&copy.memory, source.block()) {
            let (start, from, len) = (to.start, source.range().start, to.len());
            // SAFETY: both ranges lie within their blocks (checked here, and by the token), and both blocks on this
            // queue's device. The destination's entry was made above; the source's when the token was, on this queue.
            let enqueued = unsafe { queue.copy(&*memory.block, start, block, from, len) };
            if let Err(error) = enqueued {
                self.distrust_range(slot, to);
                return Err(error.into());
            }
        }
        self.claim(slot, to);
        self.count(EventKind::DeviceCopy, to, Some(queue.device().id()));
        Ok(true)
    }
}
