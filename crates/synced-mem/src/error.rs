//! Everything that can go wrong with memory, as one enum. An error carries the numbers that a message needs; no element
//! type, no file.

use std::fmt;
use std::ops::Range;

use crate::access::{Access, DeviceId, Location, QueueId};
use crate::origin::OriginError;

/// A failed memory operation. Every written byte is valid in some copy and has its old value, with two exceptions.
///
/// * Where [`SharedMem::copy_from`](crate::SharedMem::copy_from) fails on a device, each byte that was to be
///   overwritten has its old value if another copy holds the byte, and its old or its new value if that device alone
///   does.
/// * Where a queue has lost work, bytes that the work was to write, and that no other copy holds, cannot be read until
///   they are written anew: each access to them fails with the queue's error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The allocator had no block of this size, or no block can be this large.
    #[non_exhaustive]
    OutOfMemory {
        /// The length asked for, in bytes.
        bytes: usize,
    },
    /// A device had no block of this size.
    DeviceOutOfMemory {
        /// The device asked.
        device: DeviceId,
        /// The length asked for, in bytes.
        bytes: usize,
    },
    /// A device refused or failed an operation.
    #[non_exhaustive]
    Device {
        /// The device.
        device: DeviceId,
        /// The operation that failed, as [`Queue`](crate::Queue) names it.
        op: &'static str,
        /// The error of the backend.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The origin of a memory did not give these bytes, which stay at the origin.
    #[non_exhaustive]
    Origin {
        /// The bytes that were to be read.
        range: Range<usize>,
        /// The reason.
        source: OriginError,
    },
    /// A budget has no room for a memory, and the others have none to give.
    #[non_exhaustive]
    OverBudget {
        /// The place that the budget is for.
        location: Location,
        /// The length of the memory, in bytes.
        bytes: usize,
        /// How many bytes the memories of the budget may take together.
        limit: usize,
        /// How many bytes are in use, by memories that are borrowed or have no other place for the bytes.
        in_use: usize,
    },
    /// A device had no block of this size, and the other memories there gave none up.
    #[non_exhaustive]
    Exhausted {
        /// The device asked.
        device: DeviceId,
        /// The length asked for, in bytes.
        bytes: usize,
        /// How many bytes the memories with several handles ([`SharedMem`](crate::SharedMem)) take there.
        in_use: usize,
        /// How many of these memories are borrowed there, or have bytes on the way.
        borrowed: usize,
        /// How many hold bytes there that are nowhere else.
        dirty: usize,
    },
    /// There is no such device: no driver, or too few devices.
    #[non_exhaustive]
    Absent {
        /// The error of the backend.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The memory, pool, budget or device is from before a fork: threads of the parent may have been using it. Reads
    /// that take no lock go on; make new memories for the rest.
    Forked,
    /// A wait was refused because a kernel called it, such as one of [`loopback`](crate::loopback): the queue might
    /// never come to an end before the kernel does. No work was lost; the queue has not failed.
    CalledFromKernel {
        /// The queue that was called.
        queue: QueueId,
        /// The operation that was refused, as [`Queue`](crate::Queue) names it.
        op: &'static str,
    },
    /// A kernel's argument was borrowed for another queue than that of the launch.
    WrongQueue {
        /// The queue of the launch.
        wanted: QueueId,
        /// The queue that the argument was borrowed for.
        got: QueueId,
    },
    /// A copy cannot be evicted: no other copy holds these bytes, which may not be moved, or have nowhere to go.
    #[non_exhaustive]
    OnlyCopy {
        /// The first range of bytes that nothing else holds.
        range: Range<usize>,
    },
    /// Memory to adopt has another length than the memory that adopts it.
    #[non_exhaustive]
    WrongLength {
        /// The length of the memory, in bytes.
        wanted: usize,
        /// The length of the memory that was to be adopted.
        got: usize,
    },
    /// A range does not lie within the memory, or ends before the start.
    #[non_exhaustive]
    OutOfBounds {
        /// The byte range asked for.
        range: Range<usize>,
        /// The length of the memory, in bytes.
        len: usize,
    },
    /// Two borrows overlap and at least one writes.
    #[non_exhaustive]
    Conflict {
        /// The access that was asked for.
        wanted: Access,
        /// The byte range asked for.
        wanted_range: Range<usize>,
        /// The access of the borrow in the way.
        held: Access,
        /// The byte range of the borrow in the way.
        held_range: Range<usize>,
    },
}

impl Error {
    /// A failed operation of a device. For backends.
    pub fn device(
        device: DeviceId,
        op: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let source = source.into();
        Error::Device { device, op, source }
    }

    /// Whether there may be room for a memory when others are no longer borrowed.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Error::OverBudget { bytes, limit, .. } => bytes <= limit,
            Error::Exhausted { borrowed, .. } => *borrowed > 0,
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::OutOfMemory { bytes } => {
                write!(f, "out of memory: no host block of {bytes} bytes")
            }
            Error::DeviceOutOfMemory { device, bytes } => {
                write!(f, "out of memory: {device} has no block of {bytes} bytes")
            }
            Error::Device { device, op, source } => write!(f, "{device}: {op} failed: {source}"),
            Error::Origin { range, source } => {
                write!(f, "cannot read bytes {}..{} from their origin: {source}", range.start, range.end)
            }
            Error::OverBudget { location, bytes, limit, in_use } => write!(
                f,
                "no room for {bytes} bytes at {location}: the budget has {limit}, of which {in_use} are in use"
            ),
            Error::Exhausted { device, bytes, in_use, borrowed, dirty } => write!(
                f,
                "out of memory: {device} has no block of {bytes} bytes; shared memories take {in_use} bytes there, \
                 {borrowed} of them are borrowed, and {dirty} hold bytes that are nowhere else"
            ),
            Error::Absent { source } => write!(f, "{source}"),
            Error::Forked => f.write_str("not usable in a forked process: make new memories and open devices there"),
            Error::CalledFromKernel { queue, op } => write!(f, "{queue}: {op} refused: called from a kernel"),
            Error::WrongQueue { wanted, got } => {
                write!(f, "an argument was borrowed for {got} and launched on {wanted}")
            }
            Error::OnlyCopy { range } => {
                write!(f, "cannot evict bytes {}..{}: no other copy holds them", range.start, range.end)
            }
            Error::WrongLength { wanted, got } => {
                write!(f, "cannot adopt {got} bytes for a memory of {wanted} bytes")
            }
            Error::OutOfBounds { range, len } => {
                write!(f, "byte range {}..{} does not lie within a memory of {len} bytes", range.start, range.end)
            }
            Error::Conflict { wanted, wanted_range, held, held_range } => write!(
                f,
                "cannot {wanted} bytes {}..{}: bytes {}..{} are borrowed to {held}",
                wanted_range.start, wanted_range.end, held_range.start, held_range.end
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Device { source, .. } => Some(source.as_ref()),
            // Its message is our own.
            Error::Absent { source } => source.source(),
            Error::Origin { source, .. } => source.source(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_numbers() {
        let conflict =
            Error::Conflict { wanted: Access::Write, wanted_range: 4..12, held: Access::Read, held_range: 0..8 };
        assert_eq!(conflict.to_string(), "cannot write bytes 4..12: bytes 0..8 are borrowed to read");
        let bounds = Error::OutOfBounds { range: 3..9, len: 8 };
        assert_eq!(bounds.to_string(), "byte range 3..9 does not lie within a memory of 8 bytes");
        let memory = Error::OutOfMemory { bytes: 77 };
        assert_eq!(memory.to_string(), "out of memory: no host block of 77 bytes");
    }
}
