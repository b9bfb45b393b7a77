//! What takes copies away or puts others in their place: evicting, shrinking, adopting, and the end of a memory.
//! Each waits for every queue that still uses what it frees; where that fails, the memory is leaked and said to be.
//! Callers make sure that nobody holds a slice of what goes.

use std::any::Any;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use crate::after::Afterwards;
use crate::bounds::Sole;
use crate::copies::{DeviceMemory, HostCopy, Line};
use crate::engine::Stop;
use crate::ordering::Uses;
use crate::replicas::Slot;
use crate::state::{FIXED, HOST, State};
use crate::{Access, Block, DeviceId, Error, EventKind, HostBuffer, SyncedMem};

/// Where bytes can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The host: our own memory there, and adopted bytes.
    Host,
    /// A device.
    Device(DeviceId),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("the host"),
            Place::Device(device) => device.fmt(f),
        }
    }
}

/// Whether an eviction may move bytes that no other copy holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    Move,
    Refuse,
}

impl SyncedMem {
    /// Frees the copy at a place. Bytes that no other copy holds are moved first: from a device to the host, from the
    /// host to a device that has been used before.
    ///
    /// # Errors
    /// [`Error::OnlyCopy`] when there is nowhere to move them; as [`host`](Self::host). Nothing is lost.
    pub fn evict(&mut self, place: Place) -> Result<(), Error> {
        self.evict_range(place, 0..self.len())
    }

    /// Takes some bytes away from a place, as [`evict`](Self::evict). Its memory is freed when it holds none.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; as [`evict`](Self::evict).
    pub fn evict_range(&mut self, place: Place, range: Range<usize>) -> Result<(), Error> {
        self.reset_fast();
        self.act_mut(|state| state.tidy(Sole::Yes), |state| state.evict(place, &state.check(&range)?, Only::Move))
    }

    /// Frees the copy at a place if other copies hold all its bytes.
    ///
    /// # Errors
    /// [`Error::OnlyCopy`] when they do not.
    pub fn evict_clean(&mut self, place: Place) -> Result<(), Error> {
        self.reset_fast();
        self.act_mut(|state| state.tidy(Sole::Yes), |state| state.evict(place, &state.whole(), Only::Refuse))
    }

    /// Frees the memory of all copies that hold no valid byte.
    pub fn shrink(&mut self) {
        self.reset_fast();
        for line in self.with_mut(State::shrink) {
            // A queue that fails keeps its buffers retired; the end of the memory decides about them.
            let _ = self.act_mut(|_| Ok(()), |state| state.wait_at_first(vec![line.clone()]));
        }
        // What has no valid byte any more is given back last, like after every operation.
        let _ = self.act_mut(|_| Ok(()), |_| Ok(()));
    }
}

impl State {
    /// The copies at a place. A device that this memory never was on has none.
    pub(crate) fn slots_at(&self, place: Place) -> Vec<Slot> {
        match place {
            Place::Host => vec![HOST, FIXED],
            Place::Device(device) => self.slot_of(device).into_iter().collect(),
        }
    }

    /// Whether every byte of `range` is valid at a place.
    pub(crate) fn is_valid_at(&self, place: Place, range: &Range<usize>) -> bool {
        let slots = self.slots_at(place);
        let mut missing = vec![range.clone()];
        for slot in slots {
            let valid = self.replicas.valid(slot);
            let still = missing.iter().flat_map(|range| {
                let gaps: Vec<_> = valid.missing(range).iter().collect();
                gaps
            });
            missing = still.collect();
        }
        missing.is_empty()
    }

    /// Takes `range` away from a place, and gives back what memory holds nothing any more.
    pub(crate) fn evict(&mut self, place: Place, range: &Range<usize>, only: Only) -> Result<(), Stop> {
        match place {
            Place::Host => self.evict_host(range, only),
            Place::Device(device) => match self.slot_of(device) {
                Some(slot) => self.evict_device(slot, range, only),
                None => Ok(()),
            },
        }
    }

    fn evict_device(&mut self, slot: Slot, range: &Range<usize>, only: Only) -> Result<(), Stop> {
        let alone: Vec<_> = self.replicas.only_in(slot, range).iter().collect();
        if let (Some(range), Only::Refuse) = (alone.first(), only) {
            return Err(self.only_copy(range).into());
        }
        for range in &alone {
            self.make_host()?;
            self.bring(HOST, range, None)?;
        }
        // The device's copy is the way back if a transfer fails, so it goes only when the bytes have arrived.
        self.settle_held(slot, range)?;
        self.replicas.give_up(slot, range);
        self.free_if_stale(slot);
        Ok(())
    }

