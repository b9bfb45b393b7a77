//! Arrays of others, written to files, merged, split and permuted: `save_file`, `merge`, `split`, `permute`.

use std::path::PathBuf;
use std::sync::Arc;

use blob_core::{AnyBlob, DType, Shape};
use blob_io::layout::TensorSpec;
use blob_io::{Bf16, Error, Format, IfExists, Writer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Stop, refuse};
use crate::given::{Given, Watched};
use crate::mapping::{ALIGN, Block, with_blobs};
use crate::opened::{Stored, format_named};
use crate::taken::taken;
use crate::tensor::Tensor;
use crate::work::{Progress, beside, here};

/// Writes named arrays to a file.
#[pyfunction]
pub(crate) fn save(
    py: Python<'_>,
    tensors: &Bound<'_, PyDict>,
    path: PathBuf,
    format: Option<&str>,
    metadata: Vec<(String, String)>,
    overwrite: bool,
) -> Result<(), Stop> {
    let format = match format {
        Some(name) => format_named(name)?,
        None => Format::of_path(&path)
            .ok_or_else(|| PyValueError::new_err(format!("{} does not say a format: name one", path.display())))?,
    };
    let values = |(name, array): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((name.extract()?, Values::of(&array)?));
    let values: Vec<(String, Values)> = tensors.iter().map(values).collect::<Result<_, Stop>>()?;
    let total = values.iter().map(|(_, values)| values.byte_len()).sum();
    let if_exists = if overwrite { IfExists::Replace } else { IfExists::Refuse };
    let lent: Vec<(&str, Box<dyn blob_io::Tensor + Sync + '_>)> =
        values.iter().map(|(name, values)| Ok((name.as_str(), values.source()?))).collect::<Result<_, Stop>>()?;
    // A conversion writes the bits, and its receipt says whose. A file without one would be of other values.
    let halves = lent.iter().find(|(_, tensor)| tensor.dtype() == DType::BF16);
    if let (Bf16::AsU16, Some((name, _))) = (format.holds().bf16, halves) {
        let text = format!("{} has no bf16, and {name:?} would be read as u16: give its values as f32", format.name());
        return Err(refuse(&path.display().to_string(), text));
    }
    beside(py, &Progress::Nobody, total, |watch| {
        let readers: Vec<_> = lent.iter().map(|(name, tensor)| (*name, Watched { tensor: &**tensor, watch })).collect();
        let writer = readers.iter().fold(Writer::new(format), |writer, (name, tensor)| writer.tensor(*name, tensor));
        let writer = metadata.iter().fold(writer, |writer, (key, value)| writer.metadata(key, value));
        writer.write(&path, if_exists).map_err(|error| error.about(&path.display().to_string()))
    })
}

/// The values of an array to be written: in memory, or of an open file, which is read meanwhile.
enum Values {
    Given(Given),
    Stored(Stored),
}

impl Values {
    fn of(array: &Bound<'_, PyAny>) -> Result<Self, Stop> {
        let stored = array.cast::<Tensor>().ok().and_then(|tensor| tensor.get().stored_values(array.py()));
        stored.map_or_else(|| taken(array).map(Self::Given), |stored| Ok(Self::Stored(stored)))
    }

    fn byte_len(&self) -> u64 {
        match self {
            Self::Given(given) => given.byte_len() as u64,
            Self::Stored(stored) => stored.entry().byte_len(),
        }
    }

    /// The same for a thread that does not hold the interpreter's lock.
    fn source(&self) -> Result<Box<dyn blob_io::Tensor + Sync + '_>, Error> {
        Ok(match self {
            Self::Given(given) => Box::new(given.lent()),
            Self::Stored(stored) => Box::new(stored.opened().checkpoint.tensor(stored.entry())?),
        })
    }
}

