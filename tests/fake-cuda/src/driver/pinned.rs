//! Pinned host memory: blocks that the driver has allocated, and blocks that were registered with it.

use std::collections::BTreeMap;

use super::Driver;
use crate::abi::Code;
use crate::host;

/// The pinned blocks by start.
#[derive(Default)]
pub(crate) struct Pinned {
    blocks: BTreeMap<usize, Range>,
}

struct Range {
    len: usize,
    is_ours: bool,
}

impl Pinned {
    /// Whether a range lies in one pinned block.
    pub(crate) fn has(&self, start: usize, len: usize) -> bool {
        self.block_at(start).is_some_and(|(first, block)| start - first + len <= block.len)
    }

    /// The start and the length of the pinned block that contains an address.
    pub(crate) fn around(&self, address: usize) -> Option<(usize, usize)> {
        self.block_at(address)
            .filter(|(first, block)| address - first < block.len)
            .map(|(first, block)| (first, block.len))
    }

    fn block_at(&self, address: usize) -> Option<(usize, &Range)> {
        self.blocks.range(..=address).next_back().map(|(first, block)| (*first, block))
    }

    pub(crate) fn count(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn allocate(&mut self, len: usize) -> Result<usize, Code> {
        if len == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let start = host::allocate(len)?;
        self.blocks.insert(start, Range { len, is_ours: true });
        Ok(start)
    }

    pub(crate) fn register(&mut self, start: usize, len: usize) -> Result<(), Code> {
        if start == 0 || len == 0 {
            return Err(Code::INVALID_VALUE);
        }
        self.blocks.insert(start, Range { len, is_ours: false });
        Ok(())
    }

    pub(crate) fn free_all(&mut self) {
        for (start, block) in std::mem::take(&mut self.blocks) {
            block.free(start);
        }
    }
}

impl Range {
    fn free(self, start: usize) {
        if self.is_ours {
            host::free(start, self.len);
        }
    }
}

impl Driver {
    /// Frees or unregisters a pinned block. Pending work on the block is reported as a mistake, and runs first.
    pub(crate) fn unpin(&mut self, start: usize, is_ours: bool) -> Result<(), Code> {
        let Some(block) = self.pinned.blocks.get(&start).filter(|block| block.is_ours == is_ours) else {
            return Err(self.refuse(Code::INVALID_VALUE, "pinned memory is freed that was not allocated, or twice"));
        };
        let range = start..start + block.len;
        if self.streams.uses_host(&range) {
            self.report("pinned memory is freed while a copy that was enqueued still uses it");
            self.run_all();
        }
        if let Some(block) = self.pinned.blocks.remove(&start) {
            block.free(start);
        }
        Ok(())
    }
}
