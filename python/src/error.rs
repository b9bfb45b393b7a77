//! Errors of the crates as Python's: `BlobError` and its subclasses, `OSError`, `MemoryError`, `KeyboardInterrupt`.
//!
//! The classes are defined in `blob_io/_errors.py`. Nothing is decided from the text of an error.

use std::io::{self, ErrorKind};

use blob_io::{Error, Existing};
use pyo3::exceptions::{PyFileExistsError, PyKeyboardInterrupt, PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Why a call ends early: an error of ours, or an exception of Python.
pub(crate) enum Stop {
    Blob(Error),
    Python(PyErr),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Blob(error)
    }
}

impl From<PyErr> for Stop {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<blob_core::Error> for Stop {
    fn from(error: blob_core::Error) -> Self {
        Self::Blob(error.into())
    }
}

impl From<Stop> for PyErr {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Python(error) => error,
            Stop::Blob(error) => Python::attach(|py| raised(py, error).unwrap_or_else(|failure| failure)),
        }
    }
}

/// A refusal of a request, as `BlobError`.
pub(crate) fn refuse(file: &str, message: impl Into<String>) -> Stop {
    Stop::Blob(Error::Request { file: file.to_owned(), message: message.into() })
}

/// The exception for an error.
pub(crate) fn raised(py: Python<'_>, error: Error) -> PyResult<PyErr> {
    let text = error.to_string();
    Ok(match error {
        Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        Error::Memory { .. } => PyMemoryError::new_err(text),
        Error::Exists { path, target: Existing::Different } => {
            PyFileExistsError::new_err((EEXIST, "exists with other bytes", path))
        }
        Error::Exists { path, .. } => PyFileExistsError::new_err((EEXIST, "exists", path)),
        Error::Io { file, source, .. } | Error::Open { file, source } => of_io(py, source, file, text),
        error => PyErr::from_value(blob_error(py, &error, text)?),
    })
}

/// Numbers of every system that Python runs on.
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const EISDIR: i32 = 21;

/// The operating system's error as `OSError`, which chooses its subclass by the number; an exception that a file object
/// has raised stays itself.
fn of_io(py: Python<'_>, source: io::Error, file: String, text: String) -> PyErr {
    if let Some(raised) = source.get_ref().and_then(|inner| inner.downcast_ref::<PyErr>()) {
        return raised.clone_ref(py);
    }
    match (source.raw_os_error(), source.kind()) {
        (Some(number), _) => PyOSError::new_err((number, strerror(py, number).unwrap_or(text), file)),
        (None, ErrorKind::NotFound) => PyOSError::new_err((ENOENT, source.to_string(), file)),
        (None, ErrorKind::IsADirectory) => PyOSError::new_err((EISDIR, source.to_string(), file)),
        (None, _) => PyOSError::new_err(text),
    }
}

/// The system's text without Rust's addition.
fn strerror(py: Python<'_>, number: i32) -> PyResult<String> {
    py.import("os")?.call_method1("strerror", (number,))?.extract()
}

/// An instance of `BlobError` or of the subclass for this error.
pub(crate) fn blob_error<'py>(py: Python<'py>, error: &Error, text: String) -> PyResult<Bound<'py, PyAny>> {
    let class = match error {
        Error::Malformed { .. } => "Malformed",
        Error::LimitExceeded { .. } => "LimitExceeded",
        Error::NotTensors { .. } => "NotTensors",
        Error::Unsupported { .. } => "Unsupported",
        Error::Misfit { .. } => "Misfit",
        _ => "BlobError",
    };
    let facts = PyDict::new(py);
    facts.set_item("file", error.file())?;
    facts.set_item("subject", error.subject())?;
    facts.set_item("offset", error.offset())?;
    facts.set_item("reason", error.reason().as_str())?;
    facts.set_item("help", error.help())?;
    py.import("blob_io._errors")?.getattr(class)?.call((text,), Some(&facts))
}