    /// Stops until what a copy holds of `range` has arrived in the others that hold it. Not for what it does not hold:
    /// other threads may go on writing that elsewhere.
    fn settle_held(&mut self, slot: Slot, range: &Range<usize>) -> Result<(), Stop> {
        let held: Vec<_> = self.replicas.valid(slot).within(range).collect();
        held.iter().try_for_each(|held| self.settle_others(slot, held))
    }

    fn evict_host(&mut self, range: &Range<usize>, only: Only) -> Result<(), Stop> {
        let alone = self.only_on_host(range);
        if let Some(first) = alone.first() {
            if only == Only::Refuse || self.devices.is_empty() {
                return Err(self.only_copy(first).into());
            }
            self.move_to_some_device(&alone)?;
        }
        for slot in [HOST, FIXED] {
            self.settle_held(slot, range)?;
        }
        // What an upload may still read is kept until its queue has been synchronised (`retire`).
        for slot in [HOST, FIXED] {
            self.replicas.give_up(slot, range);
            self.free_if_stale(slot);
        }
        Ok(())
    }

    fn only_copy(&self, range: &Range<usize>) -> Error {
        Error::OnlyCopy { range: range.start..range.start + self.real(range) }
    }

    /// The parts of `range` that no device holds, though the host does.
    fn only_on_host(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut alone: Vec<Range<usize>> = [HOST, FIXED]
            .into_iter()
            .flat_map(|slot| self.replicas.valid(slot).within(range).collect::<Vec<_>>())
            .collect();
        for slot in self.device_slots() {
            let valid = self.replicas.valid(slot);
            let gaps = |part: &Range<usize>| valid.missing(part).iter().collect::<Vec<_>>();
            alone = alone.iter().flat_map(gaps).collect();
        }
        alone.sort_by_key(|part| part.start);
        alone
    }

    /// To the first device that takes them, those that hold the most already before the others, and those whose queue has
    /// failed last.
    fn move_to_some_device(&mut self, parts: &[Range<usize>]) -> Result<(), Stop> {
        let mut devices: Vec<_> = self.device_slots().zip(&self.devices).collect();
        devices.sort_by_key(|(slot, copy)| {
            let held = self.replicas.valid(*slot).iter().map(|held| held.len());
            (self.waits.broken.has(&copy.home), std::cmp::Reverse(held.sum::<usize>()))
        });
        let devices: Vec<_> = devices.into_iter().map(|(slot, _)| slot).collect();
        let mut result = Ok(());
        for slot in devices {
            result = self.move_to_device(slot, parts);
            if !matches!(result, Err(Stop::Fail(_))) {
                break;
            }
        }
        result
    }

    /// Starts it. The host's copy is what is left if an upload fails, so the host keeps it until it is settled.
    fn move_to_device(&mut self, slot: Slot, parts: &[Range<usize>]) -> Result<(), Stop> {
        let Some(index) = Self::device_index(slot) else {
            return Ok(());
        };
        self.refuse_broken(&self.devices[index].home)?;
        self.make_device(index)?;
        for part in parts {
            self.bring(slot, part, None)?;
        }
        Ok(())
    }

    /// Gives back the memory of every copy that holds no valid byte. Returns the queues that still use some of it.
    pub(crate) fn shrink(&mut self) -> Vec<Line> {
        for slot in (0..self.replicas.slots()).map(Slot) {
            self.free_if_stale(slot);
        }
        let retired = self.retired.iter();
        retired.flat_map(|copy| copy.uses.queues()).collect()
    }

    pub(crate) fn free_if_stale(&mut self, slot: Slot) {
        if !self.replicas.valid(slot).is_empty() {
            return;
        }
        match slot {
            HOST => {
                let copy = self.host.take();
                self.retire(copy);
            }
            FIXED => {
                let copy = self.fixed.take();
                self.retire(copy);
            }
            _ => self.free_device(slot),
        }
    }

