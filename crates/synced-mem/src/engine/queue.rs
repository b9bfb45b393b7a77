//! Queues as the engine holds them: compared by identity, with one that stands for failed queues whose work never ends;
//! and the waits for several, with no lock held. Knows no memory, and no other file of the engine.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::access::QueueId;
use crate::device::Queue;
use crate::error::Error;

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

    /// An error of this queue, with the name.
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

// ---- waits ----

/// The queues to wait for, as was decided under the lock.
pub(crate) struct Wait {
    /// `None` is the host.
    pub(crate) by: Option<QueueHandle>,
    /// The moment of the memory's clock.
    pub(crate) began: u64,
    /// Each queue, and whether the queue is known to have failed: then the host waits, since a queue that waited would
    /// fail too.
    pub(crate) queues: Vec<(QueueHandle, bool)>,
}

/// A wait that has ended.
pub(crate) struct Waited {
    pub(crate) by: Option<QueueHandle>,
    pub(crate) began: u64,
    /// Each queue, and whether the host has synchronised the queue.
    pub(crate) finished: Vec<(QueueHandle, bool)>,
    pub(crate) failed: Option<Failure>,
}

pub(crate) struct Failure {
    pub(crate) queue: QueueHandle,
    pub(crate) error: Error,
    pub(crate) kind: FailureKind,
}

pub(crate) enum FailureKind {
    /// The queue was known to have failed before.
    Known,
    /// The queue failed when asked again.
    Lasting,
    /// The queue worked when asked again.
    Once,
    /// The queue has not failed: this thread runs a kernel, which may not wait.
    CalledFromKernel,
}

impl Wait {
    /// Waits. The lock is not held.
    pub(crate) fn perform(self) -> Waited {
        let Wait { by, began, queues } = self;
        let (mut finished, mut failed) = (Vec::new(), None);
        for (queue, was_known) in queues {
            let waiter = by.as_ref().filter(|_| !was_known);
            let done = match waiter {
                None => queue.synchronize(),
                Some(by) => by.wait_for(&queue),
            };
            if let Err(error) = done {
                let kind = match error {
                    Error::CalledFromKernel { .. } => FailureKind::CalledFromKernel,
                    _ if was_known => FailureKind::Known,
                    _ if lasts(&queue, if waiter.is_some() { 2 } else { 1 }) => FailureKind::Lasting,
                    _ => FailureKind::Once,
                };
                failed = Some(Failure { queue, error, kind });
                break;
            }
            finished.push((queue, waiter.is_none()));
        }
        Waited { by, began, finished, failed }
    }
}

/// Whether a queue fails this many times, every time. A refusal inside a kernel is no failure of the queue.
fn lasts(queue: &QueueHandle, times: usize) -> bool {
    (0..times).all(|_| queue.synchronize().is_err_and(|error| !matches!(error, Error::CalledFromKernel { .. })))
}
