//! Arrays that Python hands over: tensors of ours, buffers, and DLPack's capsules, each by the way that it has.

use std::ffi::{CStr, CString};

use blob_core::{DType, Shape};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyMemoryView;

use crate::dlpack;
use crate::dtype::of_buffer;
use crate::error::Stop;
use crate::given::Given;
use crate::mapping::Span;
use crate::tensor::Tensor;

/// Takes an array: a tensor of ours, anything with a buffer, or with DLPack. Values that do not lie row
/// after row are copied.
pub(crate) fn taken(array: &Bound<'_, PyAny>) -> Result<Given, Stop> {
    let py = array.py();
    py.check_signals()?;
    if let Ok(tensor) = array.cast::<Tensor>() {
        let (spec, block) = (tensor.get().spec()?, tensor.get().block(py, false)?);
        return Ok(Given::kept(block.span(), spec.dtype, spec.shape, block));
    }
    if array.hasattr("mask")? && array.hasattr("filled")? {
        let text = "a masked array has values that do not count, and no file can say so; give array.filled(VALUE)";
        return Err(PyTypeError::new_err(text).into());
    }
    if is_bf16(array) {
        let bits = taken(&array.call_method1("view", ("uint16",))?)?;
        return Ok(bits.of_dtype(DType::BF16));
    }
    match PyUntypedBuffer::get(array) {
        Ok(buffer) => from_buffer(array, buffer),
        Err(_) if array.hasattr("__dlpack__")? => dlpack::taken(array),
        Err(refusal) => from_view(array, refusal),
    }
}

fn from_buffer(array: &Bound<'_, PyAny>, buffer: PyUntypedBuffer) -> Result<Given, Stop> {
    let (format, size) = (buffer.format(), buffer.item_size());
    let dtype = of_buffer(format, size).ok_or_else(|| foreign(format))?;
    let shape = Shape::new(buffer.shape())?;
    if buffer.is_c_contiguous() {
        return Ok(Given::kept(Span::of_buffer(&buffer), dtype, shape, buffer));
    }
    let copy: PyBackedBytes = PyMemoryView::from(array)?.call_method0("tobytes")?.extract().map_err(PyErr::from)?;
    Ok(Given::kept(Span::of_bytes(&copy), dtype, shape, copy))
}

/// A buffer whose exporter states less than is asked for: no shape where there are no axes, no strides as those of
/// ctypes. A view of Python's states both.
fn from_view(array: &Bound<'_, PyAny>, refusal: PyErr) -> Result<Given, Stop> {
    let view = match PyMemoryView::from(array) {
        Err(error) if error.is_instance_of::<PyTypeError>(array.py()) => {
            let kind = array.get_type().name()?;
            let text = format!("an array has a buffer or __dlpack__, and {kind} has neither");
            return Err(PyTypeError::new_err(text).into());
        }
        view => view?,
    };
    if view.getattr("ndim")?.extract::<usize>()? != 0 {
        return from_buffer(&view, PyUntypedBuffer::get(&view).map_err(|_| refusal)?);
    }
    let (format, size) = (view.getattr("format")?.extract::<CString>()?, view.getattr("itemsize")?.extract()?);
    let dtype = of_buffer(&format, size).ok_or_else(|| foreign(&format))?;
    let copy: PyBackedBytes = view.call_method0("tobytes")?.extract().map_err(PyErr::from)?;
    Ok(Given::kept(Span::of_bytes(&copy), dtype, Shape::new([])?, copy))
}

fn foreign(format: &CStr) -> PyErr {
    PyBufferError::new_err(format!("no file has elements of the format {:?}", format.to_string_lossy()))
}

/// Whether an array of numpy has the dtype that ml_dtypes calls bfloat16, which no buffer has.
fn is_bf16(array: &Bound<'_, PyAny>) -> bool {
    let name = || array.getattr("dtype")?.getattr("name")?.extract::<String>();
    name().is_ok_and(|name| name == "bfloat16") && array.hasattr("__array_interface__").unwrap_or(false)
}
