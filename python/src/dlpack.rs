//! Tensors handed to torch, jax, numpy and others without a copy, as buffers and by DLPack, and taken by DLPack.
//!
//! One of the two modules with unsafe code. The structs are `blob_core`'s; both kinds of capsule are made and taken:
//! the versioned one, and the older one without flags.

mod strided;

use std::any::Any;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use blob_core::dlpack::{
    CPU, CUDA_HOST, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, IS_COPIED, VERSION, data_type, dtype,
};
use blob_core::{MAX_AXES, Shape};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::dtype::names;
use crate::error::Stop;
use crate::given::Given;
use crate::mapping::{Block, Span, export, release};
use crate::tensor::Tensor;
use crate::work::here;
use strided::Strided;

/// The memory behind a capsule's tensor.
struct Lent {
    _block: Arc<Block>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// A struct that a capsule holds.
trait Managed: Sized + 'static {
    /// The capsule's name, and the name once a consumer has taken the struct.
    const NAMES: [&CStr; 2];

    fn new(tensor: DLTensor, lent: *mut Lent, flags: u64) -> Self;

    fn lent(&self) -> *mut Lent;

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl Managed for DLManagedTensor {
    const NAMES: [&CStr; 2] = [c"dltensor", c"used_dltensor"];

    fn new(dl_tensor: DLTensor, lent: *mut Lent, _: u64) -> Self {
        Self { dl_tensor, manager_ctx: lent.cast(), deleter: Some(delete::<Self>) }
    }

    fn lent(&self) -> *mut Lent {
        self.manager_ctx.cast()
    }

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

impl Managed for DLManagedTensorVersioned {
    const NAMES: [&CStr; 2] = [c"dltensor_versioned", c"used_dltensor_versioned"];

    fn new(dl_tensor: DLTensor, lent: *mut Lent, flags: u64) -> Self {
        Self { version: VERSION, manager_ctx: lent.cast(), deleter: Some(delete::<Self>), flags, dl_tensor }
    }

    fn lent(&self) -> *mut Lent {
        self.manager_ctx.cast()
    }

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

/// Frees the boxes of `capsule`. Touches no object of Python: consumers call the deleter from any thread, also after
/// the interpreter's end.
unsafe extern "C" fn delete<M: Managed>(managed: *mut M) {
    // SAFETY: consumers call the deleter once, with the struct that `capsule` has boxed, and so does `unused` where no
    // consumer came.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: `capsule` has put a box of its own there, which nothing else takes.
    drop(unsafe { Box::from_raw(managed.lent()) });
}

/// Frees the tensor of a capsule that no consumer has taken: one that has renames the capsule.
unsafe extern "C" fn unused<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls the destructor with a capsule that is alive for the call.
    let is_ours = unsafe { ffi::PyCapsule_IsValid(capsule, M::NAMES[0].as_ptr()) } == 1;
    if is_ours {
        // SAFETY: the capsule is valid under this name, and so holds the struct of `capsule`, which no consumer has.
        unsafe { delete(ffi::PyCapsule_GetPointer(capsule, M::NAMES[0].as_ptr()).cast::<M>()) };
    }
}

/// A capsule with the values of a block.
fn capsule<'py, M: Managed>(
    py: Python<'py>,
    block: Arc<Block>,
    spec: &blob_io::layout::TensorSpec,
    flags: u64,
) -> PyResult<Bound<'py, PyCapsule>> {
    let dims = spec.shape.dims();
    let shape: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    let mut strides = vec![1_i64; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    let data = block.start().as_ptr().cast::<c_void>();
    let mut lent = Box::new(Lent { _block: block, shape, strides });
    let tensor = DLTensor {
        data,
        device: DLDevice { device_type: CPU, device_id: 0 },
        ndim: dims.len() as i32,
        dtype: data_type(spec.dtype),
        shape: lent.shape.as_mut_ptr(),
        strides: lent.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    // The vectors' elements stay where they are when their box becomes a pointer.
    let managed = Box::new(M::new(tensor, Box::into_raw(lent), flags));
    let pointer = NonNull::from(Box::leak(managed));
    // SAFETY: the pointer is that of a box that lives until its deleter runs: a consumer calls it once, and where none
    // comes `unused` does. Both may run in any thread.
    let made =
        unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer.cast(), M::NAMES[0], Some(unused::<M>)) };
    if made.is_err() {
        // SAFETY: no capsule holds the box.
        unsafe { delete(pointer.as_ptr()) };
    }
    made
}

