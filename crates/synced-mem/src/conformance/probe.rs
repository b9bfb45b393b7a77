//! Queues, blocks and host bytes as the checks use them: bounds checked, and alive until the device is done.
//! It relies on the checks for one rule: they touch host bytes before they enqueue work on them, and after a call has
//! said that it is done with them, or a synchronisation; a device that is then still at work on them is broken, and the
//! check about to say so. Leaves out the checks' questions.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Flaw;
use crate::{self as synced_mem, Block, Device, DeviceId, Error, OriginError, Queue, QueueId};

/// The material of one check. Used parts are leaked, unless [`clear`](Self::clear) finds all idle.
pub(super) struct Bench<'a> {
    pub(super) first: &'a dyn Device,
    pub(super) second: &'a dyn Device,
    kept: ManuallyDrop<Mutex<Kept>>,
}

/// In the order in which it may be dropped, once the queues are idle.
#[derive(Default)]
struct Kept {
    hosts: Vec<Arc<Host>>,
    blocks: Vec<Arc<dyn Block>>,
    queues: Vec<Arc<dyn Queue>>,
}

/// Host bytes that a device may touch: a boxed slice, of which there is no reference but this pointer.
pub(super) struct Host {
    bytes: NonNull<[u8]>,
}

// SAFETY: plain bytes have no thread; who touches them when is the rule in this file's head.
unsafe impl Send for Host {}
// SAFETY: a shared reference gives the pointer alone; who touches the bytes when is the rule in this file's head.
unsafe impl Sync for Host {}

/// A queue.
pub(super) struct Probe<'a> {
    pub(super) queue: Arc<dyn Queue>,
    bench: &'a Bench<'a>,
}

/// A block, of the length that was asked for.
pub(super) struct Region {
    block: Arc<dyn Block>,
    len: usize,
    device: DeviceId,
    /// The queue that allocated the block.
    queue: QueueId,
    /// Whether another queue has used the block too, so that the own queue cannot free in order.
    shared: AtomicBool,
}

impl<'a> Bench<'a> {
    pub(super) fn new(first: &'a dyn Device, second: &'a dyn Device) -> Self {
        let kept = ManuallyDrop::new(Mutex::default());
        Self { first, second, kept }
    }

    /// Gives back all blocks and host bytes, after every queue is idle.
    pub(super) fn clear(self) -> Result<(), Flaw> {
        let queues = self.keep(|kept| kept.queues.clone());
        for queue in &queues {
            queue.synchronize()?;
        }
        drop(ManuallyDrop::into_inner(self.kept));
        Ok(())
    }

