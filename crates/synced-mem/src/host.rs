//! Bytes on the host: one buffer, and the pool that blocks come from and go back to.

#[allow(unsafe_code)]
mod allocation;
#[allow(unsafe_code)]
pub(crate) mod buffer;
pub(crate) mod pool;
