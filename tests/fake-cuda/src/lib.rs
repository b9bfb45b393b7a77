//! A CUDA driver for tests. Built as the library `libcuda.so`, it implements the driver's entry points without a GPU
//! and interprets the PTX of the kernels. The host cannot access device memory. Work runs only at a synchronisation, in
//! an order that a seed decides. Every misuse makes a report, and any call can be made to fail.
//!
//! [`control`] is the interface for tests: it loads the library and calls the exported functions, because the copy of
//! this crate that is linked into a test has its own statics. The driver does **not** know the crates under test, and
//! does not model time, caches or weak memory order. Only `entries` (C calls), `host` (memory of the caller) and
//! `control` contain `unsafe`.

#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

mod abi;
#[allow(unsafe_code)]
pub mod control;
mod driver;
#[allow(unsafe_code)]
mod entries;
mod exec;
#[allow(unsafe_code)]
mod host;
mod memory;
mod ptx;
mod random;
mod setup;
