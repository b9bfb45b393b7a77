//! Steps that end with their work, with the memory's lock released: reads of an origin, transfers that may wait for the
//! device, and transfers of lent slices. No queue ever sees a lent slice: its bytes go through a buffer of our own, and
//! the transfer has ended when its step has. The facts name the bytes meanwhile, so that both copies keep them and no
//! other thread brings or writes them. Relies on the plan, as `perform` does.

use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::Access;
use crate::borrow::QueueHandle;
use crate::coherence::facts::moving::{Landing, Moving};
use crate::coherence::plan::Step;
use crate::coherence::replicas::ORIGIN;
use crate::coherence::uses::Uses;
use crate::device::{Block, Host};
use crate::engine::perform::has_left_host;
use crate::engine::perform::reading::{Read, Reading};
use crate::engine::state::State;
use crate::engine::wait::{Wait, Waited};
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

/// A transfer between the host and a device. Only [`State::begin`] makes one, and its fields are true until
/// [`State::settle`].
pub(crate) struct Transfer {
    moving: Moving,
    queue: QueueHandle,
    /// A block of the queue's device that has the bytes of the memory.
    block: Arc<dyn Block>,
    /// The first byte of the range in the host's copy, to be written if that is the destination. The copy keeps its
    /// memory. No one else writes these bytes; where the host is the destination no one reads them either, because they
    /// are not valid there, and the facts keep other threads from bringing them.
    host: NonNull<u8>,
    /// Whether the host's copy is a lent slice, which no queue uses.
    is_lent: bool,
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
    /// The queue's access to host memory.
    fn access(&self) -> Access {
        if self.moving.to.is_host() { Access::Write } else { Access::Read }
    }

    /// Transfers. The lock is not held.
    fn perform(self) -> Transferred {
        if self.is_lent { self.through_buffer() } else { self.in_place() }
    }

    fn in_place(self) -> Transferred {
        let (queue, block, Range { start, end }) = (&self.queue, &*self.block, self.moving.range.clone());
        let enqueued = match self.access() {
            // SAFETY: the block is of this queue's device and has `len` bytes of the memory, the range within them. The
            // host bytes are readable, and nothing writes them until the transfer is settled (`host`), which enters the
            // queue's read unless the queue is done with the bytes: each later write or free waits for that.
            Access::Read => unsafe { queue.upload(block, start, self.host, end - start) },
            // SAFETY: the block is of this queue's device and has `len` bytes of the memory, the range within them. The
            // host bytes are writable, for slot HOST is the only host copy that bytes are brought to; nothing else uses
            // them (`host`), and settling enters the queue's write unless the queue is done: each later use waits.
            Access::Write => unsafe { queue.download(block, start, self.host, end - start) },
        };
        let waited = self.wait_after(&enqueued);
        Transferred { transfer: self, staged: None, enqueued, waited }
    }

    /// Waits for the transfer's end where the transfer has to end with its step, or where the call failed: the queue
    /// may have failed for good.
    fn wait_after(&self, enqueued: &Result<Host, Error>) -> Option<Waited> {
        let waits = match enqueued {
            Ok(host) => self.is_lent && *host == Host::Pending,
            Err(error) => matches!(error, Error::Device { .. }),
        };
        let queues = vec![(self.queue.clone(), false)];
        waits.then(|| Wait { by: None, began: self.began, queues }.perform())
    }

    /// Transfers, and waits for the end.
    fn through_buffer(self) -> Transferred {
        let len = self.moving.range.len();
        let staged = match HostBuffer::zeroed(len) {
            Ok(staged) => staged,
            Err(error) => return Transferred { transfer: self, staged: None, enqueued: Err(error), waited: None },
        };
        let (queue, block, at) = (&self.queue, &*self.block, self.moving.range.start);
        let enqueued = match self.access() {
            Access::Read => {
                // SAFETY: nothing writes the slice's bytes (`host`); the buffer is new and has `len` bytes.
                unsafe { staged.ptr().copy_from_nonoverlapping(self.host, len) };
                // SAFETY: the block is of this queue's device, and `range` within it. The buffer has `len` bytes and is
                // kept until a synchronisation has ended well; where none does, `settle` puts it aside or leaks it.
                unsafe { queue.upload(block, at, staged.ptr(), len) }
            }
            // SAFETY: the block is of this queue's device, and `range` within it. The buffer is new, has `len` writable
            // bytes that nothing else uses, and is kept until a synchronisation has ended well; where none does,
            // `settle` puts it aside or leaks it.
            Access::Write => unsafe { queue.download(block, at, staged.ptr(), len) },
        };
        let waited = self.wait_after(&enqueued);
        let ended = Transferred { transfer: self, staged: Some(staged), enqueued, waited };
        if let (Access::Write, Some(staged), true) = (ended.transfer.access(), &ended.staged, ended.is_done()) {
            // SAFETY: nothing else uses the slice's bytes (`host`), which may be written; the buffer has `len` bytes,
            // which its queue has left.
            unsafe { ended.transfer.host.copy_from_nonoverlapping(staged.ptr(), len) };
        }
        ended
    }
}

impl Transferred {
    /// Whether the bytes are there, or enqueued, and a buffer in no use.
    fn is_done(&self) -> bool {
        self.enqueued.is_ok() && self.waited.as_ref().is_none_or(|waited| waited.failed.is_none())
    }
}

impl Ended {
    /// The step that has ended.
    pub(crate) fn step(&self) -> Step {
        let Moving { from, to, range } = match self {
            Ended::Read(read) => &read.moving,
            Ended::Transfer(ended) => &ended.transfer.moving,
        };
        Step::Copy { from: *from, to: *to, range: range.clone() }
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
        let (device, host) = if to.is_host() { (from, to) } else { (to, from) };
        let (queue, block) = (self.home(device).ok()?, Arc::clone(self.block(device).ok()?));
        let (is_lent, start) = (self.facts.copy(host).is_lent, self.host_ptr(host, range.start));
        let moving = Moving { from, to, range };
        self.facts.depart(&moving, Some(&queue));
        let began = self.facts.clock.begin();
        Some(Outside::Transfer(Transfer { moving, queue, block, host: start, is_lent, began }))
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
        let Transfer { moving, queue, is_lent, began, .. } = transfer;
        if let Some(staged) = staged {
            self.count_buffer(EventKind::Allocate, staged.allocated());
            let mut uses = Uses::new();
            if !is_done {
                uses.enter(&queue, 0..moving.range.len(), access, None, &self.facts.clock);
            }
            self.set_aside(staged, uses);
        }
        let landing = Landing {
            is_there: is_done,
            // This thread's own wait, if it has ended well, has seen the end of the transfer.
            uses_device: waited.is_none() || !is_done,
            uses_host: !is_lent && !has_left_host(&enqueued),
        };
        self.land(&moving, Some(&queue), landing);
        match (enqueued, waited) {
            // Of more interest than the error of the call: the queue has failed.
            (_, Some(waited)) if waited.failed.is_some() => Ok(Some(waited)),
            (Ok(_), Some(waited)) => Ok(Some(waited)),
            (enqueued, _) => {
                self.facts.clock.end(began);
                enqueued.map(|_| None)
            }
        }
    }
}
