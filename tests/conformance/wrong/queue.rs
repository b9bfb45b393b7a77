//! The queues of the wrong backends, which contain most of the lies. They rely on a loopback's queues for everything
//! that is no lie.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use synced_mem::loopback::Loopback;
use synced_mem::{Block, Device, DeviceId, Error, Host, OriginError, Queue, QueueId, SyncedMem};

use super::block::{WrongBlock, inner, unwrapped};
use super::{Lie, WrongDevice, WrongFront};

#[derive(Debug)]
pub(super) struct WrongQueue {
    lie: Lie,
    id: QueueId,
    device: Arc<Loopback>,
    front: WrongFront,
    lanes: [Arc<dyn Queue>; 2],
    side: Arc<dyn Queue>,
    turn: AtomicUsize,
    thread: ThreadId,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waits: Vec<Arc<dyn Queue>>,
    waited: Vec<QueueId>,
    late: Vec<Transfer>,
    downloads: Vec<Transfer>,
    again: Vec<Transfer>,
    /// The block that overlapping blocks are parts of, and how much of it is used.
    arena: Option<(Arc<dyn Block>, usize)>,
    blocks: Vec<Arc<dyn Block>>,
    damaged: bool,
}

#[derive(Debug, Clone)]
struct Transfer {
    block: Arc<dyn Block>,
    at: usize,
    host: NonNull<u8>,
    len: usize,
}

// SAFETY: a pointer to plain bytes, which the suite keeps alive for every thread.
unsafe impl Send for Transfer {}

static FAKE_ADDRESS: AtomicU64 = AtomicU64::new(1 << 60);

