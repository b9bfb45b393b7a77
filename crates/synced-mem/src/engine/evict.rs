//! Evicting: what a copy alone holds goes elsewhere first, and only then is it given up.
//! It waits for every queue that still uses what it frees. Callers make sure that no slices of it are left.

use std::ops::Range;

use crate::access::Location;
use crate::coherence::replicas::Slot;
use crate::engine::state::{ADOPTED, HOST, State};
use crate::engine::waits::Stop;
use crate::error::Error;

/// What an eviction does with bytes that no other copy holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dirty {
    Move,
    Refuse,
}

impl State {
    /// Takes `range` away from a location, and gives back what memory holds nothing any more.
    pub(crate) fn evict(&mut self, location: Location, range: &Range<usize>, dirty: Dirty) -> Result<(), Stop> {
        match location {
            Location::Host => self.evict_host(range, dirty),
            Location::Device(device) => match self.slot_of(device) {
                Some(slot) => self.evict_device(slot, range, dirty),
                None => Ok(()),
            },
        }
    }

    fn evict_device(&mut self, slot: Slot, range: &Range<usize>, dirty: Dirty) -> Result<(), Stop> {
        let alone: Vec<_> = self.replicas.only_in(slot, range).iter().collect();
        if let (Some(range), Dirty::Refuse) = (alone.first(), dirty) {
            return Err(self.only_copy(range).into());
        }
        for range in &alone {
            self.make_host()?;
            self.make_valid(HOST, range, None)?;
        }
        // The device's copy is the way back if a transfer fails, so it goes only when the bytes have arrived.
        self.finish_delivery(slot, range)?;
        self.replicas.give_up(slot, range);
        self.free_if_stale(slot);
        Ok(())
    }

    /// Stops until what a copy holds of `range` has arrived in the others that hold it. Not for what it does not hold:
    /// other threads may go on writing that elsewhere.
    fn finish_delivery(&mut self, slot: Slot, range: &Range<usize>) -> Result<(), Stop> {
        let held: Vec<_> = self.replicas.valid(slot).within(range).collect();
        held.iter().try_for_each(|held| self.finish_elsewhere(slot, held))
    }

    fn evict_host(&mut self, range: &Range<usize>, dirty: Dirty) -> Result<(), Stop> {
        let alone = self.only_on_host(range);
        if let Some(first) = alone.first() {
            if dirty == Dirty::Refuse || self.devices.is_empty() {
                return Err(self.only_copy(first).into());
            }
            self.move_to_some_device(&alone)?;
        }
        for slot in [HOST, ADOPTED] {
            self.finish_delivery(slot, range)?;
        }
        // What an upload may still read is kept until its queue has been synchronised (`retire`).
        for slot in [HOST, ADOPTED] {
            self.replicas.give_up(slot, range);
            self.free_if_stale(slot);
        }
        Ok(())
    }

    fn only_copy(&self, range: &Range<usize>) -> Error {
        Error::OnlyCopy { range: range.clone() }
    }

    /// The parts of `range` that no device holds, though the host does.
    fn only_on_host(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut alone: Vec<Range<usize>> = [HOST, ADOPTED]
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

    /// To the first device that takes them, those that hold the most already before the others, and those whose queue
    /// has failed last.
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
        self.waits.refuse_broken(&self.devices[index].home)?;
        self.make_device(index)?;
        for part in parts {
            self.make_valid(slot, part, None)?;
        }
        Ok(())
    }
}
