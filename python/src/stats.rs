//! The statistics of a tensor, as `Stats` of `blob_io/_types.py`.

use std::io;
use std::sync::Arc;

use blob_convert::Watch;
use blob_convert::stats::{Measured, measure, measure_channels};
use blob_io::layout::TensorSpec;
use blob_io::{Checkpoint, Entry, Format, OpenOptions, Source};
use blob_ops::Scalar;
use pyo3::prelude::*;
use serde_json::json;

use crate::dtype::names;
use crate::error::Stop;
use crate::file::class;
use crate::mapping::Block;
use crate::tensor::Tensor;
use crate::work::here;

/// How many bins a histogram has.
const BINS: usize = 64;

/// The name of a tensor of no file in errors.
const NAME: &str = "made";

#[pymethods]
impl Tensor {
    /// Minimum, maximum, mean and more, of all values; with `per_channel` of each index of that axis too.
    #[pyo3(signature = (*, per_channel=None, histogram=false))]
    fn stats<'py>(
        &self,
        py: Python<'py>,
        per_channel: Option<i64>,
        histogram: bool,
    ) -> Result<Bound<'py, PyAny>, Stop> {
        let bins = histogram.then_some(BINS);
        let measured = |file: &Checkpoint, entry: &Entry, watch: &dyn Watch| {
            let channels = per_channel.map(|axis| measure_channels(file, entry, axis, bins, watch)).transpose()?;
            Ok((measure(file, entry, bins, watch)?, channels))
        };
        let (whole, channels) = match self.entry() {
            Some((opened, entry)) => here(py, |watch| measured(&opened.checkpoint, entry, watch))?,
            None => {
                let shown = Shown::new(self.spec()?, self.block(py, false)?);
                here(py, |watch| {
                    let file = OpenOptions::new().from(Format::Safetensors).open_source(NAME, Box::new(shown))?;
                    measured(&file, &file.entries()[0], watch)
                })?
            }
        };
        let channels: Option<PyResult<Vec<_>>> =
            channels.map(|all| all.iter().map(|measured| statistics(py, measured, None)).collect());
        Ok(statistics(py, &whole, channels.transpose()?)?)
    }
}

/// A tensor of no file as a file of safetensors, without a copy of the values.
struct Shown {
    head: Vec<u8>,
    block: Arc<Block>,
}

impl Shown {
    fn new(spec: TensorSpec, block: Arc<Block>) -> Self {
        let (dtype, shape) = (names(spec.dtype).safetensors, spec.shape.dims());
        let text = json!({NAME: {"dtype": dtype, "shape": shape, "data_offsets": [0, block.len()]}}).to_string();
        let mut head = (text.len().next_multiple_of(8) as u64).to_le_bytes().to_vec();
        head.extend_from_slice(text.as_bytes());
        head.resize(head.len().next_multiple_of(8), b' ');
        Self { head, block }
    }
}

impl Source for Shown {
    fn len(&self) -> u64 {
        (self.head.len() + self.block.len()) as u64
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let at = offset as usize;
        let in_head = self.head.get(at..).unwrap_or_default();
        let (head, values) = out.split_at_mut(in_head.len().min(out.len()));
        head.copy_from_slice(&in_head[..head.len()]);
        self.block.span().copy(at.saturating_sub(self.head.len()), values);
        Ok(())
    }
}

/// An instance of Python's `Stats`, with the statistics of the channels.
fn statistics<'py>(
    py: Python<'py>,
    measured: &Measured,
    channels: Option<Vec<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (stats, number) = (&measured.stats, |scalar: Option<Scalar>| scalar.map(Scalar::as_f64));
    let histogram = measured.histogram.as_ref();
    let histogram = histogram.map(|bins| class(py, "Histogram")?.call1((bins.min, bins.max, bins.counts.clone())));
    let moments = (number(stats.min), number(stats.max), stats.mean, stats.std, stats.l1, stats.l2);
    let counts = (stats.zeros, stats.nan, stats.inf);
    class(py, "Stats")?.call_method1("of", (stats.count, moments, counts, histogram.transpose()?, channels))
}
