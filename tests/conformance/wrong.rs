//! Backends that each break one promise of `Queue`, based on a loopback that runs work as late as possible. They rely
//! on the suite to keep blocks and host bytes alive when it fails, so that accesses that come too late harm nothing.

mod block;
mod queue;

use std::sync::{Arc, Mutex};

use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, DeviceId, Error, HostBlock, Meter, Queue, QueueId, SyncedMem};

use queue::WrongQueue;

/// The broken promise, and the manner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    None,
    /// Every other queue has the id of the first.
    ReusedId,
    /// A queue claims to belong to another device.
    OtherDevice,
    /// Two devices have the same id.
    SameDeviceId,
    /// Every other operation is enqueued on another queue.
    OutOfOrder,
    /// Only the thread that made a queue can use it.
    ThreadBound,
    NoWait,
    /// A queue waits for another queue only the first time.
    FirstWaitOnly,
    NoWaitForOther,
    /// A queue does not wait for one that itself only waits.
    NoWaitForIdle,
    NoSynchronize,
    /// A wait takes effect with the next operation.
    LazyWait,
    ShortUpload,
    ShiftedUpload,
    ShiftedDownload,
    /// A function that gives bytes is told their place among the bytes, not in the block.
    ShiftedFrom,
    ShortFrom,
    /// An error of a function that gives bytes is not passed on.
    DeafFrom,
    ShortCopy,
    LongCopy,
    NoFill,
    LongFill,
    /// A queue claims to reach another device, but its copies do nothing.
    FalseWay,
    /// A queue does not reach its own device.
    NoWayHome,
    /// Every other query whether another device is reachable returns no.
    FickleWays,
    /// An upload reads the host bytes with the next operation, even after a synchronisation.
    LateUpload,
    /// The next synchronisation repeats a download.
    SecondDownload,
    ScribblingUpload,
    /// An upload claims to be done with the host bytes, but reads them later.
    EarlyDone,
    /// A download claims to be done with the host bytes, but writes them later.
    EarlyArrival,
    /// Host bytes that are read where they lie are copied when the block is made.
    StaleView,
    /// A device claims to share the host's memory, and cannot read it.
    NoView,
    /// A block's last byte is the first of the next.
    OverlappingBlocks,
    /// An allocation returns the block of 16 allocations before, under a new address.
    SharedBlocks,
    /// A block is freed at once, not in order.
    EarlyFree,
    /// Dropping an adopted block spoils the memory.
    AdoptionFrees,
    /// After a failed allocation the next copy is lost.
    DamagingError,
    PanickingError,
    /// Errors name another device.
    ForeignError,
    /// A copy uses a memory on the same queue.
    UsesMemory,
    /// A block of host bytes is made with the help of a memory of the device.
    HostBlockUsesMemory,
}

#[derive(Debug)]
pub(crate) struct WrongDevice {
    lie: Lie,
    id: DeviceId,
    inner: Arc<Loopback>,
    /// Another device of the same machine.
    other: Arc<Loopback>,
    first_queue: Mutex<Option<QueueId>>,
}

/// The device that a queue returns.
#[derive(Debug)]
struct WrongFront(DeviceId, Arc<Loopback>);

impl WrongFront {
    pub(crate) fn inner(&self) -> &Loopback {
        &self.1
    }
}

impl WrongDevice {
    pub(crate) fn inner(&self) -> &Loopback {
        &self.inner
    }

    pub(crate) fn new(lie: Lie) -> Arc<Self> {
        Self::of(lie, Loopback::new(Mode::Deferred), None)
    }

    pub(crate) fn sibling(&self) -> Arc<Self> {
        let id = (self.lie == Lie::SameDeviceId).then_some(self.id);
        Self::of(self.lie, self.inner.sibling(), id)
    }

    fn of(lie: Lie, inner: Arc<Loopback>, id: Option<DeviceId>) -> Arc<Self> {
        if lie == Lie::None {
            inner.share_host();
        }
        Arc::new(Self {
            lie,
            id: id.unwrap_or(inner.id()),
            other: inner.sibling(),
            inner,
            first_queue: Mutex::new(None),
        })
    }
}

// SAFETY: none is claimed. Only the suite uses it, which keeps alive everything that a lie may access.
unsafe impl Device for WrongDevice {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn name(&self) -> String {
        format!("{:?}", self.lie)
    }

    fn queue(&self) -> Result<Arc<dyn Queue>, Error> {
        let queue = self.inner.queue()?;
        let mut first = self.first_queue.lock().unwrap();
        let id = match (*first, self.lie) {
            (Some(id), Lie::ReusedId) => id,
            _ => queue.id(),
        };
        *first = Some(id);
        let front = match self.lie {
            Lie::OtherDevice => WrongFront(self.other.id(), Arc::clone(&self.other)),
            _ => WrongFront(self.id, Arc::clone(&self.inner)),
        };
        let lanes = [queue, self.inner.queue()?, self.inner.queue()?];
        let device = Arc::clone(&self.inner);
        Ok(Arc::new(WrongQueue::new(self.lie, id, device, front, lanes)))
    }

    fn meter(&self) -> &Meter {
        self.inner.meter()
    }

    fn shares_host(&self) -> bool {
        matches!(self.lie, Lie::None | Lie::StaleView | Lie::NoView)
    }

    fn host_block(&self, len: usize) -> Result<Option<Box<dyn HostBlock>>, Error> {
        if self.lie == Lie::HostBlockUsesMemory {
            SyncedMem::new(len).device(&self.inner.queue()?, ..)?;
        }
        Ok(None)
    }
}

// SAFETY: none is claimed, as for `WrongDevice`.
unsafe impl Device for WrongFront {
    fn id(&self) -> DeviceId {
        self.0
    }

    fn name(&self) -> String {
        self.1.name()
    }

    fn queue(&self) -> Result<Arc<dyn Queue>, Error> {
        self.1.queue()
    }

    fn meter(&self) -> &Meter {
        self.1.meter()
    }
}
