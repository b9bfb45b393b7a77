//! Queues that have failed, and how a memory goes on without them: what they may still touch is left to them, and what
//! is valid elsewhere stays usable. The list saves waits and stops a failure from spreading; no soundness rests on it.
//! A queue that works again is taken off it. It relies on `replicas` for what is held elsewhere.

use std::ops::Range;
use std::sync::Arc;

use crate::coherence::ranges::Ranges;
use crate::coherence::replicas::Slot;
use crate::engine::copies::{HostCopy, Line};
use crate::engine::state::{HOST, State};
use crate::engine::step::Stop;
use crate::{Access, Error, EventKind, HostBuffer};

/// At most this many are remembered of those that no copy names any more. A forgotten one is found out again.
const MOST_BROKEN: usize = 64;

/// The queues whose failure lasts, as far as they are known, each with the error that names it.
#[derive(Default)]
pub(crate) struct Broken {
    known: Vec<(Line, Error)>,
}

impl Broken {
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn has(&self, line: &Line) -> bool {
        self.known.iter().any(|(known, _)| known == line)
    }

    fn add(&mut self, line: &Line, error: &Error) {
        self.known.push((line.clone(), line.named(error)));
    }

    /// Forgets those that only this list still holds: no copy has been used by them, and they get no new work.
    fn forget_dropped(&mut self) {
        self.known.retain(|(known, _)| Arc::strong_count(known.queue()) > 1);
    }

    /// It works again.
    pub(crate) fn remove(&mut self, line: &Line) {
        self.known.retain(|(known, _)| known != line);
    }

    /// Why the first of these that is broken is so.
    fn error(&self, lines: &[Line]) -> Option<Error> {
        let mut known = self.known.iter();
        let (line, error) = known.find(|(known, _)| lines.contains(known))?;
        Some(line.named(error))
    }
}

impl State {
    /// A queue's failure lasts. What it was to deliver is not trusted, and what it may use is left to it.
    pub(crate) fn broke(&mut self, line: &Line, error: &Error) {
        self.distrust(line);
        if !self.waits.broken.has(line) {
            self.waits.broken.add(line, error);
        }
        let broken = &self.waits.broken;
        for copy in self.devices.iter_mut().filter(|copy| copy.home == *line) {
            let mut users = copy.uses.queues();
            users.reverse();
            users.extend(copy.memory.as_ref().map(|memory| memory.line.clone()));
            // A queue of another device may have read this copy, too.
            let fits = |user: &Line| user.queue().device().id() == copy.device && !broken.has(user);
            if let Some(home) = users.into_iter().find(fits) {
                copy.home = home;
            }
        }
        self.sweep();
        self.forget_broken();
    }

    /// Forgets the oldest of too many broken queues. Not one that a copy names: it would be waited for again, and an
    /// operation that found them out in turns would not end.
    fn forget_broken(&mut self) {
        let too_many = self.waits.broken.known.len().saturating_sub(MOST_BROKEN);
        let known = self.waits.broken.known.iter();
        let unused = known.map(|(line, _)| line).filter(|line| !self.names(line));
        let unused: Vec<_> = unused.take(too_many).cloned().collect();
        unused.iter().for_each(|line| self.waits.broken.remove(line));
    }

    /// Whether some copy has been used by this queue, or would be.
    fn names(&self, line: &Line) -> bool {
        let hosts = self.host.iter().chain(&self.fixed).chain(&self.retired);
        let devices = self.devices.iter();
        let mut uses = hosts.map(|copy| &copy.uses).chain(devices.map(|copy| &copy.uses));
        uses.any(|uses| uses.queues().contains(line)) || self.devices.iter().any(|copy| copy.home == *line)
    }

    /// Stops for a queue that has failed, which is asked once more before it is refused new work.
    pub(crate) fn refuse_broken(&self, line: &Line) -> Result<(), Stop> {
        match self.waits.broken.has(line) {
            true => Stop::unless_waited(None, vec![line.clone()]),
            false => Ok(()),
        }
    }

    /// Gives up the device copies that a broken queue may use, where other copies hold all their bytes: the next access
    /// makes a new one. Those that it may have written go first, because the others are as they should be.
    pub(crate) fn leave_to_broken(&mut self) -> Result<(), Stop> {
        if self.waits.broken.is_empty() {
            return Ok(());
        }
        self.waits.broken.forget_dropped();
        for access in [Access::Read, Access::Write] {
            for slot in self.device_slots() {
                if self.meets_broken(slot, access) && self.is_held_elsewhere(slot, &(0..0)) {
                    self.settle_working(slot, &(0..0))?;
                    self.free_device(slot);
                    self.replicas.give_up(slot, &self.whole());
                }
            }
        }
        Ok(())
    }

    /// Whether this access to a device copy would have to wait for a broken queue: a read only for one that writes.
    pub(crate) fn meets_broken(&self, slot: Slot, access: Access) -> bool {
        if self.waits.broken.is_empty() {
            return false;
        }
        let copy = Self::device_index(slot).and_then(|index| self.devices.get(index));
        copy.is_some_and(|copy| {
            let waits = copy.uses.waits(None, &self.whole(), access, &self.waits.waited);
            waits.iter().any(|line| self.waits.broken.has(line))
        })
    }

