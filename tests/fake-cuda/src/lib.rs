//! A CUDA driver for tests. Built as a library of the name `libcuda.so`, it answers the driver's entry points without a
//! GPU and interprets the PTX that the kernels were compiled to. Device memory cannot be touched by the host, nothing
//! runs before a synchronisation, then in an order that a seed decides; every misuse leaves a report, and any call can
//! be made to fail.
//!
//! [`control`] is the tests' side: it loads the library and talks to it through exported functions, because the copy of
//! this crate that is linked into a test has statics of its own. It does **not** know the crates under test, time,
//! caches or weak memory order. `unsafe` stands in the doors only: `entries` (C calls), `host` (memory of the caller)
//! and `control`.

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