#[pymethods]
impl Tensor {
    /// A capsule of DLPack: versioned where `max_version` is (1, 0) or more.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyCapsule>, Stop> {
        let refuse = |text: &str| Err(PyBufferError::new_err(text.to_owned()).into());
        if stream.is_some() {
            return refuse("a tensor of the host has no stream");
        }
        if dl_device.is_some_and(|device| device != (CPU, 0)) {
            return refuse("the tensor is of the host; the array library moves it");
        }
        if copy == Some(false) && !self.is_in_memory() {
            return refuse("the tensor is not a view: its values have to be copied from the file");
        }
        let (spec, block) = (self.spec()?, self.block(py, copy == Some(true))?);
        let flags = if copy == Some(true) { IS_COPIED } else { 0 };
        Ok(if max_version.is_some_and(|(major, _)| major >= 1) {
            capsule::<DLManagedTensorVersioned>(py, block, &spec, flags)?
        } else {
            capsule::<DLManagedTensor>(py, block, &spec, flags)?
        })
    }

    /// The device: that of the host.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
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
        let format = names(spec.dtype).buffer.ok_or_else(|| {
            PyBufferError::new_err("Python's buffers have no code for bf16: torch.from_dlpack and jax take it")
        })?;
        let block = slf.get().exported(py)?.clone();
        // SAFETY: Python hands over a `Py_buffer` of its own. The block has the values of the tensor's shape and dtype,
        // and the tensor holds this block from `exported` on, since nothing empties a `OnceLock` behind a shared
        // reference.
        unsafe { export(slf.into_any(), &block, spec.shape.dims(), format, spec.dtype.size(), view, flags) }
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

/// A tensor that another library has handed over; dropped, it is given back.
struct Taken<M: Managed>(NonNull<M>);

impl<M: Managed> Taken<M> {
    /// The tensor of a capsule of this kind. The new name tells everybody that it is ours.
    fn of(capsule: &Bound<'_, PyAny>) -> Option<Self> {
        let [name, used] = M::NAMES.map(CStr::as_ptr);
        // SAFETY: `capsule` is a reference that lives for this call, and its name is compared before its pointer, which
        // is not null then, is taken as that name's struct.
        unsafe {
            let is_of_this_kind = ffi::PyCapsule_IsValid(capsule.as_ptr(), name) == 1;
            let pointer = is_of_this_kind.then(|| ffi::PyCapsule_GetPointer(capsule.as_ptr(), name).cast::<M>())?;
            ffi::PyCapsule_SetName(capsule.as_ptr(), used);
            NonNull::new(pointer).map(Self)
        }
    }
}

impl<M: Managed> Drop for Taken<M> {
    fn drop(&mut self) {
        // SAFETY: `of` has renamed the capsule, which makes this the one that calls the deleter, once.
        unsafe {
            if let Some(deleter) = self.0.as_ref().deleter() {
                deleter(self.0.as_ptr());
            }
        }
    }
}

/// Takes an array by DLPack, from the host's memory.
pub(crate) fn taken(array: &Bound<'_, PyAny>) -> Result<Given, Stop> {
    let py = array.py();
    let (kind, _): (i32, i32) = array.call_method0("__dlpack_device__")?.extract()?;
    if kind != CPU && kind != CUDA_HOST {
        return Err(PyBufferError::new_err("the array is on a device: move it to the host, as x.cpu()").into());
    }
    // torch hands out no tensor that a gradient is taken of.
    let detached = array.getattr("detach").and_then(|detach| detach.call0());
    let array = detached.as_ref().unwrap_or(array);
    let asked = PyDict::new(py);
    asked.set_item("max_version", (VERSION.major, VERSION.minor))?;
    let capsule = match array.call_method("__dlpack__", (), Some(&asked)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => array.call_method0("__dlpack__")?,
        capsule => capsule?,
    };
    if let Some(taken) = Taken::<DLManagedTensorVersioned>::of(&capsule) {
        // SAFETY: the struct is ours until `taken` is dropped, and `given` gets `taken` beside the reference.
        let managed = unsafe { taken.0.as_ref() };
        if managed.version.major != VERSION.major {
            return Err(PyBufferError::new_err("the array has another version of DLPack than 1").into());
        }
        // SAFETY: the producer has promised what DLPack asks for, until `taken` is dropped.
        return unsafe { given(py, &managed.dl_tensor, Box::new(taken)) };
    }
    let taken = Taken::<DLManagedTensor>::of(&capsule)
        .ok_or_else(|| PyBufferError::new_err("__dlpack__ returned no capsule of DLPack"))?;
    // SAFETY: the struct is ours until `taken` is dropped, and the producer has promised what DLPack asks for.
    unsafe { given(py, &taken.0.as_ref().dl_tensor, Box::new(taken)) }
}

