//! One number of any dtype: the exact minimum or maximum of a tensor.
//!
//! An f64 could not hold an i64 or a u64 exactly. Comparison is within one variant; a tensor has only one.

use std::fmt;

/// A single element's value, exact for every dtype.
///
/// Signed integers are [`I`](Scalar::I), unsigned ones and bools [`U`](Scalar::U), every float type [`F`](Scalar::F).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Scalar {
    /// An element of a signed integer dtype.
    I(i64),
    /// An element of an unsigned integer dtype, or a bool as 0 or 1.
    U(u64),
    /// An element of a float dtype.
    F(f64),
}

impl Scalar {
    /// The value as f64: exact, but for integers beyond ±2⁵³, which are rounded to nearest even.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::I(x) => x as f64,
            Scalar::U(x) => x as f64,
            Scalar::F(x) => x,
        }
    }

    /// Whether `self` is the smaller one. Both are of one dtype.
    pub(crate) fn below(self, other: Scalar) -> bool {
        match (self, other) {
            (Scalar::I(a), Scalar::I(b)) => a < b,
            (Scalar::U(a), Scalar::U(b)) => a < b,
            (a, b) => a.as_f64() < b.as_f64(),
        }
    }

    /// The same value, −0 as +0: which zero came first says nothing about a tensor.
    pub(crate) fn without_negative_zero(self) -> Scalar {
        match self {
            Scalar::F(x) => Scalar::F(x + 0.0),
            other => other,
        }
    }
}

macro_rules! from {
    ($($variant:ident: $($number:ty)*;)*) => { $($(
        impl From<$number> for Scalar {
            fn from(x: $number) -> Self {
                Scalar::$variant(x.into())
            }
        }
    )*)* };
}
from! {
    I: i8 i16 i32 i64;
    U: u8 u16 u32 u64 bool;
    F: half::f16 half::bf16 f32 f64;
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::I(x) => x.fmt(f),
            Scalar::U(x) => x.fmt(f),
            Scalar::F(x) => x.fmt(f),
        }
    }
}
