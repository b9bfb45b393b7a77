//! A borrow of a memory that checks its borrows at run time. It ends when it is dropped, and holds the memory until
//! then. It knows neither the memory nor what was borrowed.

use std::fmt;
use std::sync::Arc;

/// A memory whose borrows are checked at run time.
pub(crate) trait Lender: Send + Sync {
    /// A borrow has ended.
    fn end(&self, borrow: &Borrow);
}

pub(crate) struct Borrow {
    /// Which entry of the borrow table it is. None: a reader of all bytes, which the table does not know.
    pub(crate) id: Option<u64>,
    /// Whether the host's own memory may be written under it.
    pub(crate) writes_host: bool,
}

pub(crate) struct Lease {
    lender: Arc<dyn Lender>,
    pub(crate) borrow: Borrow,
}

impl Lease {
    pub(crate) fn new(lender: Arc<dyn Lender>, id: Option<u64>) -> Self {
        Self { lender, borrow: Borrow { id, writes_host: false } }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.lender.end(&self.borrow);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}
