//! The origins of a world's memories, which fail together where they are told to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use synced_mem::SharedMem;

use super::shadow::Shadow;
use super::tape::{Fault, Tape, pattern};
use super::world::Subject;

/// The origins of the memories.
#[derive(Default)]
pub(crate) struct Tapes(Mutex<Vec<Arc<Tape>>>);

impl Tapes {
    /// A new origin.
    pub(crate) fn tape(&self, len: usize) -> Arc<Tape> {
        let tape = Tape::new(len);
        self.all().push(Arc::clone(&tape));
        tape
    }

    /// A memory of a new origin, for several threads.
    pub(crate) fn subject(&self, len: usize) -> Subject {
        Subject::shared(SharedMem::of(self.tape(len)), Shadow::of(&pattern(0..len)))
    }

    /// The `nth` read of each fails.
    pub(crate) fn fail(&self, nth: u64) {
        self.all().iter().for_each(|tape| tape.fail(nth, Fault::Fails));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Tape>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
