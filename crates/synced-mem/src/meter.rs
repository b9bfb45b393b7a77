//! What a device keeps for all memories on it: counters, and the device's own budget. Relies on `ledger` for the
//! budget; no device and no memory is known here.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::access::{DeviceId, Location};
use crate::error::Error;
use crate::ledger::Ledger;
use crate::stats::{EventKind, Stats, Traffic};
use crate::sync::Process;

/// The counters of a device, shared by all memories that use it, and the device's own [`Budget`](crate::Budget::of). A
/// backend keeps one for [`Device::meter`].
///
/// [`Device::meter`]: crate::Device::meter
pub struct Meter {
    counters: [Counter; EventKind::COUNT],
    in_use: AtomicU64,
    peak: AtomicU64,
    /// What the memories with several handles take of the device, without a limit. Made when the first is there.
    ledger: OnceLock<Arc<Ledger>>,
    process: Process,
}

#[derive(Default)]
struct Counter {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Default for Meter {
    fn default() -> Self {
        let (in_use, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { counters: Default::default(), in_use, peak, ledger: OnceLock::new(), process: Process::current() }
    }
}

impl Meter {
    /// The books of the device, whose meter this is.
    ///
    /// # Errors
    /// [`Error::Forked`]: another thread of the parent may have been about to make the books.
    pub(crate) fn ledger(&self, device: DeviceId) -> Result<&Arc<Ledger>, Error> {
        self.process.check()?;
        Ok(self.ledger.get_or_init(|| Arc::new(Ledger::new(Location::Device(device), usize::MAX))))
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

    /// The counts so far, over all memories on the device. Accesses that found all bytes in place are counted by each
    /// memory alone, so that threads which only read share no counter.
    pub fn stats(&self) -> Stats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = self.counters.each_ref();
        let counts = counts.map(|counter| Traffic { count: load(&counter.count), bytes: load(&counter.bytes) });
        Stats::of(load(&self.in_use), load(&self.peak), counts)
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}
