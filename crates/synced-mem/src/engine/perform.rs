//! Performs the steps that `coherence::plan` decides: allocates, enqueues transfers, and then changes the facts. A step
//! that fails changes nothing, except that a queue may have enqueued the work all the same. No step waits, except those
//! of `outside`. Relies on the plan: when a step is performed, all conflicting work has been waited for, and each copy
//! of the step has memory.

mod memory;
pub(crate) mod outside;
mod reading;
pub(crate) mod room;

use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::{Access, Intent};
use crate::borrow::{DeviceRef, QueueHandle};
use crate::coherence::facts::moving::{Landing, Moving};
use crate::coherence::plan::Step;
use crate::coherence::replicas::{ADOPTED, HOST, ORIGIN, Slot};
use crate::device::{Block, Host};
use crate::engine::events::{Deferred, Followup, Pending};
use crate::engine::state::{Asked, Brings, DeviceCopy, DeviceMemory, Met, Operation, State};
use crate::error::Error;
use crate::host::buffer::HostBuffer;
use crate::stats::EventKind;

impl State {
    pub(crate) fn perform(&mut self, step: &Step, operation: &mut Operation<'_>) -> Result<(), Error> {
        match step {
            Step::Alloc(slot) => self.alloc(*slot, &mut operation.stock),
            Step::Replace { slot: HOST, .. } => self.replace_host(&mut operation.stock),
            Step::Replace { slot, overwritten } => {
                let block = self.new_block(*slot)?;
                self.replace_block(*slot, block, overwritten);
                Ok(())
            }
            Step::Copy { from, to, range } => self.copy(*from, *to, range),
            Step::Fill { to, range } => self.fill(*to, range),
            Step::Receive { to, range, replaces } => match operation.brings.as_deref() {
                Some(Brings::Bytes(source)) => self.receive(*to, range, source, *replaces),
                _ => Ok(()),
            },
            Step::GiveUp { slot, range } => {
                self.give_up(*slot, range);
                Ok(())
            }
            Step::Adopt => {
                match operation.brings.take().map(|brings| *brings) {
                    Some(Brings::Buffer(buffer)) => self.adopt_host(buffer),
                    Some(Brings::Block(queue, block, owner)) => self.adopt_device(&queue, block, owner),
                    Some(Brings::Bytes(_)) | None => {}
                }
                Ok(())
            }
        }
    }

    /// A copy of the valid bytes takes the place of the host's own memory, which is left to a queue that has failed.
    fn replace_host(&mut self, stock: &mut Option<HostBuffer>) -> Result<(), Error> {
        let buffer = self.new_host_buffer(stock)?;
        assert!(self.facts.len <= buffer.len(), "a buffer for all bytes");
        for range in self.facts.replicas.valid(HOST).iter() {
            let (from, to) = (self.host_ptr(HOST, range.start), buffer.ptr().as_ptr());
            // SAFETY: `range` lies within both buffers, of which the second is new and writable. No valid byte is
            // written of the first meanwhile: the plan asks for this step where no guard and no `&mut` slice writes
            // there, and no queue does, because the working queues were waited for, and bytes that the failed ones were
            // to deliver are not valid here or are about to be overwritten.
            unsafe { from.copy_to_nonoverlapping(NonNull::new_unchecked(to.add(range.start)), range.len()) };
        }
        self.retire(HOST);
        self.put_host(HOST, buffer);
        Ok(())
    }

    /// A new block takes the place of the old one. `range` alone is valid in the new block, and nowhere else.
    fn replace_block(&mut self, slot: Slot, block: Box<dyn Block>, range: &Range<usize>) {
        let whole = self.facts.whole();
        self.free_device(slot);
        self.put_block(slot, block);
        self.claim(slot, range);
        for rest in [whole.start..range.start, range.end..whole.end] {
            self.facts.replicas.give_up(slot, &rest);
        }
    }

    /// Puts host bytes in the place of all bytes. The length has been checked.
    pub(crate) fn adopt_host(&mut self, buffer: HostBuffer) {
        [HOST, ADOPTED].into_iter().for_each(|slot| self.retire(slot));
        self.count_buffer(EventKind::Allocate, buffer.allocated());
        let slot = if buffer.is_writable() { HOST } else { ADOPTED };
        self.put_host(slot, buffer);
        self.claim(slot, &self.facts.whole());
    }

