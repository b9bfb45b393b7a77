//! `File`: an open file as a mapping from names to lazy tensors, and `open`, which makes one.

use std::sync::{Arc, Mutex};

use blob_convert::regroup::by_layer;
use blob_convert::{RECEIPT_KEY, Selection};
use blob_io::{Checkpoint, Kind, Limits, OpenOptions};
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use pyo3::{PyTraverseError, PyVisit};

use crate::error::{Stop, blob_error};
use crate::opened::{Opened, Shared, format_named, opened};
use crate::source::locked;
use crate::tensor::Tensor;
use crate::values::Framework;
use crate::work::Progress;

/// Opens a file of Caffe, MXNet, NeoML, HDF5, npy, npz or safetensors: reads headers, no values.
///
/// `file` is a path, bytes, or a file object in binary mode: Python's own files, and those of `tempfile`, are read by
/// their descriptor, all others by their `read`. With `mmap=True` arrays are views of a private mapping where the file
/// has them aligned and in one piece: writing into one changes neither the file nor another `File`.
///
/// >>> import blob_io
/// >>> f = blob_io.open(path)
/// >>> f.format, f.keys()
/// ('caffemodel', ['conv1/0', 'conv1/1'])
/// >>> f["conv1/0"].shape
/// (2, 1, 3, 3)
#[pyfunction]
#[pyo3(signature = (file, *, format=None, member=None, mmap=false, salvage=false, max_alloc=None, max_spool=None))]
pub(crate) fn open(
    file: &Bound<'_, PyAny>,
    format: Option<&str>,
    member: Option<&str>,
    mmap: bool,
    salvage: bool,
    max_alloc: Option<u64>,
    max_spool: Option<u64>,
) -> Result<File, Stop> {
    let mut limits = Limits::default();
    limits.max_alloc = max_alloc.unwrap_or(limits.max_alloc);
    limits.max_spool = max_spool.unwrap_or(limits.max_spool);
    let options = OpenOptions::new().limits(limits);
    let options = format.map(format_named).transpose()?.into_iter().fold(options, OpenOptions::from);
    let options = member.into_iter().fold(options, |options, member| options.member(member));
    let options = if salvage { options.salvage() } else { options };
    opened(file, options, mmap, |file| Ok(if salvage { file.take_whole_arrays() } else { file }))
        .and_then(|opened| File::of(file.py(), opened))
}

/// Opens a file with some of its tensors alone, which the settings of a selection name.
#[pyfunction]
pub(crate) fn open_part(file: &Bound<'_, PyAny>, only: &str) -> Result<File, Stop> {
    let settings = serde_json::from_str(only).ok().and_then(|settings| Selection::read(&settings));
    let selection = settings.ok_or_else(|| PyValueError::new_err("no selection of tensors"))?;
    opened(file, OpenOptions::new(), false, |file| selection.places(&file).map(|places| file.only(&places)))
        .and_then(|opened| File::of(file.py(), opened))
}

/// An open file: a mapping from names to lazy tensors, in the order of the file.
///
/// `f[3]` is the tensor at place 3, `f["#3"]` too. Closing the file leaves tensors, views and arrays alive.
#[pyclass(frozen, mapping, weakref, module = "blob_io")]
pub(crate) struct File {
    /// `None` once closed. The lock is held for a copy of the pointer alone.
    shared: Mutex<Option<Py<Shared>>>,
}

impl File {
    fn of(py: Python<'_>, opened: Opened) -> Result<Self, Stop> {
        Ok(Self { shared: Mutex::new(Some(Py::new(py, Shared(Arc::new(opened)))?)) })
    }

    /// The open file.
    pub(crate) fn opened(&self) -> Result<Arc<Opened>, Stop> {
        self.copied(|shared| shared.get().0.clone())
    }

    /// The open file for a tensor.
    fn shared(&self, py: Python<'_>) -> Result<Py<Shared>, Stop> {
        self.copied(|shared| shared.clone_ref(py))
    }

