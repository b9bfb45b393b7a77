//! The copies of one memory as things: host buffers and device blocks, each with the queues that may still use it.
//! It relies on `uses` for what a new access waits for. It does not know which bytes are valid.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use crate::coherence::ranges::Ranges;
use crate::coherence::replicas::Slot;
use crate::coherence::uses::{Clock, Uses};
use crate::device::Block;
use crate::engine::queue::QueueHandle;
use crate::error::Error;
use crate::host::buffer::HostBuffer;
use crate::ids::DeviceId;

/// Bytes on the host, and the transfers that may still read or write them. No kernel ever does.
pub(crate) struct HostCopy {
    pub(crate) buffer: HostBuffer,
    pub(crate) uses: Uses<QueueHandle>,
    /// The bytes that a queue has yet to deliver, exactly: each byte with the last queue that writes it. (`uses` may
    /// name too many bytes, which costs waits only.)
    arriving: Vec<Arriving>,
}

/// What a queue has yet to deliver.
struct Arriving {
    queue: QueueHandle,
    /// When the last of it was entered.
    last: u64,
    ranges: Ranges,
}

impl HostCopy {
    pub(crate) fn new(buffer: HostBuffer) -> Self {
        Self { buffer, uses: Uses::new(), arriving: Vec::new() }
    }

    /// Notes that a queue will write `range`.
    pub(crate) fn arrive(&mut self, queue: &QueueHandle, range: &Range<usize>, clock: &Clock) {
        self.arriving.retain_mut(|arriving| {
            arriving.ranges.remove(range);
            !arriving.ranges.is_empty()
        });
        let ours = |arriving: &&mut Arriving| arriving.queue == *queue && !clock.parts(arriving.last);
        let last = clock.now();
        match self.arriving.iter_mut().find(ours) {
            Some(arriving) => {
                arriving.ranges.insert(range.clone());
                arriving.last = last;
            }
            None => self.arriving.push(Arriving { queue: queue.clone(), last, ranges: Ranges::of(range.clone()) }),
        }
    }

    /// A wait for the queue that began then has ended well: what was to be delivered before is there.
    pub(crate) fn arrived(&mut self, queue: &QueueHandle, began: u64) {
        self.arriving.retain(|arriving| arriving.queue != *queue || arriving.last >= began);
    }

    /// What queues of this kind have yet to deliver, which may never come where they have failed.
    pub(crate) fn awaited_from(
        &self,
        mut kind: impl FnMut(&QueueHandle) -> bool,
    ) -> impl Iterator<Item = Range<usize>> {
        let theirs = self.arriving.iter().filter(move |arriving| kind(&arriving.queue));
        theirs.flat_map(|arriving| arriving.ranges.iter())
    }

    /// What a queue was to deliver there is not waited for any more.
    pub(crate) fn expect_no_more(&mut self, queue: &QueueHandle, range: &Range<usize>) {
        self.arriving.retain_mut(|arriving| {
            if arriving.queue == *queue {
                arriving.ranges.remove(range);
            }
            !arriving.ranges.is_empty()
        });
    }
}

/// Bytes on a device, and the transfers and launches that may still read or write them.
pub(crate) struct DeviceCopy {
    pub(crate) device: DeviceId,
    /// The last queue that used this copy. Work that names no queue runs here.
    pub(crate) home: QueueHandle,
    /// None before the first use, and after an eviction.
    pub(crate) memory: Option<DeviceMemory>,
    pub(crate) uses: Uses<QueueHandle>,
}

/// A block with what has to outlive it.
pub(crate) struct DeviceMemory {
    pub(crate) block: Arc<dyn Block>,
    /// The queue in whose order the block is freed.
    pub(crate) queue: QueueHandle,
    /// Of adopted memory: dropped when no queue uses the block any more.
    pub(crate) owner: Option<Box<dyn Any + Send + Sync>>,
}

impl DeviceCopy {
    pub(crate) fn new(home: QueueHandle) -> Self {
        Self { device: home.device().id(), home, memory: None, uses: Uses::new() }
    }

    /// Whether there is a direct way from another device's copy to this one.
    pub(crate) fn reaches(&self, other: &Self) -> bool {
        self.home.reaches(other.home.device())
    }
}

/// A transfer between a device and a lent slice, which no queue may see: it goes through a buffer of our own.
pub(crate) struct Staged {
    /// The copy that gets the bytes.
    pub(crate) to: Slot,
    pub(crate) range: Range<usize>,
    /// As long as `range`.
    pub(crate) copy: HostCopy,
}

impl Staged {
    pub(crate) fn overlaps(&self, range: &Range<usize>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }
}

/// A device's block that nothing valid lies in, with the queues that may still use it.
pub(crate) struct FreedBlock {
    pub(crate) slot: Slot,
    pub(crate) memory: DeviceMemory,
    pub(crate) users: Vec<QueueHandle>,
}

impl FreedBlock {
    /// Makes sure that the block may be given back in the order of the queue that allocated it: after all other queues
    /// that use it. It waits, so the memory's lock is not held, but at the end of the memory.
    pub(crate) fn finish_uses(&self) -> Result<(), Error> {
        let queue = &self.memory.queue;
        let is_owned = self.memory.owner.is_some();
        for user in &self.users {
            // An owner may free at once, whatever the queue has still to do.
            if is_owned || (user != queue && queue.wait_for(user).is_err()) {
                user.synchronize()?;
            }
        }
        Ok(())
    }
}
