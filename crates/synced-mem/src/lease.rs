//! A borrow of a memory that checks its borrows at run time. A dropped lease ends the borrow, and until then the lease
//! holds the memory. Neither the memory nor the borrowed bytes are known here.

use std::fmt;
use std::sync::Arc;

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
