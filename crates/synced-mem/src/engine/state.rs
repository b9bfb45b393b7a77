//! One memory: its copies, which bytes of each are valid, and what is asked about them. It changes nothing but its own
//! lists; the files beside it hold the operations.
//!
//! Both shells, `SyncedMem` and `SharedMem`, keep a `State` behind a lock; they differ in who checks the borrows.
//! A function that takes `&mut self` only adds valid bytes unless its comment says that it takes some away.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::{Head, Location};
use crate::coherence::borrows::Borrows;
use crate::coherence::ranges::Ranges;
use crate::coherence::replicas::{Replicas, Slot};
use crate::device::Queue;
use crate::engine::copies::{DeviceCopy, FreedBlock, HostCopy, Staged};
use crate::engine::events::{Events, Pending};
use crate::engine::queue::QueueHandle;
use crate::engine::waits::Waits;
use crate::error::Error;
use crate::host::buffer::dangling;
use crate::host::pool::HostPool;
use crate::ids::DeviceId;
use crate::stats::{EventKind, Observer, Stats};

/// The host's own memory: the only host copy that is ever written.
pub(crate) const HOST: Slot = Slot(0);
/// Adopted read-only bytes.
pub(crate) const ADOPTED: Slot = Slot(1);
/// The first device.
const DEVICES: usize = 2;

pub(crate) struct State {
    /// Without bytes, only asked what it has cost: accesses of no bytes are answered before they come here.
    pub(crate) len: usize,
    pub(crate) replicas: Replicas,
    /// Slot [`HOST`].
    pub(crate) host: Option<HostCopy>,
    /// Slot [`ADOPTED`].
    pub(crate) adopted: Option<HostCopy>,
    /// From slot [`DEVICES`] on. An entry keeps its index, whether it has memory or not.
    pub(crate) devices: Vec<DeviceCopy>,
    /// Host copies that are no longer read, but that a queue may still use.
    pub(crate) retired: Vec<HostCopy>,
    /// Transfers of lent slices that are under way.
    pub(crate) staged: Vec<Staged>,
    /// How many guards write to the host's own memory now; 0 in a `SyncedMem`, where `&mut` says so.
    pub(crate) host_writers: usize,
    /// Blocks without valid bytes, to be given back once no queue uses them.
    pub(crate) freed: Vec<FreedBlock>,
    pub(crate) waits: Waits,
    /// Whether some thread does what [`is_untidy`](Self::is_untidy) asks for.
    pub(crate) is_tidying: bool,
    /// The live borrows; empty in a `SyncedMem`.
    pub(crate) borrows: Borrows,
    pub(crate) pool: Option<HostPool>,
    pub(crate) events: Events,
}

impl State {
    pub(crate) fn new(len: usize, pool: Option<HostPool>) -> Self {
        Self {
            len,
            replicas: Replicas::new(len),
            host: None,
            adopted: None,
            devices: Vec::new(),
            retired: Vec::new(),
            staged: Vec::new(),
            host_writers: 0,
            freed: Vec::new(),
            waits: Waits::default(),
            is_tidying: false,
            borrows: Borrows::default(),
            pool,
            events: Events::default(),
        }
    }

    // ---- ranges ----

    /// All bytes.
    pub(crate) fn whole(&self) -> Range<usize> {
        0..self.len
    }

    // ---- copies ----

    /// The first byte of a host copy from `start` on.
    pub(crate) fn host_ptr(&self, slot: Slot, start: usize) -> NonNull<u8> {
        let copy = match slot {
            ADOPTED => &self.adopted,
            _ => &self.host,
        };
        let Some(copy) = copy else { return dangling() };
        // Wrapping only in name: `start` is within the buffer.
        let ptr = copy.buffer.ptr().as_ptr().wrapping_add(start);
        NonNull::new(ptr).unwrap_or_else(dangling)
    }

    pub(crate) fn host_copy(&mut self, slot: Slot) -> Option<&mut HostCopy> {
        match slot {
            HOST => self.host.as_mut(),
            ADOPTED => self.adopted.as_mut(),
            _ => None,
        }
    }