    /// Puts host bytes in the place of whatever there was. Their length has been checked.
    pub(crate) fn adopt_host(&mut self, buffer: HostBuffer) {
        let slot = match buffer.is_writable() {
            true => HOST,
            false => FIXED,
        };
        for old in [self.host.take(), self.fixed.take()] {
            self.retire(old);
        }
        let whole = self.whole();
        if buffer.allocated() > 0 {
            self.count_bytes(EventKind::Allocate, &whole, buffer.allocated(), None);
        }
        let copy = Some(HostCopy::new(buffer));
        match slot {
            FIXED => self.fixed = copy,
            _ => self.host = copy,
        }
        self.replicas.claim(slot, whole);
    }

    /// Puts a block in the place of whatever its device had. Its contents are those after the work enqueued so far.
    pub(crate) fn adopt_device(&mut self, line: &Line, block: Box<dyn Block>, owner: Box<dyn Any + Send + Sync>) {
        let slot = self.device_slot(line.queue());
        self.free_device(slot);
        let whole = self.whole();
        if let Some(index) = Self::device_index(slot) {
            let (copy, waits) = (&mut self.devices[index], &self.waits);
            copy.home = line.clone();
            copy.memory = Some(DeviceMemory { block: Arc::from(block), line: line.clone(), owner: Some(owner) });
            // The block has no other users, so there is nobody to wait for.
            let (uses, clock) = (&mut copy.uses, &waits.clock);
            uses.enter(line, whole.clone(), Access::Write, None, clock);
        }
        self.claim(slot, &whole);
    }

    /// Puts a device's block aside, to be given back when the operation has ended.
    pub(crate) fn free_device(&mut self, slot: Slot) {
        let Some(copy) = self.device_copy(slot) else {
            return;
        };
        let Some(memory) = copy.memory.take() else {
            return;
        };
        let users = mem::replace(&mut copy.uses, Uses::new()).queues();
        let device = copy.device;
        // The order of its own queue holds even where that has failed, but not against a token under which others launch.
        let own = match Arc::strong_count(&memory.block) {
            1 if memory.owner.is_none() => Some(&memory.line),
            _ => None,
        };
        if let Some(error) = self.broken_user(&users, own) {
            mem::forget(memory);
            self.leaked(Some(device), error);
            return;
        }
        self.leaving.push(Leaving { device, memory, users });
    }

    /// The end of a device's block, when its queues have been waited for, well or not.
    pub(crate) fn left(&mut self, leaving: Leaving, settled: Result<(), Error>) {
        let Leaving { device, memory, .. } = leaving;
        if let Err(error) = settled {
            mem::forget(memory);
            self.leaked(Some(device), error);
            return;
        }
        self.later(Afterwards::DropBlock(memory.block));
        match memory.owner {
            Some(owner) => self.later(Afterwards::DropOwner(owner)),
            None => {
                let whole = self.whole();
                self.count(EventKind::Free, &whole, Some(device));
            }
        }
    }

    /// The end: everything is given back once no queue uses it.
    pub(crate) fn finish(&mut self) {
        for copy in [self.host.take(), self.fixed.take()] {
            self.retire(copy);
        }
        for copy in mem::take(&mut self.retired) {
            let lines = copy.uses.queues();
            match lines.iter().try_for_each(|line| self.synchronize(line)) {
                Ok(()) => self.discard(copy.buffer),
                Err(error) => {
                    mem::forget(copy);
                    self.leaked(None, error);
                }
            }
        }
        for slot in self.device_slots() {
            self.free_device(slot);
        }
        for leaving in mem::take(&mut self.leaving) {
            let settled = leaving.settle();
            self.left(leaving, settled);
        }
    }
}

/// A device's block that nothing valid lies in, with the queues that may still use it.
pub(crate) struct Leaving {
    device: DeviceId,
    memory: DeviceMemory,
    users: Vec<Line>,
}

impl Leaving {
    /// Makes sure that the block may be given back in the order of the queue that allocated it: after all other queues
    /// that use it. Not under the lock: it waits.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        match &self.memory.owner {
            // The owner may free at once, whatever the queue has still to do.
            Some(_) => {
                let mut users = self.users.iter();
                users.try_for_each(|line| line.queue().synchronize())
            }
            None => wait_for_all(&self.memory.line, &self.users),
        }
    }
}

/// Lets the queue that frees a block wait for all others that use it.
fn wait_for_all(line: &Line, users: &[Line]) -> Result<(), Error> {
    for user in users.iter().filter(|user| *user != line) {
        if line.queue().wait_for(&**user.queue()).is_err() {
            user.queue().synchronize()?;
        }
    }
    Ok(())
}
