//! Whether a piece of a tensor holds NaN or Inf, and where first. The search itself is `cpu/finite.rs`.

use crate::cpu::Isa;
use crate::cpu::finite::{Found, find};
use blob_core::DType;

/// What [`count_nonfinite`] found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NonFinite {
    found: Found,
}

impl NonFinite {
    /// Elements that are NaN.
    pub fn nan(&self) -> u64 {
        self.found.nan
    }

    /// Elements that are +Inf or −Inf.
    pub fn inf(&self) -> u64 {
        self.found.inf
    }

    /// Index of the first element that is NaN or ±Inf, in elements from the start of the bytes given.
    pub fn first_index(&self) -> Option<u64> {
        self.found.first
    }
}

/// Counts NaN and ±Inf among native-endian elements, about as fast as memory is read when there are none.
///
/// `bytes` hold whole elements at any alignment; a cut last element is not looked at. Integers and bools are always
/// finite, and then no byte is read.
pub fn count_nonfinite(dtype: DType, bytes: &[u8]) -> NonFinite {
    NonFinite { found: find(Isa::detect(), dtype, bytes) }
}
