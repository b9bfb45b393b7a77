//! One memory: its facts, buffers and blocks, the questions about them, and an operation on them as data. `perform`
//! alone changes a state, `coherence::plan` decides how.
//!
//! Both shells, `SyncedMem` and `SharedMem`, keep a `State` behind a lock; who checks the borrows is their difference.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::{DeviceId, Intent, Location};
use crate::borrow::{DeviceRef, QueueHandle};
use crate::coherence::facts::Facts;
use crate::coherence::plan::Request;
use crate::coherence::replicas::{ADOPTED, HOST, ORIGIN, Replicas, Slot};
use crate::device::{Block, Queue};
use crate::engine::events::Events;
use crate::error::Error;
use crate::host::buffer::{HostBuffer, dangling};
use crate::host::pool::HostPool;
use crate::ledger::Account;
use crate::origin::Origin;
use crate::stats::Stats;

/// The shells see no field: they ask, and `perform` changes.
pub(crate) struct State {
    pub(super) facts: Facts<QueueHandle>,
    /// Slots [`HOST`] and [`ADOPTED`].
    pub(super) hosts: [Option<HostBuffer>; 2],
    /// The slots from then on. An entry keeps its index, whether it has memory or not.
    pub(super) devices: Vec<DeviceCopy>,
    /// Host buffers that are no longer read, but that a queue may still use, as the facts have them.
    pub(super) retired: Vec<HostBuffer>,
    /// Blocks without valid bytes, to be given back once no queue uses them.
    pub(super) freed: Vec<FreedBlock>,
    /// How many steps outside the lock have been settled: a thread with one in its way looks again after the next.
    pub(super) settlements: u64,
    /// Whether a thread gives memory back, and waits for the users of copies.
    pub(super) is_tidying: bool,
    pub(super) pool: Option<HostPool>,
    /// While any byte there is what the memory holds.
    pub(super) origin: Option<Arc<dyn Origin>>,
    /// What the memory takes of budgets, one for each at most.
    pub(super) accounts: Option<Box<[Arc<Account>]>>,
    pub(super) events: Events,
}

/// Bytes on a device.
pub(crate) struct DeviceCopy {
    pub(crate) device: DeviceId,
    /// None before the first use, and after an eviction.
    pub(crate) memory: Option<DeviceMemory>,
    /// Of a device that shares the host's memory, by host copy: the copy's bytes as a block to read.
    pub(crate) views: [Option<Arc<dyn Block>>; 2],
    /// What the memory takes of the device's own budget, if there are several handles to the memory.
    pub(crate) account: Option<Arc<Account>>,
}

/// A block, with the queue and the owner that have to outlive the block.
pub(crate) struct DeviceMemory {
    pub(crate) block: Arc<dyn Block>,
    /// The queue in whose order the block is freed.
    pub(crate) queue: QueueHandle,
    /// Of adopted memory: dropped when no queue uses the block any more.
    pub(crate) owner: Option<Box<dyn Any + Send + Sync>>,
}

/// A device's block without a valid byte, with the queues that may still use the block.
pub(crate) struct FreedBlock {
    pub(crate) slot: Slot,
    pub(crate) memory: DeviceMemory,
    pub(crate) users: Vec<QueueHandle>,
}

/// An access as it is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// The queue whose device the bytes are wanted on; `None` is the host.
    pub(crate) by: Option<&'a QueueHandle>,
    pub(crate) range: &'a Range<usize>,
    pub(crate) intent: Intent,
    /// The entry of the borrow table under which the access is made.
    pub(crate) borrow: Option<u64>,
    /// Whether the bytes are for another memory, so that the place of the last use stays.
    pub(crate) is_for_another: bool,
}

/// The answer to an access.
pub(crate) struct Met {
    /// The copy that has the bytes.
    pub(crate) slot: Slot,
    /// For a token without a guard: while the share is held, the use of the token is not over.
    pub(crate) hold: Option<Arc<()>>,
}

/// A request that may take several steps, with the memory that it brings.
pub(crate) struct Operation<'a> {
    pub(crate) request: Request<QueueHandle>,
    pub(crate) brings: Option<Box<Brings<'a>>>,
    /// A buffer for the host's copy that was slow to get, and is not the memory's yet.
    pub(crate) stock: Option<HostBuffer>,
}

