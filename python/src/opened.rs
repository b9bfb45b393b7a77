//! The open file that `File` and `Tensor` share: a checkpoint and a mapping.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use blob_io::{Checkpoint, Entry, Error, Format, OpenOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::error::Stop;
use crate::mapping::{Mapped, is_at};
use crate::source::{self, Kept, Opening, locked};
use crate::work::opening;

/// A checkpoint, and the mapping of the file where there is one: shared by `File` and all tensors.
pub(crate) struct Opened {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) mapping: Option<Arc<Mapped>>,
    /// The places of the arrays whose stored checksum was compared, so that views of these may be handed out.
    pub(crate) checked: Mutex<HashSet<usize>>,
    /// The unusual about the opening.
    pub(crate) warnings: Vec<String>,
    /// The file object that the checkpoint reads, where it reads one.
    kept: Weak<Kept>,
}

/// An open file as an object of Python, to which `File` and its tensors refer. The collector sees one reference to the
/// file object, and so finds one that refers to its own `File` or to a tensor of it.
#[pyclass(frozen, module = "blob_io._blob_io")]
pub(crate) struct Shared(pub(crate) Arc<Opened>);

#[pymethods]
impl Shared {
    /// Waits for no lock: a reference that is not shown counts as one from outside, and nothing is collected.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let kept = self.0.kept.upgrade();
        kept.as_ref().and_then(|kept| kept.0.try_lock().ok()).map_or(Ok(()), |object| visit.call(object.as_ref()))
    }

    fn __clear__(&self) {
        drop(self.0.kept.upgrade().and_then(|kept| locked(&kept.0).take()));
    }
}

impl Opened {
    /// The place of a name, else of `#3`.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        let entries = self.checkpoint.entries();
        self.checkpoint.place(name).or_else(|| name.strip_prefix('#')?.parse().ok().filter(|at| *at < entries.len()))
    }
}

/// A tensor of a file, whose values are read when they are needed.
pub(crate) struct Stored {
    pub(crate) shared: Py<Shared>,
    pub(crate) place: usize,
}

impl Stored {
    pub(crate) fn entry(&self) -> &Entry {
        &self.opened().checkpoint.entries()[self.place]
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.shared.get().0
    }

    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { shared: self.shared.clone_ref(py), place: self.place }
    }
}

/// A format by name.
pub(crate) fn format_named(name: &str) -> Result<Format, Stop> {
    name.parse().map_err(|error| PyValueError::new_err(format!("{error}")).into())
}

/// Opens a path, bytes or a file object, and takes a part of the file.
pub(crate) fn opened(
    object: &Bound<'_, PyAny>,
    options: OpenOptions,
    is_mapped: bool,
    part: impl FnOnce(Checkpoint) -> Result<Checkpoint, Error>,
) -> Result<Opened, Stop> {
    let opening = match source::open(object, &options)? {
        Some(opening) => opening,
        None => {
            let path: PathBuf = object.extract()?;
            let meta = object.py().detach(|| fs::metadata(&path));
            if meta.is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
                source::open_pipe(object, &path, &options)?
            } else {
                opening(object.py(), options, move |options| {
                    // Opened before, so that the mapping is of the file that the checkpoint reads.
                    let file = is_mapped.then(|| fs::File::open(&path).ok()).flatten();
                    let checkpoint = options.open(&path)?;
                    let file = file.filter(|file| is_at(file, &path) && checkpoint.unchanged().is_ok());
                    Ok(Opening { checkpoint, file, kept: Weak::new() })
                })?
            }
        }
    };
    let Opening { checkpoint, file, kept } = opening;
    let checkpoint = part(checkpoint)?;
    let mut warnings = Vec::new();
    let mapping = if is_mapped && !checkpoint.is_packed() && checkpoint.shards().is_empty() {
        let mapped = file.and_then(|file| Mapped::new(&file).ok());
        let mapped = mapped.filter(|mapped| mapped.len() as u64 == checkpoint.file_len());
        if mapped.is_none() {
            warnings.push("the file was not mapped: every array is a copy".to_owned());
        }
        mapped.map(Arc::new)
    } else {
        None
    };
    Ok(Opened { checkpoint, mapping, checked: Mutex::default(), warnings, kept })
}
