//! A queue that is compared by its identity, and one that stands for failed queues whose work never ends. Relies on no
//! other file of the engine.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::device::Queue;
use crate::error::Error;
use crate::ids::QueueId;

#[derive(Clone)]
pub(crate) struct QueueHandle {
    id: QueueId,
    queue: Arc<dyn Queue>,
    /// Whether the handle stands for queues whose work is never known to have ended.
    is_lost: bool,
}

impl QueueHandle {
    pub(crate) fn new(queue: &Arc<dyn Queue>) -> Self {
        Self { id: queue.id(), queue: Arc::clone(queue), is_lost: false }
    }

    /// A handle for this queue and others that have failed: a wait for such a handle always fails.
    pub(crate) fn lost(of: &Self) -> Self {
        Self { id: QueueId::new(), queue: Arc::clone(&of.queue), is_lost: true }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Waits for everything on the queue.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        if self.is_lost {
            Err(Error::device(self.queue.device().id(), "synchronize", "of many queues that have failed"))
        } else {
            self.queue.synchronize()
        }
    }

    /// Makes later work of this queue wait for the other queue.
    pub(crate) fn wait_for(&self, other: &Self) -> Result<(), Error> {
        if other.is_lost { other.synchronize() } else { self.queue.wait_for(&*other.queue) }
    }

    pub(crate) fn into_queue(self) -> Arc<dyn Queue> {
        self.queue
    }

    /// An error of this queue, with its name.
    pub(crate) fn named(&self, error: &Error) -> Error {
        let (device, op, what) = match error {
            Error::Device { device, op, source } => (*device, *op, source.to_string()),
            other => (self.queue.device().id(), "synchronize", other.to_string()),
        };
        if what.starts_with(&self.id.to_string()) {
            Error::device(device, op, what)
        } else {
            Error::device(device, op, format!("{}: {what}", self.id))
        }
    }
}

impl Deref for QueueHandle {
    type Target = Arc<dyn Queue>;

    fn deref(&self) -> &Arc<dyn Queue> {
        &self.queue
    }
}

impl PartialEq for QueueHandle {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl fmt::Debug for QueueHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}
