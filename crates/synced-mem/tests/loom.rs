//! Every interleaving of two threads, by loom: the lock-free read of a `SyncedMem`, and the dynamic borrows of a
//! `SharedMem`. Run by `RUSTFLAGS="--cfg loom" cargo test -p synced-mem --test loom`; `cargo xtask ci` does.
//!
//! loom does not see raw bytes, so what a transfer writes is stood for by a relaxed counter: a thread that has the
//! bytes must see the counter without having taken the lock for it.
#![cfg(loom)]

#[path = "loom/budget.rs"]
mod budget;
#[path = "loom/origin.rs"]
mod origin;
#[path = "loom/shares.rs"]
mod shares;

use std::ptr::NonNull;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use synced_mem::{Access, Block, Device, DeviceId, Error, Host, Location, Meter, Queue, QueueId, SharedMem, SyncedMem};

/// A device whose transfers count themselves: at once, or, with `late`, when the queue is synchronised.
#[derive(Debug)]
struct Spy {
    late: bool,
    /// Of `late` downloads: where to, and how many bytes.
    pending: loom::sync::Mutex<Vec<(usize, usize)>>,
    device: SpyDevice,
    id: QueueId,
    uploads: AtomicUsize,
    downloads: AtomicUsize,
    /// Kernels that read the host's bytes where they lie: launched, and over.
    launched: AtomicUsize,
    over: AtomicUsize,
}

#[derive(Debug)]
struct SpyDevice {
    id: DeviceId,
    meter: Meter,
    shares_host: bool,
}

#[derive(Debug)]
struct SpyBlock(usize);

// SAFETY: the identity is fixed and unique; it makes no queues.
unsafe impl Device for SpyDevice {
    fn id(&self) -> DeviceId {
        self.id
    }

    fn name(&self) -> String {
        "spy".into()
    }

    fn queue(&self) -> Result<Arc<dyn Queue>, Error> {
        Err(Error::device(self.id, "queue", "there is one"))
    }

    fn shares_host(&self) -> bool {
        self.shares_host
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }
}

// SAFETY: it answers the same each time; the memory that it stands for is not read.
unsafe impl Block for SpyBlock {
    fn address(&self) -> u64 {
        4096
    }

    fn len(&self) -> usize {
        self.0
    }
}

// SAFETY: all work takes effect at once, or, of a late one, the only work that has any effect does so in order when it
// is synchronised; a download writes the named bytes, and nothing else is kept.
unsafe impl Queue for Spy {
    fn id(&self) -> QueueId {
        self.id
    }

    fn device(&self) -> &dyn Device {
        &self.device
    }

    fn alloc(&self, len: usize) -> Result<Box<dyn Block>, Error> {
        Ok(Box::new(SpyBlock(len)))
    }

    unsafe fn adopt(&self, _: u64, len: usize) -> Result<Box<dyn Block>, Error> {
        Ok(Box::new(SpyBlock(len)))
    }

    unsafe fn view(&self, _: NonNull<u8>, len: usize) -> Option<Box<dyn Block>> {
        self.device.shares_host.then(|| Box::new(SpyBlock(len)) as Box<dyn Block>)
    }

    unsafe fn upload(&self, _: &dyn Block, _: usize, _: NonNull<u8>, _: usize) -> Result<Host, Error> {
        self.uploads.fetch_add(1, Ordering::Relaxed);
        Ok(if self.late { Host::Pending } else { Host::Done })
    }

    unsafe fn download(&self, _: &dyn Block, _: usize, to: NonNull<u8>, len: usize) -> Result<Host, Error> {
        if self.late {
            let start = to.as_ptr().expose_provenance();
            self.pending.lock().unwrap().push((start, len));
            return Ok(Host::Pending);
        }
        // SAFETY: the caller promises `len` writable bytes at `to` that have no other user until this call returns.
        unsafe { to.write_bytes(7, len) };
        self.downloads.fetch_add(1, Ordering::Relaxed);
        Ok(Host::Done)
    }

    fn reaches(&self, _: &dyn Device) -> bool {
        false
    }

    unsafe fn copy(&self, _: &dyn Block, _: usize, _: &dyn Block, _: usize, _: usize) -> Result<(), Error> {
        unreachable!("it reaches nothing")
    }