    /// A new queue of the first device.
    pub(super) fn queue(&'a self) -> Result<Probe<'a>, Flaw> {
        self.queue_of(self.first)
    }

    /// A new queue of a device.
    pub(super) fn queue_of(&'a self, device: &dyn Device) -> Result<Probe<'a>, Flaw> {
        let queue = device.queue()?;
        self.keep(|kept| kept.queues.push(Arc::clone(&queue)));
        Ok(Probe { queue, bench: self })
    }

    /// `len` host bytes of this value.
    pub(super) fn host(&self, len: usize, value: u8) -> Arc<Host> {
        self.host_of(vec![value; len])
    }

    /// These host bytes.
    pub(super) fn host_of(&self, bytes: Vec<u8>) -> Arc<Host> {
        let bytes = NonNull::from(Box::leak(bytes.into_boxed_slice()));
        let host = Arc::new(Host { bytes });
        self.keep(|kept| kept.hosts.push(Arc::clone(&host)));
        host
    }

    fn keep<T>(&self, f: impl FnOnce(&mut Kept) -> T) -> T {
        f(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Host {
    /// The bytes now.
    pub(super) fn get(&self) -> Vec<u8> {
        // SAFETY: the slice is ours until `drop`, and is not written now (head). The reference ends with this line.
        unsafe { self.bytes.as_ref() }.to_vec()
    }

    /// Sets all bytes.
    pub(super) fn set(&self, value: u8) {
        // SAFETY: the slice is ours until `drop`, and is not used now (head).
        unsafe { self.bytes.cast::<u8>().write_bytes(value, self.bytes.len()) }
    }

    /// Fails unless the middle half is of this value. The ends are left to the checks of exactness.
    pub(super) fn expect(&self, value: u8, what: &str) -> Result<(), Flaw> {
        let bytes = self.get();
        let middle = bytes.len() / 4..bytes.len() - bytes.len() / 4;
        let wanted = vec![value; middle.len()];
        // Compared as a whole first, which is fast without optimisation, too.
        if bytes[middle.clone()] == wanted {
            return Ok(());
        }
        let wrong = middle.into_iter().find(|at| bytes[*at] != value);
        wrong.map_or(Ok(()), |at| {
            let got = bytes[at];
            Err(Flaw(format!("{what}: byte {at} is {got:#04x}, not {value:#04x}")))
        })
    }

    /// Where the bytes begin that lie at a multiple of 256.
    pub(super) fn aligned(&self) -> usize {
        self.bytes.cast::<u8>().addr().get().wrapping_neg() % 256
    }

    /// The address of the bytes from `at` on.
    fn part(&self, at: usize, len: usize) -> NonNull<u8> {
        assert!(at <= self.bytes.len() && len <= self.bytes.len() - at);
        // SAFETY: `at` lies within the slice, or one past it.
        unsafe { self.bytes.cast::<u8>().add(at) }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a leaked box, and is turned back once. A host is dropped only after `clear` has
        // found every queue idle, because until then it is kept; so no device touches it any more.
        drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
    }
}

impl Region {
    pub(super) fn address(&self) -> u64 {
        self.block.address()
    }

    pub(super) fn block_len(&self) -> usize {
        self.block.len()
    }

    /// The block, for work on bytes `at..at + len` by a queue of the device.
    fn own(&self, at: usize, len: usize, queue: &dyn Queue) -> &dyn Block {
        assert_eq!(self.device, queue.device().id(), "a check mixes up devices");
        self.part(at, len, queue)
    }

    /// The block, for work on bytes `at..at + len`.
    fn part(&self, at: usize, len: usize, queue: &dyn Queue) -> &dyn Block {
        assert!(at <= self.len && len <= self.len - at);
        if queue.id() != self.queue {
            // Relaxed: read by the one who then owns the region.
            self.shared.store(true, Ordering::Relaxed);
        }
        &*self.block
    }
}

impl Probe<'_> {
    pub(super) fn alloc(&self, len: usize) -> Result<Region, Flaw> {
        Ok(self.region(self.queue.alloc(len)?, len))
    }

    /// The error of an allocation that cannot succeed.
    pub(super) fn alloc_error(&self, len: usize) -> Result<Error, Flaw> {
        match self.queue.alloc(len) {
            Err(error) => Ok(error),
            Ok(_) => Err(Flaw(format!("allocated {len} bytes"))),
        }
    }

    /// Frees a block that no other queue has used.
    pub(super) fn free(&self, region: Region) {
        assert!(!region.shared.load(Ordering::Relaxed) && region.queue == self.queue.id());
        self.bench.keep(|kept| kept.blocks.retain(|block| !Arc::ptr_eq(block, &region.block)));
        drop(region);
    }

    /// A second block over the bytes of a region from `at` on.
    pub(super) fn adopt(&self, region: &Region, at: usize, len: usize) -> Result<Region, Flaw> {
        let address = region.own(at, len, &*self.queue).address() + at as u64;
        // SAFETY: the bytes are within a block of this device, which is kept until the queues are idle; the checks use
        // one queue for both, so that its order keeps their uses apart.
        let block = unsafe { self.queue.adopt(address, len) }?;
        Ok(self.region(block, len))
    }

    /// Host bytes as a block to read.
    pub(super) fn view(&self, host: &Host, at: usize, len: usize) -> Option<Region> {
        let start = host.part(at, len);
        // SAFETY: the range is checked; the host bytes are kept until all queues are idle, and the checks write them
        // before they enqueue work on the block, and after that queue was synchronised.
        let block = unsafe { self.queue.view(start, len) }?;
        Some(self.region(block, len))
    }

    fn region(&self, block: Box<dyn Block>, len: usize) -> Region {
        let block: Arc<dyn Block> = Arc::from(block);
        let kept = Arc::clone(&block);
        self.bench.keep(|all| all.blocks.push(kept));
        Region { block, len, device: self.queue.device().id(), queue: self.queue.id(), shared: AtomicBool::new(false) }
    }

    /// Uploads `len` bytes of `from[from_at..]` to `to[to_at..]`.
    pub(super) fn upload(
        &self,
        to: &Region,
        to_at: usize,
        from: &Host,
        from_at: usize,
        len: usize,
    ) -> Result<synced_mem::Host, Flaw> {
        let block = to.own(to_at, len, &*self.queue);
        let from = from.part(from_at, len);
        // SAFETY: both ranges are checked, and the device; the block and the host bytes are kept until all queues are
        // idle, or the block is freed in order; the host bytes are not written before it is done with them (head).
        Ok(unsafe { self.queue.upload(block, to_at, from, len) }?)
    }

    /// Uploads `len` bytes that a function gives to `to[at..]`.
    pub(super) fn upload_from(
        &self,
        to: &Region,
        at: usize,
        len: usize,
        fill: impl Fn(usize, &mut [u8]) -> Result<(), OriginError> + Sync,
    ) -> Result<(), Flaw> {
        let block = to.own(at, len, &*self.queue);
        // SAFETY: the range is checked, and the device; the block is kept until all queues are idle.
        Ok(unsafe { self.queue.upload_from(block, at, len, &fill) }?)
    }

    /// Downloads `len` bytes of `from[from_at..]` to `to[to_at..]`.
    pub(super) fn download(
        &self,
        to: &Host,
        to_at: usize,
        from: &Region,
        from_at: usize,
        len: usize,
    ) -> Result<synced_mem::Host, Flaw> {
        let block = from.own(from_at, len, &*self.queue);
        let to = to.part(to_at, len);
        // SAFETY: both ranges are checked, and the device; the block and the host bytes are kept until all queues are
        // idle, or the block is freed in order; the host bytes are not used at all before the download is done
        // (head).
        Ok(unsafe { self.queue.download(block, from_at, to, len) }?)
    }

    /// Copies `len` bytes of `from[from_at..]` to `to[to_at..]`. `from` is of a device that the queue reaches.
    pub(super) fn copy(
        &self,
        to: &Region,
        to_at: usize,
        from: &Region,
        from_at: usize,
        len: usize,
    ) -> Result<(), Flaw> {
        let target = to.own(to_at, len, &*self.queue);
        let source = from.part(from_at, len, &*self.queue);
        // SAFETY: both ranges are checked, and of two blocks that are kept until all queues are idle, or freed in
        // order; `to` is of this queue's device, `from` of the same, or of one that a check has asked about.
        Ok(unsafe { self.queue.copy(target, to_at, source, from_at, len) }?)
    }

    pub(super) fn fill(&self, region: &Region, at: usize, len: usize) -> Result<(), Flaw> {
        let block = region.own(at, len, &*self.queue);
        // SAFETY: the range is checked, and the device; the block is kept until all queues are idle, or freed in order.
        Ok(unsafe { self.queue.fill(block, at, len) }?)
    }

    pub(super) fn wait_for(&self, other: &Probe<'_>) -> Result<(), Flaw> {
        Ok(self.queue.wait_for(&*other.queue)?)
    }

    pub(super) fn synchronize(&self) -> Result<(), Flaw> {
        Ok(self.queue.synchronize()?)
    }

    /// Uploads a whole region, and waits.
    pub(super) fn put(&self, to: &Region, from: &Host) -> Result<(), Flaw> {
        self.upload(to, 0, from, 0, to.len)?;
        self.synchronize()
    }

    /// Downloads a whole region, and waits. Before, the host bytes have a value that no region is filled with.
    pub(super) fn whole(&self, from: &Region) -> Result<Arc<Host>, Flaw> {
        let to = self.bench.host(from.len, UNTOUCHED);
        self.download(&to, 0, from, 0, from.len)?;
        self.synchronize()?;
        Ok(to)
    }
}

/// The value of host bytes that a download has not reached.
pub(super) const UNTOUCHED: u8 = 0xEE;
