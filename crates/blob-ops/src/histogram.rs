//! How many elements of a tensor lie in each of n equal bins, as bytes arrive in pieces.
//!
//! Owns edges and tables; the counting loop is `cpu/bins.rs`. Does not find the range: that takes another pass.

use crate::cpu::Isa;
use crate::cpu::bins::{Grid, MAX_BINS, Tables};
use crate::cpu::lanes::Scratch;
use crate::error::Error;
use blob_core::DType;

/// Counts the finite elements of a tensor in `n` bins of equal width between `min` and `max`.
///
/// An element x goes into bin `min(⌊(x − min)·(n / (max − min))⌋, n − 1)`, computed in f64 and rounded to 2⁻³⁵ before
/// it is rounded down, so that a value on an edge is in the bin above, however the quotient was rounded. Bin i is
/// `[min + i·w, min + (i + 1)·w)` with w = (max − min)/n and edges exact to 2⁻³⁵ of w; the last one also holds `max`.
/// With `min == max` everything equal to both is in bin 0. NaN, ±Inf and values below `min` or above `max` are in no
/// bin. Integers beyond ±2⁵³ are rounded to f64 first.
///
/// The range of a tensor is known when [`Stats`](crate::Stats) is, so a histogram is a second pass.
#[derive(Clone, Debug)]
pub struct Histogram {
    dtype: DType,
    isa: Isa,
    tables: Tables,
    /// Made at the first element.
    scratch: Option<Box<Scratch>>,
    /// The first bytes of an element whose last have not come yet.
    pending: Vec<u8>,
}

impl Histogram {
    /// The most bins a histogram may have: its tables then take 4 MiB.
    pub const MAX_BINS: usize = MAX_BINS;

    /// An empty histogram.
    ///
    /// # Errors
    /// [`Error::Bins`] if `bins` is 0 or above [`MAX_BINS`](Self::MAX_BINS); [`Error::Range`] if `min` or `max` is not
    /// finite or `min` is above `max`.
    pub fn new(dtype: DType, min: f64, max: f64, bins: usize) -> Result<Self, Error> {
        if bins == 0 || bins > Self::MAX_BINS {
            return Err(Error::Bins { bins });
        }
        if !(min.is_finite() && max.is_finite() && min <= max) {
            return Err(Error::Range { min, max });
        }
        Ok(Histogram {
            dtype,
            isa: Isa::detect(),
            tables: Tables::new(grid(min, max, bins)),
            scratch: None,
            pending: Vec::new(),
        })
    }

    /// Takes the next native-endian bytes of the tensor. A piece may end anywhere, even inside an element.
    pub fn update(&mut self, bytes: &[u8]) {
        let size = self.dtype.size();
        let mut rest = bytes;
        if !self.pending.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(size - self.pending.len()));
            self.pending.extend_from_slice(head);
            rest = tail;
            if self.pending.len() < size {
                return;
            }
            let scratch = self.scratch.get_or_insert_default();
            self.tables.count(self.isa, self.dtype, &self.pending, scratch);
            self.pending.clear();
        }
        let (whole, tail) = rest.split_at(rest.len() - rest.len() % size);
        self.tables.count(self.isa, self.dtype, whole, self.scratch.get_or_insert_default());
        self.pending.extend_from_slice(tail);
    }

    /// Hands the working memory, 32 KiB, on to another histogram: many that take turns share one.
    pub fn hand_over(&mut self, to: &mut Self) {
        to.scratch = self.scratch.take().or(to.scratch.take());
    }

    /// The number of elements in each bin so far, and in no bin: NaN, ±Inf and values out of range.
    pub fn counts(&self) -> (Vec<u64>, u64) {
        self.tables.counts()
    }
}

/// `min ≤ max` finite, `1 ≤ bins ≤ MAX_BINS`.
fn grid(min: f64, max: f64, bins: usize) -> Grid {
    let width = max - min;
    // Powers of two, so that no value changes but for its exponent.
    let factor = if width > 1e300 {
        0.25
    } else if width > 0.0 && width < 1e-280 {
        f64::from_bits((1023 + 200) << 52)
    } else {
        1.0
    };
    let width = max * factor - min * factor;
    Grid {
        min,
        max,
        factor,
        start: min * factor,
        scale: if width > 0.0 { bins as f64 / width } else { 0.0 },
        bins: bins as u32,
    }
}
