//! The events of a memory, each counted once for the memory, its device and its observer; and the work that waits until
//! the lock has been released, because user code is called.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use crate::borrow::QueueHandle;
use crate::coherence::facts::CopyFacts;
use crate::device::{Block, Queue};
use crate::error::Error;
use crate::host::buffer::HostBuffer;
use crate::stats::{Event, EventKind, Observer, Stats, Traffic};

/// Work for the time when the lock has been released.
pub(crate) enum Deferred {
    Tell(Event),
    DropBuffer(HostBuffer),
    DropOwner(Box<dyn Any + Send + Sync>),
    /// Not user code, but the backend's own lock may be held while the device works.
    DropBlock(Arc<dyn Block>),
}

/// The counters of one memory, and the observer.
#[derive(Default)]
pub(crate) struct Events {
    counts: [Traffic; EventKind::COUNT],
    in_use: u64,
    peak: u64,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    deferred: Vec<Deferred>,
}

impl Events {
    /// Counts an event of `bytes` bytes for the memory, for the device of `queue` if there is one, and for the
    /// observer. Inlined, because each access counts: as a call it was a twentieth of a host borrow.
    #[inline]
    pub(crate) fn count(
        &mut self,
        kind: EventKind,
        range: Range<usize>,
        bytes: usize,
        queue: Option<&Arc<dyn Queue>>,
        error: Option<Error>,
    ) {
        self.count_here(kind, bytes as u64);
        // An access that moved no byte is no news for the device, whose counters all threads share.
        if let Some(queue) = queue
            && !matches!(kind, EventKind::Avoided)
        {
            queue.device().meter().count(kind, bytes);
        }
        if self.observer.is_some() {
            self.tell(kind, range, queue, error);
        }
    }

    /// Counts an event of a range of a copy.
    #[inline]
    pub(crate) fn count_on(&mut self, kind: EventKind, range: &Range<usize>, copy: &CopyFacts<QueueHandle>) {
        self.count(kind, range.clone(), range.len(), copy.home.as_deref(), None);
    }

    #[inline]
    fn count_here(&mut self, kind: EventKind, bytes: u64) {
        match kind {
            EventKind::Allocate => {
                self.in_use += bytes;
                self.peak = self.peak.max(self.in_use);
            }
            EventKind::Free => self.in_use = self.in_use.saturating_sub(bytes),
            _ => {}
        }
        let traffic = &mut self.counts[kind as usize];
        traffic.count += 1;
        traffic.bytes += bytes;
    }

    /// The counters so far.
    pub(crate) fn stats(&self) -> Stats {
        Stats::of(self.in_use, self.peak, self.counts)
    }

    #[cold]
    fn tell(&mut self, kind: EventKind, range: Range<usize>, queue: Option<&Arc<dyn Queue>>, error: Option<Error>) {
        let device = queue.map(|queue| queue.device().id());
        self.deferred.push(Deferred::Tell(Event { kind, range, device, error }));
    }

    /// To be done after the lock has been released.
    pub(crate) fn defer(&mut self, work: Deferred) {
        self.deferred.push(work);
    }

    /// Takes the work for the time when the lock has been released, if there is any.
    pub(crate) fn take_pending(&mut self) -> Option<Pending> {
        if self.deferred.is_empty() {
            return None;
        }
        Some(Pending { work: std::mem::take(&mut self.deferred), observer: self.observer.clone() })
    }
}

/// The work that an operation leaves behind, for the time when the lock has been released.
pub(crate) enum Followup {
    /// Only user code.
    Tell(Pending),
    /// Ranges to merge, memory to give back.
    Tidy,
}

/// The work that was taken when the lock was released.
#[must_use]
pub(crate) struct Pending {
    work: Vec<Deferred>,
    observer: Option<Arc<dyn Observer>>,
}

impl Pending {
    pub(crate) fn run(self) {
        for work in self.work {
            match work {
                Deferred::Tell(event) => {
                    if let Some(observer) = &self.observer {
                        observer.event(&event);
                    }
                }
                Deferred::DropBuffer(buffer) => drop(buffer),
                Deferred::DropOwner(owner) => drop(owner),
                Deferred::DropBlock(block) => drop(block),
            }
        }
    }
}
