//! A limit on the memory that a set of memories takes at one place: when one of them needs room, others give their
//! copies up, those first that have not been borrowed for the longest time. Relies on `ledger`, which counts and
//! chooses, and on eviction for the bytes that may be given up and their way elsewhere.

use std::fmt;
use std::sync::Arc;

use crate::access::Location;
use crate::error::Error;
use crate::ledger::{BudgetStats, Ledger};
use crate::shared::SharedMem;

/// Keeps what memories take on a device, or on the host, under a limit.
///
/// A memory that needs a block there, and would pass the limit with it, first makes others of the budget give theirs
/// up: whole memories that nothing borrows there and no thread moves bytes of, those last that were borrowed since they
/// were last asked. Bytes that another copy or the memory's origin holds are given up for nothing; others move, as by
/// [`SharedMem::evict`]. Where that does not make enough room the access is [`Error::OverBudget`].
///
/// Where the device itself has no room, whatever the limit, others of the budget give up what costs nothing, in the
/// same order; where that does not help the access is [`Error::Exhausted`]. So a budget without a limit, of
/// `usize::MAX` bytes, is of use too.
///
/// Blocks are counted while a memory has the block: device memory that is freed in the order of a queue, or host memory
/// that a queue has yet to leave, is no longer counted.
///
/// ```
/// use synced_mem::loopback::{Loopback, Mode};
/// use synced_mem::{Budget, Device, Location, SharedMem};
///
/// let device = Loopback::new(Mode::Deferred);
/// let queue = device.queue()?;
/// let budget = Budget::new(Location::Device(device.id()), 2048);
/// let layers = [(); 4].map(|()| SharedMem::from(vec![7; 1024]));
/// layers.iter().for_each(|layer| budget.add(layer));
/// for layer in layers.iter().cycle().take(12) {
///     drop(layer.device(&queue, ..)?); // of four there are two at a time on the device
/// }
/// assert_eq!((budget.stats().peak, budget.stats().evicted.count), (2048, 10));
/// # Ok::<(), synced_mem::Error>(())
/// ```
#[derive(Clone)]
pub struct Budget {
    ledger: Arc<Ledger>,
}

impl Budget {
    /// A budget of so many bytes at a place, with no memory yet.
    pub fn new(location: Location, bytes: usize) -> Self {
        Self { ledger: Arc::new(Ledger::new(location, bytes)) }
    }

    /// Counts a memory from now on, and lets the memory give its copy up for others. The budget does not keep the
    /// memory. A second time changes nothing.
    pub fn add(&self, memory: &SharedMem) {
        let account = self.ledger.new_account();
        if memory.inner.lock().enter_budget(&account) {
            let tenant = Arc::downgrade(&memory.inner);
            self.ledger.enter(tenant, &account);
        }
    }

    /// Makes memories give up copies until there is room for `bytes` more.
    ///
    /// A block is given back after the work that its queues have then, whatever else is launched later. So room that is
    /// made before a kernel is launched is there while that kernel runs; an access that lacks room and comes after the
    /// launch waits for the kernel.
    ///
    /// # Errors
    /// [`Error::OverBudget`] where nothing more can be given up.
    pub fn make_room(&self, bytes: usize) -> Result<(), Error> {
        self.ledger.make_room(bytes, Vec::new())
    }

    /// What was counted so far.
    pub fn stats(&self) -> BudgetStats {
        self.ledger.stats()
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("location", &self.ledger.location()).field("stats", &self.stats()).finish()
    }
}
