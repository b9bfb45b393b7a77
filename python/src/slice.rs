//! Parts of a tensor, read without the rest: `t[..., ::8]`.
//!
//! A key becomes one `Pick` an axis, and the picks become runs of bytes in ascending order. Negative steps are read
//! forwards, and numpy turns the result.

use std::sync::Arc;

use blob_convert::Watch;
use blob_core::Shape;
use blob_io::layout::TensorSpec;
use blob_io::{Checkpoint, Entry, Error, Reader};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyEllipsis, PySlice, PyTuple};

use crate::dtype::names;
use crate::error::Stop;
use crate::mapping::Block;
use crate::tensor::{PIECE, Tensor};
use crate::values::{Framework, numpy};
use crate::work::here;

/// Gaps of fewer bytes are read along with the runs around: one read costs as much as some thousand bytes.
const GAP: usize = 4 << 10;

/// How many bytes are read at once where runs are short.
const WINDOW: usize = 1 << 20;

/// Which indices of an axis are taken: `count` of them from `first` on, `step` apart.
#[derive(Clone, Copy, Debug)]
struct Pick {
    first: usize,
    step: usize,
    count: usize,
}

/// The values of a shape that a key asks for.
struct Asked {
    /// One for each axis of the tensor.
    picks: Vec<Pick>,
    /// The shape of the result.
    dims: Vec<usize>,
    /// The axes of the result that run backwards.
    turned: Vec<bool>,
}

impl Asked {
    fn new(key: &Bound<'_, PyAny>, shape: &[usize]) -> PyResult<Self> {
        let keys: Vec<Bound<'_, PyAny>> = match key.cast::<PyTuple>() {
            Ok(keys) => keys.iter().collect(),
            Err(_) => vec![key.clone()],
        };
        let is_dots = |key: &&Bound<'_, PyAny>| key.is_instance_of::<PyEllipsis>();
        let named = keys.iter().filter(|key| !key.is_none() && !is_dots(key)).count();
        if keys.iter().filter(is_dots).count() > 1 {
            return Err(PyIndexError::new_err("a key has at most one ellipsis"));
        }
        let Some(others) = shape.len().checked_sub(named) else {
            return Err(PyIndexError::new_err(format!("{named} indices for {} axes", shape.len())));
        };
        let mut asked = Self { picks: Vec::new(), dims: Vec::new(), turned: Vec::new() };
        for key in &keys {
            if key.is_none() {
                asked.keep(1, false);
            } else if is_dots(&key) {
                asked.whole(shape, others);
            } else {
                asked.axis(key, shape[asked.picks.len()])?;
            }
        }
        asked.whole(shape, shape.len() - asked.picks.len());
        Ok(asked)
    }

    fn keep(&mut self, dim: usize, is_turned: bool) {
        self.dims.push(dim);
        self.turned.push(is_turned);
    }

    /// Takes the next `axes` axes whole.
    fn whole(&mut self, shape: &[usize], axes: usize) {
        for _ in 0..axes {
            let count = shape[self.picks.len()];
            self.picks.push(Pick { first: 0, step: 1, count });
            self.keep(count, false);
        }
    }

    fn axis(&mut self, key: &Bound<'_, PyAny>, dim: usize) -> PyResult<()> {
        let number = self.picks.len();
        if let Ok(slice) = key.cast::<PySlice>() {
            let part = slice.indices(dim as isize)?;
            let count = part.slicelength;
            let last = part.start + part.step * (count as isize - 1);
            let first = if count == 0 { 0 } else { part.start.min(last) as usize };
            self.picks.push(Pick { first, step: part.step.unsigned_abs(), count });
            self.keep(count, part.step < 0);
            return Ok(());
        }
        let is_bool = key.is_instance_of::<pyo3::types::PyBool>();
        let index: isize = match key.extract() {
            Ok(index) if !is_bool => index,
            _ => {
                let text = "a key has integers, slices, ... and None; t.numpy()[key] takes others";
                return Err(PyTypeError::new_err(text));
            }
        };
        let first = if index < 0 { index.checked_add_unsigned(dim) } else { Some(index) };
        let first = first.and_then(|first| usize::try_from(first).ok()).filter(|first| *first < dim);
        let Some(first) = first else {
            return Err(PyIndexError::new_err(format!("index {index} of axis {number}, which has {dim}")));
        };
        self.picks.push(Pick { first, step: 1, count: 1 });
        Ok(())
    }

    /// The runs of elements in ascending order: where each begins, and how long all are.
    fn runs(&self, shape: &[usize]) -> (usize, impl Iterator<Item = usize> + use<>) {
        let mut inner = 1;
        let mut axes = shape.len();
        while axes > 0 && self.picks[axes - 1].count == shape[axes - 1] && self.picks[axes - 1].step == 1 {
            inner *= shape[axes - 1];
            axes -= 1;
        }
        // The innermost axis that is not whole is one run where its indices follow each other.
        let mut begin = 0;
        let mut run = inner;
        let mut stride = inner;
        if axes > 0 && (self.picks[axes - 1].step == 1 || self.picks[axes - 1].count <= 1) {
            axes -= 1;
            begin = self.picks[axes].first * inner;
            run = self.picks[axes].count * inner;
            stride = shape[axes] * inner;
        }
        let mut outer: Vec<(Pick, usize)> = Vec::new();
        for axis in (0..axes).rev() {
            outer.push((self.picks[axis], stride));
            stride *= shape[axis];
        }
        let total: usize = if run == 0 { 0 } else { outer.iter().map(|(pick, _)| pick.count).product() };
        let place = move |mut number: usize| {
            let mut at = begin;
            for (pick, stride) in &outer {
                at += (pick.first + number % pick.count * pick.step) * stride;
                number /= pick.count;
            }
            at
        };
        (run, (0..total).map(place))
    }
}

