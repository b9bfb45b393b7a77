//! Performs what `replicas` has decided: uploads, downloads, copies and fills, each ordered before it is enqueued.
//! A range becomes valid after its action has succeeded, and at no other place.
//! It relies on `copies::order`; no lock is taken here and no user code is called.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::coherence::replicas::{Action, Slot};
use crate::engine::copies::{DeviceMemory, Line, order};
use crate::engine::state::{FIXED, HOST, State};
use crate::engine::step::Stop;
use crate::{Access, Block, Error, EventKind, HostBuffer};

impl State {
    /// Performs one action; `line` is the queue that asked for it, if any.
    pub(crate) fn perform(&mut self, action: Action, line: Option<&Line>) -> Result<(), Stop> {
        match action {
            Action::Copy { from, to, range } => self.copy(from, to, range, line),
            Action::Fill { to, range } => self.fill(to, range, line),
        }
    }

    fn copy(&mut self, from: Slot, to: Slot, range: Range<usize>, line: Option<&Line>) -> Result<(), Stop> {
        let (source, target) = (Self::device_index(from), Self::device_index(to));
        let (kind, device) = match (source, target) {
            (None, None) => (EventKind::HostCopy, None),
            (None, Some(_)) => (EventKind::Upload, self.device_of(to)),
            (Some(_), None) => (EventKind::Download, self.device_of(from)),
            (Some(_), Some(_)) => (EventKind::DeviceCopy, self.device_of(to)),
        };
        // A memory of length 0 has states, but nothing to move.
        if self.len > 0 {
            match (source, target) {
                (None, None) => self.copy_fixed(&range)?,
                (None, Some(index)) => self.upload(from, index, &range, line)?,
                (Some(index), None) => self.download(index, &range)?,
                (Some(source), Some(index)) => {
                    if !self.devices[index].reaches(&self.devices[source]) {
                        return self.cross_by_host(to, &range, line);
                    }
                    self.cross(source, index, &range, line)?;
                }
            }
        }
        self.replicas.add(to, range.clone());
        self.count(kind, &range, device);
        Ok(())
    }

    /// Adopted bytes to memory of our own.
    fn copy_fixed(&mut self, range: &Range<usize>) -> Result<(), Stop> {
        self.settle_host(FIXED, range, Access::Read)?;
        self.settle_host(HOST, range, Access::Write)?;
        let (from, to) = (self.host_ptr(FIXED, range.start), self.host_ptr(HOST, range.start));
        // SAFETY: both lie in buffers of `len` bytes, and `range` is within that (0 bytes of an empty memory). They are
        // two buffers, the second writable (slot HOST holds no other kind). No queue writes the first or uses the
        // second (settled above). Nobody has a reference into this range of HOST: it is not valid there, and
        // references are formed to valid bytes only.
        unsafe { to.copy_from_nonoverlapping(from, self.real(range)) };
        Ok(())
    }

    /// What is valid on the host, to a buffer that takes its place.
    pub(crate) fn copy_valid_host(&self, to: &HostBuffer) {
        assert!(self.len <= to.len(), "a buffer for all bytes");
        for range in self.replicas.valid(HOST).iter() {
            let (from, to) = (self.host_ptr(HOST, range.start), to.ptr().as_ptr());
            // SAFETY: `range` lies within both buffers, of which the second is new and writable. Nobody writes valid bytes
            // of the first meanwhile: no guard (`renew_host` has asked) or `&mut` slice does, and no queue, because those
            // that work were waited for, and what the others were to deliver is not valid here or about to be overwritten.
            unsafe { from.copy_to_nonoverlapping(NonNull::new_unchecked(to.add(range.start)), self.real(&range)) };
        }
    }

