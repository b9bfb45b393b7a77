//! Moves bytes between the copies of a memory: decided by `replicas`, each ordered before it is enqueued.
//! A range becomes valid after its action has succeeded. It calls no user code and waits for nothing: a transfer that
//! has to wait stops its step.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::Access;
use crate::coherence::replicas::{Action, Slot};
use crate::device::token::DeviceRef;
use crate::device::{Host, Queue};
use crate::engine::copies::{HostCopy, Staged};
use crate::engine::events::Deferred;
use crate::engine::queue::QueueHandle;
use crate::engine::state::{ADOPTED, HOST, State};
use crate::engine::waits::Stop;
use crate::error::Error;
use crate::host::buffer::HostBuffer;
use crate::stats::EventKind;

impl State {
    /// Makes `range` of a copy valid, moving what is missing and nothing else. The copy has memory. The work runs on
    /// `queue`, or else on the home queue of the device.
    pub(crate) fn make_valid(
        &mut self,
        to: Slot,
        range: &Range<usize>,
        queue: Option<&QueueHandle>,
    ) -> Result<(), Stop> {
        if self.replicas.holds(to, range) {
            // After a wait it is this operation itself that has moved them.
            if self.waits.waited.is_empty() {
                self.count(EventKind::Avoided, range, to);
            }
            return Ok(());
        }
        let order = self.sources(to);
        for action in self.replicas.read(to, range, &order) {
            match action {
                Action::Copy { from, to, range } => self.copy(from, to, range, queue)?,
                Action::Fill { to, range } => self.fill(to, range, queue)?,
            }
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
            HOST => [ADOPTED].into_iter().chain(devices).collect(),
            _ => devices.chain([HOST, ADOPTED]).collect(),
        }
    }

    fn copy(&mut self, from: Slot, to: Slot, range: Range<usize>, queue: Option<&QueueHandle>) -> Result<(), Stop> {
        let (source, target) = (Self::device_index(from), Self::device_index(to));
        let (kind, counted) = match (source, target) {
            (None, None) => (EventKind::HostCopy, HOST),
            (None, Some(_)) => (EventKind::Upload, to),
            (Some(_), None) => (EventKind::Download, from),
            (Some(_), Some(_)) => (EventKind::DeviceCopy, to),
        };
        match (source, target) {
            (None, None) => self.copy_adopted(&range)?,
            (None, Some(index)) => self.upload(from, index, &range, queue)?,
            (Some(index), None) => self.download(index, &range)?,
            (Some(source), Some(index)) => {
                if !self.devices[index].reaches(&self.devices[source]) {
                    return self.cross_by_host(to, &range, queue);
                }
                self.cross(source, index, &range, queue)?;
            }
        }
        self.replicas.add(to, range.clone());
        self.retire_staged(|staged| staged.to == to && staged.overlaps(&range));
        self.count(kind, &range, counted);
        Ok(())
    }

    /// Adopted bytes to memory of our own.
    fn copy_adopted(&mut self, range: &Range<usize>) -> Result<(), Stop> {
        self.finish_on_host(ADOPTED, range, Access::Read)?;
        self.finish_on_host(HOST, range, Access::Write)?;
        let (from, to) = (self.host_ptr(ADOPTED, range.start), self.host_ptr(HOST, range.start));
        // SAFETY: both lie in buffers of `len` bytes, and `range` is within that. They are two buffers, the second
        // writable (slot HOST holds no other kind). No queue writes the first or uses the second (waited for above).
        // No reference points into this range of HOST: it is not valid there, and only valid bytes are referred to.
        unsafe { to.copy_from_nonoverlapping(from, range.len()) };
        Ok(())
    }

    /// What is valid on the host, to a buffer that takes its place.
    pub(crate) fn copy_valid_host(&self, to: &HostBuffer) {
        assert!(self.len <= to.len(), "a buffer for all bytes");
        for range in self.replicas.valid(HOST).iter() {
            let (from, to) = (self.host_ptr(HOST, range.start), to.ptr().as_ptr());
            // SAFETY: `range` lies within both buffers, of which the second is new and writable. No valid byte is
            // written of the first meanwhile: no guard (`renew_host` has asked) or `&mut` slice does, and no queue,
            // because those that work were waited for, and what the others were to deliver is not valid here or about
            // to be overwritten.
            unsafe { from.copy_to_nonoverlapping(NonNull::new_unchecked(to.add(range.start)), range.len()) };
        }
    }

