//! One memory: which bytes of which copy are valid, the copies themselves, and every change of either.
//!
//! Both shells, `SyncedMem` and `SharedMem`, keep a `State` behind a lock; they differ in who checks the borrows.
//! It relies on `replicas` and `ordering` to decide and on `transfer` to act; it holds no unsafe block.
//! A function that takes `&mut self` here only adds valid bytes unless its comment says that it takes some away.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::Intent;
use crate::coherence::borrows::Borrows;
use crate::coherence::replicas::{Replicas, Slot};
use crate::device::token::Span;
use crate::engine::copies::{DeviceCopy, HostCopy, Line, Waits, order};
use crate::engine::events::Afterwards;
use crate::engine::step::Stop;
use crate::engine::teardown::Leaving;
use crate::host::buffer::dangling;
use crate::{Access, DeviceId, Error, EventKind, Head, HostPool, Observer, Queue, Stats};

/// The host's own memory: the only host copy that anything writes.
pub(crate) const HOST: Slot = Slot(0);
/// Adopted read-only bytes.
pub(crate) const FIXED: Slot = Slot(1);
/// The first device.
const DEVICES: usize = 2;

pub(crate) struct State {
    pub(crate) len: usize,
    /// Over one byte more than none for a memory of length 0, so that it has states like any other.
    pub(crate) replicas: Replicas,
    /// Slot [`HOST`].
    pub(crate) host: Option<HostCopy>,
    /// Slot [`FIXED`].
    pub(crate) fixed: Option<HostCopy>,
    /// From slot [`DEVICES`] on. An entry stays where it is for ever, whether it has memory or not.
    pub(crate) devices: Vec<DeviceCopy>,
    /// Host copies that are no longer read, but that a queue may still use.
    pub(crate) retired: Vec<HostCopy>,
    /// How many guards write to the host's own memory now; 0 in a `SyncedMem`, where `&mut` says so.
    pub(crate) host_writers: usize,
    /// Device memory without valid bytes, to be given back once no queue uses it.
    pub(crate) leaving: Vec<Leaving>,
    pub(crate) waits: Waits,
    /// Whether some thread does what [`is_untidy`](Self::is_untidy) asks for.
    pub(crate) is_tidying: bool,
    /// The live borrows; empty in a `SyncedMem`.
    pub(crate) borrows: Borrows,
    pub(crate) pool: Option<HostPool>,
    pub(crate) stats: Stats,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) after: Vec<Afterwards>,
}

impl State {
    pub(crate) fn new(len: usize, pool: Option<HostPool>) -> Self {
        Self {
            len,
            replicas: Replicas::new(len.max(1)),
            host: None,
            fixed: None,
            devices: Vec::new(),
            retired: Vec::new(),
            host_writers: 0,
            leaving: Vec::new(),
            waits: Waits::default(),
            is_tidying: false,
            borrows: Borrows::default(),
            pool,
            stats: Stats::default(),
            observer: None,
            after: Vec::new(),
        }
    }

    /// All bytes, as the replicas count them.
    pub(crate) fn whole(&self) -> Range<usize> {
        0..self.replicas.span()
    }

    /// A range that lies within the memory, as the replicas count it.
    pub(crate) fn check(&self, range: &Range<usize>) -> Result<Range<usize>, Error> {
        if range.start > range.end || range.end > self.len {
            let (range, len) = (range.clone(), self.len);
            return Err(Error::OutOfBounds { range, len });
        }
        Ok(match self.len {
            0 => self.whole(),
            _ => range.clone(),
        })
    }

    // ---- the host ----

    /// The first byte of `range` on the host, ready for `intent`, and the copy it lies in. A write takes the range's
    /// validity from all other copies.
    pub(crate) fn host(&mut self, range: &Range<usize>, intent: Intent) -> Result<(NonNull<u8>, Slot), Stop> {
        if range.is_empty() {
            return Ok((dangling(), HOST));
        }
        let slot = self.host_slot(range, intent);
        if slot == HOST {
            self.make_host()?;
        }
        match intent {
            Intent::Overwrite => self.renew_host(None, range, Access::Write, range)?,
            _ => self.bring(slot, range, None)?,
        }
        self.settle_host(slot, range, intent.access())?;
        if intent != Intent::Read {
            self.claim(HOST, range);
        }
        Ok((self.host_ptr(slot, range.start), slot))
    }

