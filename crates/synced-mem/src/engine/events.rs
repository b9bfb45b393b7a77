//! What a step leaves to do once the lock is released, because it is user code: events to tell, owners to drop; and the
//! counting of what happened. It decides nothing.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use crate::engine::state::State;
use crate::{Block, DeviceId, Error, Event, EventKind, HostBuffer, Observer};

/// What is left to do when the lock has been released, because it is user code.
pub(crate) enum Afterwards {
    Tell(Event),
    Drop(HostBuffer),
    DropOwner(Box<dyn Any + Send + Sync>),
    /// Not user code, but the backend's own lock may be held while its device works.
    DropBlock(Arc<dyn Block>),
}

impl State {
    pub(crate) fn count(&mut self, kind: EventKind, range: &Range<usize>, device: Option<DeviceId>) {
        let bytes = self.real(range);
        self.count_bytes(kind, range, bytes, device);
    }

    pub(crate) fn count_bytes(
        &mut self,
        kind: EventKind,
        range: &Range<usize>,
        bytes: usize,
        device: Option<DeviceId>,
    ) {
        self.stats.count(kind, bytes);
        // What moved nothing is no news for the device, whose counters all threads share.
        if kind != EventKind::Avoided {
            let copy = self.devices.iter().find(|copy| Some(copy.device) == device);
            if let Some(copy) = copy {
                copy.home.queue().device().meter().count(kind, bytes);
            }
        }
        if self.observer.is_some() {
            let range = range.start..range.start + self.real(range);
            self.after.push(Afterwards::Tell(Event::new(kind, range, device)));
        }
    }

    /// A buffer had to be leaked: nobody knows whether a queue still uses it.
    pub(crate) fn leaked(&mut self, device: Option<DeviceId>, error: Error) {
        self.stats.count(EventKind::Leak, self.len);
        let copy = self.devices.iter().find(|copy| Some(copy.device) == device);
        if let Some(copy) = copy {
            let meter = copy.home.queue().device().meter();
            meter.count(EventKind::Leak, self.len);
        }
        let event = Event::leak(0..self.len, device, error);
        self.after.push(Afterwards::Tell(event));
    }

    pub(crate) fn later(&mut self, work: Afterwards) {
        self.after.push(work);
    }

    /// Takes along what is to be done after the lock has been released, if there is anything.
    pub(crate) fn aftermath(&mut self) -> Option<Aftermath> {
        if self.after.is_empty() {
            return None;
        }
        Some(Aftermath { work: std::mem::take(&mut self.after), observer: self.observer.clone() })
    }
}

/// What is to be done after the lock has been released.
#[must_use]
pub(crate) struct Aftermath {
    work: Vec<Afterwards>,
    observer: Option<Arc<dyn Observer>>,
}

impl Aftermath {
    pub(crate) fn run(self) {
        for work in self.work {
            match work {
                Afterwards::Tell(event) => {
                    if let Some(observer) = &self.observer {
                        observer.event(&event);
                    }
                }
                Afterwards::Drop(buffer) => drop(buffer),
                Afterwards::DropOwner(owner) => drop(owner),
                Afterwards::DropBlock(block) => drop(block),
            }
        }
    }
}
