//! Python's buffers over blocks: a view of row-major values, filled and released; the bytes of a `Memory`.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::Block;

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
        // SAFETY: Python hands over a `Py_buffer` of its own. The block has `len` bytes, and the `Memory`, which never
        // changes, holds the block.
        unsafe { export(slf.into_any(), &block, &dims, c"B", 1, view, flags) }
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
    shape: Vec<isize>,
    strides: Vec<isize>,
}

/// Fills a view of row-major values, each an item of `size` bytes.
///
/// # Safety
/// `view` points to a `Py_buffer` that may be written. The block has the values of these dims, and `object` holds the
/// block for as long as `object` lives, not only until the view is released: numpy's `ndarray(buffer=t)` and
/// `torch.frombuffer(t)` release the view at once, keep the object, and use the address for as long.
pub(crate) unsafe fn export(
    object: Bound<'_, PyAny>,
    block: &Block,
    dims: &[usize],
    format: &'static CStr,
    size: usize,
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
    let mut exported = Box::new(Exported { shape, strides });
    let of = |values: &mut Vec<isize>, is_asked: bool| {
        if is_asked && !dims.is_empty() { values.as_mut_ptr() } else { ptr::null_mut() }
    };
    let is_shaped = has(ffi::PyBUF_ND);
    let filled = ffi::Py_buffer {
        buf: block.start().as_ptr().cast::<c_void>(),
        obj: object.into_ptr(),
        len: block.len() as isize,
        itemsize: size as isize,
        readonly: 0,
        ndim: if is_shaped { dims.len() as c_int } else { 1 },
        format: if has(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { ptr::null_mut() },
        shape: of(&mut exported.shape, is_shaped),
        strides: of(&mut exported.strides, has(ffi::PyBUF_STRIDES)),
        suboffsets: ptr::null_mut(),
        internal: ptr::null_mut(),
    };
    // SAFETY: the caller promises that `view` may be written. The fields stay valid until the release: `obj` is a
    // reference of its own, which by the caller's promise keeps the bytes at `buf`, `format` is static, and the box
    // that keeps shape and strides is `internal`, which `release` alone takes. Moving a box moves no vector's elements.
    unsafe {
        view.write(filled);
        (*view).internal = Box::into_raw(exported).cast::<c_void>();
    }
    Ok(())
}

/// Frees the box that `export` has put into a view.
///
/// # Safety
/// `export` has filled the view, which is released once.
pub(crate) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: `internal` is the box of `export`, by the caller's promise, and nothing else takes it.
    drop(unsafe { Box::from_raw((*view).internal.cast::<Exported>()) });
}