/// Bytes or memory from outside.
pub(crate) enum Brings<'a> {
    /// Bytes of another memory, on the queue of the request. As many as the request's range has.
    Bytes(&'a DeviceRef<'a>),
    /// As long as the memory.
    Buffer(HostBuffer),
    /// As long as the memory, of the queue's device. The owner keeps it.
    Block(QueueHandle, Box<dyn Block>, Box<dyn Any + Send + Sync>),
}

impl<'a> Asked<'a> {
    /// Without a borrow: of a memory that has one owner.
    pub(crate) fn new(by: Option<&'a QueueHandle>, range: &'a Range<usize>, intent: Intent) -> Self {
        Self { by, range, intent, borrow: None, is_for_another: false }
    }

    /// The same as a request.
    pub(crate) fn request(&self) -> Request<QueueHandle> {
        let (range, intent) = (self.range.clone(), self.intent);
        match self.by {
            None => Request::Host { range, intent },
            Some(by) => Request::Device { by: by.clone(), range, intent },
        }
    }
}

impl Operation<'_> {
    pub(crate) fn new(request: Request<QueueHandle>) -> Self {
        Self { request, brings: None, stock: None }
    }
}

/// How many bytes of a range would have to be moved to each place before work there can read the range: see
/// [`SharedMem::lacking`](crate::SharedMem::lacking).
#[non_exhaustive]
pub struct Lacking {
    /// How many bytes the host lacks.
    pub host: usize,
    /// How many bytes each device lacks that this memory has been on, with the queue that last used it there.
    pub devices: Vec<(Arc<dyn Queue>, usize)>,
    /// How many bytes the origin alone has: the place that needs them first reads them from there.
    pub from_origin: usize,
    /// Where the memory, any range of it, was last written, or asked for on a device. Reads on the host do not count;
    /// `None` before the first such access.
    pub last: Option<Location>,
}

