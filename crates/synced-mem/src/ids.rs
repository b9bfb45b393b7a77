//! The identities of devices and queues. Relies on nothing.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device, as long as the process runs: no two devices have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(u64);

/// A queue, as long as the process runs: no two queues have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(u64);

/// Both kinds of identity are drawn from here, so that not even a queue and a device are confused.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl DeviceId {
    /// A new identity. For backends.
    #[expect(clippy::new_without_default, reason = "each one is another value")]
    pub fn new() -> Self {
        // Relaxed: only uniqueness matters.
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

impl QueueId {
    /// A new identity. For backends.
    #[expect(clippy::new_without_default, reason = "each one is another value")]
    pub fn new() -> Self {
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {}", self.0)
    }
}