    fn upload(
        &mut self,
        from: Slot,
        index: usize,
        range: &Range<usize>,
        queue: Option<&QueueHandle>,
    ) -> Result<(), Stop> {
        let queue = self.queue_for(index, queue);
        if self.host_copy(from).is_some_and(|copy| copy.buffer.is_lent()) {
            return self.upload_staged(from, index, range, &queue);
        }
        // They may be read during the call, so what is to write them comes to its end before.
        self.finish_on_host(from, range, Access::Read)?;
        self.waits.order(&mut self.devices[index].uses, &queue, range, Access::Write, None)?;
        let (ptr, len) = (self.host_ptr(from, range.start), range.len());
        let Some(memory) = &self.devices[index].memory else {
            return Ok(());
        };
        // SAFETY: the block is of this queue's device and has `len` bytes of the memory, `range` within them. The host
        // bytes stay readable, and are unchanged during the call because no queue writes them any more (above). After
        // it, unless it is done with them, their copy has an entry for this read, and each write or free waits for it.
        let host = unsafe { queue.upload(&*memory.block, range.start, ptr, len) };
        let copy = match from {
            ADOPTED => &mut self.adopted,
            _ => &mut self.host,
        };
        if let Some(copy) = copy.as_mut().filter(|_| !is_done(&host)) {
            copy.uses.enter(&queue, range.clone(), Access::Read, None, &self.waits.clock);
        }
        host?;
        Ok(())
    }

    fn download(&mut self, index: usize, range: &Range<usize>) -> Result<(), Stop> {
        let is_lent = self.host.as_ref().is_some_and(|copy| copy.buffer.is_lent());
        if is_lent && self.take_staged(HOST, range)? {
            return Ok(());
        }
        let copy = &mut self.devices[index];
        let queue = copy.home.clone();
        self.waits.order(&mut copy.uses, &queue, range, Access::Read, None)?;
        if is_lent {
            return self.download_staged(index, range, &queue);
        }
        self.renew_host(Some(&queue), range, Access::Write, &(0..0))?;
        if let Some(copy) = &self.host {
            self.waits.order_after(&copy.uses, &queue, range, Access::Write)?;
        }
        let (ptr, len) = (self.host_ptr(HOST, range.start), range.len());
        let Some(memory) = &self.devices[index].memory else {
            return Ok(());
        };
        // SAFETY: as in `upload`. The host bytes are writable, and in no other use until then: they are not valid on
        // the host, so no reference to them exists, and the entry keeps all others away until the queue is
        // synchronised.
        let host = unsafe { queue.download(&*memory.block, range.start, ptr, len) };
        if let Some(copy) = self.host.as_mut().filter(|_| !is_done(&host)) {
            copy.uses.enter(&queue, range.clone(), Access::Write, None, &self.waits.clock);
            copy.arrive(&queue, range, &self.waits.clock);
        }
        host?;
        Ok(())
    }

    /// From a device to one that reaches it, on the destination's queue.
    fn cross(
        &mut self,
        source: usize,
        index: usize,
        range: &Range<usize>,
        queue: Option<&QueueHandle>,
    ) -> Result<(), Stop> {
        let (from, to) = (&self.devices[source].memory, &self.devices[index].memory);
        let (Some(from), Some(to)) = (from, to) else {
            return Ok(());
        };
        let (from, to) = (Arc::clone(&from.block), Arc::clone(&to.block));
        let queue = self.queue_for(index, queue);
        for (device, access) in [(source, Access::Read), (index, Access::Write)] {
            self.waits.order(&mut self.devices[device].uses, &queue, range, access, None)?;
        }
        let (start, len) = (range.start, range.len());
        // SAFETY: both blocks have `len` bytes of the memory, `range` within them; the destination's is of this queue's
        // device, which reaches the other (asked by the caller). Both copies have entries for this access.
        unsafe { queue.copy(&*to, start, &*from, start, len)? };
        Ok(())
    }

