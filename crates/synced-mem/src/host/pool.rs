//! Host blocks kept for the next memory that wants one, instead of given back to the system page by page. It relies on
//! `Allocation` for the blocks, and on the holder of a loan, who ends the loan with the last use of the block. No block
//! is looked into here: a buffer clears the used block that it takes, or fills bytes that are read before a write.

use std::fmt;
use std::mem;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use crate::device::{Device, HostBlock};
use crate::error::Error;
use crate::host::allocation::Allocation;
use crate::sync::Lock;

/// The smallest class. Below it, allocators have caches of their own, and no page is ever given back.
const SMALLEST: usize = 4096;

/// The number of classes: two for each power of two, but none in the middle below the smallest.
const CLASSES: usize = 2 * (usize::BITS - 1 - SMALLEST.trailing_zeros()) as usize + 1;

/// A pool of host blocks, which its clones share.
///
/// A new block of some megabytes costs a page fault for every page that is touched; a used one costs none: to take and
/// touch 16 MiB took 499 µs and 27 µs (two shared cores). So blocks come back here when the memory that had them is
/// dropped or evicted, and no queue may still use them.
/// To the next memory, a used block counts as never written, and its bytes are zero. To take and overwrite a block
/// lasts 1.2 times as long with that as without for 8 KiB, 2 times for 1 MiB, 1.3 times for 16 MiB; a pool made by
/// [`unzeroed`](Self::unzeroed) does not clear.
///
/// Blocks have the sizes of their classes: 4 KiB, 6 KiB, 8 KiB, 12 KiB, and so on, each power of two and one and a half
/// times each. A length is rounded up to its class, so that at most a third of a block lies idle, and none of that is
/// touched. Shorter lengths than 4 KiB, and those whose class is larger than the pool's cap, are allocated and freed
/// as they are.
///
/// The blocks that wait here never exceed the cap together, in bytes of their classes; a block that would is freed. So
/// a pool full of sizes that are no longer wanted needs a [`trim`](Self::trim). Blocks in use do not count. When the
/// last handle is gone, waiting blocks are freed at once, and blocks in use when their memory is dropped.
#[derive(Clone)]
pub struct HostPool {
    inner: Arc<Inner>,
}

/// The contents of a pool, and how often they were of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// How many bytes wait now, in full blocks.
    pub waiting: usize,
    /// How many blocks were used again.
    pub hits: u64,
    /// How many blocks had to be allocated, of the lengths that the pool keeps.
    pub misses: u64,
}

struct Inner {
    cap: usize,
    /// The device whose host blocks are taken, where there are any.
    device: Option<Arc<dyn Device>>,
    /// Whether used blocks are cleared for the next memory.
    clears: bool,
    shelves: Lock<Shelves>,
}

/// The blocks that wait. Invariant: `bytes` is the sum of their capacities, and at most the pool's cap.
struct Shelves {
    /// Of each class, the latest block last. The latest is taken first, as the likeliest to be in a cache.
    by_class: [Vec<PoolBlock>; CLASSES],
    bytes: usize,
    hits: u64,
    misses: u64,
}

/// The bytes of a block: the allocator's, or a device's own kind of host memory.
pub(crate) enum PoolBlock {
    Own(Allocation),
    Device(Box<dyn HostBlock>),
}

impl PoolBlock {
    fn new(bytes: usize, device: Option<&Arc<dyn Device>>) -> Result<Self, Error> {
        if let Some(device) = device
            && let Some(block) = device.host_block(bytes)?
        {
            return Ok(Self::Device(block));
        }
        Allocation::zeroed(bytes).map(Self::Own)
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        match self {
            Self::Own(block) => block.start,
            Self::Device(block) => block.start(),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        match self {
            Self::Own(block) => block.capacity(),
            Self::Device(block) => block.len(),
        }
    }
}

/// A block in use, and the pool that gets the block back.
pub(crate) struct Loan {
    block: PoolBlock,
    /// Which class the block has.
    class: usize,
    home: Weak<Inner>,
    /// Whether bytes that were not written under this loan are zero.
    pub(crate) is_clean: bool,
}

/// A size that blocks have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class {
    index: usize,
    bytes: usize,
}

