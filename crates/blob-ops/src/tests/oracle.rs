//! What the kernels must find, by loops that a reader can check: one value at a time, sums in twice the precision.

use crate::Scalar;
use blob_core::DType;
use half::{bf16, f16};

/// One element: its exact value, and the f64 that sums see.
fn element(dtype: DType, bytes: &[u8]) -> (Scalar, f64) {
    macro_rules! read {
        ($t:ty) => {
            <$t>::from_ne_bytes(bytes.try_into().expect("one element"))
        };
    }
    let scalar = match dtype {
        DType::U8 => Scalar::U(read!(u8).into()),
        DType::I8 => Scalar::I(read!(i8).into()),
        DType::I16 => Scalar::I(read!(i16).into()),
        DType::U16 => Scalar::U(read!(u16).into()),
        DType::I32 => Scalar::I(read!(i32).into()),
        DType::U32 => Scalar::U(read!(u32).into()),
        DType::I64 => Scalar::I(read!(i64)),
        DType::U64 => Scalar::U(read!(u64)),
        DType::F16 => Scalar::F(read!(f16).into()),
        DType::BF16 => Scalar::F(read!(bf16).into()),
        DType::F32 => Scalar::F(read!(f32).into()),
        DType::F64 => Scalar::F(read!(f64)),
        DType::Bool => Scalar::U(u64::from(bytes[0] != 0)),
        other => panic!("the oracle does not know {other:?}"),
    };
    (scalar, scalar.as_f64())
}

/// All elements.
pub(super) fn elements(dtype: DType, bytes: &[u8]) -> Vec<(Scalar, f64)> {
    bytes.chunks_exact(dtype.size()).map(|bytes| element(dtype, bytes)).collect()
}

/// A sum in twice the precision of f64 (Dekker 1971, Knuth's TwoSum).
#[derive(Clone, Copy, Default)]
struct Double {
    high: f64,
    low: f64,
}

impl Double {
    fn add(&mut self, x: f64) {
        let sum = self.high + x;
        let part = sum - self.high;
        self.low += (self.high - (sum - part)) + (x - part);
        self.high = sum;
    }

    /// The product's rounding error is what FMA leaves.
    fn add_square(&mut self, x: f64) {
        let square = x * x;
        self.add(square);
        self.low += x.mul_add(x, -square);
    }

    fn value(self) -> f64 {
        self.high + self.low
    }
}

/// What the accumulator must say, sums without rounding errors worth the name.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) count: u64,
    pub(super) nan: u64,
    pub(super) inf: u64,
    pub(super) zeros: u64,
    pub(super) min: Option<Scalar>,
    pub(super) max: Option<Scalar>,
    pub(super) mean: Option<f64>,
    pub(super) std: Option<f64>,
    pub(super) l1: f64,
    pub(super) squares: f64,
    pub(super) l2: f64,
}

pub(super) fn expected(dtype: DType, bytes: &[u8]) -> Expected {
    let all = elements(dtype, bytes);
    let finite: Vec<f64> = all.iter().map(|e| e.1).filter(|x| x.is_finite()).collect();
    let (mut sum, mut abs, mut squares) = (Double::default(), Double::default(), Double::default());
    for &x in &finite {
        sum.add(x);
        abs.add(x.abs());
        squares.add_square(x);
    }
    let n = finite.len() as f64;
    let mean = (n > 0.0).then(|| sum.value() / n);
    let std = mean.map(|mean| {
        let mut m2 = Double::default();
        for &x in &finite {
            m2.add_square(x - mean);
        }
        (m2.value() / n).sqrt()
    });
    let ordered = all.iter().map(|e| e.0).filter(|s| !s.as_f64().is_nan());
    let order = |a: &Scalar, b: &Scalar| match (a, b) {
        (Scalar::I(a), Scalar::I(b)) => a.cmp(b),
        (Scalar::U(a), Scalar::U(b)) => a.cmp(b),
        (a, b) => a.as_f64().total_cmp(&b.as_f64()),
    };
    Expected {
        count: all.len() as u64,
        nan: all.iter().filter(|e| e.1.is_nan()).count() as u64,
        inf: all.iter().filter(|e| e.1.is_infinite()).count() as u64,
        zeros: all.iter().filter(|e| e.1 == 0.0).count() as u64,
        min: ordered.clone().min_by(order),
        max: ordered.max_by(order),
        mean,
        std,
        l1: abs.value(),
        squares: squares.value(),
        l2: squares.value().sqrt(),
    }
}

/// The bins by the documented formula, and how many elements are in none.
pub(super) fn bins(dtype: DType, bytes: &[u8], min: f64, max: f64, bins: usize) -> (Vec<u64>, u64) {
    let (mut counts, mut left_out) = (vec![0; bins], 0);
    for (_, x) in elements(dtype, bytes) {
        if x >= min && x <= max {
            let place = (x - min) * (bins as f64 / (max - min));
            let bin = ((place * 2f64.powi(35)).round_ties_even() / 2f64.powi(35)).floor() as usize;
            counts[bin.min(bins - 1)] += 1;
        } else {
            left_out += 1;
        }
    }
    (counts, left_out)
}
