//! Merge, split, transpose and permute blobs, compute on elements, sum, convert and describe.
//!
//! Knows shapes, dtypes and bytes. Does **not** know files, formats, names of tensors, or where the bytes come from.
#![doc = include_str!("../README.md")]
//!
//! | to | functions |
//! |---|---|
//! | put together and take apart | [`merge`], [`split`], and by NeoML's objects [`merge_objects`], [`split_objects`] |
//! | reorder axes | [`transpose`], [`permute`], [`transpose_in_place`] |
//! | compute in place | [`add`], [`axpy`], [`update`], [`scale`], [`fill`], of one of NeoML's objects [`fill_object`] |
//! | sum and describe | [`asum`], [`sumsq`], [`stats`]; over bytes [`StatsAccumulator`], [`Histogram`], [`count_nonfinite`] |
//! | change the dtype | [`convert`], [`convert_checked`]; of bytes [`convert_bytes`] |
//!
//! **Threads.** Large work is shared among the threads of the current rayon pool: `pool.install(|| merge(..))` is the
//! way to your own. Below 1 MiB all work stays on the calling thread, as does everything where the system starts no
//! threads.
//!
//! **Bits.** Every result has the same bits on every machine, for every number of threads, every instruction set and
//! every way to cut the bytes. The environment variable `BLOB_OPS_ISA=portable|avx2|avx512|neon` lowers the instruction
//! set, for tests: the best of this machine not above it runs, `portable` where another kind of machine has it. Another
//! name is `portable`, said once on stderr. `BLOB_OPS_STORES=streaming|ordinary` names how results that no cache holds
//! are written, past the caches or through them; by default each processor writes in the way that was measured to suit
//! it.
//!
//! **Untouched** memory reads as zeros. [`asum`], [`sumsq`], [`update`], [`convert`] and [`fill`] with 0 leave a part
//! that was never touched so; any other read allocates the part, and [`has_diff`](blob_core::AnyBlob::has_diff) is
//! true then.
//!
//! **Sums** are taken in f64. The relative error of [`asum`] and [`sumsq`] is proven to be below 10⁻¹⁴ for anything
//! that fits in memory: d·u/(1 − d·u) with u = 2⁻⁵³ and d = 35 + ⌈log₂ B⌉ at most, for B blocks of 4096 elements. For
//! [`sumsq`] of f64 that holds while no square leaves f64's normal range: for magnitudes of 0 and 10⁻¹⁵³ to 10¹⁵³.
//!
//! # Memory
//! Operations in place, sums and writes into a blob that is there (`_into`) allocate nothing, on any number of threads.
//! Merges and splits of more than 16 parts are the exception: each lists the parts, 64 bytes a part, and a split once
//! more the parts whose memory has other handles. Other allocations are not ours: a blob's memory on first use, a
//! memory's note of a first borrow, and rayon's record of work that comes from outside the pool. A
//! thread needs 192 KiB of stack, 512 KiB where this crate is built without optimisation.
//!
//! # Devices
//! With the feature `cuda`, an operation works where the fewest bytes of the inputs are missing, on the host or on a
//! GPU; of equals where the output is. A tie goes to the place where the output, else the first input that has one, was
//! last written or asked for: on a device by [`AnyBlob::upload`](blob_core::AnyBlob::upload), a token or [`at`], on the
//! host by a write alone. Missing bytes are brought there and stay valid where they were; the output is written there,
//! and its old bytes are not moved. [`at`] and [`at_host`] name the place instead:
//!
//! ```
//! use blob_core::{Blob, Part, Shape};
//! use synced_mem::Queue;
//! use std::sync::Arc;
//!
//! fn step(queue: &Arc<dyn Queue>, weights: &mut Blob<f32>) -> Result<(), blob_ops::Error> {
//!     let gpu = blob_ops::at(queue);
//!     gpu.scale(weights, 0.1, Part::Diff)?;
//!     gpu.update(weights)
//! }
//! ```
//!
//! Only [`stats`] has no kernels, and runs on the host. The bits are the same at every place.
//! `BLOB_OPS_LAUNCH=WORDS,PARTS` cuts work into smaller launches, for tests.
//!
//! **A backend of your own**, anything that implements `synced_mem::Device`, gets memory from `synced-mem`, and no
//! operations: there are kernels for CUDA alone. Operations on such blobs run on the host, also by [`at`] a queue of
//! yours: inputs are brought to the host, and results stay there until your own kernels ask for them.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)] // except in `cuda.rs`, `cpu/x86.rs`, the files of `cpu/x86`, `cpu/aarch64.rs` and `cpu/tiles.rs`

mod argument;
mod at;
mod check;
mod convert;
mod cpu;
#[cfg_attr(not(feature = "cuda"), path = "cuda/absent.rs")]
mod cuda;
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "there are no kernels to launch"))]
mod device;
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "there are no kernels to launch"))]
mod device_op;
mod element;
mod error;
mod fill;
mod finite;
mod histogram;
mod merge;
mod place;
mod plan;
mod scalar;
mod stats;
mod sums;
#[cfg(test)]
mod tests;
mod threads;
mod transpose;
mod tree;
mod work;

pub use argument::{Argument, Mismatch};
pub use at::{At, at, at_host};
pub use convert::{convert, convert_bytes, convert_checked, convert_checked_into, convert_into};
pub use element::{add, add_flush_subnormals, axpy, scale, update};
pub use error::Error;
pub use fill::{fill, fill_object};
pub use finite::{NonFinite, count_nonfinite};
pub use histogram::Histogram;
pub use merge::{
    merge, merge_into, merge_objects, merge_objects_into, split, split_into, split_objects, split_objects_into,
};
pub use scalar::Scalar;
pub use stats::{Stats, StatsAccumulator};
pub use sums::{asum, stats, sumsq};
pub use transpose::{permute, permute_into, transpose, transpose_in_place, transpose_into};

/// The instruction set that this process uses: `portable`, `avx2`, `avx512` or `neon`.
pub fn instruction_set() -> &'static str {
    cpu::Isa::detect().name()
}

/// How this process writes results that no cache holds: `streaming`, past the caches, or `ordinary`.
pub fn stores() -> &'static str {
    cpu::stores().name()
}