impl HostPool {
    /// An empty pool that keeps at most `cap_bytes` bytes waiting.
    pub fn new(cap_bytes: usize) -> Self {
        Self::with(cap_bytes, true, None)
    }

    /// A pool that does not clear used blocks. A caller of
    /// [`SyncedMem::host_overwrite`](crate::SyncedMem::host_overwrite) then sees, before the write, leftovers of
    /// another owner. No other access shows them: bytes that were never written are read as zero.
    pub fn unzeroed(cap_bytes: usize) -> Self {
        Self::with(cap_bytes, false, None)
    }

    /// A pool as [`new`](Self::new) makes it, of the device's own kind of host memory where it has one, such as pinned
    /// memory: transfers then use the bytes where they lie, and do not wait. Such memory is scarce and slow to
    /// allocate; where the device refuses more, and for lengths that the pool does not keep, the host's allocator is
    /// asked.
    pub fn of(device: &Arc<dyn Device>, cap_bytes: usize) -> Self {
        Self::with(cap_bytes, true, Some(Arc::clone(device)))
    }

    fn with(cap: usize, clears: bool, device: Option<Arc<dyn Device>>) -> Self {
        let shelves = Lock::new(Shelves { by_class: Shelves::EMPTY, bytes: 0, hits: 0, misses: 0 });
        Self { inner: Arc::new(Inner { cap, device, clears, shelves }) }
    }

    /// Frees all blocks that wait.
    pub fn trim(&self) {
        let blocks = self.inner.shelves.lock().clear();
        // After the lock is released: giving pages back to the system is slow.
        drop(blocks);
    }

    /// The waiting blocks, and how often such blocks were of use.
    pub fn stats(&self) -> PoolStats {
        let shelves = self.inner.shelves.lock();
        PoolStats { waiting: shelves.bytes, hits: shelves.hits, misses: shelves.misses }
    }

    /// Whether used blocks are cleared for the next memory.
    pub(crate) fn clears(&self) -> bool {
        self.inner.clears
    }

    /// Whether a block may take long: a device's own kind of host memory is pinned when it is made, and cleared.
    pub(crate) fn is_slow(&self) -> bool {
        self.inner.device.is_some()
    }

    /// A block for `len` bytes; none if the pool could never keep one of this length.
    pub(crate) fn lend(&self, len: usize) -> Result<Option<Loan>, Error> {
        let Some(class) = self.inner.class(len) else {
            return Ok(None);
        };
        let waiting = self.inner.shelves.enter().ok_or(Error::Forked)?.take(class);
        let (block, is_used) = match waiting {
            Some(block) => (block, true),
            None => (PoolBlock::new(class.bytes, self.inner.device.as_ref())?, false),
        };
        // A device's fresh bytes are initialised, but need not be zero.
        let is_clean = !is_used && matches!(block, PoolBlock::Own(_));
        let home = Arc::downgrade(&self.inner);
        Ok(Some(Loan { block, class: class.index, home, is_clean }))
    }
}

impl Loan {
    pub(crate) fn block(&self) -> &PoolBlock {
        &self.block
    }

    /// Ends the loan: the block waits in its pool, or is freed.
    pub(crate) fn give_back(self) {
        let Some(inner) = self.home.upgrade() else {
            return;
        };
        // The block is freed after the lock is released, as in `trim`.
        drop(inner.keep(self.block, self.class));
    }
}

impl Inner {
    /// The class of a length, unless the pool could never keep a block of it.
    fn class(&self, len: usize) -> Option<Class> {
        Class::of(len).filter(|class| class.bytes <= self.cap)
    }