#[pymethods]
impl Tensor {
    /// Some of the values: integers, slices, `...` and `None`. Only the bytes asked for are read, and gaps of less than
    /// 4 KiB between them.
    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Stop> {
        slice(py, self, key, Framework::Numpy)
    }
}

/// Reads the values of a tensor that a key asks for, as an array of a framework; of a made tensor as one of numpy.
fn slice<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    key: &Bound<'py, PyAny>,
    framework: Framework,
) -> Result<Bound<'py, PyAny>, Stop> {
    let spec = tensor.spec()?;
    let shape = spec.shape.dims();
    let Some((opened, entry)) = tensor.entry() else {
        let array = numpy(py, tensor.block(py, false)?, shape, spec.dtype)?;
        return Ok(array.get_item(key)?.call_method0("copy")?);
    };
    let (asked, size) = (Asked::new(key, shape)?, spec.dtype.size());
    let (run, begins) = asked.runs(shape);
    let len = asked.dims.iter().product::<usize>() * size;
    let file = &opened.checkpoint;
    let fill = |watch: &dyn Watch| {
        let mut places = begins.map(|at| at * size);
        Block::filled(file.name(), len, |out| read(file, entry, &mut places, run * size, (watch, out)))
    };
    let block = here(py, fill)?;
    let spec = TensorSpec::new("", spec.dtype, Shape::new(&asked.dims)?);
    let array = Tensor::array(&Bound::new(py, Tensor::made(spec, Arc::new(block)))?, framework)?;
    if !asked.turned.contains(&true) {
        return Ok(array);
    }
    if framework == Framework::Torch {
        // Its slices have no negative steps.
        let turned = asked.turned.iter().enumerate().filter(|(_, turned)| **turned);
        let axes: Vec<usize> = turned.map(|(axis, _)| axis).collect();
        return Ok(array.call_method1("flip", (axes,))?);
    }
    let slice = py.import("builtins")?.getattr("slice")?;
    let whole = |turned: &bool| slice.call1((py.None(), py.None(), turned.then_some(-1)));
    let slices: Vec<Bound<'_, PyAny>> = asked.turned.iter().map(whole).collect::<PyResult<_>>()?;
    Ok(array.get_item(PyTuple::new(py, slices)?)?)
}

/// Reads runs of `run` bytes, which begin at ascending places, one after the other into `out`.
fn read(
    file: &Checkpoint,
    entry: &Entry,
    places: &mut dyn Iterator<Item = usize>,
    run: usize,
    (watch, out): (&dyn Watch, &mut [u8]),
) -> Result<(), Error> {
    let mut reader = Place { reader: file.reader(entry)?, watch, at: 0 };
    let (mut filled, mut next) = (0, places.next());
    let (mut begins, mut bytes) = (Vec::new(), Vec::new());
    while let Some(begin) = next {
        begins.clear();
        begins.push(begin);
        let mut end = begin + run;
        next = places.next();
        while let Some(place) = next.filter(|place| place - end < GAP && place + run - begin <= WINDOW) {
            begins.push(place);
            end = place + run;
            next = places.next();
        }
        if begins.len() == 1 {
            reader.fill(begin, &mut out[filled..filled + run])?;
            filled += run;
            continue;
        }
        bytes.resize(end - begin, 0);
        reader.fill(begin, &mut bytes)?;
        for place in &begins {
            out[filled..filled + run].copy_from_slice(&bytes[place - begin..place - begin + run]);
            filled += run;
        }
    }
    Ok(())
}

/// A reader that knows where it is.
struct Place<'a> {
    reader: Reader<'a>,
    watch: &'a dyn Watch,
    at: usize,
}

impl Place<'_> {
    /// Fills `out` with the bytes from `place` on, which does not lie before the bytes read last.
    fn fill(&mut self, place: usize, out: &mut [u8]) -> Result<(), Error> {
        self.reader.skip((place - self.at) as u64)?;
        let mut filled = 0;
        while filled < out.len() {
            let end = out.len().min(filled + PIECE);
            let read = self.reader.pull(&mut out[filled..end])?;
            self.watch.step(read as u64)?;
            filled += read;
        }
        self.at = place + out.len();
        Ok(())
    }
}

/// A tensor to be read in part, with safetensors' names: `f.get_slice(name)[:, ::8]`.
#[pyclass(frozen, module = "blob_io")]
pub(crate) struct Slice {
    pub(crate) tensor: Tensor,
    /// Whose arrays the parts are.
    pub(crate) framework: Framework,
}

#[pymethods]
impl Slice {
    /// The shape, as a list.
    fn get_shape(&self) -> Result<Vec<usize>, Stop> {
        Ok(self.tensor.spec()?.shape.dims().to_vec())
    }

    /// The dtype, as safetensors spells it: `F32`.
    fn get_dtype(&self) -> Result<&'static str, Stop> {
        Ok(names(self.tensor.spec()?.dtype).safetensors)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, Stop> {
        slice(py, &self.tensor, key, self.framework)
    }

    fn __repr__(&self) -> String {
        format!("<blob_io.Slice {:?}>", self.tensor.title())
    }
}
