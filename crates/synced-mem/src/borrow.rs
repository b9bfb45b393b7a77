//! A borrow as a caller sees it: the byte range, which has to lie within the memory, and the lease, which holds the
//! memory until it is dropped and then ends the borrow. Neither the memory nor the bytes are known here.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

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

/// A memory whose borrows are checked at run time.
pub(crate) trait Lender: Send + Sync {
    /// A borrow has ended: which entry of the borrow table, or none for a reader of all bytes, which the table does not
    /// know.
    fn end(&self, borrow: Option<u64>);
}

pub(crate) struct Lease {
    lender: Arc<dyn Lender>,
    borrow: Option<u64>,
}

impl Lease {
    pub(crate) fn new(lender: Arc<dyn Lender>, borrow: Option<u64>) -> Self {
        Self { lender, borrow }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.lender.end(self.borrow);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}
