//! The queues whose failure lasts, as far as they are known, each with its error. The list saves waits and stops a
//! failure from spreading; no soundness rests on it. A queue that works again is taken off it.

use crate::error::Error;

/// `Q` is a handle of a queue.
#[derive(Debug)]
pub(crate) struct Broken<Q> {
    known: Vec<(Q, Error)>,
}

impl<Q> Broken<Q> {
    pub(crate) const fn new() -> Self {
        Self { known: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The queues, from the one that has been known for longest.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Q> {
        self.known.iter().map(|(queue, _)| queue)
    }

    /// Forgets all but these.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Q) -> bool) {
        self.known.retain(|(queue, _)| keep(queue));
    }
}

impl<Q: PartialEq> Broken<Q> {
    pub(crate) fn has(&self, queue: &Q) -> bool {
        self.queues().any(|known| known == queue)
    }

    /// Whether one of these is broken.
    pub(crate) fn has_any(&self, queues: &[Q]) -> bool {
        queues.iter().any(|queue| self.has(queue))
    }

    pub(crate) fn add(&mut self, queue: Q, error: Error) {
        if !self.has(&queue) {
            self.known.push((queue, error));
        }
    }

    /// The queue works again, or is forgotten.
    pub(crate) fn remove(&mut self, queue: &Q) {
        self.retain(|known| known != queue);
    }

    /// The first of the known ones that is among these, and its error.
    pub(crate) fn first_of(&self, queues: &[Q]) -> Option<(&Q, &Error)> {
        let mut known = self.known.iter();
        known.find(|(queue, _)| queues.contains(queue)).map(|(queue, error)| (queue, error))
    }
}
