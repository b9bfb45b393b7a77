//! Whether a piece of a tensor holds NaN or Inf, and where first. The search itself is `cpu/finite.rs`.

use crate::cpu::Isa;
use crate::cpu::finite::{Found, find};
use blob_core::DType;

/// The result of [`count_nonfinite`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct NonFinite {
    /// Elements that are NaN.
    pub nan: u64,
    /// Elements that are +Inf or −Inf.
    pub inf: u64,
    /// Index of the first element that is NaN or ±Inf, in elements from the start of the bytes given.
    pub first_index: Option<u64>,
}

/// Counts NaN and ±Inf among native-endian elements, about as fast as memory is read when there are none.
///
/// `bytes` hold whole elements at any alignment; a cut last element is not looked at. Integers and bools are always
/// finite, and then no byte is read.
pub fn count_nonfinite(dtype: DType, bytes: &[u8]) -> NonFinite {
    let Found { nan, inf, first } = find(Isa::detect(), dtype, bytes);
    NonFinite { nan, inf, first_index: first }
}
