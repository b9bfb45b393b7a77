//! The compiled half of the Python package `blob_io`; the other half, in `blob_io/`, is plain Python.
//!
//! Relies on blob-io for reading and writing, on blob-convert for conversions and checks, on blob-ops for merges.
//! Does not know numpy, torch and jax: they take arrays by the buffer protocol and DLPack. Unsafe code stands in
//! `dlpack` and `mapping` alone.
//!
//! Each class is frozen: the few things that change lie behind locks that are held for no call of Python.

#![deny(unsafe_code)] // except in `dlpack.rs` and `mapping.rs`

mod arrays;
mod compare;
mod convert;
#[allow(unsafe_code)]
mod dlpack;
mod dtype;
mod error;
mod file;
mod given;
#[allow(unsafe_code)]
mod mapping;
mod opened;
mod slice;
mod source;
mod stats;
mod taken;
mod tensor;
mod values;
mod work;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _blob_io {
    #[pymodule_export]
    use crate::arrays::{merge, permute, save, split};
    #[pymodule_export]
    use crate::compare::{check, content_hash, diff, file_hash};
    #[pymodule_export]
    use crate::convert::run_recipe;
    #[pymodule_export]
    use crate::file::{File, open, open_part};
    #[pymodule_export]
    use crate::mapping::Memory;
    #[pymodule_export]
    use crate::slice::read_part;
    #[pymodule_export]
    use crate::tensor::Tensor;
}
