//! Steps that end with their work, with the memory's lock released: reads of an origin, and transfers of lent slices.
//! No queue ever sees a lent slice: its bytes go through a buffer of our own, and the transfer has ended when its step
//! has. The facts name the bytes meanwhile, so that no other thread brings them too. Relies on the plan, as `transfer`
//! does.

use std::any::Any;
use std::mem;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::Access;
use crate::coherence::plan::Step;
use crate::coherence::replicas::{ORIGIN, Slot};
use crate::coherence::uses::Uses;
use crate::device::{Block, Host};
use crate::engine::perform::reading::{Read, Reading};
use crate::engine::queue::{QueueHandle, Wait, Waited};
use crate::engine::state::State;
use crate::error::Error;
use crate::host::buffer::HostBuffer;
use crate::stats::EventKind;

/// A step that has been ordered, and entered in the facts.
pub(crate) enum Outside {
    Read(Reading),
    Transfer(Transfer),
}

/// How a step has ended.
pub(crate) enum Ended {
    Read(Read),
    Transfer(Box<Transferred>),
}

impl Outside {
    /// Does the work, and waits for its end. The lock is not held.
    pub(crate) fn perform(self) -> Ended {
        match self {
            Outside::Read(reading) => Ended::Read(reading.perform()),
            Outside::Transfer(transfer) => Ended::Transfer(Box::new(transfer.perform())),
        }
    }
}

impl Ended {
    /// A panic of user code, to go on with when the step has been settled.
    pub(crate) fn take_panic(&mut self) -> Option<Box<dyn Any + Send>> {
        match self {
            Ended::Read(read) => read.panic.take(),
            Ended::Transfer(_) => None,
        }
    }
}

/// A transfer of a lent slice. Only [`State::begin`] makes one, and its fields are true until [`State::settle`].
pub(crate) struct Transfer {
    from: Slot,
    to: Slot,
    range: Range<usize>,
    queue: QueueHandle,
    /// A block of the queue's device that has the bytes of the memory.
    block: Arc<dyn Block>,
    /// The first byte of `range` in a lent slice, to be written if the slice is the destination. No queue uses the
    /// slice. No one else writes these bytes; where the slice is the destination no one reads them either, because they
    /// are not valid there, and the facts keep other threads from bringing them.
    lent: NonNull<u8>,
    /// When the wait for its end began.
    began: u64,
}

/// How a transfer has ended.
pub(crate) struct Transferred {
    transfer: Transfer,
    /// The buffer that the bytes went through.
    staged: Option<HostBuffer>,
    /// The outcome of the call that enqueued the transfer.
    enqueued: Result<Host, Error>,
    /// The outcome of the wait for the transfer, if there was one.
    waited: Option<Waited>,
}

impl Transfer {
    /// The queue's access to the buffer.
    fn access(&self) -> Access {
        if self.to.is_host() { Access::Write } else { Access::Read }
    }

    /// Transfers, and waits for the end. The lock is not held.
    fn perform(self) -> Transferred {
        let len = self.range.len();
        let staged = match HostBuffer::zeroed(len) {
            Ok(staged) => staged,
            Err(error) => return Transferred { transfer: self, staged: None, enqueued: Err(error), waited: None },
        };
        let (queue, block, at) = (&self.queue, &*self.block, self.range.start);
        let enqueued = match self.access() {
            Access::Read => {
                // SAFETY: nothing writes the slice's bytes (`lent`); the buffer is new and has `len` bytes.
                unsafe { staged.ptr().copy_from_nonoverlapping(self.lent, len) };
                // SAFETY: the block is of this queue's device, and `range` within it. The buffer has `len` bytes and is
                // kept until a synchronisation has ended well; where none does, `settle` puts it aside or leaks it.
                unsafe { queue.upload(block, at, staged.ptr(), len) }
            }
            // SAFETY: as for the upload: the same holds of the block and of the buffer, which nothing else uses.
            Access::Write => unsafe { queue.download(block, at, staged.ptr(), len) },
        };
        let waited = match enqueued {
            Ok(Host::Pending) => {
                let queues = vec![(queue.clone(), false)];
                Some(Wait { by: None, began: self.began, queues }.perform())
            }
            _ => None,
        };
        let ended = Transferred { transfer: self, staged: Some(staged), enqueued, waited };
        if let (Access::Write, Some(staged), true) = (ended.transfer.access(), &ended.staged, ended.is_done()) {
            // SAFETY: nothing else uses the slice's bytes (`lent`), which may be written; the buffer has `len` bytes,
            // which its queue has left.
            unsafe { ended.transfer.lent.copy_from_nonoverlapping(staged.ptr(), len) };
        }
        ended
    }
}

impl Transferred {
    /// Whether the bytes are there, and the buffer in no use.
    fn is_done(&self) -> bool {
        self.enqueued.is_ok() && self.waited.as_ref().is_none_or(|waited| waited.failed.is_none())
    }
}

impl State {
    /// Enters a step, once all conflicting work has been waited for.
    pub(crate) fn begin(&mut self, step: &Step) -> Option<Outside> {
        let Step::Copy { from, to, range } = step.clone() else {
            return None;
        };
        if from == ORIGIN {
            return self.begin_reading(to, &range).map(Outside::Read);
        }
        let (device, host, access) = if to.is_host() { (from, to, Access::Read) } else { (to, from, Access::Write) };
        let queue = self.facts.copy(device).home.clone()?;
        let block = Arc::clone(&self.devices[device.device()?].memory.as_ref()?.block);
        let lent = self.host_ptr(host, range.start);
        self.facts.enter(device, &queue, &range, access, None);
        self.facts.outside.push((to, range.clone()));
        let began = self.facts.clock.begin();
        Some(Outside::Transfer(Transfer { from, to, range, queue, block, lent, began }))
    }

    /// A step has ended, well or not. Returns a wait that the clock still has under way.
    pub(crate) fn settle(&mut self, ended: Ended) -> Result<Option<Waited>, Error> {
        match ended {
            Ended::Read(read) => self.settle_reading(read).map(|()| None),
            Ended::Transfer(transferred) => self.settle_transfer(*transferred),
        }
    }

    fn settle_transfer(&mut self, ended: Transferred) -> Result<Option<Waited>, Error> {
        let (is_done, access) = (ended.is_done(), ended.transfer.access());
        let Transferred { transfer, staged, enqueued, waited } = ended;
        let Transfer { from, to, range, queue, block, began, .. } = transfer;
        self.facts.outside.retain(|(slot, brought)| *slot != to || *brought != range);
        self.settlements += 1;
        if let Some(staged) = staged {
            self.count_buffer(EventKind::Allocate, staged.allocated());
            let mut uses = Uses::new();
            if !is_done {
                uses.enter(&queue, 0..range.len(), access, None, &self.facts.clock);
            }
            self.set_aside(staged, uses);
        }
        let device = [from, to].into_iter().find_map(Slot::device);
        let memory = device.and_then(|index| self.devices[index].memory.as_ref());
        // Another thread may have given the device's copy up meanwhile.
        let is_same = memory.is_some_and(|memory| Arc::ptr_eq(&memory.block, &block));
        match (is_done, is_same) {
            (true, true) => self.copied(from, to, &range),
            // The queue may still use the block, and nothing else remembers that.
            (false, false) => mem::forget(block),
            _ => {}
        }
        if waited.is_none() {
            self.facts.clock.end(began);
        }
        enqueued.map(|_| waited)
    }
}
