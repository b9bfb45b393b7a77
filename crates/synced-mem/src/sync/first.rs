//! Something that only the first process of its kind may use, such as a driver that does not work after a fork.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Process;

/// The process that has first asked.
pub(crate) struct First(AtomicU32);

impl First {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether the calling process is the first that asks, or the same again.
    pub(crate) fn is_current(&self) -> bool {
        let number = Process::current().0 + 1;
        match self.0.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(first) => first == number,
        }
    }
}
