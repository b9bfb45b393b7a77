//! Calls the driver's own copies and fills, which ours are compared with. Only this file calls the library. Its calls
//! need the thread's current context, which [`Driver::new`] sets and the calls of a queue restore.
//!
//! Each function waits for what it has enqueued, even after an error, so a borrowed buffer is never used after the
//! function returns.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use libloading::Library;
use synced_mem::cuda::{self, Cuda};
use synced_mem::{Block, Device, Queue};

type Copy = unsafe extern "C" fn(u64, u64, usize) -> u32;
type CopyAsync = unsafe extern "C" fn(u64, u64, usize, *mut c_void) -> u32;

/// The driver, with a stream of its own in the context of one queue. The stream ends with the process.
pub(crate) struct Driver {
    queue: Arc<dyn Queue>,
    stream: *mut c_void,
    to_device: Copy,
    to_host: Copy,
    to_device_async: CopyAsync,
    to_host_async: CopyAsync,
    on_device_async: CopyAsync,
    fill: unsafe extern "C" fn(u64, u32, usize, *mut c_void) -> u32,
    wait: unsafe extern "C" fn(*mut c_void) -> u32,
    wait_for_all: unsafe extern "C" fn() -> u32,
}

/// Memory of the driver's GPU that nothing but a [`Driver`] uses.
pub(crate) struct Buffer(Box<dyn Block>);

impl Driver {
    /// Opens the library under the same names as the backend, in the same order.
    pub(crate) fn new(gpu: &Arc<Cuda>) -> Result<Self> {
        let queue = gpu.queue()?;
        queue.synchronize()?;
        let context = cuda::handles(&*queue).context("no queue of CUDA")?.context;
        let mut stream = ptr::null_mut();
        // SAFETY: each name is that of CUDA 12.0's driver API, with its signature; addresses are numbers of 64 bits
        // there and pointers of the host are as long. The library was loaded by the backend and stays: it is never
        // closed.
        unsafe {
            let library = Library::new("libcuda.so").or_else(|_| Library::new("libcuda.so.1"))?;
            let library: &'static Library = Box::leak(Box::new(library));
            let enter = library.get::<unsafe extern "C" fn(*mut c_void) -> u32>(b"cuCtxSetCurrent\0")?;
            ensure!(enter(context) == 0, "cuCtxSetCurrent");
            let create = library.get::<unsafe extern "C" fn(*mut *mut c_void, u32) -> u32>(b"cuStreamCreate\0")?;
            ensure!(create(&mut stream, 1) == 0, "cuStreamCreate");
            Ok(Self {
                queue,
                stream,
                to_device: *library.get(b"cuMemcpyHtoD_v2\0")?,
                to_host: *library.get(b"cuMemcpyDtoH_v2\0")?,
                to_device_async: *library.get(b"cuMemcpyHtoDAsync_v2\0")?,
                to_host_async: *library.get(b"cuMemcpyDtoHAsync_v2\0")?,
                on_device_async: *library.get(b"cuMemcpyDtoDAsync_v2\0")?,
                fill: *library.get(b"cuMemsetD32Async\0")?,
                wait: *library.get(b"cuStreamSynchronize\0")?,
                wait_for_all: *library.get(b"cuCtxSynchronize\0")?,
            })
        }
    }

    /// Allocates uninitialized memory of the GPU.
    pub(crate) fn buffer(&self, len: usize) -> Result<Buffer> {
        let block = self.queue.alloc(len)?;
        // The block exists once our stream has reached the allocation; the driver's calls use another stream.
        self.queue.synchronize()?;
        Ok(Buffer(block))
    }

    /// Copies between buffers of equal length, several times.
    pub(crate) fn copy(&self, from: &Buffer, to: &mut Buffer, times: usize) -> Result<()> {
        let (from, to) = (&from.0, &to.0);
        ensure!(from.len() == to.len(), "buffers of one length");
        self.enqueue("cuMemcpyDtoDAsync", times, || {
            // SAFETY: both are blocks of this context, as long as is said, and `enqueue` waits before they can go.
            unsafe { (self.on_device_async)(to.address(), from.address(), from.len(), self.stream) }
        })
    }

    pub(crate) fn fill(&self, to: &mut Buffer, times: usize) -> Result<()> {
        self.enqueue("cuMemsetD32Async", times, || {
            // SAFETY: whole words within a block of this context, which stays while `enqueue` waits.
            unsafe { (self.fill)(to.0.address(), 1, to.0.len() / 4, self.stream) }
        })
    }

    /// Uploads bytes. `is_pinned` chooses the call that is measured; both calls are correct for either kind of memory.
    pub(crate) fn upload(&self, from: &[u8], to: &mut Buffer, is_pinned: bool) -> Result<()> {
        ensure!(from.len() <= to.0.len(), "a buffer that has room");
        let (to, len, from) = (to.0.address(), from.len(), from.as_ptr().expose_provenance() as u64);
        if is_pinned {
            // SAFETY: the slice has the bytes, the block the room; `enqueue` waits before either goes.
            self.enqueue("cuMemcpyHtoDAsync", 1, || unsafe { (self.to_device_async)(to, from, len, self.stream) })
        } else {
            // SAFETY: the slice has the bytes, the block the room; `at_once` waits before either goes.
            self.at_once("cuMemcpyHtoD", || unsafe { (self.to_device)(to, from, len) })
        }
    }

    /// Downloads bytes; see [`upload`](Self::upload).
    pub(crate) fn download(&self, from: &Buffer, to: &mut [u8], is_pinned: bool) -> Result<()> {
        ensure!(to.len() <= from.0.len(), "a buffer that has the bytes");
        let (from, len, to) = (from.0.address(), to.len(), to.as_mut_ptr().expose_provenance() as u64);
        if is_pinned {
            // SAFETY: the block has the bytes, the slice, borrowed alone, the room; `enqueue` waits before either goes.
            self.enqueue("cuMemcpyDtoHAsync", 1, || unsafe { (self.to_host_async)(to, from, len, self.stream) })
        } else {
            // SAFETY: the block has the bytes, the slice, borrowed alone, the room; `at_once` waits before either goes.
            self.at_once("cuMemcpyDtoH", || unsafe { (self.to_host)(to, from, len) })
        }
    }

    /// Enqueues a call several times, and waits for the stream even after an error. If waiting fails, the context is
    /// broken, and nothing runs in it any more.
    fn enqueue(&self, call: &str, times: usize, once: impl Fn() -> u32) -> Result<()> {
        let enqueued = (0..times).try_for_each(|_| answer(call, once()));
        // SAFETY: the stream lives.
        let waited = answer("cuStreamSynchronize", unsafe { (self.wait)(self.stream) });
        enqueued.and(waited)
    }

    /// Runs a synchronous call, and waits for the context: an upload may return once the driver has staged the bytes,
    /// but ours completes the transfer.
    fn at_once(&self, call: &str, once: impl Fn() -> u32) -> Result<()> {
        let done = answer(call, once());
        // SAFETY: a context is current.
        done.and(answer("cuCtxSynchronize", unsafe { (self.wait_for_all)() }))
    }
}

fn answer(call: &str, code: u32) -> Result<()> {
    ensure!(code == 0, "{call}: error {code}");
    Ok(())
}
