//! A pool of a device's own kind of host memory.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use synced_mem::loopback::{Loopback, Mode};
use synced_mem::{Device, DeviceId, Error, HostBlock, HostPool, Meter, Queue, SharedMem, SyncedMem};

/// How long a block waits for the word to go on.
const PATIENCE: Duration = Duration::from_secs(10);

/// A loopback with host memory of its own kind: up to a number of blocks, never zero when they are fresh.
#[derive(Debug)]
struct Pinning {
    inner: Arc<Loopback>,
    live: Arc<AtomicUsize>,
    most: usize,
    /// The first block says that it has begun, and waits for the word to go on.
    begun: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

struct Pinned {
    start: NonNull<u8>,
    layout: Layout,
    live: Arc<AtomicUsize>,
}

// SAFETY: plain bytes, owned alone.
unsafe impl Send for Pinned {}
// SAFETY: a shared reference gives the pointer alone.
unsafe impl Sync for Pinned {}

// SAFETY: one block of the allocator, aligned to 256, filled when it was made and freed when it is dropped.
unsafe impl HostBlock for Pinned {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: it came from `alloc` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

// SAFETY: the loopback within keeps the promises; host blocks are as they must be.
unsafe impl Device for Pinning {
    fn id(&self) -> DeviceId {
        self.inner.id()
    }

    fn name(&self) -> String {
        "pinning".into()
    }

    fn queue(&self) -> Result<Arc<dyn Queue>, Error> {
        self.inner.queue()
    }

    fn meter(&self) -> &Meter {
        self.inner.meter()
    }

    fn host_block(&self, len: usize) -> Result<Option<Box<dyn HostBlock>>, Error> {
        if self.live.load(Ordering::Relaxed) == self.most {
            return Err(Error::device(self.id(), "host_block", "no more"));
        }
        if let Some((begun, go)) = self.begun.lock().unwrap().take() {
            begun.send(()).unwrap();
            go.recv_timeout(PATIENCE).map_err(|_| Error::device(self.id(), "host_block", "no word to go on"))?;
        }
        self.live.fetch_add(1, Ordering::Relaxed);
        let layout = Layout::from_size_align(len, 256).unwrap();
        // SAFETY: `len` is not 0, and the bytes are written at once.
        let start = unsafe {
            let start = NonNull::new(alloc(layout)).unwrap();
            start.write_bytes(0xEE, len);
            start
        };
        Ok(Some(Box::new(Pinned { start, layout, live: Arc::clone(&self.live) })))
    }
}

fn pinning(most: usize) -> (Arc<dyn Device>, Arc<AtomicUsize>) {
    pinning_slowly(most, None)
}

fn pinning_slowly(most: usize, begun: Option<(Sender<()>, Receiver<()>)>) -> (Arc<dyn Device>, Arc<AtomicUsize>) {
    let live = Arc::<AtomicUsize>::default();
    let inner = Loopback::new(Mode::Deferred);
    (Arc::new(Pinning { inner, live: Arc::clone(&live), most, begun: Mutex::new(begun) }), live)
}

#[test]
fn memories_of_the_pool_lie_in_the_devices_blocks_and_read_as_zeros() {
    let (device, live) = pinning(usize::MAX);
    let pool = HostPool::of(&device, 1 << 20);
    let memory = SharedMem::from(SyncedMem::new_in(5000, &pool));
    assert_eq!(memory.host(..).unwrap()[..], [0; 5000]);
    assert_eq!(live.load(Ordering::Relaxed), 1);
    drop(memory);
    assert_eq!((pool.stats().waiting, live.load(Ordering::Relaxed)), (6144, 1));
    // Used again, and cleared again.
    let memory = SharedMem::from(SyncedMem::new_in(6000, &pool));
    memory.host_overwrite(..).unwrap().fill(9);
    assert_eq!((pool.stats().hits, live.load(Ordering::Relaxed)), (1, 1));
    drop(memory);
    assert_eq!(SharedMem::from(SyncedMem::new_in(4096 + 1, &pool)).host(4000..).unwrap()[..], [0; 97]);
    pool.trim();
    assert_eq!(live.load(Ordering::Relaxed), 0);
}

#[test]
fn a_memory_answers_while_its_block_is_pinned() {
    let ((begun, has_begun), (go, may_go)) = (mpsc::channel(), mpsc::channel());
    let (device, live) = pinning_slowly(usize::MAX, Some((begun, may_go)));
    let memory = SharedMem::from(SyncedMem::new_in(5000, &HostPool::of(&device, 1 << 20)));
    thread::scope(|scope| {
        let read = scope.spawn(|| memory.host(..).map(|bytes| bytes.to_vec()));
        has_begun.recv().unwrap();
        // Under the memory's lock the question would wait for the block, and the block for the word.
        assert_eq!(memory.stats().fills.count, 0);
        assert!(matches!(memory.host_overwrite(10..20), Err(Error::Conflict { .. })));
        go.send(()).unwrap();
        assert_eq!(read.join().unwrap().unwrap(), [0; 5000]);
    });
    assert_eq!(live.load(Ordering::Relaxed), 1);
}

#[test]
fn where_the_device_has_no_more_the_allocator_helps_out() {
    let (device, live) = pinning(1);
    let pool = HostPool::of(&device, 1 << 20);
    let memories: Vec<_> = (0..3).map(|_| SharedMem::from(SyncedMem::new_in(4096, &pool))).collect();
    memories.iter().for_each(|memory| memory.host_overwrite(..).unwrap().fill(1));
    assert_eq!(live.load(Ordering::Relaxed), 1);
    drop(memories);
    assert_eq!(pool.stats().waiting, 4096, "only the device's block waits");
}

#[test]
fn lengths_that_the_pool_does_not_keep_are_the_allocators() {
    let (device, live) = pinning(usize::MAX);
    let pool = HostPool::of(&device, 8192);
    for len in [1, 4095, 8193] {
        SharedMem::from(SyncedMem::new_in(len, &pool)).host_overwrite(..).unwrap().fill(1);
    }
    assert_eq!(live.load(Ordering::Relaxed), 0);
}

#[test]
fn a_device_without_such_memory_gives_an_ordinary_pool() {
    let device: Arc<dyn Device> = Loopback::new(Mode::Deferred);
    let pool = HostPool::of(&device, 1 << 20);
    drop(SharedMem::from(SyncedMem::new_in(4096, &pool)).host(..).unwrap());
    assert_eq!(pool.stats().waiting, 4096);
}
