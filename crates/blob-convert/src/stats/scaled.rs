//! Statistics of f64 whose squares or sums leave the range of f64, though mean, deviation and norms may lie within it:
//! of values as 1e300 or 1e-300. The values are measured again, multiplied by a power of two, which is exact.

use blob_core::DType;
use blob_ops::{Stats, StatsAccumulator};

/// 2^600 and 2^-600: squares of the largest values shrink, and those of the smallest grow, to less than 2^850.
const LARGE: f64 = f64::from_bits((1023 + 600) << 52);
const SMALL: f64 = f64::from_bits((1023 - 600) << 52);

/// Values below this size, about 4e-121, have squares that lose bits or vanish.
const TINY: f64 = f64::from_bits((1023 - 400) << 52);

/// The measurement of a channel whose statistics are not right.
pub(super) fn of(dtype: DType, stats: &Stats) -> Option<Scaled> {
    factor(dtype, stats).map(Scaled::new)
}

/// The factor with which values are to be measured again; `None` where the statistics are right.
fn factor(dtype: DType, stats: &Stats) -> Option<f64> {
    if dtype != DType::F64 || stats.mean.is_none() {
        return None;
    }
    let all = [stats.mean.unwrap_or_default(), stats.std.unwrap_or_default(), stats.l1, stats.l2];
    let ends = [stats.min, stats.max].map(|end| end.map_or(0.0, |end| end.as_f64().abs()));
    let is_tiny = stats.l1 > 0.0 && ends.iter().all(|end| *end < TINY);
    if all.iter().any(|value| !value.is_finite()) { Some(SMALL) } else { is_tiny.then_some(LARGE) }
}

/// The statistics of values multiplied by a factor.
#[derive(Debug)]
pub(super) struct Scaled {
    factor: f64,
    stats: StatsAccumulator,
    values: Vec<u8>,
}

impl Scaled {
    fn new(factor: f64) -> Self {
        Self { factor, stats: StatsAccumulator::new(DType::F64), values: Vec::new() }
    }

    /// Hands the working memory on.
    pub(super) fn hand_over(&mut self, to: &mut Self) {
        self.stats.hand_over(&mut to.stats);
    }

    /// Takes whole elements.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.values.clear();
        let (values, _) = bytes.as_chunks::<8>();
        self.values.extend(values.iter().flat_map(|value| (f64::from_le_bytes(*value) * self.factor).to_le_bytes()));
        self.stats.update(&self.values);
    }

    /// Puts the mean, the deviation and the norms into the statistics of the values themselves.
    pub(super) fn finish(self, stats: &mut Stats) {
        let scaled = self.stats.finish();
        let whole = |value: f64| value / self.factor;
        (stats.mean, stats.std) = (scaled.mean.map(whole), scaled.std.map(whole));
        (stats.l1, stats.l2) = (whole(scaled.l1), whole(scaled.l2));
    }
}
