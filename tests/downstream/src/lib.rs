//! A backend of a user's own: a device whose memory is a part of the host's, and whose work is done within the call.
//! Relies on the public traits of `synced-mem` alone, and does not know kernels. Nothing is ever pending, so order
//! and waiting come by themselves.

use std::alloc::{self, Layout};
use std::any::Any;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use synced_mem::{Block, Device, DeviceId, Error, Host, HostBlock, Meter, Queue, QueueId};

/// The device.
#[derive(Debug)]
pub struct Ram {
    id: DeviceId,
    meter: Meter,
    /// How many blocks of pinned memory live, where the device has that kind.
    pinned: Option<Arc<AtomicUsize>>,
}

impl Ram {
    /// A device that shares nothing with any other.
    #[expect(clippy::new_ret_no_self, reason = "devices are shared")]
    pub fn new() -> Arc<dyn Device> {
        Self::device(None)
    }

    /// A device with a kind of host memory that the transfers use in place, and the number of blocks of this kind.
    pub fn with_pinned() -> (Arc<dyn Device>, Arc<AtomicUsize>) {
        let pinned = Arc::new(AtomicUsize::new(0));
        (Self::device(Some(Arc::clone(&pinned))), pinned)
    }

    fn device(pinned: Option<Arc<AtomicUsize>>) -> Arc<dyn Device> {
        Arc::new(Handle(Arc::new(Self { id: DeviceId::new(), meter: Meter::default(), pinned })))
    }
}

/// The device, for the queues.
#[derive(Debug, Clone)]
struct Handle(Arc<Ram>);

// SAFETY: the identity is drawn once, and the queues keep their promises, as is said there.
unsafe impl Device for Handle {
    fn id(&self) -> DeviceId {
        self.0.id
    }

    fn name(&self) -> String {
        "the host's own memory".to_owned()
    }

    fn queue(&self) -> Result<Arc<dyn Queue>, Error> {
        let queue = RamQueue {
            id: QueueId::new(),
            device: self.clone(),
            one_call: Mutex::new(()),
            lost: AtomicBool::new(false),
        };
        Ok(Arc::new(queue))
    }

    fn meter(&self) -> &Meter {
        &self.0.meter
    }

    fn host_block(&self, len: usize) -> Result<Option<Box<dyn HostBlock>>, Error> {
        self.0.pinned.as_ref().map(|live| Pinned::new(len, live)).transpose()
    }
}

/// A block of host memory, zeroed, which stands in for pinned memory.
struct Pinned {
    start: NonNull<u8>,
    layout: Layout,
    live: Arc<AtomicUsize>,
}

impl Pinned {
    fn new(len: usize, live: &Arc<AtomicUsize>) -> Result<Box<dyn HostBlock>, Error> {
        let layout = Layout::from_size_align(len, 256).expect("a length that a pool asks for");
        // SAFETY: the traits' users ask for no block of 0 bytes.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).expect("memory");
        live.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Pinned { start, layout, live: Arc::clone(live) }))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: allocated in `new` with this layout, and freed here alone.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

// SAFETY: plain memory that no thread owns; its users order their accesses.
unsafe impl Send for Pinned {}
// SAFETY: plain memory that no thread owns; its users order their accesses.
unsafe impl Sync for Pinned {}

// SAFETY: `start` and the length never change, lie at a multiple of 256, and the bytes live until the drop.
unsafe impl HostBlock for Pinned {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.layout.size()
    }
}

#[derive(Debug)]
struct RamQueue {
    id: QueueId,
    device: Handle,
    /// Work of one queue is ordered, also where two threads call.
    one_call: Mutex<()>,
    /// Whether work was lost of a queue that this one waits for.
    lost: AtomicBool,
}

/// Bytes of the device: its own, or adopted.
#[derive(Debug)]
struct RamBlock {
    device: DeviceId,
    address: usize,
    len: usize,
    _own: Option<Box<[UnsafeCell<u8>]>>,
}

// SAFETY: the bytes are touched through queues only, whose callers order all accesses to the same bytes.
unsafe impl Send for RamBlock {}
// SAFETY: the bytes are touched through queues only, whose callers order all accesses to the same bytes.
unsafe impl Sync for RamBlock {}

