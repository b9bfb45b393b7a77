//! One buffer, any number of copies, moved only when needed.
//!
//! This crate knows bytes and places. It does not know shapes, element types, files or kernels.
//!
//! * [`SyncedMem`] has one owner: the compiler checks its borrows, and its slices are plain slices.
//! * [`SharedMem`] has any number of handles: byte ranges are borrowed at run time, a conflict is an error at once.
//! * [`HostBuffer`] is the block that both keep on the host: aligned, zeroed without cost, or adopted with its owner.
//!
//! A new memory allocates nothing until it is first touched, and then reads as zeros.
//!
//! ```
//! use synced_mem::SyncedMem;
//!
//! let mut memory = SyncedMem::new(1 << 20);
//! assert!(!memory.is_initialized());
//! memory.host_mut()?[7] = 42;
//! let shared = memory.into_shared();
//! let (reader, mut writer) = (shared.host(0..8)?, shared.host_mut(8..16)?);
//! writer[0] = reader[7];
//! assert_eq!(writer[0], 42);
//! assert!(shared.host(4..12).is_err()); // overlaps the writer
//! # Ok::<(), synced_mem::Error>(())
//! ```
#![deny(unsafe_code)]

mod error;
#[allow(unsafe_code)]
mod host;
mod memory;
#[allow(unsafe_code)]
mod shared;

pub use error::{Access, Error};
pub use host::HostBuffer;
pub use memory::SyncedMem;
pub use shared::{HostMut, HostRef, SharedMem};
