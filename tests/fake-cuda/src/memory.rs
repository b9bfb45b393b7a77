//! The memory of the devices. A block has an address in a range that the host cannot access, and bytes that only the
//! driver accesses. Addresses ascend and are never reused, so that an access to a freed block is recognized. For each
//! byte the driver knows whether a write has been there.

mod bits;

use crate::host;
pub(crate) use bits::Bits;

/// The addresses of one device: enough for a long test, and never touched.
const SPAN: u64 = 1 << 40;
/// The alignment of a real driver's blocks. Every other block begins at an odd multiple, so that no code can rely
/// on a larger alignment.
const ALIGN: u64 = 256;
/// The minimum gap between two blocks, so that a small overrun does not hit the next block.
const GUARD: u64 = 4096;
/// The content of a new block, which makes a read before a write visible.
const POISON: u8 = 0xCB;

/// All devices' memory.
#[derive(Default)]
pub(crate) struct Memory {
    devices: Vec<Arena>,
}

/// One device's memory: the blocks in ascending order of address.
struct Arena {
    base: u64,
    next: u64,
    blocks: Vec<Block>,
}

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The allocation is enqueued and has not run.
    Planned,
    Live,
    Freed,
}

/// One block of device memory.
pub(crate) struct Block {
    pub(crate) start: u64,
    pub(crate) len: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) written: Bits,
    pub(crate) state: State,
    /// Whether a free was enqueued but has not run yet.
    pub(crate) is_given_back: bool,
    /// The bytes that the block takes of the device, or of the pool.
    pub(crate) charge: u64,
    pub(crate) pool: Option<usize>,
}

impl Memory {
    /// The same address ranges without blocks.
    pub(crate) fn emptied(mut self) -> Memory {
        self.devices.iter_mut().for_each(|arena| arena.blocks.clear());
        self
    }

    /// Makes a block; returns the address.
    pub(crate) fn allocate(&mut self, device: usize, len: usize, charge: u64, pool: Option<usize>) -> u64 {
        let arena = self.arena(device);
        let start = arena.next;
        let end = start + len as u64 + GUARD;
        arena.next = end.next_multiple_of(2 * ALIGN) + ALIGN;
        assert!(arena.next < arena.base + SPAN, "fake-cuda: the device's addresses are used up; reset the driver");
        let state = if pool.is_some() { State::Planned } else { State::Live };
        let (bytes, written) = (vec![POISON; len], Bits::new(len));
        arena.blocks.push(Block { start, len, bytes, written, state, is_given_back: false, charge, pool });
        start
    }

    fn arena(&mut self, device: usize) -> &mut Arena {
        while self.devices.len() <= device {
            let base = host::reserve(SPAN as usize) as u64;
            self.devices.push(Arena { base, next: base + ALIGN, blocks: Vec::new() });
        }
        &mut self.devices[device]
    }

    /// The device that an address belongs to.
    pub(crate) fn device_of(&self, address: u64) -> Option<usize> {
        self.devices.iter().position(|arena| (arena.base..arena.base + SPAN).contains(&address))
    }

    /// The blocks of a device, by rising address; all that ever were, those that are freed without the bytes.
    pub(crate) fn blocks(&mut self, device: usize) -> &mut [Block] {
        &mut self.arena(device).blocks
    }

    /// All blocks of all devices.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Block> {
        self.devices.iter().flat_map(|arena| &arena.blocks)
    }

    /// The block in any state that contains an address or ends there.
    pub(crate) fn around(&mut self, address: u64) -> Option<&mut Block> {
        let device = self.device_of(address)?;
        let blocks = self.blocks(device);
        let after = blocks.partition_point(|block| block.start <= address);
        let block = blocks.get_mut(after.checked_sub(1)?)?;
        (address - block.start <= block.len as u64).then_some(block)
    }

    /// The block that contains a range, and the range's offset there.
    pub(crate) fn find(&mut self, address: u64, len: usize) -> Result<(&mut Block, usize), String> {
        let Some(block) = self.around(address) else {
            return Err(format!("{len} bytes at {address:#x}: no memory"));
        };
        let at = (address - block.start) as usize;
        match block.state {
            State::Planned => Err("memory is used before its allocation, in the order of the streams".to_string()),
            State::Freed => Err("memory is used after it was freed, in the order of the streams".to_string()),
            State::Live if len > block.len - at => {
                Err(format!("{len} bytes at {at} of a block of {} bytes", block.len))
            }
            State::Live => Ok((block, at)),
        }
    }
}

impl Block {
    /// Whether the caller still has the block.
    pub(crate) fn is_held(&self) -> bool {
        self.state != State::Freed && !self.is_given_back
    }

    /// Ends the block; the address stays known.
    pub(crate) fn end(&mut self) {
        (self.bytes, self.written, self.state) = (Vec::new(), Bits::new(0), State::Freed);
    }
}
