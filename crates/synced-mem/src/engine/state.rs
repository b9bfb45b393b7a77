//! One memory: its facts, buffers and blocks, and the questions about them. `perform` alone changes a state.
//!
//! Both shells, `SyncedMem` and `SharedMem`, keep a `State` behind a lock; who checks the borrows is their difference.

use std::mem;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::Location;
use crate::coherence::facts::{ADOPTED, Facts, HOST};
use crate::coherence::plan::Request;
use crate::coherence::replicas::Slot;
use crate::device::Queue;
use crate::device::token::ClaimedRange;
use crate::engine::copies::{DeviceCopy, FreedBlock};
use crate::engine::events::Events;
use crate::engine::operation::Operation;
use crate::engine::queue::QueueHandle;
use crate::host::buffer::{HostBuffer, dangling};
use crate::host::pool::HostPool;
use crate::ids::DeviceId;

pub(crate) struct State {
    pub(crate) facts: Facts<QueueHandle>,
    /// Slots [`HOST`] and [`ADOPTED`].
    pub(crate) hosts: [Option<HostBuffer>; 2],
    /// The slots from then on. An entry keeps its index, whether it has memory or not.
    pub(crate) devices: Vec<DeviceCopy>,
    /// Host buffers that are no longer read, but that a queue may still use, as the facts have them.
    pub(crate) retired: Vec<HostBuffer>,
    /// Blocks without valid bytes, to be given back once no queue uses them.
    pub(crate) freed: Vec<FreedBlock>,
    /// Whether a thread tidies up, after [`is_untidy`](Self::is_untidy).
    pub(crate) is_tidying: bool,
    pub(crate) pool: Option<HostPool>,
    pub(crate) events: Events,
}

impl State {
    pub(crate) fn new(len: usize, pool: Option<HostPool>) -> Self {
        Self {
            facts: Facts::new(len),
            hosts: [None, None],
            devices: Vec::new(),
            retired: Vec::new(),
            freed: Vec::new(),
            is_tidying: false,
            pool,
            events: Events::default(),
        }
    }

    /// The first byte of a host copy from `start` on.
    pub(crate) fn host_ptr(&self, slot: Slot, start: usize) -> NonNull<u8> {
        let Some(Some(buffer)) = self.hosts.get(slot.0) else { return dangling() };
        // Wrapping only in name: `start` is within the buffer.
        let ptr = buffer.ptr().as_ptr().wrapping_add(start);
        NonNull::new(ptr).unwrap_or_else(dangling)
    }

    /// Where the bytes from `at` on are after a [`Request::Host`].
    pub(crate) fn host_start(&self, at: usize, operation: &Operation<'_>) -> NonNull<u8> {
        self.host_ptr(operation.slot.unwrap_or(HOST), at)
    }

    /// The bytes of a [`Request::Device`] that has been met, for work of this queue.
    pub(crate) fn claimed(&self, queue: &Arc<dyn Queue>, operation: &mut Operation<'_>) -> ClaimedRange {
        let index = operation.slot.and_then(Slot::device);
        let memory = index.and_then(|index| self.devices[index].memory.as_ref());
        let block = memory.map(|memory| Arc::clone(&memory.block));
        match mem::replace(&mut operation.request, Request::Adopt) {
            Request::Device { by, range, .. } => {
                ClaimedRange { block, range, queue: by.into_queue(), _hold: operation.hold.take() }
            }
            _ => ClaimedRange::empty(queue),
        }
    }

    pub(crate) fn slot_of(&self, device: DeviceId) -> Option<Slot> {
        self.devices.iter().position(|copy| copy.device == device).map(Slot::of_device)
    }

    /// The copy that stands for a location. A device that this memory never was on has none.
    pub(crate) fn slot_at(&self, location: Location) -> Option<Slot> {
        match location {
            Location::Host => Some(HOST),
            Location::Device(device) => self.slot_of(device),
        }
    }

    /// The copies at a location. A device that this memory never was on has none.
    pub(crate) fn slots_at(&self, location: Location) -> Vec<Slot> {
        match location {
            Location::Host => vec![HOST, ADOPTED],
            Location::Device(device) => self.slot_of(device).into_iter().collect(),
        }
    }

    /// Whether every byte of `range` is valid at a location.
    pub(crate) fn is_valid_at(&self, location: Location, range: &Range<usize>) -> bool {
        self.facts.lacking(&self.slots_at(location), range) == 0
    }

    /// Each device that this memory has been on, with its copy and the queue that used it last.
    pub(crate) fn homes(&self) -> impl Iterator<Item = (Slot, DeviceId, &QueueHandle)> {
        let copies = self.facts.device_slots().zip(&self.devices);
        copies.filter_map(|(slot, copy)| Some((slot, copy.device, self.facts.copy(slot).home.as_ref()?)))
    }

    /// The devices that hold any byte of this memory.
    pub(crate) fn devices_with_bytes(&self) -> Vec<DeviceId> {
        let held = self.homes().filter(|(slot, ..)| !self.facts.replicas.valid(*slot).is_empty());
        held.map(|(_, device, _)| device).collect()
    }

    /// The home queue of the device that lacks the fewest bytes of `range`, how many these are, and whether it is one
    /// of the preferred ones, which come first among equals.
    pub(crate) fn home_with(
        &self,
        range: &Range<usize>,
        preferred: &[DeviceId],
    ) -> Option<(Arc<dyn Queue>, usize, bool)> {
        let ranked = self.homes().map(|(slot, device, home)| {
            let is_preferred = preferred.contains(&device);
            (home, self.facts.lacking(&[slot], range), is_preferred)
        });
        let best = ranked.min_by_key(|&(_, lacking, is_preferred)| (lacking, !is_preferred));
        best.map(|(home, lacking, preferred)| (Arc::clone(home), lacking, preferred))
    }

    /// Whether an operation leaves ranges to merge, or memory to give back.
    pub(crate) fn is_untidy(&self) -> bool {
        self.facts.is_untidy() || !self.freed.is_empty()
    }
}
