//! NVIDIA GPUs: memory, queues and kernels, through the driver alone. No toolkit is needed, neither to build nor to
//! run.
//!
//! The driver is looked for when [`list`] or [`Cuda::open`] is called, and not before: where there is none, that is an
//! [`Absent`] and nothing else happens.
//!
//! ```
//! use synced_mem::cuda::{Cuda, list};
//! use synced_mem::{Device, SharedMem};
//!
//! match list() {
//!     Ok(gpus) => gpus.iter().for_each(|gpu| println!("{} {}", gpu.ordinal, gpu.name)),
//!     Err(absent) => println!("{absent}"),
//! }
//! if let Ok(gpu) = Cuda::open(0) {
//!     let queue = gpu.queue()?;
//!     let memory = SharedMem::from(vec![1; 1 << 20]);
//!     drop(memory.device_mut(&queue, ..)?); // on the GPU now
//! }
//! # Ok::<(), synced_mem::Error>(())
//! ```
//!
//! # Asynchronous work
//!
//! Kernels, copies between GPUs, fills, and transfers of pinned host memory, which comes from a [`HostPool::of`] the
//! GPU. Other host memory is uploaded through pinned chunks: the call returns when its bytes have been read, and a
//! download when they have been written. So [`prefetch_host`](crate::SharedMem::prefetch_host) runs in the background
//! with pinned memory only, and other accesses to the same memory wait while such a transfer runs.
//!
//! # Kernels
//!
//! A [`Program`] of PTX that stands in your code is compiled once for each GPU and kept. One that is had at run time,
//! PTX or a cubin, is loaded by [`Loaded::of`] and unloaded with its last handle. [`launch`] checks the [`Grid`], with
//! the shared memory, against the GPU's limits before the driver is asked.
//!
//! # Memory
//!
//! Blocks come from a pool of this crate's own on each GPU, which keeps some of the freed ones ([`Cuda::keep_freed`]);
//! [`Cuda::trim`] gives them back, and so does an allocation that finds no room, before it is tried once more; where
//! that is not enough, other memories give up what is elsewhere, too ([`Budget::of`](crate::Budget::of)).
//!
//! Between GPUs bytes are copied directly. The contexts are given access to each other where the driver has a way, and
//! the pools' blocks are not; no copy relies on it. This was tested on a driver for tests, and has not been run on two
//! GPUs.
//!
//! A GPU that is integrated and accesses pageable memory shares the host's memory ([`Device::shares_host`]): its
//! kernels read host bytes where they lie, if these start at a multiple of 256, as memory of this crate does from 4 KiB
//! on. This was tested on a driver for tests, and has not been run on such a machine.
//!
//! # Building
//!
//! No toolkit is needed, but cudarc's build script asks an installed nvcc for its version, and fails where that is
//! newer than it knows. An application turns on the feature `cuda-newest`, which asks nothing; a library leaves the
//! choice to it, because versions exclude each other. The environment variable `CUDARC_CUDA_VERSION=13040` does the
//! same for one build. Where another crate of the tree turns on cudarc's feature `dynamic-linking`, the program links
//! the driver's library and does not start without that library: then a missing driver is no error value.
//!
//! # Other users of the GPU
//!
//! The GPU's primary context is used, as the CUDA runtime and everything built on it do. It is current on the calling
//! thread during each call; afterwards the thread has the context that it had before. A stream of another library
//! becomes a queue ([`Cuda::adopt_stream`]), and a queue's own stream and context are [`handles`] for others; work of
//! both is put in order by events, [`record_event`] and [`wait_for_event`], and no thread waits for that. A kernel that
//! fails, even another library's, ends the context: every queue of that GPU, and every queue that waited for one, fails
//! from then on.
//!
//! [`HostPool::of`]: crate::HostPool::of

mod context;
mod driver;
mod failure;
mod foreign;
mod here;
mod image;
mod launch;
mod modules;
mod peers;
mod pinned;
mod probe;
mod queue;
mod ring;
mod staging;
mod stopped;
mod stream;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use self::context::Context;
use self::pinned::Pinned;
use self::queue::CudaQueue;
use crate::access::DeviceId;
use crate::device::{Device, HostBlock, Queue};
use crate::error::Error;
use crate::meter::Meter;

pub use failure::Failure;
pub use foreign::{Handles, handles, record_event, wait_for_event};
pub use image::Image;
pub use launch::{Grid, Kernel, Loaded, Program, launch};
pub use probe::Absent;

/// A GPU that the driver finds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The number that [`Cuda::open`] takes.
    pub ordinal: usize,
    /// The maker's name for the GPU.
    pub name: String,
    /// The compute capability: (9, 0) for 9.0.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub total: u64,
    /// How many bytes are free, where the GPU could be asked.
    pub free: Option<u64>,
    /// The newest CUDA that the driver knows: 12040 for 12.4.
    pub driver: u32,
}

/// The memory that this crate's blocks take of a GPU. Of a GPU without pools all but `evictable` are zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Bytes that the pool has of the GPU: those in use, and freed ones that wait to be used again.
    pub reserved: u64,
    /// Bytes of blocks.
    pub used: u64,
    /// How many of these could be given up now for nothing: memories that nothing borrows there, whose bytes are
    /// elsewhere, too. Part of the device's own [`Budget`](crate::Budget::of).
    pub evictable: u64,
    /// The most bytes of blocks at once.
    pub peak: u64,
}

