//! The words for an access: which device and queue, reading or writing, at which location, and where the newest bytes
//! are. Relies on nothing, and decides nothing.

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

/// The right of a borrow to a byte range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// The bytes are only read; any number of readers may overlap.
    Read,
    /// The bytes may be written; no other borrow may overlap.
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
        })
    }
}

/// Why a range is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Read,
    Write,
    /// As a write of every byte: no byte is moved or filled.
    Overwrite,
}

impl Intent {
    pub(crate) fn access(self) -> Access {
        match self {
            Intent::Read => Access::Read,
            Intent::Write | Intent::Overwrite => Access::Write,
        }
    }
}

/// Where bytes can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Location {
    /// The host: our own memory there, and adopted bytes.
    Host,
    /// A device.
    Device(DeviceId),
    /// The [`Origin`](crate::Origin) that the memory was made of.
    Origin,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Host => f.write_str("the host"),
            Location::Device(device) => device.fmt(f),
            Location::Origin => f.write_str("the origin"),
        }
    }
}

/// Where the bytes of a memory are valid: Caffe's `SyncedHead`, seen as a view of the valid ranges of every copy.
///
/// A state is given when true of the whole memory; when parts differ, the memory is [`Head::Mixed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Head {
    /// No byte was ever written or read: no copy holds anything.
    Uninitialized,
    /// The origin holds all bytes, and no copy holds any.
    AtOrigin,
    /// The host holds all bytes, and no device holds any.
    AtHost,
    /// One device holds all bytes, and the host holds none.
    AtDevice,
    /// The host and at least one device hold all bytes.
    Synced,
    /// None of these holds for the whole memory.
    Mixed,
}