    /// Puts a block in the place of all bytes. The contents of the block are those after the work enqueued so far.
    fn adopt_device(&mut self, queue: &QueueHandle, block: Box<dyn Block>, owner: Box<dyn Any + Send + Sync>) {
        let (slot, whole) = (self.make_home(queue), self.facts.whole());
        self.free_device(slot);
        self.facts.put_memory(slot, false);
        self.has_room(slot);
        self.facts.copies[slot.0].home = Some(queue.clone());
        // The block has no other users, so there is nothing to wait for.
        self.facts.enter(slot, queue, &whole, Access::Write, None);
        if let Some(index) = slot.device() {
            let (block, queue, owner) = (Arc::from(block), queue.clone(), Some(owner));
            self.devices[index].memory = Some(DeviceMemory { block, queue, owner });
        }
        self.claim(slot, &whole);
    }

    // ---- devices ----

    /// The copy on a queue's device, entered if new. Work for the copy runs on this queue from now on, unless the queue
    /// has failed.
    pub(crate) fn make_home(&mut self, queue: &QueueHandle) -> Slot {
        // A queue that used a copy last is found without asking for its device.
        self.facts.home_of(queue).unwrap_or_else(|| self.move_home(queue))
    }

    #[cold]
    fn move_home(&mut self, queue: &QueueHandle) -> Slot {
        let device = queue.device().id();
        let Some(slot) = self.slot_of(device) else {
            self.devices.push(DeviceCopy { device, memory: None, views: [None, None], account: None });
            let slot = self.facts.add_device(queue.clone(), |by: &QueueHandle, other| by.reaches(other.device()));
            self.facts.copies[slot.0].shares_host = queue.device().shares_host();
            [HOST, ADOPTED].into_iter().for_each(|host| self.see_host(slot, host));
            return slot;
        };
        if !self.facts.broken.has(queue) {
            self.facts.copies[slot.0].home = Some(queue.clone());
        }
        slot
    }

    /// Overwrites `range` of a device copy with another memory's bytes, on the copy's home queue.
    fn receive(&mut self, slot: Slot, range: &Range<usize>, from: &DeviceRef<'_>, replaces: bool) -> Result<(), Error> {
        let (queue, source) = (self.home(slot)?, from.arg());
        let new = replaces.then(|| self.new_block(slot)).transpose()?;
        if !replaces {
            self.facts.enter(slot, &queue, range, Access::Write, None);
        }
        let old = slot.device().and_then(|index| self.devices[index].memory.as_ref());
        let to = new.as_deref().or(old.map(|memory| &*memory.block));
        if let (Some(to), Some(block)) = (to, source.block()) {
            let (start, from, len) = (range.start, source.range().start, range.len());
            // SAFETY: both ranges lie within their blocks (checked by the caller, and by the token), and both blocks on
            // this queue's device. The source's entry was made when the token was, on this queue. The destination's was
            // made above, unless it is new: then it has no other user, and gets its entry below, under the same lock,
            // or is dropped in the order of this queue, which allocated it.
            let enqueued = unsafe { queue.copy(to, start, block, from, len) };
            if let Err(error) = enqueued {
                match new {
                    Some(block) => self.events.defer(Deferred::DropBlock(Arc::from(block))),
                    // The copy may have been enqueued all the same: the bytes of the device count no more where another
                    // copy has them.
                    None => {
                        let only = self.facts.replicas.only_in(slot, range);
                        let shared = only.missing(range);
                        shared.iter().for_each(|shared| self.facts.replicas.give_up(slot, &shared));
                    }
                }
                return Err(error);
            }
        }
        match new {
            Some(block) => self.replace_block(slot, block, range),
            None => self.claim(slot, range),
        }
        self.events.count_on(EventKind::DeviceCopy, range, self.facts.copy(slot));
        Ok(())
    }

    // ---- borrows, and what operations leave behind ----

    /// Enters a borrow that has been checked: from now on others are kept away.
    #[inline]
    pub(crate) fn enter_borrow(&mut self, range: &Range<usize>, access: Access, slot: Slot) -> u64 {
        self.facts.borrows.insert(range.clone(), access, slot)
    }

    /// A borrow has ended; without a number, one that is in no table. Gives the work for the time when the lock is
    /// released.
    #[inline]
    pub(crate) fn end_borrow(&mut self, borrow: Option<u64>) -> Option<Pending> {
        if let Some(borrow) = borrow {
            self.facts.release(borrow);
        }
        let borrows = &mut self.facts.borrows;
        borrows.ended += u64::from(borrows.waiting > 0);
        self.events.take_pending()
    }