    /// From device to device where there is no direct way. The host becomes valid too.
    fn cross_by_host(&mut self, to: Slot, range: &Range<usize>, queue: Option<&QueueHandle>) -> Result<(), Stop> {
        if self.replicas.holds(ADOPTED, range) {
            return self.copy(ADOPTED, to, range.clone(), queue);
        }
        if !self.replicas.holds(HOST, range) {
            self.make_host()?;
            self.make_valid(HOST, range, None)?;
        }
        self.copy(HOST, to, range.clone(), queue)
    }

    /// Zeros, where nothing was ever written.
    fn fill(&mut self, to: Slot, range: Range<usize>, queue: Option<&QueueHandle>) -> Result<(), Stop> {
        match Self::device_index(to) {
            Some(index) => self.fill_device(index, &range, queue)?,
            None => self.fill_host(&range)?,
        }
        self.replicas.add(to, range.clone());
        self.count(EventKind::Fill, &range, to);
        Ok(())
    }

    fn fill_device(&mut self, index: usize, range: &Range<usize>, queue: Option<&QueueHandle>) -> Result<(), Stop> {
        let queue = self.queue_for(index, queue);
        let copy = &mut self.devices[index];
        self.waits.order(&mut copy.uses, &queue, range, Access::Write, None)?;
        if let Some(memory) = &copy.memory {
            // SAFETY: as in `upload`.
            unsafe { queue.fill(&*memory.block, range.start, range.len())? };
        }
        Ok(())
    }

    fn fill_host(&mut self, range: &Range<usize>) -> Result<(), Stop> {
        self.finish_on_host(HOST, range, Access::Write)?;
        if self.host.as_ref().is_some_and(|copy| !copy.buffer.is_clean()) {
            let (ptr, len) = (self.host_ptr(HOST, range.start), range.len());
            // SAFETY: as in `copy_adopted`: our own bytes, which no queue and no reference uses.
            unsafe { ptr.write_bytes(0, len) };
        }
        Ok(())
    }

    /// The queue that work for a device copy runs on: the one that asked, else the copy's home.
    fn queue_for(&self, index: usize, queue: Option<&QueueHandle>) -> QueueHandle {
        queue.unwrap_or(&self.devices[index].home).clone()
    }

    // ---- bytes of another memory ----

    /// Overwrites `to` with another memory's bytes, on a queue of the device that both are on. False: nothing was done.
    pub(crate) fn receive(
        &mut self,
        to: &Range<usize>,
        from: &DeviceRef<'_>,
        queue: &Arc<dyn Queue>,
    ) -> Result<bool, Stop> {
        let slot = self.device_slot(queue);
        let Some(index) = Self::device_index(slot) else {
            return Ok(false);
        };
        self.set_home(index, queue)?;
        let new = self.alloc_past_broken(slot, to)?;
        if new.is_none() {
            self.make_device(index)?;
            let copy = &mut self.devices[index];
            self.waits.order(&mut copy.uses, &copy.home, to, Access::Write, None)?;
        }
        let source = from.arg();
        let old = self.devices[index].memory.as_ref().map(|memory| &*memory.block);
        if let (Some(block), Some(source_block)) = (new.as_deref().or(old), source.block()) {
            let (start, from, len) = (to.start, source.range().start, to.len());
            // SAFETY: both ranges lie within their blocks (checked by the caller, and by the token), and both blocks on
            // this queue's device. The source's entry was made when the token was, on this queue. The destination's was
            // made above, unless it is new: then it has no other user, and gets its entry below, under the same lock,
            // or is dropped in the order of this queue, which allocated it.
            let enqueued = unsafe { queue.copy(block, start, source_block, from, len) };
            if let Err(error) = enqueued {
                match new {
                    Some(block) => self.events.defer(Deferred::DropBlock(Arc::from(block))),
                    None => self.invalidate_range_after_error(slot, to),
                }
                return Err(error.into());
            }
        }
        match new {
            Some(block) => self.replace_block(index, block, to),
            None => self.claim(slot, to),
        }
        self.count(EventKind::DeviceCopy, to, slot);
        Ok(true)
    }

    /// A copy that failed may have been enqueued all the same: the device's bytes count no more where another has them.
    fn invalidate_range_after_error(&mut self, slot: Slot, range: &Range<usize>) {
        let only = self.replicas.only_in(slot, range);
        for shared in only.missing(range).iter() {
            self.replicas.give_up(slot, &shared);
        }
    }

    // ---- lent slices: no queue ever sees them ----

