//! Reads of an origin into the host's own memory, with the memory's lock released: an origin is code of the caller's.
//! The facts name the bytes meanwhile, so that no other thread reads, writes or frees them. A read that fails, or
//! panics, changes nothing. Relies on the plan, as `transfer` does.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::coherence::facts::HOST;
use crate::coherence::replicas::ORIGIN;
use crate::engine::state::State;
use crate::error::Error;
use crate::origin::{Origin, OriginError};

/// A read that has been entered in the facts. Only [`State::begin_reading`] makes one, and its fields are true until
/// [`State::settle_reading`].
pub(crate) struct Reading {
    origin: Arc<dyn Origin>,
    range: Range<usize>,
    /// The first byte of `range` in the host's own memory, which is initialised and may be written. No one else uses
    /// these bytes: they are not valid, no queue touches them, and the facts keep other threads away.
    start: NonNull<u8>,
}

/// A read that has ended.
pub(crate) struct Read {
    range: Range<usize>,
    outcome: Result<(), Error>,
    pub(crate) panic: Option<Box<dyn Any + Send>>,
}

impl Reading {
    /// Reads. The lock is not held.
    pub(crate) fn perform(self) -> Read {
        let Reading { origin, range, start } = self;
        // SAFETY: `range.len()` initialised bytes that may be written and that no one else uses (see the field), in a
        // buffer that is kept until the read is settled.
        let out = unsafe { slice::from_raw_parts_mut(start.as_ptr(), range.len()) };
        let read = catch_unwind(AssertUnwindSafe(|| origin.read(range.start, out)));
        let (read, panic) = match read {
            Ok(read) => (read, None),
            Err(panic) => (Err(OriginError::failed("the read panicked")), Some(panic)),
        };
        let outcome = read.map_err(|source| Error::Origin { range: range.clone(), source });
        Read { range, outcome, panic }
    }
}

impl State {
    /// Enters a read, once all conflicting work has been waited for and the host has memory.
    pub(crate) fn begin_reading(&mut self, range: &Range<usize>) -> Option<Reading> {
        let origin = Arc::clone(self.origin.as_ref()?);
        self.hosts[HOST.0].as_ref()?;
        self.facts.outside.push((HOST, range.clone()));
        Some(Reading { origin, range: range.clone(), start: self.host_ptr(HOST, range.start) })
    }

    /// A read has ended, well or not.
    pub(crate) fn settle_reading(&mut self, read: Read) -> Result<(), Error> {
        self.facts.outside.retain(|(slot, range)| *slot != HOST || *range != read.range);
        read.outcome?;
        self.copied(ORIGIN, HOST, &read.range);
        Ok(())
    }
}
