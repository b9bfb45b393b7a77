//! In place of `cuda.rs` where the feature is off: no queue has kernels.

use super::work::Work;
use synced_mem::{Arg, Error, Queue};

/// The kernels of one queue's device: there are none.
pub(crate) enum Kernels {}

/// Whether there may be a queue that has kernels.
#[inline(always)]
pub(crate) fn is_possible() -> bool {
    false
}

/// Whether this queue's device has kernels.
pub(crate) fn has_kernels(_: &dyn Queue) -> bool {
    false
}

/// Whether work without a named place may go there.
pub(crate) fn is_at_work(_: &dyn Queue) -> bool {
    false
}

impl Kernels {
    /// There are none to load.
    pub(crate) fn load(_: &Work, queue: &dyn Queue) -> Result<Kernels, Error> {
        Err(Error::device(queue.device().id(), "load", "built without kernels"))
    }

    /// Launches the work.
    pub(crate) fn run(&self, _: &dyn Queue, _: &Work, _: &[Arg<'_>], _: usize) -> Result<(), Error> {
        match *self {}
    }
}
