//! Global memory as a kernel sees it: the device's blocks, and the accesses to the bytes in this launch.

use super::races::{self, Cell, Kind, Now};
use crate::memory::{Block, State};

/// The device's blocks in ascending order of address, with pages of access records for those that were accessed.
pub(super) struct Global<'a> {
    blocks: &'a mut [Block],
    cells: Vec<Vec<Option<Box<[Cell; PAGE]>>>>,
    /// The block that was found last.
    last: usize,
    pub(super) threads: u32,
}

const PAGE: usize = 1024;

impl<'a> Global<'a> {
    pub(super) fn new(blocks: &'a mut [Block], threads: u32) -> Global<'a> {
        let cells = blocks.iter().map(|_| Vec::new()).collect();
        Global { blocks, cells, last: 0, threads }
    }

    /// The index of the block that contains these bytes and the offset there, or an error text.
    pub(super) fn find(&mut self, address: u64, len: usize) -> Result<(usize, usize), String> {
        if self.blocks.get(self.last).is_none_or(|block| address.wrapping_sub(block.start) >= block.len as u64) {
            let after = self.blocks.partition_point(|block| block.start <= address);
            self.last = after.checked_sub(1).ok_or("no memory of this device")?;
        }
        let block = &self.blocks[self.last];
        let at = address - block.start;
        // An address shortly after a block is an overrun; an address far away belongs to no block.
        if at >= block.len as u64 + 65_536 {
            return Err("no memory of this device".to_string());
        }
        match block.state {
            State::Planned => Err("memory before its allocation, in the order of the streams".to_string()),
            State::Freed => Err("memory after its freeing, in the order of the streams".to_string()),
            State::Live if at + len as u64 > block.len as u64 => {
                Err(format!("at {at} of a block of {} bytes", block.len))
            }
            State::Live => Ok((self.last, at as usize)),
        }
    }

    /// Bytes of a block, to read or write.
    pub(super) fn bytes(&mut self, block: usize, at: usize, len: usize) -> &mut [u8] {
        &mut self.blocks[block].bytes[at..at + len]
    }

    pub(super) fn is_written(&self, block: usize, at: usize, len: usize) -> bool {
        self.blocks[block].written.has(at, len)
    }

    pub(super) fn set_written(&mut self, block: usize, at: usize, len: usize) {
        self.blocks[block].written.set(at, len);
    }

    /// Records an access, and returns the thread that it races with, if any.
    pub(super) fn touch(&mut self, block: usize, at: usize, len: usize, now: &Now, kind: Kind) -> Option<u32> {
        let pages = &mut self.cells[block];
        if pages.is_empty() {
            pages.resize_with(self.blocks[block].len.div_ceil(PAGE), || None);
        }
        let page = pages[at / PAGE].get_or_insert_with(|| Box::new([Cell::default(); PAGE]));
        // An aligned access of at most 16 bytes is within one page, because blocks begin at a multiple of 256.
        races::touch(&mut page[at % PAGE..at % PAGE + len], now, kind)
    }
}
