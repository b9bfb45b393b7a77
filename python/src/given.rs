//! Arrays that Python hands over: tensors of ours, buffers, and DLPack's capsules, as values at an address.

use std::any::Any;
use std::ffi::{CStr, CString};
use std::io::{self, BufRead, Read};

use blob_convert::Watch;
use blob_core::{DType, Shape};
use blob_io::Error;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyMemoryView;

use crate::dlpack;
use crate::dtype::of_buffer;
use crate::error::Stop;
use crate::mapping::Span;
use crate::tensor::Tensor;

/// How much of an array is copied at once on the way to a file.
const PIECE: usize = 1 << 20;

/// An array of Python's: dtype, shape, and its values row after row at an address.
pub(crate) struct Given {
    pub(crate) span: Span,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The owner of the values. Dropped with the interpreter's lock, as each owner of a `Given` is a call of Python.
    _keep: Box<dyn Any>,
}

impl Given {
    /// Takes an array: a tensor of ours, anything with a buffer, or with DLPack. Values that do not lie row
    /// after row are copied.
    pub(crate) fn new(array: &Bound<'_, PyAny>) -> Result<Self, Stop> {
        let py = array.py();
        py.check_signals()?;
        if let Ok(tensor) = array.cast::<Tensor>() {
            let (spec, block) = (tensor.get().spec()?, tensor.get().block(py, false)?);
            return Ok(Self::kept(block.span(), spec.dtype, spec.shape, block));
        }
        if is_bf16(array) {
            let bits = Self::new(&array.call_method1("view", ("uint16",))?)?;
            return Ok(Self { dtype: DType::BF16, ..bits });
        }
        match PyUntypedBuffer::get(array) {
            Ok(buffer) => Self::of_buffer(array, buffer),
            Err(_) if array.hasattr("__dlpack__")? => dlpack::taken(array),
            Err(refusal) => Self::of_scalar(array, refusal),
        }
    }

    pub(crate) fn kept(span: Span, dtype: DType, shape: Shape, keep: impl Any) -> Self {
        Self { span, dtype, shape, _keep: Box::new(keep) }
    }

    fn of_buffer(array: &Bound<'_, PyAny>, buffer: PyUntypedBuffer) -> Result<Self, Stop> {
        let (format, size) = (buffer.format(), buffer.item_size());
        let dtype = of_buffer(format, size).ok_or_else(|| foreign(format))?;
        let shape = Shape::new(buffer.shape())?;
        if buffer.is_c_contiguous() {
            return Ok(Self::kept(Span::of_buffer(&buffer), dtype, shape, buffer));
        }
        let copy: PyBackedBytes = PyMemoryView::from(array)?.call_method0("tobytes")?.extract().map_err(PyErr::from)?;
        Ok(Self::kept(Span::of_bytes(&copy), dtype, shape, copy))
    }

    /// A buffer without axes, which states no shape, and which is therefore refused as an untyped buffer.
    fn of_scalar(array: &Bound<'_, PyAny>, refusal: PyErr) -> Result<Self, Stop> {
        let view = match PyMemoryView::from(array) {
            Err(error) if error.is_instance_of::<PyTypeError>(array.py()) => {
                let kind = array.get_type().name()?;
                let text = format!("an array has a buffer or __dlpack__, and {kind} has neither");
                return Err(PyTypeError::new_err(text).into());
            }
            view => view?,
        };
        if view.getattr("ndim")?.extract::<usize>()? != 0 {
            return Err(refusal.into());
        }
        let (format, size) = (view.getattr("format")?.extract::<CString>()?, view.getattr("itemsize")?.extract()?);
        let dtype = of_buffer(&format, size).ok_or_else(|| foreign(&format))?;
        let copy: PyBackedBytes = view.call_method0("tobytes")?.extract().map_err(PyErr::from)?;
        Ok(Self::kept(Span::of_bytes(&copy), dtype, Shape::new([])?, copy))
    }

    pub(crate) fn byte_len(&self) -> usize {
        self.span.len()
    }

    /// The array for a thread that does not hold the interpreter's lock.
    pub(crate) fn lent(&self) -> Lent {
        Lent { span: self.span, dtype: self.dtype, shape: self.shape.clone() }
    }
}

fn foreign(format: &CStr) -> PyErr {
    PyBufferError::new_err(format!("no file has elements of the format {:?}", format.to_string_lossy()))
}

/// Whether an array of numpy has the dtype that ml_dtypes calls bfloat16, which no buffer has.
fn is_bf16(array: &Bound<'_, PyAny>) -> bool {
    let name = || array.getattr("dtype")?.getattr("name")?.extract::<String>();
    name().is_ok_and(|name| name == "bfloat16") && array.hasattr("__array_interface__").unwrap_or(false)
}

/// A `Given` without its owner, which lives until the work is done.
pub(crate) struct Lent {
    pub(crate) span: Span,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

impl Lent {
    /// The array as a tensor to be written, which `watch` can stop.
    pub(crate) fn watched<'a>(&'a self, watch: &'a dyn Watch) -> Watched<'a> {
        Watched { lent: self, watch }
    }
}

pub(crate) struct Watched<'a> {
    lent: &'a Lent,
    watch: &'a dyn Watch,
}

impl blob_io::Tensor for Watched<'_> {
    fn dtype(&self) -> DType {
        self.lent.dtype
    }

    fn shape(&self) -> Result<Shape, Error> {
        Ok(self.lent.shape.clone())
    }

    fn reader(&self) -> Result<Box<dyn BufRead + '_>, Error> {
        Ok(Box::new(io::BufReader::with_capacity(PIECE, Pieces { watched: self, at: 0 })))
    }
}

struct Pieces<'a> {
    watched: &'a Watched<'a>,
    at: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let span = self.watched.lent.span;
        let n = out.len().min(span.len() - self.at);
        span.copy(self.at, &mut out[..n]);
        self.at += n;
        self.watched.watch.step(n as u64).map_err(io::Error::other)?;
        Ok(n)
    }
}
