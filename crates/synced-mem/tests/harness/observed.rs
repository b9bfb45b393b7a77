//! Observers: every counted event is told once, after the lock has been released.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use synced_mem::{Event, EventKind, Observer, SharedMem, Stats};

/// Counts the events of a memory, and uses the memory while it is told.
#[derive(Default)]
pub(crate) struct Watch {
    counts: Mutex<HashMap<EventKind, (u64, u64)>>,
    memory: Mutex<Option<SharedMem>>,
}

impl Observer for Watch {
    fn event(&self, event: &Event) {
        let mut counts = self.counts.lock().unwrap();
        let (count, bytes) = counts.entry(event.kind).or_default();
        *count += 1;
        *bytes += event.range.len() as u64;
        drop(counts);
        assert_eq!(event.error.is_some(), matches!(event.kind, EventKind::Leak | EventKind::Failure));
        // It would hang if the lock were held.
        if let Some(memory) = &*self.memory.lock().unwrap() {
            memory.head();
        }
    }
}

impl Watch {
    pub(crate) fn over(memory: &SharedMem) -> Arc<Self> {
        let watch = Arc::new(Self::default());
        *watch.memory.lock().unwrap() = Some(memory.clone());
        memory.set_observer(watch.clone());
        watch
    }

    /// The memory holds its observer: without this, neither would ever end.
    pub(crate) fn let_go(&self) {
        let memory = self.memory.lock().unwrap().take();
        drop(memory);
    }

    pub(crate) fn has_leaks(&self) -> bool {
        self.counts.lock().unwrap().contains_key(&EventKind::Leak)
    }

    /// What was told is what was counted.
    pub(crate) fn check(&self, stats: &Stats) {
        let counts = self.counts.lock().unwrap();
        let told = |kind| counts.get(&kind).copied().unwrap_or_default();
        let moved = [
            (EventKind::Upload, stats.uploads),
            (EventKind::Download, stats.downloads),
            (EventKind::DeviceCopy, stats.device_copies),
            (EventKind::HostCopy, stats.host_copies),
            (EventKind::OriginRead, stats.origin_reads),
            (EventKind::Fill, stats.fills),
            (EventKind::Avoided, stats.avoided),
        ];
        for (kind, traffic) in moved {
            assert_eq!(told(kind), (traffic.count, traffic.bytes), "{kind:?}");
        }
        // A block of a pool has more bytes than the memory.
        assert_eq!(told(EventKind::Failure).0, stats.failures.count);
        let blocks = (told(EventKind::Allocate).0, told(EventKind::Free).0);
        assert_eq!(blocks, (stats.allocations.count, stats.frees.count));
    }
}