/// Arrays joined along an axis.
#[pyfunction]
pub(crate) fn merge(py: Python<'_>, arrays: Vec<Bound<'_, PyAny>>, axis: i32) -> Result<Tensor, Stop> {
    let given: Vec<Given> = arrays.iter().map(taken).collect::<Result<_, Stop>>()?;
    let Some(first) = given.first() else { return Err(PyValueError::new_err("no arrays to merge").into()) };
    let axis = first.shape.axis(axis)?;
    let extents = given.iter().map(|part| part.shape.dims().get(axis).copied().unwrap_or(0));
    let (shape, dtype) = (first.shape.with_extent(axis, extents.sum())?, first.dtype);
    let made = operate(py, &given, &[shape], dtype, |blobs, outs| {
        let parts: Vec<&AnyBlob> = blobs.iter().collect();
        at_new().merge_into(&parts, axis, outs[0])
    })?;
    Ok(only(made))
}

/// An array cut along an axis.
#[pyfunction]
pub(crate) fn split(
    py: Python<'_>,
    array: &Bound<'_, PyAny>,
    axis: i32,
    sizes: Vec<usize>,
) -> Result<Vec<Tensor>, Stop> {
    let given = taken(array)?;
    let axis = given.shape.axis(axis)?;
    let shapes: Vec<Shape> = sizes.iter().map(|size| given.shape.with_extent(axis, *size)).collect::<Result<_, _>>()?;
    let extent = given.shape.dims()[axis];
    if sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(*size)) != Some(extent) {
        return Err(PyValueError::new_err(format!("the sizes do not add up to the axis's extent, {extent}")).into());
    }
    let dtype = given.dtype;
    operate(py, &[given], &shapes, dtype, |blobs, outs| at_new().split_into(&blobs[0], axis, outs))
}

/// An array with its axes in another order.
#[pyfunction]
pub(crate) fn permute(py: Python<'_>, array: &Bound<'_, PyAny>, order: Vec<i32>) -> Result<Tensor, Stop> {
    let given = taken(array)?;
    let order: Vec<usize> = order.iter().map(|axis| given.shape.axis(*axis)).collect::<Result<_, _>>()?;
    let dims: Vec<usize> = order.iter().map(|axis| given.shape.dims()[*axis]).collect();
    let (shape, dtype) = (Shape::new(dims)?, given.dtype);
    Ok(only(operate(py, &[given], &[shape], dtype, |blobs: &[AnyBlob], outs: &mut [&mut AnyBlob]| {
        blob_ops::permute_into(&blobs[0], &order, outs[0])
    })?))
}

/// Blocks are written for the first time by the operation.
fn at_new() -> blob_ops::At {
    blob_ops::at_host().with_new_outputs()
}

fn only(mut made: Vec<Tensor>) -> Tensor {
    made.swap_remove(0)
}

/// Does an operation of blob-ops, without the interpreter's lock and without copying an input, to new tensors of these
/// shapes in one block.
fn operate(
    py: Python<'_>,
    given: &[Given],
    shapes: &[Shape],
    dtype: DType,
    work: impl FnOnce(&[AnyBlob], &mut [&mut AnyBlob]) -> Result<(), blob_ops::Error> + Send,
) -> Result<Vec<Tensor>, Stop> {
    let (mut parts, mut end) = (Vec::new(), 0_usize);
    for shape in shapes {
        parts.push((end, shape.clone()));
        let len = shape.count().checked_mul(dtype.size()).and_then(|len| len.checked_next_multiple_of(ALIGN));
        end = len.and_then(|len| end.checked_add(len)).ok_or_else(|| PyValueError::new_err("more than memory"))?;
    }
    let lent: Vec<_> = given.iter().map(Given::lent).collect();
    let block = here(py, |_| {
        let blobs: Vec<AnyBlob> =
            lent.iter().map(|given| given.span.blob(given.shape.clone(), given.dtype)).collect::<Result<_, _>>()?;
        Block::filled("", end, |out| with_blobs(out, &parts, dtype, |outs| work(&blobs, outs)))
    })?;
    let block = Arc::new(block);
    Ok(parts
        .into_iter()
        .map(|(begin, shape): (usize, Shape)| {
            let len = shape.count() * dtype.size();
            let part = if len == block.len() { block.clone() } else { Arc::new(Block::part(&block, begin, len)) };
            Tensor::made(TensorSpec::new("", dtype, shape), part)
        })
        .collect())
}
