//! Parts of a tensor, read without the rest: `t[..., ::8]`.
//!
//! `blob_io/_slices.py` makes one `Pick` an axis of a key; here the picks become runs of bytes in ascending order.

use std::sync::Arc;

use blob_convert::{Watch, Watched};
use blob_core::Shape;
use blob_io::layout::TensorSpec;
use blob_io::{Checkpoint, Entry, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::Stop;
use crate::mapping::Block;
use crate::tensor::{Tensor, pull};
use crate::values::Framework;
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

impl Pick {
    fn is_of(self, extent: usize) -> bool {
        let Some(steps) = self.count.checked_sub(1) else { return true };
        let last = steps.checked_mul(self.step).and_then(|way| way.checked_add(self.first));
        self.step > 0 && last.is_some_and(|last| last < extent)
    }
}

#[pymethods]
impl Tensor {
    /// Some of the values: integers, slices, `...` and `None`. Only the bytes asked for are read, and gaps of less than
    /// 4 KiB between them.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("blob_io._slices")?.call_method1("part", (slf, key, "numpy"))
    }
}

/// Reads the values of a tensor at the picked indices of each axis, forwards, as an array of these extents; `None` for
/// a tensor of no file.
#[pyfunction]
pub(crate) fn read_part<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    picks: Vec<(usize, usize, usize)>,
    dims: Vec<usize>,
    framework: &str,
) -> Result<Option<Bound<'py, PyAny>>, Stop> {
    let (framework, spec) = (Framework::named(framework)?, tensor.spec()?);
    let Some((opened, entry)) = tensor.entry() else { return Ok(None) };
    let (shape, size, result) = (spec.shape.dims(), spec.dtype.size(), Shape::new(&dims)?);
    let picks: Vec<Pick> = picks.into_iter().map(|(first, step, count)| Pick { first, step, count }).collect();
    let count = picks.iter().try_fold(1_usize, |count, pick| count.checked_mul(pick.count));
    let fits = picks.len() == shape.len() && picks.iter().zip(shape).all(|(pick, extent)| pick.is_of(*extent));
    if !fits || count != Some(result.count()) {
        return Err(PyValueError::new_err("the indices are not the tensor's").into());
    }
    let (run, begins) = runs(&picks, shape);
    let file = &opened.checkpoint;
    let block = here(py, |watch| {
        let mut places = begins.map(|at| at * size);
        Block::filled(file.name(), result.count() * size, |out| read(file, entry, &mut places, run * size, watch, out))
    })?;
    let part = Tensor::made(TensorSpec::new("", spec.dtype, result), Arc::new(block));
    Tensor::array(&Bound::new(py, part)?, framework).map(Some)
}

/// The runs of elements in ascending order: how long all are, and where each begins.
fn runs(picks: &[Pick], shape: &[usize]) -> (usize, impl Iterator<Item = usize> + use<>) {
    let mut inner = 1;
    let mut axes = shape.len();
    while axes > 0 && picks[axes - 1].count == shape[axes - 1] && picks[axes - 1].step == 1 {
        inner *= shape[axes - 1];
        axes -= 1;
    }
    // The innermost axis that is not whole is one run where its indices follow each other.
    let (mut begin, mut run, mut stride) = (0, inner, inner);
    if axes > 0 && (picks[axes - 1].step == 1 || picks[axes - 1].count <= 1) {
        axes -= 1;
        (begin, run, stride) = (picks[axes].first * inner, picks[axes].count * inner, shape[axes] * inner);
    }
    let mut outer: Vec<(Pick, usize)> = Vec::new();
    for axis in (0..axes).rev() {
        outer.push((picks[axis], stride));
        stride *= shape[axis];
    }
    let total: usize = if run == 0 { 0 } else { outer.iter().map(|(pick, _)| pick.count).product() };
    (
        run,
        (0..total).map(move |mut number: usize| {
            let mut at = begin;
            for (pick, stride) in &outer {
                at += (pick.first + number % pick.count * pick.step) * stride;
                number /= pick.count;
            }
            at
        }),
    )
}

/// Reads runs of `run` bytes, which begin at ascending places, one after the other into `out`.
fn read(
    file: &Checkpoint,
    entry: &Entry,
    places: &mut dyn Iterator<Item = usize>,
    run: usize,
    watch: &dyn Watch,
    out: &mut [u8],
) -> Result<(), Error> {
    let mut reader = Place { reader: Watched::open(file, entry, watch)?, at: 0 };
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
    reader: Watched<'a>,
    at: usize,
}

impl Place<'_> {
    /// Fills `out` with the bytes from `place` on, which does not lie before the bytes read last.
    fn fill(&mut self, place: usize, out: &mut [u8]) -> Result<(), Error> {
        self.reader.skip((place - self.at) as u64)?;
        self.at = place + out.len();
        pull(&mut self.reader, out)
    }
}
