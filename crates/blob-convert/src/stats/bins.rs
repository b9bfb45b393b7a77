//! The bins of a histogram and their range, which covers the finite values only; NaN and ±Inf are left out.

use blob_core::DType;
use blob_ops::{Stats, StatsAccumulator};

/// How many elements lie in each of n equal bins between the smallest and the largest finite one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Binned {
    /// The smallest finite element: where the first bin begins.
    pub min: f64,
    /// The largest finite element: where the last bin ends.
    pub max: f64,
    /// The elements in each bin. NaN and ±Inf are in none.
    pub counts: Vec<u64>,
}

/// The range of the values, where both ends are finite.
pub(super) fn range(stats: &Stats) -> Option<(f64, f64)> {
    let (min, max) = (stats.min?.as_f64(), stats.max?.as_f64());
    (min.is_finite() && max.is_finite()).then_some((min, max))
}

/// The range of the finite elements of a float tensor that holds ±Inf too: statistics in which each ±Inf is replaced by
/// a NaN, which minimum and maximum ignore.
#[derive(Debug)]
pub(super) struct Finite {
    stats: StatsAccumulator,
    dtype: DType,
    masked: Vec<u8>,
}

impl Finite {
    pub(super) fn new(dtype: DType) -> Self {
        Self { stats: StatsAccumulator::new(dtype), dtype, masked: Vec::new() }
    }

    /// Takes whole elements.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.masked.clear();
        self.masked.extend_from_slice(bytes);
        // The bits of the exponent. If all of them are set, the value is ±Inf or NaN; a bit of the mantissa then makes
        // NaN.
        let exponent: &[u8] = match self.dtype {
            DType::F16 => &[0x00, 0x7C],
            DType::BF16 => &[0x80, 0x7F],
            DType::F32 => &[0x00, 0x00, 0x80, 0x7F],
            DType::F64 => &[0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xF0, 0x7F],
            _ => return self.stats.update(bytes),
        };
        for element in self.masked.chunks_exact_mut(exponent.len()) {
            let is_special = element.iter().zip(exponent).all(|(b, e)| b & e == *e);
            element[0] |= u8::from(is_special);
        }
        self.stats.update(&self.masked);
    }

    pub(super) fn range(self) -> Option<(f64, f64)> {
        range(&self.stats.finish())
    }
}
