//! The waits for several queues, with no lock held. Knows no memory, and no other file of the engine.

use crate::borrow::QueueHandle;
use crate::error::Error;

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