    fn upload(&mut self, from: Slot, index: usize, range: &Range<usize>, line: Option<&Line>) -> Result<(), Stop> {
        let line = self.line_for(index, line);
        let len = self.real(range);
        let lent = self.is_lent(from);
        let staged = match lent {
            true => Some(self.stage(from, range)?),
            false => None,
        };
        if from == HOST {
            self.renew_host(Some(&line), range, Access::Read, &(0..0))?;
        }
        let copy = match from {
            FIXED => &mut self.fixed,
            _ => &mut self.host,
        };
        if let (None, Some(copy)) = (&staged, copy) {
            order(&mut copy.uses, &line, range, Access::Read, None, &self.waits)?;
        }
        order(&mut self.devices[index].uses, &line, range, Access::Write, None, &self.waits)?;
        let ptr = match &staged {
            Some(buffer) => buffer.ptr(),
            None => self.host_ptr(from, range.start),
        };
        let enqueued = match &self.devices[index].memory {
            // SAFETY: the block is of this queue's device and has `len` bytes of the memory, `range` within them. The
            // host bytes stay readable and unchanged until the queue is synchronised: their copy has an entry for
            // this read, and whoever writes or frees waits for it; a staging buffer is kept until then below.
            Some(memory) => unsafe { line.queue().upload(&*memory.block, range.start, ptr, len) },
            None => Ok(()),
        };
        // Even a call that failed may have enqueued its work.
        if let Some(buffer) = staged {
            drop(self.finish_staged(&line, buffer)?);
        }
        Ok(enqueued?)
    }

    fn download(&mut self, index: usize, range: &Range<usize>) -> Result<(), Stop> {
        let copy = &mut self.devices[index];
        let line = copy.home.clone();
        order(&mut copy.uses, &line, range, Access::Read, None, &self.waits)?;
        if self.is_lent(HOST) {
            return self.download_staged(index, range, &line);
        }
        self.renew_host(Some(&line), range, Access::Write, &(0..0))?;
        if let Some(copy) = &mut self.host {
            order(&mut copy.uses, &line, range, Access::Write, None, &self.waits)?;
            copy.arrive(&line, range, &self.waits.clock);
        }
        let (ptr, len) = (self.host_ptr(HOST, range.start), self.real(range));
        if let Some(memory) = &self.devices[index].memory {
            // SAFETY: as in `upload`. The host bytes are writable, and nobody else's until then: they are not valid on
            // the host, so no reference to them exists, and the entry keeps everybody away until the queue is
            // synchronised.
            unsafe { line.queue().download(&*memory.block, range.start, ptr, len)? };
        }
        Ok(())
    }

    /// From a device to one that reaches it, on the destination's queue.
    fn cross(&mut self, source: usize, index: usize, range: &Range<usize>, line: Option<&Line>) -> Result<(), Stop> {
        let (from, to) = (&self.devices[source].memory, &self.devices[index].memory);
        let (Some(from), Some(to)) = (from, to) else {
            return Ok(());
        };
        let (from, to) = (Arc::clone(&from.block), Arc::clone(&to.block));
        let line = self.line_for(index, line);
        for (device, access) in [(source, Access::Read), (index, Access::Write)] {
            order(&mut self.devices[device].uses, &line, range, access, None, &self.waits)?;
        }
        let (start, len) = (range.start, range.len());
        // SAFETY: both blocks have `len` bytes of the memory, `range` within them; the destination's is of this queue's
        // device, which reaches the other (asked by the caller). Both copies have entries for this access.
        unsafe { line.queue().copy(&*to, start, &*from, start, len)? };
        Ok(())
    }

    /// From device to device where there is no direct way. The host becomes valid too.
    fn cross_by_host(&mut self, to: Slot, range: &Range<usize>, line: Option<&Line>) -> Result<(), Stop> {
        if self.replicas.holds(FIXED, range) {
            return self.copy(FIXED, to, range.clone(), line);
        }
        if !self.replicas.holds(HOST, range) {
            self.make_host()?;
            self.bring(HOST, range, None)?;
        }
        self.copy(HOST, to, range.clone(), line)
    }

    /// Zeros, where nobody has written.
    fn fill(&mut self, to: Slot, range: Range<usize>, line: Option<&Line>) -> Result<(), Stop> {
        match Self::device_index(to) {
            _ if self.len == 0 => {}
            Some(index) => self.fill_device(index, &range, line)?,
            None => self.fill_host(&range)?,
        }
        self.replicas.add(to, range.clone());
        let device = self.device_of(to);
        self.count(EventKind::Fill, &range, device);
        Ok(())
    }