/// The GPUs of this machine.
///
/// # Errors
/// The reason why no GPU is usable.
pub fn list() -> Result<Vec<Info>, Absent> {
    let driver = probe::driver()?;
    match probe::count()? {
        0 => Err(Absent::NoDevice { wanted: 0, found: 0 }),
        count => (0..count).map(|ordinal| info(ordinal, driver)).collect(),
    }
}

fn info(ordinal: usize, driver: u32) -> Result<Info, Absent> {
    let device = driver::device(ordinal)?;
    let capability = driver::capability(device)?;
    let (name, total) = (driver::name(device)?, driver::total_memory(ordinal)? as u64);
    // A GPU may be another process's alone.
    let free = Cuda::open(ordinal).ok().and_then(|gpu| gpu.memory().ok()).map(|(free, _)| free);
    Ok(Info { ordinal, name, capability, total, free, driver })
}

/// Whether this process has ever made a queue of a GPU: before, no memory is on one. Asks no driver.
pub fn was_used() -> bool {
    USED.load(Ordering::Relaxed)
}

static USED: AtomicBool = AtomicBool::new(false);

/// A GPU: a [`Device`].
#[derive(Debug, Clone)]
pub struct Cuda {
    context: Arc<Context>,
}

impl Cuda {
    /// The GPU with this ordinal. As long as anything of a GPU lives, the GPU is one device: opening again gives the
    /// same.
    ///
    /// # Errors
    /// Why there is no such GPU.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, Absent> {
        static OPEN: Mutex<Vec<Weak<Context>>> = Mutex::new(Vec::new());
        probe::driver()?;
        let found = probe::count()?;
        if ordinal >= found {
            return Err(Absent::NoDevice { wanted: ordinal, found });
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|context| context.strong_count() > 0);
        let known = open.iter().filter_map(Weak::upgrade).find(|context| context.ordinal == ordinal);
        let context = match known {
            Some(context) => context,
            None => {
                let context = Arc::new(Context::retain(ordinal)?);
                open.push(Arc::downgrade(&context));
                context
            }
        };
        Ok(Arc::new(Self { context }))
    }

    /// The compute capability: (9, 0) for 9.0.
    pub fn capability(&self) -> (u32, u32) {
        self.context.capability
    }

    /// Whether the GPU is known to have failed for good: then every call about the GPU is an error until all that
    /// uses the GPU has been dropped. Asks no driver.
    pub fn is_lost(&self) -> bool {
        self.context.is_lost()
    }

    /// How many bytes of the GPU's memory are free, and how many there are; other programs' use counts.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn memory(&self) -> Result<(u64, u64), Error> {
        self.context.run("memory", || self.context.memory())
    }

    /// How many bytes the pool of this crate's blocks has, uses, and has used at once; and how many of the used ones an
    /// allocation that finds no room would get from other memories.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn memory_stats(&self) -> Result<MemoryStats, Error> {
        let [reserved, used, peak] = self.context.run("memory_stats", || self.context.pool_stats())?;
        let evictable = self.context.meter.ledger(self.context.id)?.stats().evictable as u64;
        Ok(MemoryStats { reserved, used, evictable, peak })
    }

    /// How many freed bytes the pool keeps for this crate's next blocks, where no other user of the GPU can have them;
    /// more are given back when the GPU is next waited for. An eighth of the GPU's memory, unless this is called.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn keep_freed(&self, bytes: u64) -> Result<(), Error> {
        self.context.run("keep_freed", || self.context.keep(bytes))
    }

    /// Waits for the GPU's work in this process, and gives the memory that waits to be used again back to the driver:
    /// the GPU's, and the pinned chunks that pageable bytes pass through (8 MiB for each transfer, or for each thread
    /// of a long one, that ran at the same time).
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn trim(&self) -> Result<(), Error> {
        self.context.run("trim", || self.context.trim())
    }

    fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

// SAFETY: a context's id is drawn once, and there is one context for each GPU (`open`). `CudaQueue` keeps the promises
// of `Queue`, as stated there.
unsafe impl Device for Cuda {
    fn id(&self) -> DeviceId {
        self.context.id
    }

    fn name(&self) -> String {
        self.context.name.clone()
    }

    fn queue(&self) -> Result<Arc<dyn Queue>, Error> {
        let queue = CudaQueue::new(self.clone())?;
        USED.store(true, Ordering::Relaxed);
        Ok(Arc::new(queue))
    }

    fn meter(&self) -> &Meter {
        &self.context.meter
    }

    fn shares_host(&self) -> bool {
        self.context.shares_host
    }

    fn dlpack(&self) -> Option<(i32, i32)> {
        const CUDA: i32 = 2;
        Some((CUDA, i32::try_from(self.context.ordinal).ok()?))
    }

    fn host_block(&self, len: usize) -> Result<Option<Box<dyn HostBlock>>, Error> {
        let pinned = self.context.run("host_block", || Pinned::new(&self.context, len))?;
        Ok(Some(Box::new(pinned)))
    }
}
