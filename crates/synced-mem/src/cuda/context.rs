//! One GPU as the driver knows the device: primary context, a memory pool of our own, and the context's belongings:
//! staging memory and modules. Relies on the probe. A context that has failed is remembered, and asked nothing more.

use std::fmt;
use std::mem::size_of;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute, CUmemoryPool};

use super::driver::{attribute, capability, device, memory_here, name, total_memory, wait_for_all};
use super::failure::{Failure, answer};
use super::here::Here;
use super::modules::Modules;
use super::peers::{self, Peers};
use super::ring::Rings;
use crate::access::DeviceId;
use crate::error::Error;
use crate::meter::Meter;
use crate::sync::Process;

/// The primary context of a GPU, which other libraries of the process share. Objects made there hold the context.
pub(super) struct Context {
    pub(super) id: DeviceId,
    /// The process whose threads may have a lock here. The driver works in no child of it.
    pub(super) process: Process,
    pub(super) ordinal: usize,
    pub(super) name: String,
    pub(super) capability: (u32, u32),
    /// Bytes of memory.
    pub(super) total: usize,
    pub(super) limits: Limits,
    /// Whether kernels read host memory where it lies, in the memory that GPU and host have in common.
    pub(super) shares_host: bool,
    pub(super) meter: Meter,
    pub(super) staging: Mutex<Rings>,
    pub(super) modules: Mutex<Modules>,
    peers: Peers,
    device: CUdevice,
    raw: CUcontext,
    /// Null where the GPU has none.
    pool: CUmemoryPool,
    /// Why the context never works again.
    lost: OnceLock<Failure>,
    /// How often something could not be given back. The calls at hand do not fail for that; at the end of a process it
    /// is usual, because the driver may be gone first.
    not_given_back: AtomicU64,
}

// SAFETY: the handles are the driver's names for things, and the driver's functions may be called from any thread; a
// context is made the calling thread's own before each call (`enter`).
unsafe impl Send for Context {}
// SAFETY: the driver's functions may be called from several threads at once; fields that change are behind a lock or
// atomic.
unsafe impl Sync for Context {}

/// How large a launch may be.
#[derive(Default)]
pub(super) struct Limits {
    pub(super) blocks: [u32; 3],
    pub(super) threads: [u32; 3],
    pub(super) threads_in_all: u32,
    /// Bytes of shared memory that a block has without being asked for, and at most.
    pub(super) shared: u32,
    pub(super) shared_at_most: u32,
    /// Whether all blocks of a launch can be made to run at once.
    pub(super) cooperates: bool,
}

/// `CUmemPoolProps` as far as all versions agree: the bindings' own has other fields in each.
#[repr(C)]
struct PoolProps {
    allocation: u32,
    handles: u32,
    place: u32,
    device: CUdevice,
    security: *mut (),
    reserved: [u64; 8],
}
const _: () = assert!(size_of::<PoolProps>() == size_of::<sys::CUmemPoolProps>());

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const ALLOCATION_PINNED: u32 = 1;
/// The share of the GPU's memory that the pool keeps of freed blocks: room for a loop's own blocks to come and go
/// without the driver, and most of the GPU for other allocators.
const KEPT: u64 = 8;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const PLACE_DEVICE: u32 = 1;

