//! Moves bytes between the copies of a memory. A transfer is entered in the facts, then enqueued, and then its bytes
//! are valid. Relies on the plan: all conflicting work has been waited for, and each copy has memory.

use std::ops::Range;

use crate::access::Access;
use crate::borrow::QueueHandle;
use crate::coherence::facts::moving::{Landing, Moving};
use crate::coherence::replicas::{ADOPTED, HOST, ORIGIN, Slot};
use crate::device::Host;
use crate::engine::state::State;
use crate::error::Error;
use crate::stats::EventKind;

impl State {
    pub(crate) fn copy(&mut self, from: Slot, to: Slot, range: &Range<usize>) -> Result<(), Error> {
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
    pub(crate) fn count_copy(&mut self, from: Slot, to: Slot, range: &Range<usize>) {
        if from == ORIGIN {
            self.count(EventKind::OriginRead, range, HOST);
        }
        let (kind, counted) = match (from.is_host() || from == ORIGIN, to.is_host()) {
            (true, true) if from == ORIGIN => return,
            (true, true) => (EventKind::HostCopy, HOST),
            (true, false) => (EventKind::Upload, to),
            (false, true) => (EventKind::Download, from),
            (false, false) => (EventKind::DeviceCopy, to),
        };
        self.count(kind, range, counted);
    }

    /// Adopted bytes to memory of our own.
    fn copy_adopted(&mut self, range: &Range<usize>) {
        let (from, to) = (self.host_ptr(ADOPTED, range.start), self.host_ptr(HOST, range.start));
        // SAFETY: both lie in buffers of `len` bytes, and `range` is within that. They are two buffers, the second
        // writable (slot HOST holds no other kind). No queue writes the first or uses the second (waited for). No
        // reference points into this range of HOST: the bytes are not valid there, and only valid bytes are referred
        // to.
        unsafe { to.copy_from_nonoverlapping(from, range.len()) };
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
        if !is_done(&host) {
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
        if !is_done(&host) {
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
    pub(crate) fn fill(&mut self, to: Slot, range: &Range<usize>) -> Result<(), Error> {
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
        self.count(EventKind::Fill, range, to);
        Ok(())
    }
}

/// Whether a transfer is done with the host bytes when the call returns. A call that failed may have enqueued the
/// transfer.
pub(super) fn is_done(host: &Result<Host, Error>) -> bool {
    matches!(host, Ok(Host::Done))
}
