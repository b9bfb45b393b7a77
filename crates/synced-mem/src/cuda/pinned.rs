//! Pinned host memory: a device reads and writes the bytes in place, while the host does something else. Which
//! addresses are pinned is kept here, so that no transfer has to ask the driver. The memory is pinned for every GPU.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock};

use super::context::Context;
use super::driver::{pin, unpin};
use super::failure::Failure;
use crate::device::HostBlock;

/// The blocks that were handed out: start and length.
static BLOCKS: RwLock<BTreeMap<usize, usize>> = RwLock::new(BTreeMap::new());

/// A block of pinned memory.
pub(super) struct Pinned {
    context: Arc<Context>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: pinned memory belongs to no thread; a shared reference gives the address alone.
unsafe impl Send for Pinned {}
// SAFETY: a shared reference gives a copy of the address and of the length alone.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// A block of `len` bytes, not 0, all zero.
    pub(super) fn new(context: &Arc<Context>, len: usize) -> Result<Self, Failure> {
        let _here = context.enter()?;
        let start = pin(len)?;
        // SAFETY: a fresh block of this length.
        unsafe { start.write_bytes(0, len) };
        BLOCKS.write().unwrap_or_else(PoisonError::into_inner).insert(start.addr().get(), len);
        Ok(Self { context: Arc::clone(context), start, len })
    }
}

// SAFETY: one allocation of the driver, which starts at a page; filled when made, and freed when dropped.
unsafe impl HostBlock for Pinned {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.context.process.is_current() {
            return;
        }
        BLOCKS.write().unwrap_or_else(PoisonError::into_inner).remove(&self.start.addr().get());
        let entered = self.context.enter_to_give_back();
        self.context.given_back(entered.and_then(|_here| unpin(self.start)));
    }
}

/// Whether these bytes lie in one pinned block.
pub(super) fn contains(start: NonNull<u8>, len: usize) -> bool {
    let blocks = BLOCKS.read().unwrap_or_else(PoisonError::into_inner);
    let at = start.addr().get();
    let below = blocks.range(..=at).next_back();
    below.is_some_and(|(first, size)| at - first <= *size && len <= size - (at - first))
}
