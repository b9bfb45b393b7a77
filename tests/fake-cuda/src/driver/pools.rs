//! Memory pools and the memory limit of each device. A pool keeps freed blocks up to the release threshold and reuses
//! them for allocations that fit. Kept blocks count against the device until the pool is trimmed.

use std::collections::BTreeMap;

use super::{Driver, Work};
use crate::abi::Code;
use crate::memory::State;
use crate::setup::Setup;

/// Blocks take whole multiples of this, as in a driver.
const GRAIN: u64 = 512;

/// The pools by handle, and the bytes that each device has given away.
pub(crate) struct Pools {
    limit: u64,
    taken: Vec<u64>,
    pools: BTreeMap<usize, Pool>,
    next: usize,
}

/// One pool.
struct Pool {
    device: usize,
    threshold: u64,
    /// The sizes of the blocks that the pool keeps.
    kept: Vec<u64>,
    used: u64,
    /// The most bytes held, and in use, at once since the last reset.
    high: [u64; 2],
    is_own: bool,
}

impl Pool {
    fn new(device: usize, is_own: bool) -> Pool {
        Pool { device, threshold: 0, kept: Vec::new(), used: 0, high: [0; 2], is_own }
    }

    /// The bytes held, and in use.
    fn current(&self) -> [u64; 2] {
        [self.used + self.kept.iter().sum::<u64>(), self.used]
    }
}

const FIRST_POOL: usize = 0xB001_0000;

impl Pools {
    pub(crate) fn new(setup: &Setup) -> Pools {
        let devices = setup.devices as usize;
        let pools = (0..devices).map(|device| (FIRST_POOL + device, Pool::new(device, false))).collect();
        Pools { limit: setup.memory, taken: vec![0; devices], pools, next: FIRST_POOL + devices }
    }

    /// The handle of a device's default pool.
    pub(crate) fn default_of(device: usize) -> usize {
        FIRST_POOL + device
    }

    pub(crate) fn create(&mut self, device: usize) -> usize {
        let handle = self.next;
        self.next += 1;
        self.pools.insert(handle, Pool::new(device, true));
        handle
    }