/// The values of a tensor, which `keep` keeps: in place where they lie row after row, else copied.
///
/// # Safety
/// The tensor is as its producer promises by DLPack, and stays so until `keep` is dropped. Facts that contradict
/// themselves are refused.
unsafe fn given(py: Python<'_>, tensor: &DLTensor, keep: Box<dyn Any>) -> Result<Given, Stop> {
    let dtype =
        dtype(tensor.dtype).ok_or_else(|| PyBufferError::new_err("no file has elements of the array's dtype"))?;
    // SAFETY: by the caller's promise.
    let (dims, strides) = unsafe { stated(tensor) }?;
    let shape = Shape::new(&dims).map_err(|error| PyBufferError::new_err(error.to_string()))?;
    let len = shape.count().checked_mul(dtype.size()).filter(|len| isize::try_from(*len).is_ok());
    let len = len.ok_or_else(|| contradicts("more bytes than there are addresses"))?;
    if len == 0 {
        return Ok(Given::kept(Span::of_bytes(&[]), dtype, shape, keep));
    }
    let data = NonNull::new(tensor.data.cast::<u8>()).ok_or_else(|| contradicts("values, but no address"))?;
    let offset = usize::try_from(tensor.byte_offset).ok();
    let begin = offset.filter(|offset| data.addr().checked_add(*offset).is_some());
    let start = begin.and_then(|offset| NonNull::new(data.as_ptr().wrapping_add(offset)));
    let start = start.ok_or_else(|| contradicts("an offset past all addresses"))?;
    // SAFETY: each element lies where the strides say, by the caller's promise, and stays until `keep` is dropped. This
    // function drops `keep` after the last use of `strided`, or hands `keep` on to `Given`.
    let strided = unsafe { Strided::new(start, &dims, strides, dtype.size()) };
    let strided = strided.ok_or_else(|| contradicts("strides past all addresses"))?;
    if strided.is_plain() {
        // SAFETY: `len` bytes lie there row after row, by the caller's promise, for as long as `keep` lives, which
        // `Given` holds beside the span.
        return Ok(Given::kept(unsafe { Span::new(start, len) }, dtype, shape, keep));
    }
    let block = here(py, |watch| Block::filled("", len, |out| strided.copy(watch, out)))?;
    drop(keep);
    Ok(Given::kept(block.span(), dtype, shape, block))
}

/// The extents, and the strides where there are some.
///
/// # Safety
/// As for [`given`].
unsafe fn stated(tensor: &DLTensor) -> PyResult<(Vec<usize>, Option<&[i64]>)> {
    let axes = usize::try_from(tensor.ndim).ok().filter(|axes| *axes <= MAX_AXES);
    let axes = axes.ok_or_else(|| contradicts(&format!("{} axes", tensor.ndim)))?;
    if axes == 0 {
        return Ok((Vec::new(), None));
    }
    if tensor.shape.is_null() {
        return Err(contradicts("axes, but no shape"));
    }
    // SAFETY: by the caller's promise `ndim` extents lie at `shape`, which is not null, and as many strides at
    // `strides` where that is not null; both stay for as long as the tensor.
    let (dims, strides) = unsafe {
        let strides = (!tensor.strides.is_null()).then(|| slice::from_raw_parts(tensor.strides, axes));
        (slice::from_raw_parts(tensor.shape, axes), strides)
    };
    let dims: Result<Vec<usize>, _> = dims.iter().map(|dim| usize::try_from(*dim)).collect();
    Ok((dims.map_err(|_| contradicts("a negative extent"))?, strides))
}

fn contradicts(text: &str) -> PyErr {
    PyBufferError::new_err(format!("the array's tensor of DLPack has {text}"))
}
