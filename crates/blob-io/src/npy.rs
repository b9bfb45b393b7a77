//! npy: one NumPy array, as written by NumPy and MXNet 2.
//!
//! The format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

pub(crate) mod header;
pub(crate) mod read;
pub(crate) mod write;

/// The first bytes of every npy file; two bytes of version follow.
const MAGIC: &[u8; 6] = b"\x93NUMPY";
