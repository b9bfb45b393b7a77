//! The context that is current on a thread, for the time of our calls: whichever was current before is so again
//! afterwards, because other libraries of the process rely on theirs. Knows no context of ours.

use std::marker::PhantomData;
use std::ptr;

use cudarc::driver::sys::{self, CUcontext};

use super::failure::{Failure, answer};

/// A context is current on this thread while this lives.
pub(super) struct Here {
    /// The context before, if another.
    before: Option<CUcontext>,
    /// Not for another thread.
    thread: PhantomData<*mut ()>,
}

impl Here {
    /// Makes a context the calling thread's, which is retained for as long as this lives.
    pub(super) fn enter(context: CUcontext) -> Result<Self, Failure> {
        let mut before = ptr::null_mut();
        // SAFETY: the call writes a handle.
        answer("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&mut before) })?;
        if before == context {
            return Ok(Self { before: None, thread: PhantomData });
        }
        // SAFETY: the caller's context is retained.
        answer("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })?;
        Ok(Self { before: Some(before), thread: PhantomData })
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        // SAFETY: the context was current on this thread, or is null; the driver refuses one that has gone since.
        let restored = answer("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(before) });
        if restored.is_err() {
            // SAFETY: null, which is no context, may be made current: no thread is left in a context of ours, which
            // may go. Nothing is left to be done where even that fails.
            let _ = unsafe { sys::cuCtxSetCurrent(ptr::null_mut()) };
        }
    }
}
