//! Which process a lock belongs to. A fork copies the locks, but not the threads that hold them: a child process never
//! waits for a lock from before the fork. No lock is known here; types with a lock ask.

#[cfg(not(all(target_os = "linux", not(miri))))]
mod blind;
#[cfg(feature = "cuda")]
pub(crate) mod first;
#[cfg(all(target_os = "linux", not(miri)))]
mod watched;

use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(not(all(target_os = "linux", not(miri))))]
use blind::watch;
#[cfg(all(target_os = "linux", not(miri)))]
use watched::watch;

use crate::error::Error;

/// The number of forks between the first process and this one, since a lock was first made.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, by which a fork is told from the parents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The calling process. Its children will know that they are others.
    pub(crate) fn current() -> Self {
        watch();
        // Relaxed: the number changes in the only thread of a new process.
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is the calling process.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }

    /// # Errors
    /// [`Error::Forked`] in another process.
    #[inline]
    pub(crate) fn check(self) -> Result<(), Error> {
        if self.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Panics in another process.
    #[inline]
    pub(crate) fn expect_current(self) {
        assert!(self.is_current(), "{}", Error::Forked);
    }
}