    /// Destroys a pool that the caller created; kept blocks return to the device.
    pub(crate) fn destroy(&mut self, handle: usize) -> Result<(), Code> {
        self.trim(handle, 0)?;
        match self.pools.get(&handle) {
            Some(pool) if pool.is_own => drop(self.pools.remove(&handle)),
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    pub(crate) fn device_of(&self, handle: usize) -> Result<usize, Code> {
        self.pools.get(&handle).map(|pool| pool.device).ok_or(Code::INVALID_VALUE)
    }

    /// The number of pools that the caller created.
    pub(crate) fn count(&self) -> usize {
        self.pools.values().filter(|pool| pool.is_own).count()
    }

    /// The free bytes of a device, which neither blocks nor pools hold.
    pub(crate) fn free_bytes(&self, device: usize) -> u64 {
        self.limit.saturating_sub(self.taken[device])
    }

    /// Takes bytes for a block from those that the pool keeps, or else from the device. Returns the number.
    pub(crate) fn take(&mut self, device: usize, pool: Option<usize>, len: usize) -> Result<u64, Code> {
        let wanted = (len as u64).checked_next_multiple_of(GRAIN).ok_or(Code::OUT_OF_MEMORY)?;
        let free = self.free_bytes(device);
        let mut pool = pool.and_then(|handle| self.pools.get_mut(&handle));
        let kept = pool.as_mut().and_then(|pool| {
            let fits = pool.kept.iter().enumerate().filter(|(_, kept)| **kept >= wanted);
            let (index, _) = fits.min_by_key(|(_, kept)| **kept)?;
            Some(pool.kept.swap_remove(index))
        });
        let charge = match kept {
            Some(charge) => charge,
            None if wanted > free => return Err(Code::OUT_OF_MEMORY),
            None => {
                self.taken[device] += wanted;
                wanted
            }
        };
        if let Some(pool) = pool {
            pool.used += charge;
            let current = pool.current();
            pool.high = [0, 1].map(|at| pool.high[at].max(current[at]));
        }
        Ok(charge)
    }

    /// Returns a block's bytes to the pool if that exists and is below the threshold, else to the device.
    pub(crate) fn give(&mut self, device: usize, pool: Option<usize>, charge: u64) {
        if let Some(pool) = pool.and_then(|handle| self.pools.get_mut(&handle)) {
            pool.used -= charge;
            if pool.kept.iter().sum::<u64>().saturating_add(charge) <= pool.threshold {
                pool.kept.push(charge);
                return;
            }
        }
        self.taken[device] -= charge;
    }

    /// Returns a pool's kept bytes to the device until at most `keep` bytes are left.
    pub(crate) fn trim(&mut self, handle: usize, keep: u64) -> Result<(), Code> {
        let pool = self.pools.get_mut(&handle).ok_or(Code::INVALID_VALUE)?;
        while pool.current()[0] > keep {
            let Some(charge) = pool.kept.pop() else { break };
            self.taken[pool.device] -= charge;
        }
        Ok(())
    }

    /// Sets the release threshold.
    pub(crate) fn set_threshold(&mut self, handle: usize, bytes: u64) -> Result<(), Code> {
        self.pools.get_mut(&handle).ok_or(Code::INVALID_VALUE)?.threshold = bytes;
        Ok(())
    }

    /// Begins again to look for the most bytes held, as `which` 0, or in use, as 1.
    pub(crate) fn reset_high(&mut self, handle: usize, which: usize) -> Result<(), Code> {
        let pool = self.pools.get_mut(&handle).ok_or(Code::INVALID_VALUE)?;
        pool.high[which] = pool.current()[which];
        Ok(())
    }

    /// The release threshold; the bytes held, and the most at once; the bytes in use, and the most at once.
    pub(crate) fn state(&self, handle: usize) -> Result<[u64; 5], Code> {
        let pool = self.pools.get(&handle).ok_or(Code::INVALID_VALUE)?;
        let ([reserved, used], [most_reserved, most_used]) = (pool.current(), pool.high);
        Ok([pool.threshold, reserved, most_reserved, used, most_used])
    }
}

impl Driver {
    /// Allocates at once, outside the order of streams.
    pub(crate) fn allocate_now(&mut self, len: usize) -> Result<u64, Code> {
        let device = self.current_device()?;
        if len == 0 {
            return Err(self.refuse(Code::INVALID_VALUE, "an allocation of 0 bytes"));
        }
        let charge = self.pools.take(device, None, len)?;
        Ok(self.memory.allocate(device, len, charge, None))
    }

    /// Allocates in stream order: the address is known at once, but the memory exists only once the stream reaches the
    /// allocation.
    pub(crate) fn allocate_in_order(&mut self, pool: usize, len: usize, stream: usize) -> Result<u64, Code> {
        let device = self.stream_device(stream)?;
        if !self.setup.has_pools {
            return Err(Code::NOT_SUPPORTED);
        }
        if len == 0 || self.pools.device_of(pool)? != device {
            return Err(self.refuse(Code::INVALID_VALUE, "an allocation of 0 bytes, or from another device's pool"));
        }
        let charge = self.pools.take(device, Some(pool), len)?;
        let address = self.memory.allocate(device, len, charge, Some(pool));
        self.enqueue(stream, Work::Allocate(address))?;
        Ok(address)
    }

    /// Frees a block in stream order.
    pub(crate) fn free_in_order(&mut self, address: u64, stream: usize) -> Result<(), Code> {
        self.give_back(address)?;
        self.enqueue(stream, Work::Free(address)).map(drop).inspect_err(|_| self.end_block(address))
    }

    /// Frees a block at once, after all work of the device. No page of the driver promises that it waits, so a caller
    /// that relies on it is reported.
    pub(crate) fn free_now(&mut self, address: u64) -> Result<(), Code> {
        self.give_back(address)?;
        let len = self.memory.around(address).map_or(0, |block| block.bytes.len() as u64);
        if self.streams.uses_block(&(address..address + len)) {
            self.report("memory is freed while work that was enqueued still uses it");
        }
        if let Some(device) = self.memory.device_of(address) {
            self.run_device(device);
        }
        self.end_block(address);
        Ok(())
    }

    /// Marks a block as being freed. This is allowed only once, and only by the block's first address.
    fn give_back(&mut self, address: u64) -> Result<(), Code> {
        let block = self.memory.around(address).filter(|block| block.start == address);
        match block {
            Some(block) if block.state != State::Freed && !block.is_given_back => {
                block.is_given_back = true;
                Ok(())
            }
            _ => Err(self.refuse(Code::INVALID_VALUE, "device memory is freed that was not allocated, or twice")),
        }
    }

    /// Ends a block and returns the bytes.
    pub(crate) fn end_block(&mut self, address: u64) {
        let device = self.memory.device_of(address);
        if let (Some(device), Some(block)) = (device, self.memory.around(address)) {
            let (pool, charge, was) = (block.pool, block.charge, block.state);
            block.end();
            if was != State::Freed {
                self.pools.give(device, pool, charge);
            }
        }
    }
}
