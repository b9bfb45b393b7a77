//! Operations on tensors: today their statistics, in one pass over bytes that arrive in pieces.
//!
//! Knows dtypes and bytes. Does **not** know files, formats, names of tensors, or where the bytes come from.
//!
//! ```
//! use blob_core::DType;
//! use blob_ops::{Scalar, StatsAccumulator};
//!
//! let mut stats = StatsAccumulator::new(DType::F32);
//! for piece in [[3.0f32, -4.0], [0.0, f32::NAN]] {
//!     stats.update(&piece.map(f32::to_ne_bytes).concat());
//! }
//! let stats = stats.finish();
//! assert_eq!((stats.count(), stats.nan(), stats.zeros()), (4, 1, 1));
//! assert_eq!((stats.min(), stats.l2()), (Some(Scalar::F(-4.0)), 5.0));
//! ```
//!
//! Every result has the same bits on every machine, for every instruction set and every way to cut the bytes.
//! The environment variable `BLOB_OPS_ISA=portable|avx2|avx512` lowers the instruction set, for tests.
#![deny(unsafe_code)] // but in `cpu/x86.rs`

mod cpu;
mod error;
mod finite;
mod histogram;
mod scalar;
mod stats;
#[cfg(test)]
mod tests;
mod tree;

pub use error::Error;
pub use finite::{NonFinite, count_nonfinite};
pub use histogram::Histogram;
pub use scalar::Scalar;
pub use stats::{Stats, StatsAccumulator};

/// The instruction set that this process uses: `portable`, `avx2` or `avx512`.
pub fn instruction_set() -> &'static str {
    cpu::Isa::detect().name()
}
