//! Reads of an origin, into the host's own memory or to a device, with the memory's lock released: an origin is code of
//! the caller's. The facts name the bytes meanwhile, so that no other thread reads, writes or frees them. A read that
//! fails, or panics, changes nothing. Relies on the plan, as `transfer` does.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::borrow::QueueHandle;
use crate::coherence::facts::moving::{Landing, Moving};
use crate::coherence::replicas::{ORIGIN, Slot};
use crate::device::Block;
use crate::engine::state::State;
use crate::error::Error;
use crate::origin::{Origin, OriginError};

/// A read that has been entered in the facts. Only [`State::begin_reading`] makes one, and its fields are true until
/// [`State::settle_reading`].
pub(crate) struct Reading {
    origin: Arc<dyn Origin>,
    moving: Moving,
    target: Target,
}

/// The place of the bytes. No one else uses them: they are not valid there, and the facts keep other threads away.
enum Target {
    /// The first byte of the range in the host's own memory, which is initialised and may be written. No queue touches
    /// these bytes.
    Host(NonNull<u8>),
    /// A block of the queue's device that has the bytes of the memory. All other work there comes before the queue's.
    Device(QueueHandle, Arc<dyn Block>),
}

/// A read that has ended.
pub(crate) struct Read {
    pub(crate) moving: Moving,
    device: Option<(QueueHandle, Arc<dyn Block>)>,
    outcome: Result<(), Error>,
    pub(crate) panic: Option<Box<dyn Any + Send>>,
}

impl Reading {
    /// Reads. The lock is not held.
    pub(crate) fn perform(self) -> Read {
        let Reading { origin, moving, target } = self;
        let range = &moving.range;
        let failed = |source| Error::Origin { range: range.clone(), source };
        let read = catch_unwind(AssertUnwindSafe(|| match &target {
            Target::Host(start) => {
                // SAFETY: `range.len()` initialised bytes that may be written and that no one else uses (`Target`), in
                // a buffer that is kept until the read is settled.
                let out = unsafe { slice::from_raw_parts_mut(start.as_ptr(), range.len()) };
                origin.read(range.start, out).map_err(failed)
            }
            // SAFETY: the block is of the queue's device, and `range` within it. The block is kept until the read is
            // settled, which enters the upload in the facts again: each later use or free of the block waits for that.
            Target::Device(queue, block) => unsafe {
                queue.upload_from(&**block, range.start, range.len(), &|at, out| origin.read(at, out))
            },
        }));
        let (outcome, panic) = match read {
            Ok(outcome) => (outcome, None),
            Err(panic) => (Err(failed(OriginError::failed("the read panicked"))), Some(panic)),
        };
        let device = match target {
            Target::Host(_) => None,
            Target::Device(queue, block) => Some((queue, block)),
        };
        Read { moving, device, outcome, panic }
    }
}

impl State {
    /// Enters a read, once all conflicting work has been waited for and the copy has memory.
    pub(crate) fn begin_reading(&mut self, to: Slot, range: &Range<usize>) -> Option<Reading> {
        let origin = Arc::clone(self.origin.as_ref()?);
        let target = if to.is_host() {
            self.hosts[to.0].as_ref()?;
            Target::Host(self.host_ptr(to, range.start))
        } else {
            let (queue, block) = (self.home(to).ok()?, Arc::clone(self.block(to).ok()?));
            Target::Device(queue, block)
        };
        let moving = Moving { from: ORIGIN, to, range: range.clone() };
        let queue = match &target {
            Target::Host(_) => None,
            Target::Device(queue, _) => Some(queue),
        };
        self.facts.depart(&moving, queue);
        Some(Reading { origin, moving, target })
    }

    /// A read has ended, well or not.
    pub(crate) fn settle_reading(&mut self, read: Read) -> Result<(), Error> {
        let Read { moving, device, outcome, .. } = read;
        let queue = device.as_ref().map(|(queue, _)| queue);
        // An upload that broke off may have been enqueued, too.
        self.land(&moving, queue, Landing { is_there: outcome.is_ok(), uses_device: true, uses_host: false });
        outcome
    }
}