    unsafe fn fill(&self, _: &dyn Block, _: usize, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn wait_for(&self, _: &dyn Queue) -> Result<(), Error> {
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.over.store(self.launched.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut pending = self.pending.lock().unwrap();
        for (start, len) in pending.drain(..) {
            let to: *mut u8 = std::ptr::with_exposed_provenance_mut(start);
            // SAFETY: the promise of the caller of `download`.
            unsafe { to.write_bytes(7, len) };
            self.downloads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn spy() -> Arc<Spy> {
    spy_that_is(false, false)
}

/// One that is waited for with the lock released.
fn late_spy() -> Arc<Spy> {
    spy_that_is(true, false)
}

fn spy_that_is(late: bool, shares_host: bool) -> Arc<Spy> {
    Arc::new(Spy {
        late,
        pending: loom::sync::Mutex::new(Vec::new()),
        device: SpyDevice { id: DeviceId::new(), meter: Meter::default(), shares_host },
        id: QueueId::new(),
        uploads: AtomicUsize::new(0),
        downloads: AtomicUsize::new(0),
        launched: AtomicUsize::new(0),
        over: AtomicUsize::new(0),
    })
}

/// A memory whose bytes are on the device alone.
fn at_device(spy: &Arc<Spy>) -> SyncedMem {
    let queue: Arc<dyn Queue> = spy.clone();
    let mut memory = SyncedMem::new(4);
    drop(memory.device_overwrite(&queue, ..).unwrap());
    memory
}

#[test]
fn two_readers_cause_one_transfer_and_both_see_it() {
    for spy in [spy, late_spy] {
        loom::model(move || {
            let spy = spy();
            let memory = Arc::new(at_device(&spy));
            let read = |memory: &SyncedMem, spy: &Spy| {
                let bytes = memory.host(..).unwrap();
                assert_eq!(spy.downloads.load(Ordering::Relaxed), 1);
                assert_eq!(bytes, [7; 4]);
            };
            let other = {
                let (memory, spy) = (memory.clone(), spy.clone());
                thread::spawn(move || read(&memory, &spy))
            };
            read(&memory, &spy);
            other.join().unwrap();
            assert_eq!(spy.downloads.load(Ordering::Relaxed), 1);
        });
    }
}

#[test]
fn a_wait_ends_only_what_was_entered_before_it() {
    loom::model(|| {
        let spy = late_spy();
        let memory = SharedMem::from(at_device(&spy));
        let other = {
            let memory = memory.clone();
            thread::spawn(move || memory.prefetch_host(2..4).unwrap())
        };
        assert_eq!(*memory.host(0..2).unwrap(), [7; 2]);
        other.join().unwrap();
        assert_eq!(*memory.host(2..4).unwrap(), [7; 2]);
        assert_eq!(spy.downloads.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_host_reader_and_a_device_reader_do_not_disturb_each_other() {
    loom::model(|| {
        let spy = spy();
        let mut memory = SyncedMem::new(4);
        memory.host_mut(..).unwrap().fill(5);
        let memory = Arc::new(memory);
        let other = {
            let (memory, spy) = (memory.clone(), spy.clone());
            thread::spawn(move || {
                let queue: Arc<dyn Queue> = spy.clone();
                drop(memory.device(&queue, ..).unwrap());
                assert_eq!(spy.uploads.load(Ordering::Relaxed), 1);
            })
        };
        assert_eq!(memory.host(..).unwrap(), [5; 4]);
        other.join().unwrap();
        assert_eq!(memory.host(..).unwrap(), [5; 4]);
        assert_eq!(spy.downloads.load(Ordering::Relaxed), 0);
    });
}

/// Bytes that loom watches, in the place of those that a borrow reserves.
struct Watched {
    memory: SharedMem,
    cell: UnsafeCell<u32>,
}

// SAFETY: the cell is used under borrows of the memory only, which is what these tests test.
unsafe impl Sync for Watched {}
// SAFETY: the cell is a number that belongs to no thread.
unsafe impl Send for Watched {}

impl Watched {
    fn new() -> Arc<Self> {
        Arc::new(Self { memory: SharedMem::from(vec![0; 8]), cell: UnsafeCell::new(0) })
    }

    fn use_it(&self, access: Access) -> bool {
        match access {
            Access::Read => {
                let Ok(guard) = self.memory.host(0..8) else {
                    return false;
                };
                // SAFETY: loom checks it.
                self.cell.with(|cell| unsafe { *cell });
                drop(guard);
            }
            _ => {
                let Ok(guard) = self.memory.host_mut(4..8) else {
                    return false;
                };
                // SAFETY: loom checks it.
                self.cell.with_mut(|cell| unsafe { *cell += 1 });
                drop(guard);
            }
        }
        true
    }
}

#[test]
fn overlapping_borrows_never_meet() {
    for (first, second) in [(Access::Write, Access::Write), (Access::Read, Access::Write), (Access::Read, Access::Read)]
    {
        loom::model(move || {
            let watched = Watched::new();
            let other = {
                let watched = watched.clone();
                thread::spawn(move || watched.use_it(second))
            };
            let (here, there) = (watched.use_it(first), other.join().unwrap());
            assert!(here || there, "one comes first");
            if first == second && first == Access::Read {
                assert!(here && there, "readers do not conflict");
            }
        });
    }
}

#[test]
fn who_waits_is_woken() {
    loom::model(|| {
        let watched = Watched::new();
        let guard = watched.memory.host_mut(0..8).unwrap();
        let other = {
            let watched = watched.clone();
            thread::spawn(move || {
                let patience = std::time::Duration::from_secs(3600);
                let guard = watched.memory.with_timeout(patience, |memory| memory.host_mut(0..8)).unwrap();
                // SAFETY: loom checks it.
                watched.cell.with_mut(|cell| unsafe { *cell += 1 });
                drop(guard);
            })
        };
        // SAFETY: loom checks it.
        watched.cell.with_mut(|cell| unsafe { *cell += 1 });
        drop(guard);
        other.join().unwrap();
    });
}

/// A reader that takes no lock against a writer who reads afterwards, so that the way is open before and behind it.
#[test]
fn a_reader_without_the_lock_never_meets_a_writer() {
    loom::model(|| {
        let watched = Watched::new();
        drop(watched.memory.host(..).unwrap());
        let other = {
            let watched = watched.clone();
            thread::spawn(move || {
                let wrote = watched.use_it(Access::Write);
                drop(watched.memory.host(..).unwrap());
                wrote
            })
        };
        let read = watched.use_it(Access::Read);
        let wrote = other.join().unwrap();
        assert!(read || wrote, "one of them comes first");
        assert!(watched.use_it(Access::Write), "both have ended");
    });
}

/// While there is a reader, its bytes stay on the host.
#[test]
fn a_reader_without_the_lock_never_meets_an_eviction() {
    loom::model(|| {
        let spy = spy();
        let memory = SharedMem::from(at_device(&spy));
        drop(memory.host(..).unwrap());
        let other = {
            let memory = memory.clone();
            thread::spawn(move || memory.evict(Location::Host, 2..).is_ok())
        };
        let guard = memory.host(..).unwrap();
        assert!(memory.valid_on(Location::Host, ..));
        assert_eq!(*guard, [7; 4]);
        drop(guard);
        let evicted = other.join().unwrap();
        assert_eq!(spy.downloads.load(Ordering::Relaxed) == 2 || !memory.valid_on(Location::Host, ..), evicted);
    });
}

#[test]
fn who_waits_for_a_reader_without_the_lock_is_woken() {
    loom::model(|| {
        let watched = Watched::new();
        drop(watched.memory.host(..).unwrap());
        let guard = watched.memory.host(..).unwrap();
        let other = {
            let watched = watched.clone();
            thread::spawn(move || {
                let patience = std::time::Duration::from_secs(3600);
                let guard = watched.memory.with_timeout(patience, |memory| memory.host_mut(4..)).unwrap();
                // SAFETY: loom checks it.
                watched.cell.with_mut(|cell| unsafe { *cell += 1 });
                drop(guard);
            })
        };
        // SAFETY: loom checks it.
        watched.cell.with(|cell| unsafe { *cell });
        drop(guard);
        other.join().unwrap();
    });
}
