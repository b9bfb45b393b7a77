//! `Tensor`: knows its header, and reads its values when asked. Keeps no values but those of its buffer.

use std::sync::{Arc, OnceLock};

use blob_convert::{Watch, Watched};
use blob_io::layout::TensorSpec;
use blob_io::{Checkpoint, Entry, Error, Kind, Names, TensorName};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::error::{Stop, refuse};
use crate::mapping::Block;
use crate::opened::{Opened, Shared, Stored};
use crate::source::locked;
use crate::values::{Framework, numpy};
use crate::work::here;

/// How much is read between two looks at signals.
const PIECE: usize = 16 << 20;

/// A tensor of a file, or one that `merge`, `split` or `permute` has made: name, dtype and shape at hand, the values
/// when asked for.
///
/// numpy, torch and jax take it as an array: `numpy.asarray(t)`, `torch.from_dlpack(t)`, `memoryview(t)`. All buffers
/// of a tensor are one memory, which the tensor keeps from the first buffer on: those of `memoryview(t)`,
/// `numpy.asarray(t)`, `torch.frombuffer(t)`. `from_dlpack(t)`, `t.numpy()`, `t.torch()` and `t.jax()` have that memory
/// where the tensor is a view or was made, and else each memory of its own, as `copy.deepcopy(t)` always has.
#[pyclass(frozen, weakref, module = "blob_io")]
pub(crate) struct Tensor {
    held: Held,
    /// The values that a buffer has shown. Consumers of buffers release these at once, keep the tensor, and go on
    /// using the address.
    exported: OnceLock<Arc<Block>>,
    /// The values of a deep copy of a view.
    own: Option<Arc<Block>>,
}

enum Held {
    Stored(Stored),
    Made { spec: TensorSpec, block: Arc<Block> },
}

/// Fills a buffer of the entry's length with the values.
pub(crate) fn load(file: &Checkpoint, entry: &Entry, watch: &dyn Watch, out: &mut [u8]) -> Result<(), Error> {
    pull(&mut Watched::open(file, entry, watch)?, out)
}

/// Fills `out` with the next bytes of a reader, which has them.
pub(crate) fn pull(reader: &mut Watched<'_>, out: &mut [u8]) -> Result<(), Error> {
    let mut filled = 0;
    while filled < out.len() {
        let end = out.len().min(filled + PIECE);
        filled += reader.pull(&mut out[filled..end])?;
    }
    Ok(())
}

impl Tensor {
    /// The tensor at a place of a file.
    pub(crate) fn stored(shared: Py<Shared>, place: usize) -> Self {
        Self { held: Held::Stored(Stored { shared, place }), exported: OnceLock::new(), own: None }
    }

    /// A tensor of no file.
    pub(crate) fn made(spec: TensorSpec, block: Arc<Block>) -> Self {
        Self { held: Held::Made { spec, block }, exported: OnceLock::new(), own: None }
    }

    /// The file and the entry, of a tensor of a file.
    pub(crate) fn entry(&self) -> Option<(&Opened, &Entry)> {
        let Held::Stored(stored) = &self.held else { return None };
        Some((stored.opened(), stored.entry()))
    }

    /// The values of a tensor of a file of which no buffer was handed out, into which a user may have written.
    pub(crate) fn stored_values(&self, py: Python<'_>) -> Option<Stored> {
        let Held::Stored(stored) = &self.held else { return None };
        (self.exported.get().is_none() && !self.is_in_memory()).then(|| stored.clone_ref(py))
    }

    /// The name, empty where there is none.
    pub(crate) fn title(&self) -> &str {
        match &self.held {
            Held::Stored(stored) => stored.entry().name(),
            Held::Made { spec, .. } => &spec.name,
        }
    }

    pub(crate) fn byte_len(&self) -> u64 {
        match &self.held {
            Held::Stored(stored) => stored.entry().byte_len(),
            Held::Made { block, .. } => block.len() as u64,
        }
    }

    /// Name, dtype and shape of values that can be read.
    pub(crate) fn spec(&self) -> Result<TensorSpec, Error> {
        match &self.held {
            Held::Stored(stored) => stored.opened().checkpoint.spec(stored.entry()),
            Held::Made { spec, .. } => Ok(spec.clone()),
        }
    }

    /// Where in the mapping the values lie, aligned and as they are, checksums aside.
    fn offset_in_mapping(&self) -> Option<usize> {
        let (opened, entry) = self.entry()?;
        opened.mapping.as_ref().filter(|_| self.own.is_none())?;
        let ([run], Some(dtype), None) = (entry.segments(), entry.dtype(), entry.fault()) else { return None };
        let is_view = entry.is_plain() && entry.byte_len() > 0 && run.offset % dtype.size() as u64 == 0;
        is_view.then(|| usize::try_from(run.offset).ok()).flatten()
    }