    /// One thread at a time tidies up, so that the other threads need not wait for queues.
    pub(crate) fn followup(&mut self) -> Option<Followup> {
        if (self.facts.is_untidy() || !self.freed.is_empty()) && !self.is_tidying {
            self.is_tidying = true;
            return Some(Followup::Tidy);
        }
        self.events.take_pending().map(Followup::Tell)
    }

    // ---- valid bytes ----

    /// The usual case: there is nothing to do but to hand out. Else none, and the state is as before, except that the
    /// queue of the access may have become the home of its device's copy, as `advance` would make it.
    pub(crate) fn meet_at_once(&mut self, asked: &Asked<'_>) -> Option<Met> {
        let slot = self.serving(asked);
        let is_met = self.facts.is_met(slot, asked.by, asked.range, asked.intent);
        is_met.then(|| self.hand_out(asked, slot, false))
    }

    /// After the last step for an access.
    pub(crate) fn meet(&mut self, asked: &Asked<'_>, has_acted: bool) -> Met {
        let slot = self.serving(asked);
        self.hand_out(asked, slot, has_acted)
    }

    /// The copy that serves an access.
    fn serving(&mut self, asked: &Asked<'_>) -> Slot {
        match asked.by.map(|by| self.make_home(by)) {
            None => self.facts.host_slot(asked.range, asked.intent),
            Some(own) => self.facts.device_slot(own, asked.range, asked.intent),
        }
    }

    /// An access has been met at a copy, and the bytes belong to the caller. `has_moved`: a step was performed for it.
    fn hand_out(&mut self, asked: &Asked<'_>, slot: Slot, has_moved: bool) -> Met {
        let Asked { by, range, intent, borrow, is_for_another } = *asked;
        let mut hold = None;
        self.touch_room(slot);
        if let Some(by) = by {
            match borrow {
                Some(id) => {
                    self.facts.enter(slot, by, range, intent.access(), borrow);
                    if slot.is_host() {
                        self.facts.borrows.lie_on(id, slot);
                    }
                }
                None => hold = self.facts.enter_token(slot, by, range, intent.access()),
            }
            if !is_for_another {
                self.facts.last = if slot.is_host() { self.facts.home_of(by) } else { Some(slot) };
            }
        }
        if intent != Intent::Overwrite && !has_moved {
            self.events.count_on(EventKind::Avoided, range, self.facts.copy(slot));
        }
        if intent != Intent::Read {
            self.claim(slot, range);
            if let (HOST, Some(borrow)) = (slot, borrow) {
                self.facts.borrows.write_host(borrow);
            }
        }
        Met { slot, hold }
    }

    /// A copy was borrowed.
    #[inline]
    fn touch_room(&self, slot: Slot) {
        if self.accounts.is_some() {
            self.accounts_of(slot).for_each(|account| account.touch());
        } else if let Some(account) = self.own_account(slot) {
            account.touch();
        }
    }

    /// Takes the validity of `range` from all other copies.
    fn claim(&mut self, slot: Slot, range: &Range<usize>) {
        self.facts.replicas.claim(slot, range.clone());
        self.facts.last = Some(slot);
        if self.facts.copy(ADOPTED).has_memory && self.facts.replicas.valid(ADOPTED).is_empty() {
            self.retire(ADOPTED);
        }
        if self.origin.is_some() {
            self.leave_origin_if_stale();
        }
    }

    fn give_up(&mut self, slot: Slot, range: &Range<usize>) {
        self.facts.replicas.give_up(slot, range);
        if slot == ORIGIN { self.leave_origin_if_stale() } else { self.free_if_stale(slot) }
    }

    // ---- transfers ----

    fn copy(&mut self, from: Slot, to: Slot, range: &Range<usize>) -> Result<(), Error> {
        match (from.is_host(), to.is_host()) {
            (true, true) => self.copy_adopted(range),
            (true, false) => self.upload(from, to, range)?,
            (false, true) => self.download(from, range)?,
            (false, false) => self.cross(from, to, range)?,
        }
        self.facts.replicas.add(to, range.clone());
        self.count_copy(from, to, range);
        Ok(())
    }

    /// A step outside the lock is over.
    pub(crate) fn land(&mut self, moving: &Moving, queue: Option<&QueueHandle>, landing: Landing) {
        self.facts.land(moving, queue, landing);
        self.settlements += 1;
        if landing.is_there {
            self.count_copy(moving.from, moving.to, &moving.range);
        }
    }

