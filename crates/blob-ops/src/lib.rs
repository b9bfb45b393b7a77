//! Operations on tensors: arithmetic, sums and conversions of blobs, and statistics in one pass over bytes.
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
//! Large work is shared among the threads of the current rayon pool: `pool.install(|| merge(..))` runs it on the caller's.
//! The environment variable `BLOB_OPS_ISA=portable|avx2|avx512` lowers the instruction set, for tests.
#![deny(unsafe_code)] // but in `cpu/x86.rs`

mod convert;
mod cpu;
mod element;
mod error;
mod fill;
mod finite;
mod histogram;
mod merge;
mod part;
mod plan;
mod scalar;
mod stats;
mod sums;
#[cfg(test)]
mod tests;
mod threads;
mod transpose;
mod tree;
mod unfit;

pub use convert::{convert, convert_checked, convert_checked_into, convert_into};
pub use element::{add, add_flush_subnormals, axpy, scale, update};
pub use error::Error;
pub use fill::{clear, clear_object, fill, fill_object};
pub use finite::{NonFinite, count_nonfinite};
pub use histogram::Histogram;
pub use merge::{
    merge, merge_into, merge_objects, merge_objects_into, split, split_into, split_objects,
    split_objects_into,
};
pub use part::Part;
pub use scalar::Scalar;
pub use stats::{Stats, StatsAccumulator};
pub use sums::{asum, stats, sumsq};
pub use transpose::{permute, permute_into, transpose, transpose_in_place, transpose_into};
pub use unfit::{Argument, Unfit};

/// The instruction set that this process uses: `portable`, `avx2` or `avx512`.
pub fn instruction_set() -> &'static str {
    cpu::Isa::detect().name()
}