    /// Whether copies that no broken queue may have written hold all that this one does, but for the `spare` bytes.
    fn is_held_elsewhere(&self, slot: Slot, spare: &Range<usize>) -> bool {
        let trusted = |other: &Slot| *other != slot && !self.meets_broken(*other, Access::Read);
        let others = (0..self.replicas.slots()).map(Slot).filter(trusted);
        let others: Vec<_> = others.map(|other| self.replicas.valid(other)).collect();
        self.replicas.valid(slot).iter().all(|held| {
            let mut alone = Ranges::of(held.clone());
            alone.remove(spare);
            for other in &others {
                other.within(&held).for_each(|part| alone.remove(&part));
            }
            alone.is_empty()
        })
    }

    /// Stops until the working queues have delivered what other copies hold of this one's bytes, but for the `spare` ones.
    fn settle_working(&self, slot: Slot, spare: &Range<usize>) -> Result<(), Stop> {
        let mut queues = Vec::new();
        for held in self.replicas.valid(slot).iter() {
            let mut kept = Ranges::of(held);
            kept.remove(spare);
            for part in kept.iter() {
                queues.extend(self.deliverers(slot, &part));
            }
        }
        queues.retain(|line| !self.waits.broken.has(line));
        queues.dedup();
        Stop::unless_waited(None, queues)
    }

    /// Gives somebody who overwrites `range` of a device copy a new block, where a broken queue may use the old one and
    /// nothing else is lost with it.
    pub(crate) fn renew_device(&mut self, slot: Slot, range: &Range<usize>) -> Result<(), Stop> {
        let Some(index) = Self::device_index(slot) else {
            return Ok(());
        };
        if self.waits.broken.is_empty()
            || !self.meets_broken(slot, Access::Write)
            || !self.is_held_elsewhere(slot, range)
        {
            return Ok(());
        }
        self.settle_working(slot, range)?;
        let block = self.devices[index].home.queue().alloc(self.len)?;
        self.free_device(slot);
        self.put_block(index, block);
        // From here on nothing can fail before the caller has its range.
        self.claim(slot, range);
        let whole = self.whole();
        for rest in [whole.start..range.start, range.end..whole.end] {
            self.replicas.give_up(slot, &rest);
        }
        Ok(())
    }

    /// Where an access to the host's own memory would have to wait for a broken queue: puts a copy of the valid bytes in
    /// its place. The `spare` bytes are about to be overwritten. Changes nothing where somebody writes there, or where
    /// only that queue could have delivered something.
    pub(crate) fn renew_host(
        &mut self,
        by: Option<&Line>,
        range: &Range<usize>,
        access: Access,
        spare: &Range<usize>,
    ) -> Result<(), Stop> {
        let (broken, waited) = (&self.waits.broken, &self.waits.waited);
        let Some(copy) = self.host.as_ref().filter(|_| !broken.is_empty()) else {
            return Ok(());
        };
        let waits = copy.uses.waits(by, range, access, waited);
        if !waits.iter().any(|line| broken.has(line)) || self.host_writers > 0 {
            return Ok(());
        }
        let valid = self.replicas.valid(HOST);
        let is_lost = |lost: Range<usize>| {
            let mut lost = Ranges::of(lost);
            lost.remove(spare);
            lost.iter().any(|lost| valid.overlaps(&lost))
        };
        if copy.awaited_from(|line| broken.has(line)).any(is_lost) {
            return Ok(());
        }
        let mut writers = copy.uses.waits(None, &self.whole(), Access::Read, waited);
        writers.retain(|line| !broken.has(line));
        Stop::unless_waited(None, writers)?;
        let buffer = self.new_host_buffer()?;
        self.copy_valid_host(&buffer);
        let old = self.host.replace(HostCopy::new(buffer));
        old.into_iter().for_each(|old| self.leave_host(old));
        Ok(())
    }

    /// Leaks a host copy that a broken queue may still use.
    pub(crate) fn leave_host(&mut self, copy: HostCopy) {
        let error = self.waits.broken.error(&copy.uses.queues());
        std::mem::forget(copy.buffer);
        if let Some(error) = error {
            self.leaked(None, error);
        }
    }

    /// Why a block with these users cannot be given back, if a broken queue other than `own` may use it.
    pub(crate) fn broken_user(&self, users: &[Line], own: Option<&Line>) -> Option<Error> {
        let others: Vec<_> = users.iter().filter(|user| Some(*user) != own).cloned().collect();
        self.waits.broken.error(&others)
    }

    /// A new host buffer, counted.
    pub(crate) fn new_host_buffer(&mut self) -> Result<HostBuffer, Error> {
        let buffer = match &self.pool {
            Some(pool) => pool.take(self.len)?,
            None => HostBuffer::zeroed(self.len)?,
        };
        let whole = self.whole();
        if !buffer.is_empty() {
            self.count_bytes(EventKind::Allocate, &whole, buffer.allocated(), None);
        }
        Ok(buffer)
    }
}
