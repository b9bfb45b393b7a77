//! Memory that Python may write: private mappings of files and blocks of our own, and Python's buffers over them.
//!
//! One of the two files with unsafe code. Rust never holds a reference to bytes that Python can reach: a `Block` is an
//! address and a length, and only Python reads or writes there once a block is handed out.

mod buffer;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use blob_core::{AnyBlob, DType, Shape};
use blob_io::Error;
use memmap2::{MmapMut, MmapOptions};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use synced_mem::{Access, HostBuffer, SharedMem};

pub(crate) use buffer::{Memory, export, release};

#[cfg(target_endian = "big")]
compile_error!("arrays are handed out in the byte order of files, which is little-endian");

/// The alignment of blocks: a cache line, which jax and vector instructions want.
pub(crate) const ALIGN: usize = 64;

/// The alignment up to which the allocator hands out zeros without writing them.
const CHEAP: usize = 16;

/// Blocks of this size or more are mappings of their own, with huge pages where the system has them: numpy asks for
/// these from 4 MiB on, too.
const HUGE: usize = 4 << 20;

/// A file mapped privately, where writes change neither the file nor another mapping; or memory of no file.
pub(crate) struct Mapped(MmapMut);

impl Mapped {
    /// Maps a whole file. No memory is reserved for pages that are never written.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: `map_copy` asks that nobody uses a reference into the mapping while the file changes. No reference is
        // made: `as_ptr` reads the address alone, and `Mapped` offers nothing else. Python reads through addresses, as
        // from any memory that others may write; a page beyond the end of a file that was cut is a SIGBUS, which
        // the documentation says, and no access of Rust's.
        unsafe { MmapOptions::new().no_reserve_swap().map_copy(file) }.map(Self)
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The reason why a block's bytes stay where they are.
enum Owner {
    /// An allocation of this layout, at this address.
    Allocation(NonNull<u8>, Layout),
    /// The block lies in the mapping.
    Mapping { _mapping: Arc<Mapped> },
    /// The block lies in another one.
    Block { _block: Arc<Block> },
    /// No bytes.
    Nothing,
}

/// Bytes that stay at one address for as long as the block lives.
pub(crate) struct Block {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

// SAFETY: an allocation belongs to its block alone, and a mapping is `Send` and `Sync`; the methods read no byte.
unsafe impl Send for Block {}
// SAFETY: an allocation belongs to its block alone, and a mapping is `Send` and `Sync`; the methods read no byte.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        if let Owner::Allocation(start, layout) = self.owner {
            // SAFETY: `filled` got this address from `alloc_zeroed` with this layout; nothing else frees it, and a
            // block is dropped once.
            unsafe { dealloc(start.as_ptr(), layout) }
        }
    }
}