    /// Adopted bytes serve readers for as long as they hold the range and our own memory does not.
    fn host_slot(&self, range: &Range<usize>, intent: Intent) -> Slot {
        let fixed = intent == Intent::Read && self.replicas.holds(FIXED, range) && !self.replicas.holds(HOST, range);
        if fixed { FIXED } else { HOST }
    }

    /// Starts bringing `range` to the host and returns without waiting for it.
    pub(crate) fn prefetch_host(&mut self, range: &Range<usize>) -> Result<(), Stop> {
        let slot = self.host_slot(range, Intent::Read);
        if slot == HOST {
            self.make_host()?;
        }
        self.bring(slot, range, None)
    }

    /// Makes sure that the host has memory of its own. Nothing in it becomes valid.
    pub(crate) fn make_host(&mut self) -> Result<(), Error> {
        if self.host.is_some() {
            return Ok(());
        }
        self.host = Some(HostCopy::new(self.new_host_buffer()?));
        Ok(())
    }

    pub(crate) fn host_ptr(&self, slot: Slot, start: usize) -> NonNull<u8> {
        let copy = match slot {
            FIXED => &self.fixed,
            _ => &self.host,
        };
        let Some(copy) = copy else { return dangling() };
        // Wrapping only in name: `start` is within the buffer, or the memory is empty and it is 0.
        let ptr = copy.buffer.ptr().as_ptr().wrapping_add(start);
        NonNull::new(ptr).unwrap_or_else(dangling)
    }

    pub(crate) fn host_copy(&mut self, slot: Slot) -> Option<&mut HostCopy> {
        match slot {
            HOST => self.host.as_mut(),
            FIXED => self.fixed.as_mut(),
            _ => None,
        }
    }

    // ---- devices ----

    /// A range of the copy on the queue's device, ready for work of this queue. A write takes the range's validity from
    /// all other copies.
    pub(crate) fn device(
        &mut self,
        queue: &Arc<dyn Queue>,
        range: &Range<usize>,
        intent: Intent,
        guard: Option<u64>,
    ) -> Result<(Span, Slot), Stop> {
        let slot = self.device_slot(queue);
        if range.is_empty() {
            return Ok((Span::empty(queue), slot));
        }
        let index = slot.0 - DEVICES;
        self.bring_home(index, queue)?;
        if intent == Intent::Overwrite {
            self.renew_device(slot, range)?;
        }
        self.make_device(index)?;
        if intent != Intent::Overwrite {
            self.bring(slot, range, None)?;
        }
        let (copy, access) = (&mut self.devices[index], intent.access());
        let mut hold = None;
        if self.len > 0 {
            order(&mut copy.uses, &copy.home, range, access, guard, &self.waits)?;
            if guard.is_none() {
                hold = copy.uses.hold(&copy.home, range, access);
            }
        }
        let block = copy.memory.as_ref().map(|m| Arc::clone(&m.block));
        if intent != Intent::Read {
            self.claim(slot, range);
        }
        let (range, queue) = (range.start..range.start + self.real(range), Arc::clone(queue));
        let span = Span { block, range, queue, _hold: hold };
        Ok((span, slot))
    }

    /// What a device copy needs runs on this queue from now on, if that works.
    pub(crate) fn bring_home(&mut self, index: usize, queue: &Arc<dyn Queue>) -> Result<(), Stop> {
        if !self.waits.broken.is_empty() {
            self.refuse_broken(&Line::new(queue))?;
        }
        if !self.devices[index].home.is(&**queue) {
            self.devices[index].home = Line::new(queue);
        }
        Ok(())
    }

    /// How many bytes a range really has: a memory of length 0 has none.
    pub(crate) fn real(&self, range: &Range<usize>) -> usize {
        match self.len {
            0 => 0,
            _ => range.len(),
        }
    }