    fn upload_staged(
        &mut self,
        from: Slot,
        index: usize,
        range: &Range<usize>,
        queue: &QueueHandle,
    ) -> Result<(), Stop> {
        let to = Self::slot_at(index);
        if self.take_staged(to, range)? {
            return Ok(());
        }
        self.waits.order(&mut self.devices[index].uses, queue, range, Access::Write, None)?;
        let (len, lent) = (range.len(), self.host_ptr(from, range.start));
        let staged = self.stage(to, range)?;
        // SAFETY: `range` lies within the source; the buffer is new and has `len` bytes. No queue uses lent bytes.
        unsafe { staged.copy_from_nonoverlapping(lent, len) };
        let host = match &self.devices[index].memory {
            // SAFETY: as in `upload`; the buffer gets an entry for this read, and is kept until a synchronisation.
            Some(memory) => unsafe { queue.upload(&*memory.block, range.start, staged, len) },
            None => Ok(Host::Done),
        };
        self.end_staging(to, range, queue, Access::Read, host)
    }

    fn download_staged(&mut self, index: usize, range: &Range<usize>, queue: &QueueHandle) -> Result<(), Stop> {
        let staged = self.stage(HOST, range)?;
        let host = match &self.devices[index].memory {
            // SAFETY: as in `download`; the buffer gets an entry for this write, and is kept until the queue is
            // synchronised.
            Some(memory) => unsafe { queue.download(&*memory.block, range.start, staged, range.len()) },
            None => Ok(Host::Done),
        };
        self.end_staging(HOST, range, queue, Access::Write, host)
    }

    /// The first byte of a buffer that bytes pass through between a lent slice and a device.
    fn stage(&mut self, to: Slot, range: &Range<usize>) -> Result<NonNull<u8>, Error> {
        let copy = HostCopy::new(HostBuffer::zeroed(range.len())?);
        self.count_buffer(EventKind::Allocate, copy.buffer.allocated());
        let start = copy.buffer.ptr();
        self.staged.push(Staged { to, range: range.clone(), copy });
        Ok(start)
    }

    /// The transfer of the last staged buffer has been enqueued, or refused. Even then it may have been enqueued:
    /// unless it is done with, the buffer is kept until its queue has been synchronised.
    fn end_staging(
        &mut self,
        to: Slot,
        range: &Range<usize>,
        queue: &QueueHandle,
        access: Access,
        host: Result<Host, Error>,
    ) -> Result<(), Stop> {
        if let Some(staged) = self.staged.last_mut().filter(|_| !is_done(&host)) {
            staged.copy.uses.enter(queue, range.clone(), access, None, &self.waits.clock);
        }
        if let Err(error) = host {
            let failed = self.staged.pop();
            self.retire(failed.map(|staged| staged.copy));
            return Err(error.into());
        }
        self.take_staged(to, range).map(drop)
    }

    /// Ends a staged transfer once its queue has been synchronised, which it stops for. False: `range` has none.
    fn take_staged(&mut self, to: Slot, range: &Range<usize>) -> Result<bool, Stop> {
        let found = self.staged.iter().position(|staged| staged.to == to && staged.range == *range);
        let Some(index) = found else {
            return Ok(false);
        };
        Stop::unless_waited(None, self.staged[index].copy.uses.queues())?;
        let staged = self.staged.swap_remove(index).copy;
        if to == HOST {
            let (from, len) = (staged.buffer.ptr(), range.len());
            // SAFETY: as in `copy_adopted`, from a buffer of `len` bytes that its queue has left.
            unsafe { self.host_ptr(HOST, range.start).copy_from_nonoverlapping(from, len) };
        }
        self.discard(staged.buffer);
        Ok(true)
    }

    /// Puts transfers aside that are not to be relied on any more.
    pub(crate) fn retire_staged(&mut self, which: impl Fn(&Staged) -> bool) {
        if !self.staged.is_empty() {
            let gone: Vec<_> = self.staged.extract_if(.., |staged| which(staged)).collect();
            gone.into_iter().for_each(|staged| self.retire(Some(staged.copy)));
        }
    }
}

/// Whether a transfer has left its host bytes when its call returns. One that has failed may have been enqueued.
fn is_done(host: &Result<Host, Error>) -> bool {
    matches!(host, Ok(Host::Done))
}