impl Block {
    /// A block of `len` bytes, aligned to [`ALIGN`], which `fill` writes before anybody else knows the block.
    ///
    /// # Errors
    /// [`Error::Memory`] where the allocator refuses; the errors of `fill`.
    pub(crate) fn filled(
        file: &str,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        if len == 0 {
            return Ok(Self { start: aligned_dangling(), len, owner: Owner::Nothing });
        }
        let refused =
            || Error::Memory { file: file.to_owned(), message: format!("{len} bytes are more than there are") };
        if len >= HUGE {
            let mut map = MmapMut::map_anon(len).map_err(|_| refused())?;
            // A system without huge pages refuses, and gives small ones.
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage);
            fill(&mut map)?;
            return Self::view(&Arc::new(Mapped(map)), 0, len).ok_or_else(refused);
        }
        let layout = len.checked_add(ALIGN - CHEAP).and_then(|size| Layout::from_size_align(size, CHEAP).ok());
        let layout = layout.ok_or_else(refused)?;
        // SAFETY: the size of the layout is `len` or more, which is not 0.
        let found = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        let ahead = found.as_ptr().align_offset(ALIGN);
        assert!(ahead <= ALIGN - CHEAP, "an allocation is aligned to {CHEAP} bytes");
        // SAFETY: `ahead` is at most ALIGN - CHEAP, which the allocation has besides `len` bytes.
        let start = unsafe { found.add(ahead) };
        let block = Self { start, len, owner: Owner::Allocation(found, layout) };
        // SAFETY: `len` initialised bytes lie at `start`, all in the allocation, which nobody else knows before this
        // function returns; the slice ends with `fill`.
        fill(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) })?;
        Ok(block)
    }

    /// The `len` bytes of a mapping from `offset` on; `None` where the mapping is shorter.
    pub(crate) fn view(mapping: &Arc<Mapped>, offset: usize, len: usize) -> Option<Self> {
        if offset.checked_add(len)? > mapping.len() {
            return None;
        }
        // SAFETY: `offset` is at most the mapping's length, so the address lies in the mapping or just behind.
        let start = unsafe { NonNull::new(mapping.0.as_ptr().cast_mut())?.add(offset) };
        Some(Self { start, len, owner: Owner::Mapping { _mapping: mapping.clone() } })
    }

    /// A block of the same bytes.
    ///
    /// # Errors
    /// As [`Block::filled`].
    pub(crate) fn copied(&self) -> Result<Self, Error> {
        Self::filled("", self.len, |out| {
            // SAFETY: the block has `len` initialised bytes, and `out`, just allocated, is as long and lies elsewhere.
            unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), out.as_mut_ptr(), self.len) };
            Ok(())
        })
    }

    /// A part of a block, which keeps the whole alive.
    pub(crate) fn part(whole: &Arc<Self>, offset: usize, len: usize) -> Self {
        assert!(offset.checked_add(len).is_some_and(|end| end <= whole.len), "a part lies in its block");
        // SAFETY: `offset` is at most the block's length, so the address lies in the block or just behind.
        let start = unsafe { whole.start.add(offset) };
        Self { start, len, owner: Owner::Block { _block: whole.clone() } }
    }

    /// The bytes, for as long as the caller keeps the block.
    pub(crate) fn span(&self) -> Span {
        // SAFETY: the bytes are initialised, and stay as long as the block, which each caller holds beside the span:
        // `Given`, and `Shown` of `stats`.
        unsafe { Span::new(self.start, self.len) }
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Bytes at an address, whose owner lives elsewhere.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length; `Span::new` has the promise that the bytes may be read by any thread.
unsafe impl Send for Span {}
// SAFETY: an address and a length; `Span::new` has the promise that the bytes may be read by any thread.
unsafe impl Sync for Span {}

impl Span {
    /// The `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes are initialised, and any thread may read them, until the span and all copies of it were used for the
    /// last time.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    /// The bytes of a contiguous buffer. The caller keeps the buffer for as long as the span is used.
    pub(crate) fn of_buffer(buffer: &PyUntypedBuffer) -> Self {
        let start = NonNull::new(buffer.buf_ptr().cast::<u8>()).unwrap_or_else(aligned_dangling);
        // SAFETY: an exporter keeps `len` bytes at this address until the buffer is released. `Given` holds the buffer
        // beside the span, and each call keeps its `Given` until the work with the span has ended.
        unsafe { Self::new(start, buffer.len_bytes()) }
    }

    /// The bytes of `bytes` of Python, which never change. The caller keeps these for as long as the span is used.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        // SAFETY: Python's bytes are initialised, never change, and are readable by any thread; the caller keeps the
        // object for as long as the span is used.
        unsafe { Self::new(NonNull::from(bytes).cast(), bytes.len()) }
    }

    /// The number of bytes.
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Copies the bytes from `at` on into `out`.
    pub(crate) fn copy(self, at: usize, out: &mut [u8]) {
        assert!(at.checked_add(out.len()).is_some_and(|end| end <= self.len), "past the end of an array");
        // SAFETY: the bytes lie within the span, by the assertion; they may be read, by the promise of `new`; `out` is
        // ours alone. An array that Python writes meanwhile gives old or new bytes, and the documentation forbids it.
        unsafe { ptr::copy_nonoverlapping(self.start.as_ptr().add(at), out.as_mut_ptr(), out.len()) }
    }

    /// The bytes as a blob to read from, without a copy. The caller drops the blob before the owner of the bytes.
    pub(crate) fn blob(self, shape: Shape, dtype: DType) -> Result<AnyBlob, blob_core::Error> {
        // SAFETY: the bytes are initialised, and any thread may read them, by the promise of `new`; operations only
        // read their inputs, and nobody writes through a buffer that may be read alone. The owner is none of ours.
        let buffer = unsafe { HostBuffer::from_raw(self.start, self.len, Access::Read, Box::new(())) };
        AnyBlob::from_parts(shape, dtype, SharedMem::from(buffer), None)
    }
}

