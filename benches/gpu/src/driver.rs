//! The driver's own copies and fills, called by hand: what ours are compared with. The door to the library; it relies on a
//! context that is current, which every call of a queue leaves behind.

use std::ffi::c_void;
use std::ptr;

use anyhow::{Result, ensure};
use libloading::Library;
use synced_mem::{Block, Queue};

type Copy = unsafe extern "C" fn(u64, u64, usize) -> u32;
type CopyAsync = unsafe extern "C" fn(u64, u64, usize, *mut c_void) -> u32;

/// The driver, with a stream of its own in the context of one queue. The stream ends with the process.
pub(crate) struct Driver {
    stream: *mut c_void,
    to_device: Copy,
    to_host: Copy,
    to_device_async: CopyAsync,
    to_host_async: CopyAsync,
    on_device_async: CopyAsync,
    fill: unsafe extern "C" fn(u64, u32, usize, *mut c_void) -> u32,
    wait: unsafe extern "C" fn(*mut c_void) -> u32,
}

impl Driver {
    /// Looked for under the names that the backend asks for, in the same order.
    pub(crate) fn new(queue: &dyn Queue) -> Result<Self> {
        queue.synchronize()?;
        let mut stream = ptr::null_mut();
        // SAFETY: each name is that of CUDA 12.0's driver API, with its signature; addresses are numbers of 64 bits there and
        // pointers of the host are as long. The library was loaded by the backend and stays: it is never closed.
        unsafe {
            let library = Library::new("libcuda.so").or_else(|_| Library::new("libcuda.so.1"))?;
            let library: &'static Library = Box::leak(Box::new(library));
            let create = library.get::<unsafe extern "C" fn(*mut *mut c_void, u32) -> u32>(b"cuStreamCreate\0")?;
            ensure!(create(&mut stream, 1) == 0, "cuStreamCreate");
            Ok(Self {
                stream,
                to_device: *library.get(b"cuMemcpyHtoD_v2\0")?,
                to_host: *library.get(b"cuMemcpyDtoH_v2\0")?,
                to_device_async: *library.get(b"cuMemcpyHtoDAsync_v2\0")?,
                to_host_async: *library.get(b"cuMemcpyDtoHAsync_v2\0")?,
                on_device_async: *library.get(b"cuMemcpyDtoDAsync_v2\0")?,
                fill: *library.get(b"cuMemsetD32Async\0")?,
                wait: *library.get(b"cuStreamSynchronize\0")?,
            })
        }
    }

    /// From the first block to the second, which are equally long.
    pub(crate) fn copy(&self, from: &dyn Block, to: &dyn Block) -> Result<()> {
        ensure!(from.len() == to.len(), "blocks of one length");
        // SAFETY: both blocks live until the caller has waited, and nothing else uses them.
        answer("cuMemcpyDtoDAsync", unsafe {
            (self.on_device_async)(to.address(), from.address(), from.len(), self.stream)
        })
    }

    pub(crate) fn fill(&self, block: &dyn Block) -> Result<()> {
        // SAFETY: as above; whole words within the block.
        answer("cuMemsetD32Async", unsafe { (self.fill)(block.address(), 1, block.len() / 4, self.stream) })
    }

    /// Asynchronous where the bytes are pinned, which then must stay until `wait`.
    pub(crate) fn upload(&self, from: &[u8], to: &dyn Block, is_pinned: bool) -> Result<()> {
        ensure!(from.len() <= to.len(), "a block that has room");
        let (to, len, from) = (to.address(), from.len(), from.as_ptr().expose_provenance() as u64);
        // SAFETY: the slice has the bytes, the block the room; the caller waits before either goes.
        answer("cuMemcpyHtoD", unsafe {
            if is_pinned { (self.to_device_async)(to, from, len, self.stream) } else { (self.to_device)(to, from, len) }
        })
    }

    /// The reverse.
    pub(crate) fn download(&self, from: &dyn Block, to: &mut [u8], is_pinned: bool) -> Result<()> {
        ensure!(to.len() <= from.len(), "a block that has the bytes");
        let (from, len, to) = (from.address(), to.len(), to.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: as above.
        answer("cuMemcpyDtoH", unsafe {
            if is_pinned { (self.to_host_async)(to, from, len, self.stream) } else { (self.to_host)(to, from, len) }
        })
    }

    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the stream lives.
        answer("cuStreamSynchronize", unsafe { (self.wait)(self.stream) })
    }
}

fn answer(call: &str, code: u32) -> Result<()> {
    ensure!(code == 0, "{call}: error {code}");
    Ok(())
}