    /// Keeps a block, or returns it where it would exceed the cap. Room for more blocks is reserved with the lock
    /// released, so that no thread waits for another's allocation.
    fn keep(&self, block: PoolBlock, class: usize) -> Option<PoolBlock> {
        let bytes = block.capacity();
        let mut wider = Vec::new();
        loop {
            // In a forked process nothing is kept.
            let Some(mut shelves) = self.shelves.enter() else { return Some(block) };
            if bytes > self.cap - shelves.bytes {
                return Some(block);
            }
            let shelf = &mut shelves.by_class[class];
            if shelf.len() == shelf.capacity() && shelf.len() < wider.capacity() {
                wider.append(shelf);
                mem::swap(shelf, &mut wider);
            }
            if shelf.len() < shelf.capacity() {
                shelf.push(block);
                shelves.bytes += bytes;
                return None;
            }
            let wanted = 2 * shelf.len() + 1;
            drop(shelves);
            wider = Vec::new();
            if wider.try_reserve_exact(wanted).is_err() {
                return Some(block);
            }
        }
    }
}

impl Shelves {
    const EMPTY: [Vec<PoolBlock>; CLASSES] = [const { Vec::new() }; CLASSES];

    fn take(&mut self, class: Class) -> Option<PoolBlock> {
        let Some(block) = self.by_class[class.index].pop() else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        self.bytes -= block.capacity();
        Some(block)
    }

    fn clear(&mut self) -> [Vec<PoolBlock>; CLASSES] {
        self.bytes = 0;
        mem::replace(&mut self.by_class, Self::EMPTY)
    }
}

impl Class {
    /// The smallest class that holds `len` bytes; none for lengths that no class is for.
    ///
    /// A class is at most 3/2 of the class below, which is too small: less than a third is left over.
    fn of(len: usize) -> Option<Self> {
        if len < SMALLEST {
            return None;
        }
        let power = len.checked_next_power_of_two()?;
        let index = 2 * (power.trailing_zeros() - SMALLEST.trailing_zeros()) as usize;
        let middle = power / 4 * 3;
        // The smallest class has none in the middle below it, but no length either.
        Some(if len <= middle { Self { index: index - 1, bytes: middle } } else { Self { index, bytes: power } })
    }
}