    /// Every host buffer that a queue may use.
    pub(crate) fn host_copies_mut(&mut self) -> impl Iterator<Item = &mut HostCopy> {
        let staged = self.staged.iter_mut().map(|staged| &mut staged.copy);
        self.host.iter_mut().chain(&mut self.adopted).chain(&mut self.retired).chain(staged)
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
        self.devices.push(DeviceCopy::new(QueueHandle::new(queue)));
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

    /// The copies at a location. A device that this memory never was on has none.
    pub(crate) fn slots_at(&self, location: Location) -> Vec<Slot> {
        match location {
            Location::Host => vec![HOST, ADOPTED],
            Location::Device(device) => self.slot_of(device).into_iter().collect(),
        }
    }

    // ---- what is valid where ----

    pub(crate) fn head(&self) -> Head {
        self.replicas.head()
    }

    pub(crate) fn is_written(&self) -> bool {
        self.replicas.is_written()
    }

    /// Whether any byte of `range` is valid anywhere.
    pub(crate) fn is_written_in(&self, range: &Range<usize>) -> bool {
        let mut slots = (0..self.replicas.slots()).map(Slot);
        slots.any(|slot| self.replicas.valid(slot).overlaps(range))
    }

    /// Whether every byte of `range` is valid at a location.
    pub(crate) fn is_valid_at(&self, location: Location, range: &Range<usize>) -> bool {
        self.lacking(&self.slots_at(location), range) == 0
    }

    /// How many bytes of `range` are in none of these copies.
    pub(crate) fn lacking(&self, slots: &[Slot], range: &Range<usize>) -> usize {
        let mut missing = Ranges::of(range.clone());
        for &slot in slots {
            for held in self.replicas.valid(slot).within(range) {
                missing.remove(&held);
            }
        }
        missing.iter().map(|range| range.len()).sum()
    }

    /// The devices that hold any byte of this memory.
    pub(crate) fn devices_with_bytes(&self) -> Vec<DeviceId> {
        let copies = self.device_slots().zip(&self.devices);
        let held = copies.filter(|&(slot, _)| !self.replicas.valid(slot).is_empty());
        held.map(|(_, copy)| copy.device).collect()
    }

    /// The home queue of the device that lacks the fewest bytes of `range`, how many these are, and whether it is one
    /// of the preferred ones, which come first among equals.
    pub(crate) fn home_with(
        &self,
        range: &Range<usize>,
        preferred: &[DeviceId],
    ) -> Option<(Arc<dyn Queue>, usize, bool)> {
        let copies = self.device_slots().zip(&self.devices);
        let ranked = copies.map(|(slot, copy)| {
            let is_preferred = preferred.contains(&copy.device);
            (copy, self.lacking(&[slot], range), is_preferred)
        });
        let best = ranked.min_by_key(|&(_, lacking, is_preferred)| (lacking, !is_preferred));
        best.map(|(copy, lacking, preferred)| (Arc::clone(&copy.home), lacking, preferred))
    }

    // ---- what has happened ----

    /// Counts what happened to a range of a copy.
    #[inline]
    pub(crate) fn count(&mut self, kind: EventKind, range: &Range<usize>, slot: Slot) {
        let copy = Self::device_index(slot).and_then(|index| self.devices.get(index));
        let queue = copy.map(|copy| &*copy.home);
        self.events.count(kind, range.clone(), range.len(), queue, None);
    }

    /// Counts a host buffer that was allocated or freed, by the bytes that it takes.
    pub(crate) fn count_buffer(&mut self, kind: EventKind, allocated: usize) {
        if allocated > 0 {
            self.events.count(kind, 0..self.len, allocated, None, None);
        }
    }

    /// A buffer of a copy had to be leaked: it is unknown whether a queue still uses it.
    pub(crate) fn leaked(&mut self, slot: Slot, error: Error) {
        let copy = Self::device_index(slot).and_then(|index| self.devices.get(index));
        let queue = copy.map(|copy| &*copy.home);
        self.events.count(EventKind::Leak, 0..self.len, self.len, queue, Some(error));
    }

    /// Something that no access asked for has failed. Nothing was lost by it.
    pub(crate) fn failed(&mut self, error: Error) {
        self.events.count(EventKind::Failure, 0..0, 0, None, Some(error));
    }

    pub(crate) fn stats(&self) -> Stats {
        self.events.stats
    }

    /// Returns the old one, to be dropped outside the lock.
    pub(crate) fn set_observer(&mut self, observer: Arc<dyn Observer>) -> Option<Arc<dyn Observer>> {
        self.events.observer.replace(observer)
    }

    pub(crate) fn take_pending(&mut self) -> Option<Pending> {
        self.events.take_pending()
    }
}
