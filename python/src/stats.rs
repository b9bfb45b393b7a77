//! The statistics of a tensor, as `Stats` of `blob_io/_types.py`.

use blob_convert::stats::{Measured, measure, measure_channels};
use blob_ops::Scalar;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::error::Stop;
use crate::file::class;
use crate::tensor::Tensor;
use crate::work::here;

/// How many bins a histogram has.
const BINS: usize = 64;

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
        let Some((opened, entry)) = self.entry() else {
            return Err(PyTypeError::new_err("statistics are those of a tensor of a file").into());
        };
        let (file, bins) = (&opened.checkpoint, histogram.then_some(BINS));
        let (whole, channels) = here(py, |watch| {
            let channels = per_channel.map(|axis| measure_channels(file, entry, axis, bins, watch)).transpose()?;
            Ok((measure(file, entry, bins, watch)?, channels))
        })?;
        let each = |measured: &Measured| statistics(py, measured, None);
        let channels: Option<PyResult<Vec<_>>> = channels.map(|all| all.iter().map(each).collect());
        Ok(statistics(py, &whole, channels.transpose()?)?)
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
    let (mean, std, histogram) = (stats.mean, stats.std, histogram.transpose()?);
    let (min, max, counts) = (number(stats.min), number(stats.max), (stats.zeros, stats.nan, stats.inf));
    let (zeros, nan, inf) = counts;
    class(py, "Stats")?.call1((
        stats.count,
        min,
        max,
        mean,
        std,
        stats.l1,
        stats.l2,
        zeros,
        nan,
        inf,
        histogram,
        channels,
    ))
}
