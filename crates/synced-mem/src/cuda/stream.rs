//! A stream of the driver, with one event: an event is captured when another stream is told to wait, so the event can
//! be recorded again at once. Relies on `context`. The streams of other GPUs that were waited for are remembered,
//! because the driver lets a stream go on when one of those fails.

use std::any::Any;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUevent, CUstream};

use super::context::Context;
use super::driver::new_event;
use super::failure::{Failure, answer};

pub(super) struct Stream {
    context: Arc<Context>,
    raw: CUstream,
    event: Mutex<Event>,
    foreign: Mutex<Foreign<Context>>,
    /// Of a stream that another library made, and destroys.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: handles of the driver belong to no thread; the event is used under a lock.
unsafe impl Send for Stream {}
// SAFETY: the driver's functions may be called from several threads at once with one stream; the event is used under
// a lock.
unsafe impl Sync for Stream {}

struct Event(CUevent);

/// The contexts of other GPUs that this stream relies on, as `C`.
struct Foreign<C> {
    /// The contexts of streams that were waited for, by this one or by one that it waited for, and whose work is not
    /// known to have ended well. Each with the number of the last wait.
    waited: Vec<(Arc<C>, u64)>,
    /// How many waits there have been.
    waits: u64,
    /// Why something that was waited for has not happened.
    lost: Option<Failure>,
}

/// How many waits there had been at some moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitCount(u64);

impl<C> Foreign<C> {
    const NONE: Self = Self { waited: Vec::new(), waits: 0, lost: None };

    fn add(&mut self, contexts: Vec<Arc<C>>) {
        self.waits += 1;
        for new in contexts {
            self.waited.retain(|(old, _)| !Arc::ptr_eq(old, &new));
            self.waited.push((new, self.waits));
        }
    }

    /// After the work that came behind the first `before` waits has come to an end. Another thread may have enqueued a
    /// wait since, whose work goes on: only the earlier ones are forgotten.
    fn check(
        &mut self,
        before: WaitCount,
        has_failed: impl Fn(&C) -> Result<Option<Failure>, Failure>,
    ) -> Result<(), Failure> {
        for (context, _) in &self.waited {
            if self.lost.is_none() {
                self.lost = has_failed(context)?;
            }
        }
        self.waited.retain(|(_, wait)| *wait > before.0);
        self.lost.map_or(Ok(()), Err)
    }
}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Failure> {
        /// Not in order with the null stream, which other users of the GPU share.
        const NON_BLOCKING: u32 = 1;
        let _here = context.enter()?;
        let mut stream = Self::of(context, ptr::null_mut())?;
        // SAFETY: the call writes a handle.
        answer("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream.raw, NON_BLOCKING) })?;
        Ok(stream)
    }

    /// A stream of another library, which lives as long as `owner`.
    pub(super) fn adopt(
        context: &Arc<Context>,
        raw: CUstream,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, Failure> {
        let _here = context.enter()?;
        let mut stream = Self::of(context, raw)?;
        stream.owner = Some(owner);
        Ok(stream)
    }

    /// In the calling thread's context.
    fn of(context: &Arc<Context>, raw: CUstream) -> Result<Self, Failure> {
        let (event, foreign) = (Mutex::new(Event(new_event()?)), Mutex::new(Foreign::NONE));
        Ok(Self { context: Arc::clone(context), raw, event, foreign, owner: None })
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    fn foreign(&self) -> MutexGuard<'_, Foreign<Context>> {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all work, in the calling thread's context, which is this stream's.
    pub(super) fn wait(&self) -> Result<(), Failure> {
        // SAFETY: the stream lives.
        answer("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// How many waits that rely on other GPUs were enqueued until now.
    pub(super) fn foreign_waits(&self) -> WaitCount {
        WaitCount(self.foreign().waits)
    }

    /// After this stream's work behind the first `before` waits has come to an end: fails if another GPU's work, which
    /// this stream waited for, has failed.
    pub(super) fn check_foreign(&self, before: WaitCount) -> Result<(), Failure> {
        self.foreign().check(before, has_failed)
    }

    /// Makes all work that is enqueued here from now on wait for the other stream's work so far.
    pub(super) fn wait_for(self: &Arc<Self>, other: &Arc<Stream>) -> Result<(), Failure> {
        if Arc::ptr_eq(self, other) {
            return Ok(());
        }
        // Nothing is made to wait for work that is known to have failed.
        self.context.works()?;
        let event = other.event.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = other.context.enter().and_then(|_here| {
            // SAFETY: event and stream live, and are of the context that was just entered.
            answer("cuEventRecord", unsafe { sys::cuEventRecord(event.0, other.raw) })
        });
        recorded.map_err(|failure| other.context.note(failure))?;
        let (mut relied_on, lost) = {
            let inherited = other.foreign();
            let contexts = inherited.waited.iter().map(|(context, _)| Arc::clone(context));
            (contexts.collect::<Vec<_>>(), inherited.lost)
        };
        if let Some(lost) = lost {
            return Err(lost);
        }
        if !Arc::ptr_eq(&self.context, &other.context) {
            relied_on.push(Arc::clone(&other.context));
        }
        // Held until the wait is enqueued: a thread that counted the waits in between would take this one as enqueued.
        let mut own = self.foreign();
        if !relied_on.is_empty() {
            own.add(relied_on);
        }
        let _here = self.context.enter()?;
        // SAFETY: the stream lives, and the event, which may be of any context.
        answer("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.0, 0) })
    }
}

/// Why a context works no more; an error where that cannot be told.
fn has_failed(context: &Context) -> Result<Option<Failure>, Failure> {
    let asked = context.enter().and_then(|_here| {
        // SAFETY: null is the context's own null stream; the question waits for nothing.
        answer("cuStreamQuery", unsafe { sys::cuStreamQuery(ptr::null_mut()) })
    });
    match asked.map_err(|failure| context.note(failure)) {
        Err(failure) if failure.is_sticky() => Ok(Some(failure)),
        Err(failure) if !failure.is_unfinished() => Err(failure),
        _ => Ok(None),
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let context = &self.context;
        if !context.process.is_current() {
            return;
        }
        let _here = context.enter_at_the_end();
        let event = self.event.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the event was made once; a wait for its record still stands.
        context.given_back(answer("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(event.0) }));
        if self.owner.is_none() && !self.raw.is_null() {
            // SAFETY: the stream was made once; the work there is still done.
            context.given_back(answer("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(self.raw) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_came_after_the_count_is_not_forgotten() {
        let lost = Failure::out_of_memory("a call");
        let (first, second) = (Arc::new(1), Arc::new(2));
        let mut foreign = Foreign::NONE;
        foreign.add(vec![Arc::clone(&first), Arc::clone(&second)]);
        let before = WaitCount(foreign.waits);
        // While another thread synchronises.
        foreign.add(vec![Arc::clone(&second)]);
        assert!(foreign.check(before, |_| Ok(None)).is_ok());
        let left: Vec<_> = foreign.waited.iter().map(|(context, _)| **context).collect();
        assert_eq!(left, [2]);
        // A question that is not answered changes nothing.
        assert_eq!(foreign.check(WaitCount(foreign.waits), |_| Err(lost)), Err(lost));
        assert!(foreign.lost.is_none() && foreign.waited.len() == 1);
        assert_eq!(foreign.check(WaitCount(foreign.waits), |context| Ok((*context == 2).then_some(lost))), Err(lost));
        // The failure stays.
        assert_eq!(foreign.check(WaitCount(foreign.waits), |_| Ok(None)), Err(lost));
    }
}
