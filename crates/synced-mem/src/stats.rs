//! What memory costs: counters per memory and per device, and events for an observer.
//! It relies on nothing and decides nothing; events are delivered by others, after their locks are released.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::ids::DeviceId;

/// How often something was done, and with how many bytes in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    count: u64,
    bytes: u64,
}

/// What has happened to a memory, or on a device, so far.
///
/// Accesses of no bytes are not counted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    traffic: [Traffic; COUNTED],
    in_use: u64,
    peak: u64,
}

/// How many kinds of events have counters: all.
const COUNTED: usize = EventKind::Failure as usize + 1;

impl Traffic {
    /// How often.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Stats {
    /// Copies from the host to a device.
    pub fn uploads(&self) -> Traffic {
        self.of(EventKind::Upload)
    }

    /// Copies from a device to the host.
    pub fn downloads(&self) -> Traffic {
        self.of(EventKind::Download)
    }

    /// Copies between devices that did not pass through the host.
    pub fn device_copies(&self) -> Traffic {
        self.of(EventKind::DeviceCopy)
    }

    /// Copies from adopted read-only bytes to host memory of our own.
    pub fn host_copies(&self) -> Traffic {
        self.of(EventKind::HostCopy)
    }

    /// Bytes that were never written, set to zero where they were read. Fresh host memory is zero already, and the fill
    /// costs nothing; it is counted all the same.
    pub fn fills(&self) -> Traffic {
        self.of(EventKind::Fill)
    }

    /// Blocks allocated.
    pub fn allocations(&self) -> Traffic {
        self.of(EventKind::Allocate)
    }

    /// Blocks given back.
    pub fn frees(&self) -> Traffic {
        self.of(EventKind::Free)
    }

    /// Accesses that found all their bytes in place, and the transfers that this saved. Reads that
    /// took no lock are not counted.
    pub fn avoided(&self) -> Traffic {
        self.of(EventKind::Avoided)
    }

    /// Copies of the memory that were leaked, because a queue that failed may still use them. They stay allocated.
    pub fn leaks(&self) -> Traffic {
        self.of(EventKind::Leak)
    }

    /// Failures of what no access asked for: merging ranges, waiting for the queues of memory that is given back. Nothing is
    /// lost by them, and an observer is told the error of each.
    pub fn failures(&self) -> u64 {
        self.of(EventKind::Failure).count
    }

    /// Bytes allocated now.
    pub fn in_use(&self) -> u64 {
        self.in_use
    }

    /// The most bytes that were allocated at once.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    fn of(&self, kind: EventKind) -> Traffic {
        self.traffic[kind as usize]
    }

    /// Counts one event.
    pub(crate) fn count(&mut self, kind: EventKind, bytes: usize) {
        let bytes = bytes as u64;
        match kind {
            EventKind::Allocate => {
                self.in_use += bytes;
                self.peak = self.peak.max(self.in_use);
            }
            EventKind::Free => self.in_use = self.in_use.saturating_sub(bytes),
            _ => {}
        }
        if let Some(traffic) = self.traffic.get_mut(kind as usize) {
            traffic.count += 1;
            traffic.bytes += bytes;
        }
    }
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stats")
            .field("uploads", &self.uploads())
            .field("downloads", &self.downloads())
            .field("device_copies", &self.device_copies())
            .field("host_copies", &self.host_copies())
            .field("fills", &self.fills())
            .field("allocations", &self.allocations())
            .field("frees", &self.frees())
            .field("avoided", &self.avoided())
            .field("leaks", &self.leaks())
            .field("failures", &self.failures())
            .field("in_use", &self.in_use)
            .field("peak", &self.peak)
            .finish()
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
    /// Bytes that were never written were set to zero.
    Fill,
    /// A block was allocated.
    Allocate,
    /// A block was given back.
    Free,
    /// An access found its bytes in place.
    Avoided,
    /// A block and its owner were leaked, because it is unknown whether a device still uses them.
    Leak,
    /// Something that no access asked for failed, without loss. [`Event::error`] tells what.
    Failure,
}

/// Something that happened to a memory.
#[derive(Debug)]
pub struct Event {
    kind: EventKind,
    range: Range<usize>,
    device: Option<DeviceId>,
    error: Option<Error>,
}

impl Event {
    pub(crate) fn new(kind: EventKind, range: Range<usize>, device: Option<DeviceId>, error: Option<Error>) -> Self {
        Self { kind, range, device, error }
    }

    /// What happened.
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// The bytes of the memory that it happened to.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The device concerned; `None` is the host alone.
    pub fn device(&self) -> Option<DeviceId> {
        self.device
    }

    /// Why something was leaked, or failed.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }
}

/// Watches a memory. Called after the memory's lock has been released, so it may use the memory.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> Observer for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

/// The counters of a device, shared by all memories that use it. A backend keeps one for [`Device::meter`].
///
/// [`Device::meter`]: crate::Device::meter
#[derive(Default)]
pub struct Meter {
    counters: [Counter; COUNTED],
    in_use: AtomicU64,
    peak: AtomicU64,
}

#[derive(Default)]
struct Counter {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Meter {
    /// Counters at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one event. Relaxed: the counters order nothing, and each is right by itself.
    pub(crate) fn count(&self, kind: EventKind, bytes: usize) {
        let bytes = bytes as u64;
        match kind {
            EventKind::Allocate => {
                let in_use = self.in_use.fetch_add(bytes, Ordering::Relaxed) + bytes;
                self.peak.fetch_max(in_use, Ordering::Relaxed);
            }
            EventKind::Free => {
                self.in_use.fetch_sub(bytes, Ordering::Relaxed);
            }
            _ => {}
        }
        if let Some(counter) = self.counters.get(kind as usize) {
            counter.count.fetch_add(1, Ordering::Relaxed);
            counter.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// What has been counted so far, over all memories on the device. Accesses that found their bytes in place are counted
    /// by each memory alone, so that threads which only read share no counter.
    pub fn stats(&self) -> Stats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let traffic = |counter: &Counter| Traffic { count: load(&counter.count), bytes: load(&counter.bytes) };
        Stats { traffic: self.counters.each_ref().map(traffic), in_use: load(&self.in_use), peak: load(&self.peak) }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}