    /// The slot of a queue's device, entered if it is new.
    pub(crate) fn device_slot(&mut self, queue: &Arc<dyn Queue>) -> Slot {
        // A queue that used a copy last is found without asking for its device.
        let at_home = self.devices.iter().position(|copy| copy.home.is(&**queue));
        if let Some(index) = at_home {
            return Self::slot_at(index);
        }
        if let Some(slot) = self.slot_of(queue.device().id()) {
            return slot;
        }
        self.devices.push(DeviceCopy::new(Line::new(queue)));
        self.replicas.add_slot()
    }

    pub(crate) fn slot_of(&self, device: DeviceId) -> Option<Slot> {
        let index = self.devices.iter().position(|copy| copy.device == device)?;
        Some(Self::slot_at(index))
    }

    /// The copy in a slot that is neither of the host's.
    pub(crate) fn device_copy(&mut self, slot: Slot) -> Option<&mut DeviceCopy> {
        self.devices.get_mut(slot.0.checked_sub(DEVICES)?)
    }

    pub(crate) fn device_index(slot: Slot) -> Option<usize> {
        slot.0.checked_sub(DEVICES)
    }

    pub(crate) fn slot_at(index: usize) -> Slot {
        Slot(DEVICES + index)
    }

    pub(crate) fn device_slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.devices.len()).map(Self::slot_at)
    }

    /// The guard of a device token is gone: no more launches come from it.
    pub(crate) fn release(&mut self, slot: Slot, borrow: u64) {
        self.borrows.remove(borrow);
        if let Some(index) = Self::device_index(slot) {
            let uses = &mut self.devices[index].uses;
            uses.release(borrow, &self.waits.clock);
        }
    }

    // ---- validity ----

    /// Makes `range` of a copy valid, moving what is missing and nothing else. The copy has memory.
    pub(crate) fn bring(&mut self, to: Slot, range: &Range<usize>, line: Option<&Line>) -> Result<(), Stop> {
        if self.replicas.holds(to, range) {
            // After a wait it is this operation itself that has brought them.
            if self.waits.waited.is_empty() {
                self.count(EventKind::Avoided, range, self.device_of(to));
            }
            return Ok(());
        }
        let order = self.sources(to);
        for action in self.replicas.read(to, range, &order) {
            self.perform(action, line)?;
        }
        Ok(())
    }

    /// Where a copy's bytes come from, best first: to the host from adopted bytes; to a device from another device, if
    /// there is a direct way and no broken queue was to bring them there.
    fn sources(&self, to: Slot) -> Vec<Slot> {
        // Those that are left out come last of all.
        let target = Self::device_index(to).map(|index| &self.devices[index]);
        let copies = self.device_slots().zip(&self.devices);
        let devices = copies.filter_map(|(slot, copy)| {
            let direct = target.is_none_or(|target| target.reaches(copy));
            (slot != to && direct && !self.meets_broken(slot, Access::Read)).then_some(slot)
        });
        match to {
            HOST => [FIXED].into_iter().chain(devices).collect(),
            _ => devices.chain([HOST, FIXED]).collect(),
        }
    }

    /// Takes the validity of `range` from all other copies.
    pub(crate) fn claim(&mut self, slot: Slot, range: &Range<usize>) {
        self.replicas.claim(slot, range.clone());
        if self.fixed.is_some() && self.replicas.valid(FIXED).is_empty() {
            let fixed = self.fixed.take();
            self.retire(fixed);
        }
    }

    // ---- what is seen from outside ----

    pub(crate) fn head(&self) -> Head {
        self.replicas.head()
    }

    pub(crate) fn is_written(&self) -> bool {
        self.replicas.is_written()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.stats
    }

    /// Returns the old one, to be dropped outside the lock.
    pub(crate) fn set_observer(&mut self, observer: Arc<dyn Observer>) -> Option<Arc<dyn Observer>> {
        self.observer.replace(observer)
    }

    pub(crate) fn device_of(&self, slot: Slot) -> Option<DeviceId> {
        Some(self.devices.get(Self::device_index(slot)?)?.device)
    }
}
