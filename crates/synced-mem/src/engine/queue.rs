//! A queue that is compared by its identity. It relies on nothing else of the engine.

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
}

impl QueueHandle {
    pub(crate) fn new(queue: &Arc<dyn Queue>) -> Self {
        Self { id: queue.id(), queue: Arc::clone(queue) }
    }

    pub(crate) fn is(&self, queue: &dyn Queue) -> bool {
        self.id == queue.id()
    }

    /// An error of this queue, with its name.
    pub(crate) fn named(&self, error: &Error) -> Error {
        let (device, op, what) = match error {
            Error::Device { device, op, source } => (*device, *op, source.to_string()),
            other => (self.queue.device().id(), "synchronize", other.to_string()),
        };
        match what.starts_with(&self.id.to_string()) {
            true => Error::device(device, op, what),
            false => Error::device(device, op, format!("{}: {what}", self.id)),
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
