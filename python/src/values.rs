//! Blocks as arrays of numpy, torch and jax. None of the three is needed before an array is asked for.

use std::sync::Arc;

use blob_core::DType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::dtype::names;
use crate::error::Stop;
use crate::mapping::{Block, Memory};

/// Whose arrays are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framework {
    Numpy,
    Torch,
    Jax,
}

impl Framework {
    /// A framework by its name, or by safetensors' short one.
    pub(crate) fn named(name: &str) -> Result<Self, Stop> {
        match name {
            "numpy" | "np" => Ok(Self::Numpy),
            "torch" | "pt" => Ok(Self::Torch),
            "jax" | "flax" => Ok(Self::Jax),
            other => Err(PyValueError::new_err(format!("framework is numpy, torch or jax, not {other}")).into()),
        }
    }
}

/// A block as an array of numpy, which keeps the block alive.
pub(crate) fn numpy<'py>(
    py: Python<'py>,
    block: Arc<Block>,
    dims: &[usize],
    dtype: DType,
) -> PyResult<Bound<'py, PyAny>> {
    static NDARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static DTYPES: [PyOnceLock<Py<PyAny>>; DTYPE_COUNT] = [const { PyOnceLock::new() }; DTYPE_COUNT];
    let class = NDARRAY.get_or_try_init(py, || PyResult::Ok(py.import("numpy")?.getattr("ndarray")?.unbind()))?;
    let place = DType::ALL.iter().position(|known| *known == dtype).unwrap_or_default();
    let kind = DTYPES[place].get_or_try_init(py, || numpy_dtype(py, dtype))?;
    class.bind(py).call1((PyTuple::new(py, dims)?, kind, Memory(block)))
}

const DTYPE_COUNT: usize = 13;
const _: () = assert!(DTYPE_COUNT == DType::ALL.len());

fn numpy_dtype(py: Python<'_>, dtype: DType) -> PyResult<Py<PyAny>> {
    if dtype != DType::BF16 {
        return Ok(py.import("numpy")?.call_method1("dtype", (names(dtype).numpy,))?.unbind());
    }
    let bf16 = py.import("ml_dtypes").and_then(|module| module.getattr("bfloat16")).map_err(|_| {
        PyTypeError::new_err("numpy has no bf16: pip install blob-io[bf16], or take the tensor with torch or jax")
    })?;
    Ok(py.import("numpy")?.call_method1("dtype", (bf16,))?.unbind())
}
