//! The cost of memory: counters per memory, and events for an observer. Relies on nothing and decides nothing; events
//! are delivered by others, after all locks are released.

use std::ops::Range;

use crate::access::DeviceId;
use crate::error::Error;

/// How often something was done, and with how many bytes in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// How often.
    pub count: u64,
    /// How many bytes in all.
    pub bytes: u64,
}

/// The events of a memory, or on a device, so far, in numbers.
///
/// Accesses of no bytes are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Copies from the host to a device.
    pub uploads: Traffic,
    /// Copies from a device to the host.
    pub downloads: Traffic,
    /// Copies between devices that did not pass through the host.
    pub device_copies: Traffic,
    /// Copies from adopted read-only bytes to host memory of our own.
    pub host_copies: Traffic,
    /// Reads of the memory's origin.
    pub origin_reads: Traffic,
    /// Bytes that were never written, set to zero where they were read. Fresh host memory is zero already, and the fill
    /// is free; each is counted all the same.
    pub fills: Traffic,
    /// Blocks allocated.
    pub allocations: Traffic,
    /// Blocks given back.
    pub frees: Traffic,
    /// Accesses that found all bytes in place, and the transfers that were saved. Reads that took no lock are not
    /// counted.
    pub avoided: Traffic,
    /// Copies of the memory that were leaked, because a queue that failed may still use the memory. Leaked memory stays
    /// allocated.
    pub leaks: Traffic,
    /// Failures of steps that no access asked for: merging ranges, waiting for the queues of memory that is given back.
    /// No byte is lost, and an observer is told the error of each.
    pub failures: Traffic,
    /// Bytes allocated now.
    pub in_use: u64,
    /// The most bytes that were allocated at once.
    pub peak: u64,
}

impl Stats {
    /// `counts` are those of each kind, in the order of the kinds.
    pub(crate) fn of(in_use: u64, peak: u64, counts: [Traffic; EventKind::COUNT]) -> Self {
        let [uploads, downloads, device_copies, host_copies, origin_reads, fills, allocations, frees, rest @ ..] =
            counts;
        let [avoided, leaks, failures] = rest;
        Self {
            uploads,
            downloads,
            device_copies,
            host_copies,
            origin_reads,
            fills,
            allocations,
            frees,
            avoided,
            leaks,
            failures,
            in_use,
            peak,
        }
    }
}

/// The kinds of things that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A copy from the host to a device was enqueued.
    Upload,
    /// A copy from a device to the host was enqueued.
    Download,
    /// A copy between blocks of devices was enqueued.
    DeviceCopy,
    /// Adopted bytes were copied to memory of our own.
    HostCopy,
    /// Bytes were read from the memory's origin.
    OriginRead,
    /// Bytes that were never written were set to zero.
    Fill,
    /// A block was allocated.
    Allocate,
    /// A block was given back.
    Free,
    /// An access found all bytes in place.
    Avoided,
    /// A block and its owner were leaked, because it is unknown whether a device still uses them.
    Leak,
    /// A step that no access asked for failed, without loss. [`Event::error`] has the error.
    Failure,
}

impl EventKind {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = Self::Failure as usize + 1;
}

/// Something that happened to a memory.
#[derive(Debug)]
#[non_exhaustive]
pub struct Event {
    /// The kind of event.
    pub kind: EventKind,
    /// The bytes of the event.
    pub range: Range<usize>,
    /// The device concerned; `None` is the host alone.
    pub device: Option<DeviceId>,
    /// Why something was leaked, or failed.
    pub error: Option<Error>,
}

/// Watches a memory. Called after the memory's lock has been released, so an observer may use the memory.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> Observer for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_counts() {
        let stats = Stats::of(20, 21, std::array::from_fn(|kind| Traffic { count: kind as u64, bytes: 0 }));
        for (traffic, kind) in [
            (stats.uploads, EventKind::Upload),
            (stats.downloads, EventKind::Download),
            (stats.device_copies, EventKind::DeviceCopy),
            (stats.host_copies, EventKind::HostCopy),
            (stats.origin_reads, EventKind::OriginRead),
            (stats.fills, EventKind::Fill),
            (stats.allocations, EventKind::Allocate),
            (stats.frees, EventKind::Free),
            (stats.avoided, EventKind::Avoided),
            (stats.leaks, EventKind::Leak),
            (stats.failures, EventKind::Failure),
        ] {
            assert_eq!(traffic.count, kind as u64, "{kind:?}");
        }
        assert_eq!((stats.in_use, stats.peak), (20, 21));
    }
}