    fn fill_device(&mut self, index: usize, range: &Range<usize>, line: Option<&Line>) -> Result<(), Stop> {
        let line = self.line_for(index, line);
        let copy = &mut self.devices[index];
        order(&mut copy.uses, &line, range, Access::Write, None, &self.waits)?;
        if let Some(memory) = &copy.memory {
            // SAFETY: as in `upload`.
            unsafe { line.queue().fill(&*memory.block, range.start, range.len())? };
        }
        Ok(())
    }

    fn fill_host(&mut self, range: &Range<usize>) -> Result<(), Stop> {
        self.settle_host(HOST, range, Access::Write)?;
        let Some(copy) = &self.host else {
            return Ok(());
        };
        if !copy.buffer.is_clean() {
            let (ptr, len) = (self.host_ptr(HOST, range.start), self.real(range));
            // SAFETY: as in `copy_fixed`: our own bytes, which no queue and no reference uses.
            unsafe { ptr.write_bytes(0, len) };
        }
        Ok(())
    }

    /// The queue that work for a device copy runs on: the one that asked, else the copy's home.
    fn line_for(&self, index: usize, line: Option<&Line>) -> Line {
        line.unwrap_or(&self.devices[index].home).clone()
    }

    /// Makes sure that a device copy has a block, from its home queue. Nothing in it becomes valid.
    pub(crate) fn make_device(&mut self, index: usize) -> Result<(), Error> {
        if self.len == 0 || self.devices[index].memory.is_some() {
            return Ok(());
        }
        let block = self.devices[index].home.queue().alloc(self.len)?;
        self.put_block(index, block);
        Ok(())
    }

    /// A new block of a device copy's home queue.
    pub(crate) fn put_block(&mut self, index: usize, block: Box<dyn Block>) {
        let whole = self.whole();
        let copy = &mut self.devices[index];
        // A block may have been somebody's until now, in the order of this queue: others wait for it before they use it.
        copy.uses.enter(&copy.home, whole.clone(), Access::Write, None, &self.waits.clock);
        copy.memory = Some(DeviceMemory { block: Arc::from(block), line: copy.home.clone(), owner: None });
        let device = copy.device;
        self.count(EventKind::Allocate, &whole, Some(device));
    }

    // ---- lent slices: no queue ever sees them ----

    fn is_lent(&mut self, slot: Slot) -> bool {
        self.host_copy(slot).is_some_and(|copy| copy.buffer.is_lent())
    }

    /// A copy of a range in a buffer of our own.
    fn stage(&self, from: Slot, range: &Range<usize>) -> Result<HostBuffer, Error> {
        let len = self.real(range);
        let buffer = HostBuffer::zeroed(len)?;
        let from = self.host_ptr(from, range.start);
        // SAFETY: `range` lies within the source; the buffer is new and has `len` bytes. No queue uses lent bytes.
        unsafe { buffer.ptr().copy_from_nonoverlapping(from, len) };
        Ok(buffer)
    }

    fn download_staged(&mut self, index: usize, range: &Range<usize>, line: &Line) -> Result<(), Stop> {
        let len = self.real(range);
        let buffer = HostBuffer::zeroed(len)?;
        let to = self.host_ptr(HOST, range.start);
        let enqueued = match &self.devices[index].memory {
            // SAFETY: as in `download`; the buffer is kept until the queue is synchronised, by `finish_staged`.
            Some(memory) => unsafe { line.queue().download(&*memory.block, range.start, buffer.ptr(), len) },
            None => Ok(()),
        };
        let bytes = buffer.ptr();
        let _buffer = self.finish_staged(line, buffer)?;
        enqueued?;
        // SAFETY: as in `copy_fixed`, from a buffer that the queue has left and that lives to the end of this function.
        unsafe { to.copy_from_nonoverlapping(bytes, len) };
        Ok(())
    }

    /// Waits until a queue has left a staging buffer. If that fails the buffer is leaked.
    fn finish_staged(&mut self, line: &Line, buffer: HostBuffer) -> Result<HostBuffer, Error> {
        match self.synchronize(line) {
            Ok(()) => Ok(buffer),
            Err(error) => {
                std::mem::forget(buffer);
                let device = line.queue().device().id();
                self.leaked(Some(device), Error::device(device, "synchronize", error.to_string()));
                Err(error)
            }
        }
    }
}