impl WrongQueue {
    /// Of the three queues the first two carry the work.
    pub(super) fn new(
        lie: Lie,
        id: QueueId,
        device: Arc<Loopback>,
        front: WrongFront,
        [first, second, side]: [Arc<dyn Queue>; 3],
    ) -> Self {
        Self {
            lie,
            id,
            device,
            front,
            lanes: [first, second],
            side,
            turn: AtomicUsize::new(0),
            thread: thread::current().id(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The queue that the next operation goes by, after the operations put off until now.
    fn lane(&self) -> Result<&dyn Queue, Error> {
        if self.lie == Lie::ThreadBound && thread::current().id() != self.thread {
            return Err(Error::device(self.device.id(), "bind", "another thread's"));
        }
        self.catch_up()?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let second = self.lie == Lie::OutOfOrder && turn % 2 == 1;
        Ok(&*self.lanes[usize::from(second)])
    }

    fn catch_up(&self) -> Result<(), Error> {
        let state = &mut *self.state();
        for wait in state.waits.drain(..) {
            self.lanes[0].wait_for(&*wait)?;
        }
        for late in state.late.drain(..) {
            let Transfer { block, at, host, len } = &late;
            // SAFETY: the suite's own arguments, late; it keeps the bytes alive.
            unsafe { self.lanes[0].upload(&**block, *at, *host, *len) }?;
        }
        Ok(())
    }

    fn block(&self, inner: Arc<dyn Block>, address: u64, len: usize) -> Box<dyn Block> {
        Box::new(WrongBlock {
            inner: Some(inner),
            device: self.device.id(),
            address,
            len,
            side: (self.lie == Lie::EarlyFree).then(|| Arc::clone(&self.side)),
            spoil: false,
        })
    }

    fn cut(&self, len: usize) -> Result<Box<dyn Block>, Error> {
        let mut state = self.state();
        if state.arena.is_none() {
            state.arena = Some((Arc::from(self.lanes[0].alloc(64 << 20)?), 0));
        }
        let (arena, used) = state.arena.as_mut().unwrap();
        let address = arena.address() + *used as u64;
        *used += len - 1;
        // SAFETY: the memory is the arena's, which lives as long as the queue; that blocks share it is the lie.
        let inner = unsafe { self.lanes[0].adopt(address, len) }?;
        Ok(self.block(Arc::from(inner), address, len))
    }

    fn recycle(&self, len: usize) -> Result<Box<dyn Block>, Error> {
        let mut state = self.state();
        let old = state.blocks.len().checked_sub(16).map(|at| &state.blocks[at]);
        let inner = match old.filter(|old| old.len() >= len) {
            Some(old) => Arc::clone(old),
            None => Arc::from(self.lanes[0].alloc(len)?),
        };
        state.blocks.push(Arc::clone(&inner));
        let address = FAKE_ADDRESS.fetch_add(len as u64, Ordering::Relaxed);
        Ok(self.block(inner, address, len))
    }

    fn fail_alloc(&self, len: usize) -> Result<Box<dyn Block>, Error> {
        assert!(self.lie != Lie::PanickingError, "cannot allocate {len} bytes");
        self.state().damaged = true;
        let device = match self.lie {
            Lie::ForeignError => DeviceId::new(),
            _ => self.device.id(),
        };
        Err(Error::DeviceOutOfMemory { device, bytes: len })
    }
}

// SAFETY: none is claimed, as for `WrongDevice`. The arguments of each unsafe call are the suite's own, or shifted
// within the same block.
unsafe impl Queue for WrongQueue {
    fn id(&self) -> QueueId {
        self.id
    }

    fn device(&self) -> &dyn Device {
        &self.front
    }

    fn alloc(&self, len: usize) -> Result<Box<dyn Block>, Error> {
        if len > isize::MAX as usize / 2 {
            return self.fail_alloc(len);
        }
        match self.lie {
            Lie::OverlappingBlocks => self.cut(len),
            Lie::SharedBlocks => self.recycle(len),
            _ => {
                let from = if self.lie == Lie::EarlyFree { &self.side } else { &self.lanes[0] };
                let inner: Arc<dyn Block> = Arc::from(from.alloc(len)?);
                let address = inner.address();
                Ok(self.block(inner, address, len))
            }
        }
    }

    unsafe fn adopt(&self, address: u64, len: usize) -> Result<Box<dyn Block>, Error> {
        // SAFETY: the caller promises these bytes; those that a lie adds harm nothing, as the suite keeps all alive.
        let inner = unsafe { self.lane()?.adopt(address, len) }?;
        let spoil = self.lie == Lie::AdoptionFrees;
        let side = spoil.then(|| Arc::clone(&self.side));
        Ok(Box::new(WrongBlock { inner: Some(Arc::from(inner)), device: self.device.id(), address, len, side, spoil }))
    }

    unsafe fn view(&self, host: NonNull<u8>, len: usize) -> Option<Box<dyn Block>> {
        let inner = match self.lie {
            // SAFETY: the caller says that the bytes are readable, and unchanged while work that reads them is
            // enqueued.
            Lie::None => unsafe { self.lanes[0].view(host, len) }?,
            Lie::StaleView => {
                let copied = self.lanes[0].alloc(len).ok()?;
                // SAFETY: a block of this device, of that length, and host bytes that are readable.
                unsafe { self.lanes[0].upload(&*copied, 0, host, len) }.ok()?;
                self.lanes[0].synchronize().ok()?;
                copied
            }
            _ => return None,
        };
        let (address, device) = (inner.address(), self.device.id());
        Some(Box::new(WrongBlock { inner: Some(Arc::from(inner)), device, address, len, side: None, spoil: false }))
    }

    unsafe fn upload(&self, to: &dyn Block, at: usize, from: NonNull<u8>, len: usize) -> Result<Host, Error> {
        let lane = self.lane()?;
        let fits = at + len < to.len();
        let (at, len) = match self.lie {
            Lie::ShortUpload => (at, len.saturating_sub(1)),
            Lie::ShiftedUpload if fits => (at + 1, len),
            Lie::LateUpload => {
                let block = Arc::clone(inner(to));
                let host = from;
                let late = Transfer { block, at, host, len };
                self.state().late.push(late);
                return Ok(Host::Pending);
            }
            _ => (at, len),
        };
        // SAFETY: the caller promises these bytes; those that a lie adds harm nothing, as the suite keeps all alive.
        let host = unsafe { lane.upload(&**inner(to), at, from, len) }?;
        if self.lie == Lie::ScribblingUpload && len > 0 {
            self.lanes[0].synchronize()?;
            // SAFETY: within the caller's bytes. That they are written is the lie.
            unsafe { from.write(from.read().wrapping_add(1)) };
        }
        Ok(if self.lie == Lie::EarlyDone { Host::Done } else { host })
    }

    unsafe fn upload_from(
        &self,
        to: &dyn Block,
        at: usize,
        len: usize,
        fill: &(dyn Fn(usize, &mut [u8]) -> Result<(), OriginError> + Sync),
    ) -> Result<(), Error> {
        let (lie, lane) = (self.lie, self.lane()?);
        let len = len.saturating_sub(usize::from(lie == Lie::ShortFrom));
        let fill = |place: usize, out: &mut [u8]| match lie {
            Lie::ShiftedFrom => fill(place - at, out),
            Lie::DeafFrom => fill(place, out).or(Ok(())),
            _ => fill(place, out),
        };
        // SAFETY: the caller promises these bytes; those that a lie adds harm nothing, as the suite keeps all alive.
        unsafe { lane.upload_from(&**inner(to), at, len, &fill) }
    }

    unsafe fn download(&self, from: &dyn Block, at: usize, to: NonNull<u8>, len: usize) -> Result<Host, Error> {
        let lane = self.lane()?;
        let fits = at + len < from.len();
        let at = at + usize::from(self.lie == Lie::ShiftedDownload && fits);
        let block = Arc::clone(inner(from));
        // SAFETY: the caller promises these bytes; those that a lie adds harm nothing, as the suite keeps all alive.
        let done = unsafe { lane.download(&*block, at, to, len) }?;
        if self.lie == Lie::SecondDownload {
            let host = to;
            let download = Transfer { block, at, host, len };
            self.state().downloads.push(download);
        }
        Ok(if self.lie == Lie::EarlyArrival { Host::Done } else { done })
    }

    fn reaches(&self, other: &dyn Device) -> bool {
        let own = other.id() == self.device.id();
        let no = match self.lie {
            Lie::NoWayHome => own,
            Lie::FickleWays => !own && self.turn.fetch_add(1, Ordering::Relaxed) % 2 == 1,
            _ => false,
        };
        if no {
            return false;
        }
        let other = other as &dyn Any;
        let device = other.downcast_ref().map(WrongDevice::inner);
        let device = device.or(other.downcast_ref().map(WrongFront::inner));
        device.is_some_and(|device| self.lanes[0].reaches(device))
    }

    unsafe fn copy(
        &self,
        to: &dyn Block,
        to_at: usize,
        from: &dyn Block,
        from_at: usize,
        len: usize,
    ) -> Result<(), Error> {
        let lane = self.lane()?;
        let fits = to_at + len < to.len() && from_at + len < from.len();
        let foreign = unwrapped(from).device != self.device.id();
        let len = match self.lie {
            Lie::ShortCopy => len.saturating_sub(1),
            Lie::UsesMemory => SyncedMem::new(8).device(&self.lanes[0], ..).map(|_| len)?,
            Lie::LongCopy if fits => len + 1,
            Lie::FalseWay if foreign => return Ok(()),
            Lie::DamagingError if std::mem::take(&mut self.state().damaged) => return Ok(()),
            _ => len,
        };
        // SAFETY: the caller promises these bytes; those that a lie adds harm nothing, as the suite keeps all alive.
        unsafe { lane.copy(&**inner(to), to_at, &**inner(from), from_at, len) }
    }

    unsafe fn fill(&self, block: &dyn Block, at: usize, len: usize) -> Result<(), Error> {
        let lane = self.lane()?;
        let len = match self.lie {
            Lie::NoFill => return Ok(()),
            Lie::LongFill if at + len < block.len() => len + 1,
            _ => len,
        };
        // SAFETY: the caller promises these bytes; those that a lie adds harm nothing, as the suite keeps all alive.
        unsafe { lane.fill(&**inner(block), at, len) }
    }

    fn wait_for(&self, other: &dyn Queue) -> Result<(), Error> {
        let other: &WrongQueue = (other as &dyn Any).downcast_ref().expect("a wrong queue");
        if self.lie == Lie::LateUpload {
            other.catch_up()?;
        }
        let foreign = other.device.id() != self.device.id();
        match self.lie {
            Lie::NoWait => return Ok(()),
            Lie::NoWaitForOther if foreign => return Ok(()),
            Lie::NoWaitForIdle if other.turn.load(Ordering::Relaxed) == 0 => return Ok(()),
            Lie::FirstWaitOnly if self.state().waited.contains(&other.id) => return Ok(()),
            Lie::LazyWait => {
                self.state().waits.push(Arc::clone(&other.lanes[0]));
                return Ok(());
            }
            _ => self.state().waited.push(other.id),
        }
        for lane in &self.lanes {
            lane.wait_for(&*other.lanes[0])?;
            lane.wait_for(&*other.lanes[1])?;
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Error> {
        if self.lie == Lie::NoSynchronize {
            return Ok(());
        }
        self.lanes[0].synchronize()?;
        self.lanes[1].synchronize()?;
        let state = &mut *self.state();
        for again in &state.again {
            let Transfer { block, at, host, len } = again;
            // SAFETY: the arguments of an earlier call; the suite keeps the bytes alive.
            unsafe { self.lanes[0].download(&**block, *at, *host, *len) }?;
        }
        state.again.append(&mut state.downloads);
        self.lanes[0].synchronize()
    }
}
