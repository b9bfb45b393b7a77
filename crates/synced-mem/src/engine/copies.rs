//! The copies of one memory as things: host buffers and device blocks, each with the queues that may still use it.
//! It relies on `ordering` for what a new access waits for. It does not know which bytes are valid.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::coherence::ranges::Ranges;
use crate::coherence::uses::{Clock, Uses, Waited};
use crate::engine::broken::Broken;
use crate::engine::step::Stop;
use crate::{Access, Block, DeviceId, Error, HostBuffer, Queue, QueueId};

/// A queue that is compared by its identity.
#[derive(Clone)]
pub(crate) struct Line {
    id: QueueId,
    queue: Arc<dyn Queue>,
}

impl Line {
    pub(crate) fn new(queue: &Arc<dyn Queue>) -> Self {
        Self { id: queue.id(), queue: Arc::clone(queue) }
    }

    pub(crate) fn queue(&self) -> &Arc<dyn Queue> {
        &self.queue
    }

    pub(crate) fn is(&self, queue: &dyn Queue) -> bool {
        self.id == queue.id()
    }

    /// What this queue's failure is told as.
    pub(crate) fn named(&self, error: &Error) -> Error {
        let (device, op, what) = match error {
            Error::Device { device, op, source } => (*device, *op, source.to_string()),
            other => (self.queue.device().id(), "synchronize", other.to_string()),
        };
        match what.starts_with(&self.id.to_string()) {
            true => Error::device(device, op, what),
            false => Error::device(device, op, format!("{}: {what}", self.id)),
        }
    }
}

impl PartialEq for Line {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

/// Bytes on the host, and the transfers that may still read or write them. No kernel ever does.
pub(crate) struct HostCopy {
    pub(crate) buffer: HostBuffer,
    pub(crate) uses: Uses<Line>,
    /// The bytes that a queue has yet to deliver, exactly: each byte with the last queue that writes it. (`uses` may
    /// name too many bytes, which costs waits only.)
    arriving: Vec<Arriving>,
}

/// What a queue has yet to deliver.
struct Arriving {
    line: Line,
    /// When the last of it was entered.
    last: u64,
    ranges: Ranges,
}

impl HostCopy {
    pub(crate) fn new(buffer: HostBuffer) -> Self {
        Self { buffer, uses: Uses::new(), arriving: Vec::new() }
    }

    /// Notes that a queue will write `range`.
    pub(crate) fn arrive(&mut self, line: &Line, range: &Range<usize>, clock: &Clock) {
        self.arriving.retain_mut(|arriving| {
            arriving.ranges.remove(range);
            !arriving.ranges.is_empty()
        });
        let ours = |arriving: &&mut Arriving| arriving.line == *line && !clock.parts(arriving.last);
        let last = clock.now();
        match self.arriving.iter_mut().find(ours) {
            Some(arriving) => {
                arriving.ranges.insert(range.clone());
                arriving.last = last;
            }
            None => self.arriving.push(Arriving { line: line.clone(), last, ranges: Ranges::of(range.clone()) }),
        }
    }

    /// A wait for the queue that began then has ended well: what was to be delivered before is there.
    pub(crate) fn arrived(&mut self, line: &Line, began: u64) {
        self.arriving.retain(|arriving| arriving.line != *line || arriving.last >= began);
    }

    /// What queues of this kind have yet to deliver, which may never come where they have failed.
    pub(crate) fn awaited_from(&self, mut kind: impl FnMut(&Line) -> bool) -> impl Iterator<Item = Range<usize>> {
        let theirs = self.arriving.iter().filter(move |arriving| kind(&arriving.line));
        theirs.flat_map(|arriving| arriving.ranges.iter())
    }

    /// What a queue was to deliver there is not waited for any more.
    pub(crate) fn expect_no_more(&mut self, line: &Line, range: &Range<usize>) {
        self.arriving.retain_mut(|arriving| {
            if arriving.line == *line {
                arriving.ranges.remove(range);
            }
            !arriving.ranges.is_empty()
        });
    }
}

/// Bytes on a device, and the transfers and launches that may still read or write them.
pub(crate) struct DeviceCopy {
    pub(crate) device: DeviceId,
    /// The last queue that used this copy. What nobody gives a queue for runs here.
    pub(crate) home: Line,
    /// None before the first use, after an eviction, and for a memory of length 0.
    pub(crate) memory: Option<DeviceMemory>,
    pub(crate) uses: Uses<Line>,
}

/// A block with what has to outlive it.
pub(crate) struct DeviceMemory {
    pub(crate) block: Arc<dyn Block>,
    /// The queue in whose order the block is freed.
    pub(crate) line: Line,
    /// Of adopted memory: dropped when no queue uses the block any more.
    pub(crate) owner: Option<Box<dyn Any + Send + Sync>>,
}

impl DeviceCopy {
    pub(crate) fn new(home: Line) -> Self {
        Self { device: home.queue.device().id(), home, memory: None, uses: Uses::new() }
    }

    /// Whether there is a direct way from another device's copy to this one.
    pub(crate) fn reaches(&self, other: &Self) -> bool {
        self.home.queue.reaches(other.home.queue.device())
    }
}

/// How far the waiting for queues has come.
#[derive(Default)]
pub(crate) struct Waits {
    pub(crate) clock: Clock,
    /// Of the operation that has the lock.
    pub(crate) waited: Waited<Line>,
    pub(crate) broken: Broken,
}

/// Enters an access of `by`, once it has waited for whoever conflicts with it. A queue that has failed gets no work.
///
/// The entry stands before the work is enqueued: whatever an enqueuing call did before it failed, it is waited for.
pub(crate) fn order(
    uses: &mut Uses<Line>,
    by: &Line,
    range: &Range<usize>,
    access: Access,
    guard: Option<u64>,
    waits: &Waits,
) -> Result<(), Stop> {
    if waits.broken.has(by) {
        Stop::unless_waited(None, vec![by.clone()])?;
    }
    let others = uses.waits(Some(by), range, access, &waits.waited);
    Stop::unless_waited(Some(by), others)?;
    uses.enter(by, range.clone(), access, guard, &waits.clock);
    Ok(())
}