    /// The values at an address: in the mapping of the file where they may be taken from there, else a copy.
    pub(crate) fn block(&self, py: Python<'_>, is_copied: bool) -> Result<Arc<Block>, Stop> {
        let (opened, place) = match (&self.held, &self.own) {
            (Held::Stored(stored), None) => (stored.opened(), stored.place),
            (_, Some(block)) | (Held::Made { block, .. }, _) if !is_copied => return Ok(block.clone()),
            (_, Some(block)) | (Held::Made { block, .. }, _) => return Ok(Arc::new(block.copied()?)),
        };
        let (file, entry) = (&opened.checkpoint, &opened.checkpoint.entries()[place]);
        if !is_copied && let (Some(mapping), Some(offset)) = (&opened.mapping, self.offset_in_mapping()) {
            if entry.checked_len().is_some() && !locked(&opened.checked).contains(&place) {
                here(py, |watch| file.check(entry, &mut |bytes| watch.step(bytes)))?;
                locked(&opened.checked).insert(place);
            }
            if let Some(block) = Block::view(mapping, offset, entry.byte_len() as usize) {
                return Ok(Arc::new(block));
            }
        }
        file.spec(entry)?;
        let len =
            usize::try_from(entry.byte_len()).map_err(|_| refuse(file.name(), "is more than this machine's memory"))?;
        let block = here(py, |watch| Block::filled(file.name(), len, |out| load(file, entry, watch, out)))?;
        Ok(Arc::new(block))
    }

    /// The values for a buffer: one block for all buffers, which lives as long as the tensor.
    pub(crate) fn exported(&self, py: Python<'_>) -> Result<&Arc<Block>, Stop> {
        if let Some(block) = self.exported.get() {
            return Ok(block);
        }
        // Two threads may both come here: the first block stays, and the other is freed before anybody has seen it.
        let block = self.block(py, false)?;
        Ok(self.exported.get_or_init(|| block))
    }

    fn dims(&self) -> &[usize] {
        match &self.held {
            Held::Stored(stored) => stored.entry().shape().dims(),
            Held::Made { spec, .. } => spec.shape.dims(),
        }
    }
}

#[pymethods]
impl Tensor {
    /// The name, unique in the file.
    #[getter]
    fn name(&self) -> &str {
        self.title()
    }