impl Context {
    /// The GPU's primary context. The ordinal is that of a GPU.
    pub(super) fn retain(ordinal: usize) -> Result<Self, Failure> {
        let (device, total) = (device(ordinal)?, total_memory(ordinal)?);
        let mut raw = ptr::null_mut();
        // SAFETY: the device is one of the driver's; the call writes a handle, which `drop` gives back once.
        answer("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) })?;
        let limit = |axes: [CUdevice_attribute; 3]| -> Result<[u32; 3], Failure> {
            let [x, y, z] = axes.map(|axis| attribute(device, axis));
            Ok([x?, y?, z?])
        };
        // From here on `drop` gives everything back.
        let mut context = Self {
            id: DeviceId::new(),
            process: Process::current(),
            ordinal,
            name: String::new(),
            capability: (0, 0),
            total,
            limits: Limits::default(),
            shares_host: false,
            meter: Meter::default(),
            staging: Mutex::default(),
            modules: Mutex::default(),
            peers: Peers::default(),
            device,
            raw,
            pool: ptr::null_mut(),
            lost: OnceLock::new(),
            not_given_back: AtomicU64::new(0),
        };
        use CUdevice_attribute as A;
        context.name = name(device)?;
        context.capability = capability(device)?;
        context.limits = Limits {
            blocks: limit([
                A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
            ])?,
            threads: limit([
                A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
            ])?,
            threads_in_all: attribute(device, A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            shared: attribute(device, A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            shared_at_most: attribute(device, A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            cooperates: attribute(device, A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0,
        };
        // One without the other has memory of its own, or reads pinned host memory alone.
        context.shares_host = attribute(device, A::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0
            && attribute(device, A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)? != 0;
        if attribute(device, A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0 {
            context.make_pool()?;
        }
        Ok(context)
    }

    /// A pool of our own, because all users of the GPU share the default pool's settings. Freed blocks stay there.
    fn make_pool(&mut self) -> Result<(), Failure> {
        let _here = self.enter()?;
        let props = PoolProps {
            allocation: ALLOCATION_PINNED,
            handles: 0,
            place: PLACE_DEVICE,
            device: self.device,
            security: ptr::null_mut(),
            reserved: [0; 8],
        };
        // SAFETY: the properties have the layout that the driver reads, and the driver writes a handle, which `drop`
        // gives back.
        answer("cuMemPoolCreate", unsafe { sys::cuMemPoolCreate(&mut self.pool, (&raw const props).cast()) })?;
        self.keep(self.total as u64 / KEPT)
    }

    /// From now on the pool keeps this many freed bytes, and gives others back to the driver when the GPU is next
    /// waited for.
    pub(super) fn keep(&self, bytes: u64) -> Result<(), Failure> {
        let (Some(pool), mut bytes) = (self.pool(), bytes) else {
            return Ok(());
        };
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the pool lives, and this attribute is a number of 64 bits, which is read during the call.
        let set = unsafe { sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut bytes).cast()) };
        answer("cuMemPoolSetAttribute", set)
    }

    /// How many bytes the pool has of the GPU, how many of these are in use, and the most that were at once. Zeros
    /// where the GPU has no pools.
    pub(super) fn pool_stats(&self) -> Result<[u64; 3], Failure> {
        use sys::CUmemPool_attribute as A;
        let Some(pool) = self.pool() else { return Ok([0; 3]) };
        let ask = |attribute| {
            let mut value = 0u64;
            // SAFETY: the pool lives, and these attributes are numbers of 64 bits, which the call writes.
            let code = unsafe { sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()) };
            answer("cuMemPoolGetAttribute", code).map(|()| value)
        };
        Ok([
            ask(A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            ask(A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            ask(A::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
        ])
    }

    /// Makes the context the calling thread's while the answer lives, unless known to be lost.
    pub(super) fn enter(&self) -> Result<Here, Failure> {
        self.works()?;
        Here::enter(self.raw)
    }

    /// Fails where the context is known to be lost, and in a forked process.
    pub(super) fn works(&self) -> Result<(), Failure> {
        if !self.process.is_current() {
            return Err(Failure::forked());
        }
        self.lost.get().map_or(Ok(()), |lost| Err(*lost))
    }

    /// Whether the context is known to be lost.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Makes even a lost context the calling thread's, to give something back: tried twice, as that is not to be left
    /// out.
    pub(super) fn enter_to_give_back(&self) -> Result<Here, Failure> {
        Here::enter(self.raw).or_else(|_| Here::enter(self.raw))
    }

    /// The same at the end of something, where a failure can only be counted.
    pub(super) fn enter_at_the_end(&self) -> Option<Here> {
        let here = self.enter_to_give_back();
        self.given_back(here.as_ref().map(|_| ()).map_err(|failure| *failure));
        here.ok()
    }

    /// Notes the failure of a call that was about this context alone: the context may be lost.
    pub(super) fn note(&self, failure: Failure) -> Failure {
        if failure.is_sticky() {
            // The first one is kept: the nearest to the cause.
            let _ = self.lost.set(failure);
        }
        failure
    }

    /// Runs calls that are about this context alone.
    pub(super) fn run<R>(&self, op: &'static str, calls: impl FnOnce() -> Result<R, Failure>) -> Result<R, Error> {
        self.process.check()?;
        let result = self.enter().and_then(|_here| calls());
        result.map_err(|failure| Error::device(self.id, op, self.note(failure)))
    }

    /// The end of something. A failure there can only be counted.
    pub(super) fn given_back(&self, result: Result<(), Failure>) {
        if result.is_err() {
            // Relaxed: a count.
            self.not_given_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes ready for copies from another GPU, the first time. The calling thread is in this context.
    pub(super) fn meet(&self, other: &Self) {
        if self.peers.meet(other.ordinal)
            && let Err(failure) = peers::enable(self.device, other.device, other.raw)
        {
            // The copy goes another way, and says so where the context has failed.
            self.note(failure);
        }
    }

    pub(super) fn raw(&self) -> CUcontext {
        self.raw
    }

    /// None where the GPU has none.
    pub(super) fn pool(&self) -> Option<CUmemoryPool> {
        (!self.pool.is_null()).then_some(self.pool)
    }

    /// Free bytes and all bytes of the GPU.
    pub(super) fn memory(&self) -> Result<(u64, u64), Failure> {
        let _here = self.enter()?;
        memory_here()
    }

    /// Waits for all work of the GPU in this process, and gives the memory that waits in the pool, and idle chunks,
    /// back to the driver.
    pub(super) fn trim(&self) -> Result<(), Failure> {
        let _here = self.enter()?;
        wait_for_all()?;
        let idle: Vec<_> = self.staging.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take_all().collect();
        idle.into_iter().map(|ring| ring.give_back()).fold(Ok(()), Result::and)?;
        let Some(pool) = self.pool() else {
            return Ok(());
        };
        // SAFETY: the pool lives until `drop`.
        answer("cuMemPoolTrimTo", unsafe { sys::cuMemPoolTrimTo(pool, 0) })
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("ordinal", &self.ordinal)
            .field("name", &self.name)
            .field("lost", &self.lost.get())
            // Relaxed: a count.
            .field("not_given_back", &self.not_given_back.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        let here = self.enter_at_the_end();
        for ring in self.staging.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take_all() {
            self.given_back(ring.give_back());
        }
        let modules: Vec<_> = self.modules.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take().collect();
        if !modules.is_empty() {
            // Streams that are gone may have launches of their kernels left to run.
            self.given_back(wait_for_all());
        }
        for module in modules {
            // SAFETY: a holder of a function of the module holds the context, so there is none any more, and no kernel
            // of the module runs: the GPU was waited for, or has failed.
            self.given_back(answer("cuModuleUnload", unsafe { sys::cuModuleUnload(module) }));
        }
        if let Some(pool) = self.pool() {
            // SAFETY: the pool is destroyed once. Blocks hold the context, so all were freed; the driver waits for
            // frees under way.
            self.given_back(answer("cuMemPoolDestroy", unsafe { sys::cuMemPoolDestroy(pool) }));
        }
        // The thread leaves the context before it may be gone. A thread that another library had put there stays.
        drop(here);
        // SAFETY: the context was retained once, and no object of the context is left.
        let released = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        self.given_back(answer("cuDevicePrimaryCtxRelease", released));
    }
}
