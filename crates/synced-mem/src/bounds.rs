//! Byte ranges as asked for, and whether a range lies within a memory.

use std::ops::{Bound, Range, RangeBounds};

use crate::error::Error;

/// The bytes of a memory of `len` bytes that are asked for. Some may lie outside: see [`check`].
#[inline]
pub(crate) fn resolve(range: impl RangeBounds<usize>, len: usize) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    start..end
}

/// Refuses a range that does not lie within a memory of `len` bytes.
pub(crate) fn check(range: Range<usize>, len: usize) -> Result<Range<usize>, Error> {
    if range.start <= range.end && range.end <= len { Ok(range) } else { Err(Error::OutOfBounds { range, len }) }
}