    /// The shape, the outermost axis first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.dims())
    }

    /// The element type: `f32`, `bf16`, `i64`; the file's own name where the tensor cannot be loaded.
    #[getter]
    fn dtype(&self) -> String {
        let stored = self.entry().map(|(_, entry)| entry);
        let known = stored.map_or_else(|| self.spec().ok().map(|spec| spec.dtype), Entry::dtype);
        let foreign = stored.and_then(Entry::foreign_dtype).unwrap_or("none");
        known.map_or(foreign, |dtype| dtype.name()).to_owned()
    }

    /// The bytes of all values.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.byte_len()
    }

    /// Where the bytes begin in the file.
    #[getter]
    fn offset(&self) -> Option<u64> {
        self.entry().and_then(|(_, entry)| entry.offset())
    }

    /// The layer that the tensor belongs to, in formats that have layers.
    #[getter]
    fn layer(&self) -> Option<&str> {
        let (opened, entry) = self.entry()?;
        let is_layered = opened.checkpoint.format().holds().names == Names::Layers || entry.layer_type().is_some();
        is_layered.then(|| TensorName::of(entry.name()).layer()).flatten()
    }

    /// The type of that layer, where the file states types.
    #[getter]
    fn layer_type(&self) -> Option<&str> {
        self.entry().and_then(|(_, entry)| entry.layer_type())
    }

    /// `data`, `diff`, the parts `values`, `indices` and `indptr` of a sparse array, or `none`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.entry().map_or(Kind::Data, |(_, entry)| entry.kind()).name()
    }

    /// Whether arrays are views of the mapped file: `mmap=True`, in one piece, plain and aligned. Else each is a copy.
    #[getter]
    fn is_view(&self) -> bool {
        self.offset_in_mapping().is_some()
    }

    /// The diff that Caffe stores beside a blob's data.
    #[getter]
    fn diff(&self, py: Python<'_>) -> Option<Self> {
        let Held::Stored(stored) = &self.held else { return None };
        let (opened, entry) = self.entry().filter(|(_, entry)| entry.kind() == Kind::Data)?;
        let place = opened.place(opened.checkpoint.diff_of(entry)?.name())?;
        Some(Self::stored(stored.shared.clone_ref(py), place))
    }

    /// The values as an array of numpy.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>, Stop> {
        Self::array(slf, Framework::Numpy)
    }

    /// The values as a tensor of torch.
    fn torch<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>, Stop> {
        Self::array(slf, Framework::Torch)
    }

    /// The values as an array of jax, which narrows i64, u64 and f64 unless its x64 is on.
    fn jax<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>, Stop> {
        Self::array(slf, Framework::Jax)
    }

    /// The values' bytes, row-major and little-endian, read from the file.
    fn tobytes<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>, Stop> {
        let Some((opened, entry)) = self.entry().filter(|_| self.own.is_none()) else {
            let block = self.block(py, false)?;
            return Ok(PyBytes::new_with(py, block.len(), |out| {
                block.span().copy(0, out);
                Ok(())
            })?);
        };
        let file = &opened.checkpoint;
        file.spec(entry)?;
        let bytes = PyBytes::new_with(py, entry.byte_len() as usize, |out| {
            here(py, |watch| load(file, entry, watch, out)).map_err(PyErr::from)
        });
        Ok(bytes?)
    }

    /// The whole sparse array, of which this is a part, as a dense array of numpy.
    fn dense<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>, Stop> {
        let part = self.entry().and_then(|(opened, entry)| Some((&opened.checkpoint, entry, entry.sparse()?)));
        let Some((file, entry, sparse)) = part else {
            return Err(PyValueError::new_err(format!("{:?} is not a part of a sparse array", self.title())).into());
        };
        let (block, dtype) = here(py, |watch| {
            let values = file.entries().iter().find(|e| e.sparse() == Some(sparse) && e.kind() == Kind::Values);
            let dtype = file.spec(values.unwrap_or(entry))?.dtype;
            let mut reader = Watched::new(file.dense_reader(entry)?, watch);
            let len = sparse.shape.count() * dtype.size();
            Ok((Block::filled(file.name(), len, |out| pull(&mut reader, out))?, dtype))
        })?;
        Ok(numpy(py, Arc::new(block), sparse.shape.dims(), dtype)?)
    }

    /// The same tensor with memory of its own for values that are in memory, or that a buffer has shown.
    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> Result<Self, Stop> {
        let Held::Stored(stored) = &self.held else { return Ok(Self::made(self.spec()?, self.block(py, true)?)) };
        let own = self.is_in_memory().then(|| self.block(py, true)).transpose()?;
        let shown = self.exported.get().filter(|_| own.is_none());
        let shown = shown.map(|block| block.copied().map(Arc::new)).transpose()?;
        let exported = shown.map_or_else(OnceLock::new, OnceLock::from);
        Ok(Self { held: Held::Stored(stored.clone_ref(py)), exported, own })
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>, Stop> {
        let (py, tensor) = (slf.py(), slf.get());
        let spec = tensor.spec()?;
        if copy == Some(false) && !tensor.is_in_memory() {
            let text = format!("{:?} is not a view: its values have to be copied from the file", tensor.title());
            return Err(PyValueError::new_err(text).into());
        }
        let block = tensor.block(py, copy == Some(true))?;
        let array = numpy(py, block, spec.shape.dims(), spec.dtype)?;
        let Some(dtype) = dtype else { return Ok(array) };
        let kind = py.import("numpy")?.call_method1("dtype", (dtype,))?;
        if kind.eq(array.getattr("dtype")?)? {
            return Ok(array);
        }
        if copy == Some(false) {
            return Err(PyValueError::new_err("another dtype needs a copy").into());
        }
        Ok(array.call_method1("astype", (kind,))?)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.held {
            Held::Stored(stored) => visit.call(&stored.shared),
            Held::Made { .. } => Ok(()),
        }
    }
}

impl Tensor {
    /// The values as an array of a framework.
    pub(crate) fn array<'py>(slf: &Bound<'py, Self>, framework: Framework) -> Result<Bound<'py, PyAny>, Stop> {
        let (py, tensor) = (slf.py(), slf.get());
        match framework {
            Framework::Numpy => {
                let spec = tensor.spec()?;
                Ok(numpy(py, tensor.block(py, false)?, spec.shape.dims(), spec.dtype)?)
            }
            Framework::Torch => Ok(py.import("torch")?.call_method1(intern!(py, "from_dlpack"), (slf,))?),
            Framework::Jax => Ok(py.import("jax.dlpack")?.call_method1(intern!(py, "from_dlpack"), (slf,))?),
        }
    }

    /// Whether the values are at an address already.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.own.is_some() || self.entry().is_none() || self.offset_in_mapping().is_some()
    }
}