// SAFETY: the address and the length never change.
unsafe impl Block for RamBlock {
    fn address(&self) -> u64 {
        self.address as u64
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl RamQueue {
    fn one_call(&self) -> MutexGuard<'_, ()> {
        self.one_call.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Where the block's byte `at` lies.
    fn at(&self, block: &dyn Block, at: usize) -> Result<*mut u8, Error> {
        let block = (block as &dyn Any).downcast_ref::<RamBlock>().filter(|block| block.device == self.device.id());
        let block = block.ok_or_else(|| Error::device(self.device.id(), "find a block", "another device's"))?;
        Ok(std::ptr::with_exposed_provenance_mut(block.address + at))
    }
}

// SAFETY: each call does its work before it returns, under a lock, on exactly the bytes that are named; so the work of
// a queue is ordered, nothing is left to synchronise, and host bytes are touched during the call only. What waits for a
// queue of another backend synchronises it, and remembers where that failed.
unsafe impl Queue for RamQueue {
    fn id(&self) -> QueueId {
        self.id
    }

    fn device(&self) -> &dyn Device {
        &self.device
    }

    fn alloc(&self, len: usize) -> Result<Box<dyn Block>, Error> {
        let mut bytes = Vec::new();
        let device = self.device.id();
        bytes.try_reserve_exact(len).map_err(|_| Error::DeviceOutOfMemory { device, bytes: len })?;
        bytes.resize_with(len, || UnsafeCell::new(0));
        let own: Box<[UnsafeCell<u8>]> = bytes.into_boxed_slice();
        let address = own.as_ptr().expose_provenance();
        Ok(Box::new(RamBlock { device, address, len, _own: Some(own) }))
    }

    unsafe fn adopt(&self, address: u64, len: usize) -> Result<Box<dyn Block>, Error> {
        Ok(Box::new(RamBlock { device: self.device.id(), address: address as usize, len, _own: None }))
    }

    unsafe fn upload(&self, to: &dyn Block, at: usize, from: NonNull<u8>, len: usize) -> Result<Host, Error> {
        let (_one_call, to) = (self.one_call(), self.at(to, at)?);
        // SAFETY: the caller promises both ranges.
        unsafe { std::ptr::copy(from.as_ptr(), to, len) };
        Ok(Host::Done)
    }

    unsafe fn download(&self, from: &dyn Block, at: usize, to: NonNull<u8>, len: usize) -> Result<Host, Error> {
        let (_one_call, from) = (self.one_call(), self.at(from, at)?);
        // SAFETY: the caller promises both ranges.
        unsafe { std::ptr::copy(from, to.as_ptr(), len) };
        Ok(Host::Done)
    }

    fn reaches(&self, other: &dyn Device) -> bool {
        other.id() == self.device.id()
    }

    unsafe fn copy(
        &self,
        to: &dyn Block,
        to_at: usize,
        from: &dyn Block,
        from_at: usize,
        len: usize,
    ) -> Result<(), Error> {
        let (_one_call, to, from) = (self.one_call(), self.at(to, to_at)?, self.at(from, from_at)?);
        // SAFETY: the caller promises both ranges.
        unsafe { std::ptr::copy(from, to, len) };
        Ok(())
    }

    unsafe fn fill(&self, block: &dyn Block, at: usize, len: usize) -> Result<(), Error> {
        let (_one_call, to) = (self.one_call(), self.at(block, at)?);
        // SAFETY: the caller promises the range.
        unsafe { std::ptr::write_bytes(to, 0, len) };
        Ok(())
    }

    fn wait_for(&self, other: &dyn Queue) -> Result<(), Error> {
        other.synchronize().inspect_err(|_| self.lost.store(true, Ordering::SeqCst))
    }

    fn synchronize(&self) -> Result<(), Error> {
        if self.lost.load(Ordering::SeqCst) {
            Err(Error::device(self.device.id(), "synchronise", "work was lost that this queue waits for"))
        } else {
            Ok(())
        }
    }
}