impl fmt::Debug for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices: Vec<_> = self.devices.iter().map(|(queue, lacking)| (queue.id(), lacking)).collect();
        f.debug_struct("Lacking")
            .field("host", &self.host)
            .field("devices", &devices)
            .field("from_origin", &self.from_origin)
            .field("last", &self.last)
            .finish()
    }
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
            settlements: 0,
            pool,
            origin: None,
            accounts: None,
            events: Events::default(),
        }
    }

    /// Of a memory whose bytes are in an origin.
    pub(crate) fn of(origin: Arc<dyn Origin>) -> Self {
        let len = origin.len();
        let (replicas, reads_whole) = (Replicas::of_origin(len), !origin.is_direct());
        let facts = Facts { replicas, reads_whole, ..Facts::new(len) };
        Self { facts, origin: (len > 0).then_some(origin), ..Self::new(len, None) }
    }

    /// What is known of the memory, to be read.
    #[inline]
    pub(crate) fn facts(&self) -> &Facts<QueueHandle> {
        &self.facts
    }

    /// The counters so far.
    pub(crate) fn stats(&self) -> Stats {
        self.events.stats()
    }

    /// The state of a memory of `len` zero bytes, in the pool of this one, if there is a pool.
    pub(crate) fn new_alike(&self, len: usize) -> Self {
        Self::new(len, self.pool.clone())
    }

    /// The first byte of the host's own memory, if there is any.
    pub(crate) fn host_start(&self) -> Option<NonNull<u8>> {
        self.hosts[HOST.0].as_ref().map(HostBuffer::ptr)
    }

    /// The first byte of a host copy from `start` on.
    pub(crate) fn host_ptr(&self, slot: Slot, start: usize) -> NonNull<u8> {
        let Some(Some(buffer)) = self.hosts.get(slot.0) else { return dangling() };
        // Wrapping only in name: `start` is within the buffer.
        let ptr = buffer.ptr().as_ptr().wrapping_add(start);
        NonNull::new(ptr).unwrap_or_else(dangling)
    }

    pub(crate) fn slot_of(&self, device: DeviceId) -> Option<Slot> {
        self.devices.iter().position(|copy| copy.device == device).map(Slot::of_device)
    }

    /// The copy that stands for a location. A device that this memory never was on has none.
    pub(crate) fn slot_at(&self, location: Location) -> Option<Slot> {
        match location {
            Location::Host => Some(HOST),
            Location::Device(device) => self.slot_of(device),
            Location::Origin => self.origin.as_ref().map(|_| ORIGIN),
        }
    }

    /// The copies at a location. A device that this memory never was on has none.
    pub(crate) fn slots_at(&self, location: Location) -> Vec<Slot> {
        match location {
            Location::Host => vec![HOST, ADOPTED],
            Location::Device(device) => self.slot_of(device).into_iter().collect(),
            Location::Origin => vec![ORIGIN],
        }
    }

    /// Whether every byte of `range` is valid at a location.
    pub(crate) fn is_valid_at(&self, location: Location, range: &Range<usize>) -> bool {
        self.facts.lacking(&self.slots_at(location), range) == 0
    }

    /// The queue for work on a device's copy that names no queue.
    pub(crate) fn home(&self, slot: Slot) -> Result<QueueHandle, Error> {
        // The plan names devices only that have a home, so that no caller ever sees this error.
        self.facts.copy(slot).home.clone().ok_or(Error::OutOfMemory { bytes: self.facts.len })
    }

    /// The memory of a device's copy.
    pub(crate) fn block(&self, slot: Slot) -> Result<&Arc<dyn Block>, Error> {
        let memory = slot.device().and_then(|index| self.devices[index].memory.as_ref());
        // The plan names copies only that have memory, so that no caller ever sees this error.
        memory.map(|memory| &memory.block).ok_or(Error::OutOfMemory { bytes: self.facts.len })
    }

    /// The block that a token for work of a queue gets of a copy.
    pub(crate) fn block_for(&self, slot: Slot, by: &QueueHandle) -> Option<Arc<dyn Block>> {
        if !slot.is_host() {
            return self.block(slot).ok().cloned();
        }
        let index = self.facts.home_of(by)?.device()?;
        self.devices[index].views[slot.0].clone()
    }

    /// The memory's account in the own budget of a copy's device. Not for the host.
    #[inline]
    pub(crate) fn own_account(&self, slot: Slot) -> Option<&Arc<Account>> {
        slot.device().and_then(|index| self.devices.get(index)?.account.as_ref())
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

    /// The bytes that each place lacks of a range, and the place of the last use.
    pub(crate) fn lacking_by_place(&self, range: &Range<usize>) -> Lacking {
        let facts = &self.facts;
        let all: Vec<_> = facts.holders().collect();
        let never_written = facts.lacking(&all, range);
        let of = |slots: &[Slot]| facts.lacking(slots, range) - never_written;
        let devices = self.homes().map(|(slot, _, home)| {
            let is_read_there = facts.device_slot(slot, range, Intent::Read).is_host();
            (Arc::clone(home), if is_read_there { of(&[HOST, ADOPTED]) } else { of(&[slot]) })
        });
        let devices = devices.collect();
        let last = facts.last.map(|slot| match slot.device() {
            None => Location::Host,
            Some(index) => Location::Device(self.devices[index].device),
        });
        let copies: Vec<_> = all.iter().copied().filter(|slot| *slot != ORIGIN).collect();
        Lacking { host: of(&[HOST, ADOPTED]), devices, from_origin: of(&copies), last }
    }
}

impl FreedBlock {
    /// Makes sure that the block may be given back in the order of the queue that allocated it: after all other queues
    /// that use the block. Waits, so the memory's lock is not held, except at the end of the memory.
    pub(crate) fn finish_uses(&self) -> Result<(), Error> {
        let queue = &self.memory.queue;
        let is_owned = self.memory.owner.is_some();
        for user in &self.users {
            // An owner may free at once, whatever the queue has still to do.
            if is_owned || (user != queue && queue.wait_for(user).is_err()) {
                user.synchronize()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An origin and budgets cost a memory without them no allocation, and no more room than this; a handle is a
    /// pointer.
    #[test]
    fn a_memory_without_an_origin_is_little_larger_for_it() {
        use std::mem::size_of_val;
        let state = State::new(16, None);
        let added = [size_of_val(&state.origin), size_of_val(&state.accounts), size_of_val(&state.facts.reads_whole)];
        // The ranges of the origin are one word of the replicas.
        let added = added.iter().sum::<usize>() + size_of::<usize>();
        assert!(added <= 48 && state.origin.is_none() && state.accounts.is_none(), "{added} bytes");
        assert_eq!(size_of::<crate::SharedMem>(), size_of::<usize>());
    }
}