    /// Counts bytes that have become valid.
    fn count_copy(&mut self, from: Slot, to: Slot, range: &Range<usize>) {
        if from == ORIGIN {
            self.events.count_on(EventKind::OriginRead, range, self.facts.copy(HOST));
        }
        let (kind, counted) = match (from.is_host() || from == ORIGIN, to.is_host()) {
            (true, true) if from == ORIGIN => return,
            (true, true) => (EventKind::HostCopy, HOST),
            (true, false) => (EventKind::Upload, to),
            (false, true) => (EventKind::Download, from),
            (false, false) => (EventKind::DeviceCopy, to),
        };
        self.events.count_on(kind, range, self.facts.copy(counted));
    }

    fn upload(&mut self, from: Slot, to: Slot, range: &Range<usize>) -> Result<(), Error> {
        let queue = self.home(to)?;
        self.facts.enter(to, &queue, range, Access::Write, None);
        let (ptr, len) = (self.host_ptr(from, range.start), range.len());
        let block = self.block(to)?;
        // SAFETY: the block is of this queue's device and has `len` bytes of the memory, `range` within them. The host
        // bytes stay readable, and are unchanged during the call because no queue writes them any more (waited for).
        // After the call, unless the queue is done with the bytes, the host copy has an entry for this read, and each
        // write or free waits for that entry.
        let host = unsafe { queue.upload(&**block, range.start, ptr, len) };
        if !has_left_host(&host) {
            self.facts.enter(from, &queue, range, Access::Read, None);
        }
        host.map(drop)
    }

    fn download(&mut self, from: Slot, range: &Range<usize>) -> Result<(), Error> {
        let queue = self.home(from)?;
        self.facts.enter(from, &queue, range, Access::Read, None);
        let (ptr, len) = (self.host_ptr(HOST, range.start), range.len());
        let block = self.block(from)?;
        // SAFETY: the block is of this queue's device and has `len` bytes of the memory, `range` within them. The host
        // bytes are writable, and in no other use: not valid on the host, so no reference points to them; all queues
        // that use them come before this one (waited for), and the entry keeps all others away until the queue is
        // synchronised.
        let host = unsafe { queue.download(&**block, range.start, ptr, len) };
        if !has_left_host(&host) {
            self.facts.arrive(HOST, &queue, range);
        }
        host.map(drop)
    }

    /// From a device to one that reaches the first, on the destination's queue.
    fn cross(&mut self, from: Slot, to: Slot, range: &Range<usize>) -> Result<(), Error> {
        let queue = self.home(to)?;
        self.facts.enter(from, &queue, range, Access::Read, None);
        self.facts.enter(to, &queue, range, Access::Write, None);
        let (from, to) = (self.block(from)?, self.block(to)?);
        let (start, len) = (range.start, range.len());
        // SAFETY: both blocks have `len` bytes of the memory, `range` within them; the destination's is of this queue's
        // device, which reaches the other (asked by the plan). Both copies have entries for this access.
        unsafe { queue.copy(&**to, start, &**from, start, len) }
    }

    /// Zeros, where nothing was ever written.
    fn fill(&mut self, to: Slot, range: &Range<usize>) -> Result<(), Error> {
        if !to.is_host() {
            let queue = self.home(to)?;
            self.facts.enter(to, &queue, range, Access::Write, None);
            // SAFETY: the block is of this queue's device and has `len` bytes of the memory, `range` within them.
            unsafe { queue.fill(&**self.block(to)?, range.start, range.len())? };
        } else if self.hosts[HOST.0].as_ref().is_some_and(|buffer| !buffer.is_clean()) {
            let (ptr, len) = (self.host_ptr(HOST, range.start), range.len());
            // SAFETY: our own writable bytes, `range` within them. No queue uses them (waited for), and no reference
            // points to bytes that are not valid.
            unsafe { ptr.write_bytes(0, len) };
        }
        self.facts.replicas.add(to, range.clone());
        self.events.count_on(EventKind::Fill, range, self.facts.copy(to));
        Ok(())
    }
}

/// Whether a transfer is done with the host bytes when the call returns. A call that failed may have enqueued the
/// transfer.
fn has_left_host(host: &Result<Host, Error>) -> bool {
    matches!(host, Ok(Host::Done))
}
