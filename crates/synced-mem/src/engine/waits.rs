//! What a memory knows of its queues: which waits are under way, what has been waited for, which queues have failed;
//! and how a step says that it must wait. It relies on `uses` for whom to wait for, and waits for nothing itself.

use std::ops::Range;
use std::sync::Arc;

use crate::access::Access;
use crate::coherence::uses::{Clock, Uses, Waited};
use crate::engine::queue::QueueHandle;
use crate::error::Error;

/// Why a step ended before its aim.
pub(crate) enum Stop {
    Fail(Error),
    /// The step is to be taken again after this.
    Wait(Wait),
}

/// Waits to be made before the step can go on; `None` as the waiter is the host.
pub(crate) struct Wait {
    pub(crate) by: Option<QueueHandle>,
    pub(crate) queues: Vec<QueueHandle>,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Fail(error)
    }
}

impl Stop {
    /// Stops when there are queues to wait for.
    pub(crate) fn unless_waited(by: Option<&QueueHandle>, queues: Vec<QueueHandle>) -> Result<(), Stop> {
        if queues.is_empty() {
            return Ok(());
        }
        let by = by.cloned();
        Err(Stop::Wait(Wait { by, queues }))
    }
}

/// How far the waiting for queues has come.
#[derive(Default)]
pub(crate) struct Waits {
    pub(crate) clock: Clock,
    /// Of the operation that has the lock.
    pub(crate) waited: Waited<QueueHandle>,
    pub(crate) broken: Broken,
}

impl Waits {
    /// Enters an access of `by`, once it has waited for every access that conflicts. A queue that has failed gets no
    /// work.
    ///
    /// The entry stands before the work is enqueued: whatever an enqueuing call did before it failed, it is waited for.
    pub(crate) fn order(
        &self,
        uses: &mut Uses<QueueHandle>,
        by: &QueueHandle,
        range: &Range<usize>,
        access: Access,
        guard: Option<u64>,
    ) -> Result<(), Stop> {
        self.order_after(uses, by, range, access)?;
        uses.enter(by, range.clone(), access, guard, &self.clock);
        Ok(())
    }

    /// Stops until an access of `by` comes after every access that conflicts. A queue that has failed gets no work.
    pub(crate) fn order_after(
        &self,
        uses: &Uses<QueueHandle>,
        by: &QueueHandle,
        range: &Range<usize>,
        access: Access,
    ) -> Result<(), Stop> {
        self.refuse_broken(by)?;
        Stop::unless_waited(Some(by), uses.waits(Some(by), range, access, &self.waited))
    }

    /// Stops for a queue that has failed: it is asked once more before it is refused new work.
    pub(crate) fn refuse_broken(&self, queue: &QueueHandle) -> Result<(), Stop> {
        match self.broken.has(queue) {
            true => Stop::unless_waited(None, vec![queue.clone()]),
            false => Ok(()),
        }
    }
}

/// The queues whose failure lasts, as far as they are known, each with the error that names it. The list saves waits
/// and stops a failure from spreading; no soundness rests on it.
#[derive(Default)]
pub(crate) struct Broken {
    known: Vec<(QueueHandle, Error)>,
}

impl Broken {
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn has(&self, queue: &QueueHandle) -> bool {
        self.known.iter().any(|(known, _)| known == queue)
    }

    /// Whether one of these is broken.
    pub(crate) fn has_any(&self, queues: &[QueueHandle]) -> bool {
        queues.iter().any(|queue| self.has(queue))
    }

    pub(crate) fn add(&mut self, queue: &QueueHandle, error: &Error) {
        if !self.has(queue) {
            self.known.push((queue.clone(), queue.named(error)));
        }
    }

    /// What stands for the queues that are forgotten although their reads never end.
    pub(crate) fn lost(&mut self, queue: &QueueHandle) -> QueueHandle {
        if let Some((lost, _)) = self.known.iter().find(|(known, _)| known.is_lost()) {
            return lost.clone();
        }
        let lost = QueueHandle::lost(queue);
        if let Err(error) = lost.synchronize() {
            self.add(&lost, &error);
        }
        lost
    }

    /// The queue works again, or is forgotten.
    pub(crate) fn remove(&mut self, queue: &QueueHandle) {
        self.known.retain(|(known, _)| known != queue);
    }

    /// Forgets those that only this list still holds: no copy has been used by them, and they get no new work.
    pub(crate) fn forget_dropped(&mut self) {
        self.known.retain(|(known, _)| Arc::strong_count(known) > 1);
    }

    /// The oldest of those beyond `most`, among the ones that may be forgotten.
    pub(crate) fn oldest_past(&self, most: usize, may_go: impl Fn(&QueueHandle) -> bool) -> Vec<QueueHandle> {
        let too_many = self.known.len().saturating_sub(most);
        let known = self.known.iter().map(|(queue, _)| queue);
        known.filter(|queue| may_go(queue)).take(too_many).cloned().collect()
    }

    /// Why the first of these that is broken is so.
    pub(crate) fn error(&self, queues: &[QueueHandle]) -> Option<Error> {
        let mut known = self.known.iter();
        let (queue, error) = known.find(|(known, _)| queues.contains(known))?;
        Some(queue.named(error))
    }
}
