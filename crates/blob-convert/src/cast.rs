//! Rounds values to another dtype, block by block, and counts the values that this loses: finite ones that become
//! infinite, and others than 0 that become 0.

use blob_core::DType;

/// How many elements are rounded at once: source and target stay in the second-level cache.
pub(crate) const BLOCK: usize = 32 << 10;

/// The values that rounding loses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Finite values that become infinite.
    pub(crate) infinite: u64,
    /// Values other than 0 that become 0.
    pub(crate) zeroed: u64,
}

/// Rounds whole elements to another dtype.
pub(crate) fn cast(from: DType, source: &[u8], to: DType, target: &mut Vec<u8>) -> Lost {
    blob_ops::convert_bytes(from, source, to, target);
    // A wider dtype has every value of a narrower one, and f32 those of bf16.
    let lost = |count: fn(DType, &[u8]) -> u64| match count(to, target) {
        0 => 0,
        now => now.saturating_sub(count(from, source)),
    };
    Lost { infinite: lost(|dtype, bytes| blob_ops::count_nonfinite(dtype, bytes).inf), zeroed: lost(zeros) }
}

/// How many elements of a float dtype are 0, of either sign.
fn zeros(dtype: DType, bytes: &[u8]) -> u64 {
    let count = match dtype.size() {
        2 => bytes.as_chunks().0.iter().filter(|bits| u16::from_le_bytes(**bits) << 1 == 0).count(),
        4 => bytes.as_chunks().0.iter().filter(|bits| u32::from_le_bytes(**bits) << 1 == 0).count(),
        _ => bytes.as_chunks().0.iter().filter(|bits| u64::from_le_bytes(**bits) << 1 == 0).count(),
    };
    count as u64
}