    fn copied<T>(&self, copy: impl FnOnce(&Py<Shared>) -> T) -> Result<T, Stop> {
        let copied = locked(&self.shared).as_ref().map(copy);
        copied.ok_or_else(|| PyValueError::new_err("the file is closed").into())
    }

    fn tensor(&self, key: &Bound<'_, PyAny>) -> Result<Tensor, Stop> {
        let shared = self.shared(key.py())?;
        let opened = &shared.get().0;
        let count = opened.checkpoint.entries().len();
        let place = match key.extract::<&str>() {
            Ok(name) => opened.place(name),
            Err(_) => {
                let place: isize = key
                    .extract()
                    .map_err(|_| PyTypeError::new_err("a tensor is found by its name or its place, a str or an int"))?;
                let place = if place < 0 { place.saturating_add_unsigned(count) } else { place };
                usize::try_from(place).ok().filter(|place| *place < count)
            }
        };
        let place = place.ok_or_else(|| PyKeyError::new_err(key.clone().unbind()))?;
        Ok(Tensor::stored(shared, place))
    }
}

#[pymethods]
impl File {
    /// The file's name, as given; of an archive's member, the archive's name with the member behind. Bytes of a path
    /// that are not UTF-8 are U+FFFD.
    #[getter]
    fn name(&self) -> Result<String, Stop> {
        Ok(self.opened()?.checkpoint.name().to_owned())
    }

