//! The end of an upload whose bytes a function gives, when the function fails or panics. Knows no driver.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Error;
use crate::origin::OriginError;

/// The first error or panic of the function, which ends the upload on all threads.
#[derive(Default)]
pub(super) struct Stopped(Mutex<Option<Reason>>);

enum Reason {
    Error(Error),
    Panic(Box<dyn Any + Send>),
}

impl Stopped {
    fn first(&self) -> MutexGuard<'_, Option<Reason>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the function has given the bytes from `at` on, and no thread was stopped before. A panic is kept: it
    /// must not pass through the ring, which would be lost.
    pub(super) fn gives(
        &self,
        at: usize,
        out: &mut [u8],
        fill: impl Fn(usize, &mut [u8]) -> Result<(), OriginError>,
    ) -> bool {
        if self.first().is_some() {
            return false;
        }
        let range = at..at + out.len();
        let reason = match catch_unwind(AssertUnwindSafe(|| fill(at, out))) {
            Ok(Ok(())) => return true,
            Ok(Err(source)) => Reason::Error(Error::Origin { range, source }),
            Err(panic) => Reason::Panic(panic),
        };
        self.first().get_or_insert(reason);
        false
    }

    /// The outcome of the upload. Goes on with a panic.
    pub(super) fn ended(self, uploaded: Result<(), Error>) -> Result<(), Error> {
        match self.0.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => uploaded,
            Some(Reason::Error(error)) => Err(error),
            Some(Reason::Panic(panic)) => resume_unwind(panic),
        }
    }
}
