//! A stream of the driver, with its one event: an event is captured when another stream is told to wait for it, so it can be
//! recorded again at once. It relies on `context`. What streams of other GPUs it waits for is remembered, because the driver
//! lets it go on when one of those fails.

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
    foreign: Mutex<Foreign>,
}

// SAFETY: handles of the driver belong to no thread; the event is used under its lock.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

struct Event(CUevent);

/// What this stream relies on of other GPUs.
#[derive(Default, Clone)]
struct Foreign {
    /// The contexts of streams that were waited for, by this one or by one that it waited for, and whose work is not known to
    /// have ended well.
    waited: Vec<Arc<Context>>,
    /// Why something that was waited for has not happened.
    lost: Option<Failure>,
}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Failure> {
        /// Not in order with the null stream, which belongs to whoever else uses the GPU.
        const NON_BLOCKING: u32 = 1;
        context.enter()?;
        let event = new_event()?;
        let mut stream = Self {
            context: Arc::clone(context),
            raw: ptr::null_mut(),
            event: Mutex::new(Event(event)),
            foreign: Mutex::default(),
        };
        // SAFETY: it writes a handle.
        answer("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream.raw, NON_BLOCKING) })?;
        Ok(stream)
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    fn foreign(&self) -> MutexGuard<'_, Foreign> {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for all work, in the calling thread's context, which is this stream's.
    pub(super) fn wait(&self) -> Result<(), Failure> {
        // SAFETY: the stream lives.
        answer("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// After this stream's work has come to an end: fails if it was not allowed to, because what it waited for on another GPU
    /// has failed.
    pub(super) fn check_foreign(&self) -> Result<(), Failure> {
        let mut foreign = self.foreign();
        if let Some(lost) = foreign.lost {
            return Err(lost);
        }
        if foreign.waited.is_empty() {
            return Ok(());
        }
        while let Some(other) = foreign.waited.last() {
            match has_failed(other) {
                Ok(None) => drop(foreign.waited.pop()),
                Ok(Some(lost)) => {
                    foreign.lost = Some(lost);
                    return Err(lost);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Makes what is enqueued here from now on wait for what is on the other stream.
    pub(super) fn wait_for(self: &Arc<Self>, other: &Arc<Stream>) -> Result<(), Failure> {
        if Arc::ptr_eq(self, other) {
            return Ok(());
        }
        // Nothing is made to wait for what is known to have failed.
        self.context.enter()?;
        let event = other.event.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = other.context.enter().and_then(|()| {
            // SAFETY: event and stream live, and are of the context that was just entered.
            answer("cuEventRecord", unsafe { sys::cuEventRecord(event.0, other.raw) })
        });
        recorded.map_err(|failure| other.context.note(failure))?;
        // Before the wait is enqueued, so that none is forgotten.
        let mut inherited = other.foreign().clone();
        if let Some(lost) = inherited.lost {
            return Err(lost);
        }
        if !Arc::ptr_eq(&self.context, &other.context) {
            inherited.waited.push(Arc::clone(&other.context));
        }
        if !inherited.waited.is_empty() {
            let mut own = self.foreign();
            inherited.waited.retain(|new| !own.waited.iter().any(|old| Arc::ptr_eq(old, new)));
            own.waited.append(&mut inherited.waited);
        }
        self.context.enter()?;
        // SAFETY: the stream lives, and the event, which may be of any context.
        answer("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.0, 0) })
    }
}

/// Why a context works no more; an error where that cannot be told.
fn has_failed(context: &Context) -> Result<Option<Failure>, Failure> {
    let asked = context.enter().and_then(|()| {
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
        context.given_back(context.enter_to_give_back());
        let event = self.event.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it was made once; what waits for its record still does.
        context.given_back(answer("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(event.0) }));
        if !self.raw.is_null() {
            // SAFETY: it was made once; what it carries is still done.
            context.given_back(answer("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(self.raw) }));
        }
    }
}
