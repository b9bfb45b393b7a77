//! Memory that Python may write: private mappings of files and blocks of our own, and Python's buffers over them.
//!
//! One of the two files with unsafe code. Rust never holds a reference to bytes that Python can reach: a `Block` is an
//! address and a length, and only Python reads or writes there once a block is handed out.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use blob_io::Error;
use memmap2::{MmapMut, MmapOptions};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::dtype::names;
use crate::error::Stop;
use crate::tensor::Tensor;

#[cfg(target_endian = "big")]
compile_error!("arrays are handed out in the byte order of files, which is little-endian");

/// The alignment of blocks: a cache line, which jax and vector instructions want.
pub(crate) const ALIGN: usize = 64;

/// The alignment up to which the allocator hands out zeros without writing them.
const CHEAP: usize = 16;

/// A file mapped privately: writes change neither the file nor another mapping.
#[derive(Debug)]
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
// SAFETY: as above.
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

    /// The address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
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
    let number: c_int = object.call_method0("fileno")?.extract()?;
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

/// Plain bytes for numpy, which gives them a dtype and a shape.
#[pyclass(frozen, module = "blob_io._blob_io")]
pub(crate) struct Memory(pub(crate) Arc<Block>);

#[pymethods]
impl Memory {
    /// The buffer of all bytes.
    ///
    /// # Safety
    /// Python calls it with a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let block = slf.get().0.clone();
        let dims = [block.len()];
        // SAFETY: Python hands over a `Py_buffer` that it owns.
        unsafe { export(slf.into_any(), (block, &dims, c"B", 1), view, flags) }
    }

    /// Releases a buffer.
    ///
    /// # Safety
    /// Python calls it once with each view that `__getbuffer__` has filled.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: Python releases a view that `__getbuffer__` has filled, once.
        unsafe { release(view) }
    }
}

#[pymethods]
impl Tensor {
    /// The values as a buffer.
    ///
    /// # Safety
    /// Python calls it with a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let py = slf.py();
        let spec = slf.get().spec().map_err(Stop::from)?;
        let Some(format) = names(spec.dtype).buffer else {
            return Err(PyBufferError::new_err(
                "Python's buffers have no code for bf16: torch.from_dlpack and jax take it",
            ));
        };
        let block = slf.get().block(py, false)?;
        // SAFETY: Python hands over a `Py_buffer` that it owns.
        unsafe { export(slf.into_any(), (block, spec.shape.dims(), format, spec.dtype.size()), view, flags) }
    }

    /// Releases a buffer.
    ///
    /// # Safety
    /// Python calls it once with each view that `__getbuffer__` has filled.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: Python releases a view that `__getbuffer__` has filled, once.
        unsafe { release(view) }
    }
}

/// The memory that a filled view points to, besides the values.
struct Exported {
    _block: Arc<Block>,
    shape: Vec<isize>,
    strides: Vec<isize>,
}

/// Fills a view of row-major values: block, dims, format and the size of an item.
///
/// # Safety
/// `view` points to a `Py_buffer` that may be written. The block holds the values of these dims.
unsafe fn export(
    object: Bound<'_, PyAny>,
    (block, dims, format, size): (Arc<Block>, &[usize], &'static CStr, usize),
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let has = |flag: c_int| flags & flag == flag;
    if has(ffi::PyBUF_F_CONTIGUOUS) && dims.len() > 1 {
        return Err(PyBufferError::new_err("the values are row-major, not column-major"));
    }
    let shape: Vec<isize> = dims.iter().map(|dim| *dim as isize).collect();
    let mut strides = vec![size as isize; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    let (buf, len) = (block.start().as_ptr(), block.len());
    let mut exported = Box::new(Exported { _block: block, shape, strides });
    let of = |values: &mut Vec<isize>, is_asked: bool| {
        if is_asked && !dims.is_empty() { values.as_mut_ptr() } else { ptr::null_mut() }
    };
    let is_shaped = has(ffi::PyBUF_ND);
    let filled = ffi::Py_buffer {
        buf: buf.cast::<c_void>(),
        obj: object.into_ptr(),
        len: len as isize,
        itemsize: size as isize,
        readonly: 0,
        ndim: if is_shaped { dims.len() as c_int } else { 1 },
        format: if has(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { ptr::null_mut() },
        shape: of(&mut exported.shape, is_shaped),
        strides: of(&mut exported.strides, has(ffi::PyBUF_STRIDES)),
        suboffsets: ptr::null_mut(),
        internal: ptr::null_mut(),
    };
    // SAFETY: the caller promises that `view` may be written. What is written stays valid until the release: `obj` is a
    // reference of its own, `format` is static, and the box that keeps block, shape and strides is `internal`, which
    // `release` alone takes. Moving a box moves no vector's elements.
    unsafe {
        view.write(filled);
        (*view).internal = Box::into_raw(exported).cast::<c_void>();
    }
    Ok(())
}

/// Frees what `export` has put into a view.
///
/// # Safety
/// `export` has filled the view, which is released once.
unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: `internal` is the box of `export`, by the caller's promise, and nothing else takes it.
    drop(unsafe { Box::from_raw((*view).internal.cast::<Exported>()) });
}