/// Calls `work` with blobs over parts of `out`, to be written: where each part begins, and its shape.
pub(crate) fn with_blobs<T>(
    out: &mut [u8],
    parts: &[(usize, Shape)],
    dtype: DType,
    work: impl FnOnce(&mut [&mut AnyBlob]) -> Result<T, blob_ops::Error>,
) -> Result<T, Error> {
    let (mut blobs, mut rest, mut at) = (Vec::new(), out, 0);
    for (begin, shape) in parts {
        let len = shape.count() * dtype.size();
        assert!(*begin >= at, "parts lie one after the other in their memory");
        let (_, behind) = rest.split_at_mut(begin - at);
        let (part, behind) = behind.split_at_mut(len);
        (rest, at) = (behind, begin + len);
        // SAFETY: `part` has `len` initialised bytes, which are in no other part, and `out` is borrowed for this call
        // and not used before the call ends. The blobs live in this call alone: `work` gets them by reference and hands
        // none of them on.
        let buffer = unsafe { HostBuffer::from_raw(NonNull::from(part).cast(), len, Access::Write, Box::new(())) };
        blobs.push(AnyBlob::from_parts(shape.clone(), dtype, SharedMem::from(buffer), None)?);
    }
    let mut blobs: Vec<&mut AnyBlob> = blobs.iter_mut().collect();
    work(&mut blobs).map_err(refused)
}

/// The refusal of an operation, as an error of files, in which all errors of blobs fit.
pub(crate) fn refused(error: blob_ops::Error) -> Error {
    Error::Request { file: String::new(), message: error.to_string() }
}

/// An address for no bytes, aligned as all others are.
fn aligned_dangling() -> NonNull<u8> {
    #[repr(align(64))]
    struct Line;
    NonNull::<Line>::dangling().cast()
}

/// The descriptor of an open file object, duplicated: positioned reads do not move the object's place.
#[cfg(unix)]
pub(crate) fn duplicate(object: &Bound<'_, PyAny>) -> PyResult<Option<File>> {
    use std::os::fd::BorrowedFd;
    let number: i32 = object.call_method0("fileno")?.extract()?;
    if number < 0 {
        return Ok(None);
    }
    // SAFETY: the object, alive for this call, has the descriptor open, and duplicating it ends the borrow. Where
    // another thread closes the object meanwhile, the duplication fails or takes the file that got the number, as
    // `os.dup` would; no memory depends on which.
    let owned = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()?;
    Ok(Some(File::from(owned)))
}

/// Other systems have no descriptor that Rust can duplicate: the object's own `seek` and `read` are used.
#[cfg(not(unix))]
pub(crate) fn duplicate(_: &Bound<'_, PyAny>) -> PyResult<Option<File>> {
    Ok(None)
}

/// Whether a path still leads to this file.
#[cfg(unix)]
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |meta: std::fs::Metadata| (meta.dev(), meta.ino(), meta.len(), meta.is_file());
    let (here, there) = (file.metadata().map(place), std::fs::metadata(path).map(place));
    here.is_ok_and(|here| here.3 && there.is_ok_and(|there| here == there))
}

/// Other systems do not let an open file be replaced.
#[cfg(not(unix))]
pub(crate) fn is_at(file: &File, _: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file())
}
