//! Access to the caller's memory: pointer arguments, pinned blocks, and the address range that represents device
//! memory, which the host cannot access. Each function states the caller's promise.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::abi::Code;

/// A pointer through which an entry point returns a value.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Returns the value; null is the caller's mistake.
    pub(crate) fn put(self, value: T) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the C interface has its caller pass null or a place that a `T` can be written to.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// The same place for a value of another type.
    pub(crate) fn narrow<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Returns the value if the caller has asked for one.
    pub(crate) fn put_if_wanted(self, value: T) {
        let _ = self.put(value);
    }
}

/// A pointer to values that an entry point reads.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// The value at an index.
    pub(crate) fn get(self, index: usize) -> Result<T, Code> {
        if self.is_null() {
            Err(Code::INVALID_VALUE)
        } else {
            // SAFETY: the C interface has its caller pass null or as many values as the entry point says that it reads.
            unsafe { Ok(self.0.add(index).read_unaligned()) }
        }
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The values from an index on.
    pub(crate) fn from(self, index: usize) -> Self {
        In(self.0.wrapping_add(index))
    }
}

impl In<c_char> {
    /// The text up to the zero byte.
    pub(crate) fn text(self) -> Result<&'static str, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the C interface has its caller pass a text that ends with a zero byte; it is used within the call
        // only.
        unsafe { CStr::from_ptr(self.0) }.to_str().map_err(|_| Code::INVALID_VALUE)
    }
}

/// The bytes at an address of the host.
pub(crate) fn bytes<'a>(address: usize, len: usize) -> &'a [u8] {
    match len {
        0 => &[],
        // SAFETY: the C interface has its caller pass a readable range, which stays until the copy is done: a pageable
        // one until the call returns, a pinned one until it is freed, which reports a copy that is still under way. A
        // launch on a GPU that shares the host's memory has its caller keep what the kernel reads until the launch is
        // over.
        _ => unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(address), len) },
    }
}

/// Whether an address cannot be device memory.
pub(crate) fn is_host(address: u64) -> bool {
    !(FIRST.load(Relaxed) as u64..LAST.load(Relaxed) as u64).contains(&address)
}

/// Writes bytes to an address of the host.
pub(crate) fn write(address: usize, bytes: &[u8]) {
    // SAFETY: the C interface has its caller pass a writable range without another user, which stays until the copy
    // is done: a pageable one until the call returns, a pinned one until it is freed; `bytes` is a slice of the GPU's
    // memory and cannot overlap it.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), ptr::with_exposed_provenance_mut(address), bytes.len()) }
}

const PAGE: usize = 4096;

fn layout(len: usize) -> Result<Layout, Code> {
    Layout::from_size_align(len.max(1), PAGE).map_err(|_| Code::OUT_OF_MEMORY)
}

/// A block of host memory at a page, filled with bytes that are not to be read before a write.
pub(crate) fn allocate(len: usize) -> Result<usize, Code> {
    // SAFETY: the size is not 0, and the bytes that are filled are those of the new block.
    let start = unsafe {
        let start = alloc(layout(len)?);
        if !start.is_null() {
            start.write_bytes(0xCB, len);
        }
        start
    };
    if start.is_null() { Err(Code::OUT_OF_MEMORY) } else { Ok(start.expose_provenance()) }
}

/// Gives back a block of [`allocate`], of which the driver's table knows the length.
pub(crate) fn free(start: usize, len: usize) {
    if let Ok(layout) = layout(len) {
        // SAFETY: the driver's table holds only blocks of `allocate` with their lengths, and gives each one away once.
        unsafe { dealloc(ptr::with_exposed_provenance_mut(start), layout) }
    }
}

/// Reserves addresses that represent device memory: any access ends the process.
pub(crate) fn reserve(len: usize) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, which replaces nothing.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    assert!(start != libc::MAP_FAILED, "fake-cuda: no address range of {len} bytes for a device's memory");
    let start = start.expose_provenance();
    if FIRST.compare_exchange(0, start, Relaxed, Relaxed).is_ok() {
        name_the_cause();
    }
    LAST.fetch_max(start + len, Relaxed);
    FIRST.fetch_min(start, Relaxed);
    start
}

/// The lowest and the highest address that represents device memory.
static FIRST: AtomicUsize = AtomicUsize::new(0);
static LAST: AtomicUsize = AtomicUsize::new(0);

/// The previous handler of a bad access.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs a handler, so that a process that accesses device memory prints the reason of its end.
fn name_the_cause() {
    extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        const TEXT: &[u8] = b"fake-cuda: the host touches device memory\n";
        // SAFETY: the system passes a valid record; `write` and `sigaction` may be called in a handler. The access is
        // then tried again and meets the handler that was there before, which ends the process.
        unsafe {
            let address = (*info).si_addr() as usize;
            if (FIRST.load(Relaxed)..LAST.load(Relaxed)).contains(&address) {
                libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len());
            }
            libc::sigaction(signal, BEFORE.get().map_or(ptr::null(), ptr::from_ref), ptr::null_mut());
        }
    }
    // SAFETY: all fields of the record may be zero; the handler has the signature that `SA_SIGINFO` asks for, and runs
    // on the stack that Rust's own handler has set up.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigaction(libc::SIGSEGV, ptr::null(), &raw mut before);
        BEFORE.get_or_init(|| before);
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut());
    }
}