    /// The format's short name: `caffemodel`, `params`, `safetensors`.
    #[getter]
    fn format(&self) -> Result<&'static str, Stop> {
        Ok(self.opened()?.checkpoint.format().name())
    }

    /// The format's generation in words, empty where there is only one.
    #[getter]
    fn dialect(&self) -> Result<String, Stop> {
        Ok(self.opened()?.checkpoint.dialect().to_owned())
    }

    /// The layers with tensors, in the order of the file: name, type, the tensors' names.
    #[getter]
    fn layers<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyAny>>, Stop> {
        let (opened, class) = (self.opened()?, class(py, "Layer")?);
        let entries = opened.checkpoint.entries();
        by_layer(&opened.checkpoint)
            .into_iter()
            .map(|(name, places): (String, Vec<usize>)| {
                let kind = places.iter().find_map(|place| entries[*place].layer_type());
                let tensors: Vec<&str> = places.iter().map(|place| entries[*place].name()).collect();
                Ok(class.call1((name, kind, tensors))?)
            })
            .collect()
    }

    /// The unusual whose meaning is clear nevertheless: of the file as a whole first, then of each tensor.
    #[getter]
    fn warnings<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyAny>>, Stop> {
        let (opened, class) = (self.opened()?, class(py, "Warning_")?);
        let mut all = Vec::new();
        for text in &opened.warnings {
            all.push(class.call1((text, None::<&str>, None::<u64>, false))?);
        }
        let checkpoint = &opened.checkpoint;
        let of_file = checkpoint.warnings().iter().cloned().map(|warning| (None, warning));
        let each = checkpoint.entries().iter();
        let of_tensors = each.flat_map(|entry| entry.warnings().map(move |warning| (Some(entry.name()), warning)));
        for (name, warning) in of_file.chain(of_tensors) {
            all.push(class.call1((&*warning.text, name, warning.offset, warning.is_loss))?);
        }
        Ok(all)
    }

    /// The receipt of the conversion that wrote the file; `None` where there is none, or none that can be read.
    #[getter]
    fn receipt<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, Stop> {
        let opened = self.opened()?;
        let Some(text) = receipt(&opened.checkpoint) else { return Ok(None) };
        let receipt = class(py, "Receipt")?.call_method1("parse", (text,))?;
        Ok((!receipt.is_none()).then_some(receipt))
    }

    /// With `salvage=True`, why the file breaks off, as an exception that was not raised; `None` for a sound file.
    #[getter]
    fn salvaged<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>, Stop> {
        let fault = self.opened()?.checkpoint.salvaged();
        Ok(fault.map(|error| blob_error(py, &error, error.to_string())).transpose()?)
    }

    /// The tensors' names, in the order of the file.
    fn keys(&self) -> Result<Vec<String>, Stop> {
        Ok(self.opened()?.checkpoint.names().map(str::to_owned).collect())
    }

    /// The file's words about itself.
    fn metadata<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>, Stop> {
        let (opened, all) = (self.opened()?, PyDict::new(py));
        for (key, value) in opened.checkpoint.metadata() {
            all.set_item(key, value)?;
        }
        Ok(all)
    }

    /// The values of a tensor as an array of a framework: `numpy`, `torch` or `jax`. jax by its own default narrows
    /// i64, u64 and f64: its x64 is off.
    #[pyo3(signature = (name, *, framework="numpy"))]
    fn get_tensor<'py>(&self, name: &Bound<'py, PyAny>, framework: &str) -> Result<Bound<'py, PyAny>, Stop> {
        let framework = Framework::named(framework)?;
        Tensor::array(&Bound::new(name.py(), self.tensor(name)?)?, framework)
    }

    /// The values of several tensors, of all where no names are given. Places without an array are left out.
    ///
    /// `progress` is a function of two integers, bytes done and all, or a bar of tqdm's.
    #[pyo3(signature = (names=None, *, framework="numpy", progress=None))]
    fn get_tensors<'py>(
        &self,
        py: Python<'py>,
        names: Option<&Bound<'py, PyAny>>,
        framework: &str,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyDict>, Stop> {
        let (framework, shared) = (Framework::named(framework)?, self.shared(py)?);
        let tensors: Vec<Tensor> = match names {
            Some(name) if name.is_instance_of::<PyString>() => {
                return Err(PyTypeError::new_err("names is a list of names; get_tensor takes one name").into());
            }
            Some(names) => names.try_iter()?.map(|name| self.tensor(&name?)).collect::<Result<_, Stop>>()?,
            None => {
                let entries = shared.get().0.checkpoint.entries().iter().enumerate();
                let held = entries.filter(|(_, entry)| entry.kind() != Kind::None);
                held.map(|(place, _)| Tensor::stored(shared.clone_ref(py), place)).collect()
            }
        };
        let all = PyDict::new(py);
        let (progress, total) = (Progress::new(progress)?, tensors.iter().map(Tensor::byte_len).sum());
        progress.begin(py, total)?;
        let mut done = 0;
        for tensor in tensors {
            // Short reads end before a look at signals is due.
            py.check_signals()?;
            let (name, bytes) = (tensor.title().to_owned(), tensor.byte_len());
            all.set_item(name, Tensor::array(&Bound::new(py, tensor)?, framework)?)?;
            progress.tell(py, done, done + bytes, total)?;
            done += bytes;
        }
        Ok(all)
    }

    /// A tensor to be read in part, as arrays of a framework: `f.get_slice("fc6/0")[:, ::8]`.
    #[pyo3(signature = (name, *, framework="numpy"))]
    fn get_slice<'py>(&self, name: &Bound<'py, PyAny>, framework: &str) -> Result<Bound<'py, PyAny>, Stop> {
        Framework::named(framework)?;
        let slices = name.py().import("blob_io._slices")?;
        Ok(slices.getattr("Slice")?.call1((self.tensor(name)?, framework))?)
    }

    fn __getitem__(&self, name: &Bound<'_, PyAny>) -> Result<Tensor, Stop> {
        self.tensor(name)
    }

    fn __len__(&self) -> Result<usize, Stop> {
        Ok(self.opened()?.checkpoint.entries().len())
    }

    /// Closes the file. Tensors, views and arrays stay alive; the file itself is closed with the last tensor.
    fn close(&self) {
        let shared = locked(&self.shared).take();
        drop(shared);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.shared.try_lock().map_or(Ok(()), |shared| visit.call(shared.as_ref()))
    }
}

/// The text of a file's receipt.
pub(crate) fn receipt(file: &Checkpoint) -> Option<&str> {
    file.metadata().iter().find(|(key, _)| key == RECEIPT_KEY).map(|(_, text)| &**text)
}

/// A class of `blob_io/_types.py`.
pub(crate) fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("blob_io._types")?.getattr(name)
}