impl fmt::Debug for HostPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shelves = self.inner.shelves.lock();
        f.debug_struct("HostPool")
            .field("cap_bytes", &self.inner.cap)
            .field("pooled_bytes", &shelves.bytes)
            .field("hits", &shelves.hits)
            .field("misses", &shelves.misses)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::HostBuffer;

    const fn assert_send_sync<T: Send + Sync + 'static>() {}
    const _: () = assert_send_sync::<HostPool>();

    fn address(buffer: &HostBuffer) -> usize {
        buffer.as_slice().as_ptr().addr()
    }

    /// Takes a buffer and drops it. Returns where it was.
    fn pass_through(pool: &HostPool, len: usize) -> usize {
        address(&pool.take(len).unwrap())
    }

    #[test]
    fn lengths_round_up_to_powers_of_two_and_the_middles_between_them() {
        let powers = (12..usize::BITS).map(|k| 1usize << k);
        let sizes = powers.flat_map(|power| [power, power + power / 2]);
        let sizes: Vec<_> = sizes.take(CLASSES).collect();
        assert_eq!(sizes[..5], [4096, 6144, 8192, 12288, 16384]);
        assert_eq!(sizes.last(), Some(&(1 << (usize::BITS - 1))));
        let mut below = SMALLEST - 1;
        for (index, bytes) in sizes.into_iter().enumerate() {
            let class = Some(Class { index, bytes });
            for len in [below + 1, below + (bytes - below) / 2 + 1, bytes - 1, bytes] {
                if len <= bytes && len > below {
                    assert_eq!(Class::of(len), class, "length {len}");
                    assert!(bytes - len < bytes.div_ceil(3), "length {len}");
                }
            }
            below = bytes;
        }
        for len in [0, 1, SMALLEST - 1, below + 1, usize::MAX] {
            assert_eq!(Class::of(len), None, "length {len}");
        }
    }

    #[test]
    fn a_block_is_used_again_by_its_class_only() {
        let pool = HostPool::new(1 << 20);
        let first = pass_through(&pool, 4097);
        assert_eq!((pool.stats().hits, pool.stats().misses, pool.stats().waiting), (0, 1, 6144));
        let smaller = pool.take(4096).unwrap();
        assert_ne!(address(&smaller), first);
        let larger = pool.clone().take(6145).unwrap();
        assert_ne!(address(&larger), first);
        assert_eq!((pool.stats().hits, pool.stats().misses), (0, 3));
        let again = pool.take(6144).unwrap();
        assert_eq!(address(&again), first);
        assert_eq!((again.len(), again.allocated()), (6144, 6144));
        assert_eq!((pool.stats().hits, pool.stats().misses, pool.stats().waiting), (1, 3, 0));
    }

    #[test]
    fn a_used_block_is_cleared_unless_the_pool_leaves_it_as_it_is() {
        for (pool, left) in [(HostPool::new(1 << 20), 0), (HostPool::unzeroed(1 << 20), 7)] {
            let mut fresh = pool.take(5000).unwrap();
            assert!(fresh.is_clean());
            assert_eq!(fresh.as_slice(), vec![0; 5000]);
            fresh.as_mut_slice().fill(7);
            drop(fresh);
            let used = pool.take(4500).unwrap();
            assert_eq!((used.is_clean(), used.is_writable()), (left == 0, true));
            assert_eq!(used.as_slice(), vec![left; 4500]);
            drop(used);
            // The longer one gets what the shorter one did not clear.
            assert_eq!(pool.take(5000).unwrap().as_slice(), vec![left; 5000]);
        }
    }

    #[test]
    fn the_latest_block_is_used_first() {
        let pool = HostPool::new(1 << 20);
        let blocks: Vec<_> = (0..3).map(|_| pool.take(4096).unwrap()).collect();
        let came: Vec<_> = blocks.iter().map(address).collect();
        drop(blocks);
        let again: Vec<_> = (0..3).map(|_| pool.take(4096).unwrap()).collect();
        assert!(again.iter().map(address).eq(came.into_iter().rev()));
    }

    #[test]
    fn blocks_are_aligned_fresh_and_used() {
        let pool = HostPool::unzeroed(64 << 20);
        let lengths = [0, 1, 63, 4095, 4096, 4097, 6145, 10_007, (4 << 20) + 1];
        for len in lengths {
            let align = if len < 4096 { 64 } else { 256 };
            for round in 0..2 {
                // Several at once, so that no address is right by luck.
                let buffers: Vec<_> = (0..4).map(|_| pool.take(len).unwrap()).collect();
                for buffer in &buffers {
                    assert_eq!(buffer.len(), len);
                    assert_eq!(address(buffer) % align, 0, "length {len}");
                    assert_eq!(buffer.is_clean(), round == 0 || len < 4096, "length {len}");
                }
            }
        }
    }

    #[test]
    fn what_waits_never_exceeds_the_cap() {
        let pool = HostPool::new(3 * 8192 + 4095);
        let mut buffers: Vec<_> = (0..5).map(|_| pool.take(8192).unwrap()).collect();
        buffers.push(pool.take(4096).unwrap());
        assert_eq!(pool.stats().waiting, 0, "blocks in use do not count");
        let mut waiting = Vec::new();
        for buffer in buffers {
            drop(buffer);
            waiting.push(pool.stats().waiting);
        }
        assert_eq!(waiting, [8192, 16384, 24576, 24576, 24576, 24576]);
        let exact = HostPool::new(4096);
        pass_through(&exact, 4096);
        assert_eq!(exact.stats().waiting, 4096);
    }

    #[test]
    fn lengths_that_cannot_be_kept_are_allocated_as_they_are() {
        let pool = HostPool::new(8191);
        for len in [0, 1, 4095, 6145, 8191, 8192, 100_000] {
            let buffer = pool.take(len).unwrap();
            assert!(buffer.is_clean());
            assert_eq!(buffer.allocated(), len);
        }
        let counted = (pool.stats().waiting, pool.stats().hits, pool.stats().misses);
        assert_eq!(counted, (0, 0, 0));
    }

    #[test]
    fn trim_lets_all_go_that_waits_and_nothing_else() {
        let pool = HostPool::unzeroed(1 << 20);
        let mut in_use = pool.take(4096).unwrap();
        let blocks = [4096, 4096, 50_000].map(|len| pool.take(len).unwrap());
        drop(blocks);
        assert_eq!(pool.stats().waiting, 2 * 4096 + 65_536);
        pool.trim();
        assert_eq!(pool.stats().waiting, 0);
        in_use.as_mut_slice().fill(1);
        assert!([4096, 50_000].iter().all(|&len| pool.take(len).unwrap().is_clean()));
        drop(in_use);
        assert_eq!(pool.stats().hits, 0);
        assert!(!pool.take(4096).unwrap().is_clean());
    }

    #[test]
    fn buffers_outlive_the_pool_and_do_not_keep_it() {
        let pool = HostPool::new(1 << 20);
        pass_through(&pool, 4096);
        let mut buffer = pool.take(5000).unwrap();
        let inner = Arc::downgrade(&pool.inner);
        drop(pool);
        assert!(inner.upgrade().is_none());
        buffer.as_mut_slice().fill(1);
        assert_eq!(buffer.as_slice(), vec![1; 5000]);
    }

    #[test]
    fn a_refused_allocation_empties_the_pool_and_names_the_length() {
        let pool = HostPool::new(usize::MAX);
        for len in [isize::MAX as usize, usize::MAX] {
            pass_through(&pool, 4096);
            match pool.take(len) {
                Err(Error::OutOfMemory { bytes }) => assert_eq!(bytes, len),
                other => panic!("{other:?}"),
            }
            assert_eq!(pool.stats().waiting, 0);
        }
    }

    #[test]
    fn a_shelf_grows_with_the_blocks_that_come_back() {
        let pool = HostPool::new(usize::MAX);
        let all: Vec<_> = (0..50).map(|_| pool.take(4096).unwrap()).collect();
        let came: Vec<_> = all.iter().map(address).collect();
        drop(all);
        assert_eq!(pool.stats().waiting, 50 * 4096);
        let again: Vec<_> = (0..50).map(|_| pool.take(4096).unwrap()).collect();
        assert!(again.iter().map(address).eq(came.into_iter().rev()));
    }

    #[test]
    fn threads_never_have_one_block_at_once() {
        const ROUNDS: usize = if cfg!(miri) { 20 } else { 500 };
        let pool = HostPool::new(6 * 8192);
        thread::scope(|scope| {
            for stamp in 0..8u8 {
                let pool = pool.clone();
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let len = 4096 + (round * 1237 + usize::from(stamp) * 911) % 8192;
                        let mut buffer = pool.take(len).unwrap();
                        buffer.as_mut_slice().fill(stamp);
                        thread::yield_now();
                        assert!(buffer.as_slice().iter().all(|&byte| byte == stamp));
                        drop(buffer);
                        assert!(pool.stats().waiting <= 6 * 8192);
                        if round % 100 == 99 {
                            pool.trim();
                        }
                    }
                });
            }
        });
        assert_eq!(pool.stats().hits + pool.stats().misses, 8 * ROUNDS as u64);
        let left = pool.inner.shelves.lock().clear();
        let waiting: usize = left.iter().flatten().map(PoolBlock::capacity).sum();
        assert!(waiting <= 6 * 8192);
        assert_eq!(pool.stats().waiting, 0);
    }
}
