//! A limit on the memory that a set of memories takes at one place: when one of them needs room, others give their
//! copies up, those first that have not been borrowed for the longest time. Relies on `ledger`, which counts and
//! chooses, and on eviction for the bytes that may be given up and their way elsewhere.

use std::fmt;
use std::sync::Arc;

use crate::access::Location;
use crate::device::Device;
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
/// same order, and after them any memory there: each device has a budget of its own without a limit, [`Budget::of`].
/// Where that does not help the access is [`Error::Exhausted`].
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
    /// Whether all memories on a device are in the budget.
    is_of_device: bool,
}

impl Budget {
    /// A budget of so many bytes at a place, with no memory yet.
    pub fn new(location: Location, bytes: usize) -> Self {
        Self { ledger: Arc::new(Ledger::new(location, bytes)), is_of_device: false }
    }

    /// The device's own budget, which has no limit: every [`SharedMem`] is in there from its first borrow on the device
    /// on. A memory for which the device has no block makes others give up what they have elsewhere, too, whether
    /// anyone has made a budget or not.
    ///
    /// ```
    /// use synced_mem::loopback::{Loopback, Mode};
    /// use synced_mem::{Budget, Device, SharedMem};
    ///
    /// let device = Loopback::new(Mode::Immediate);
    /// let queue = device.queue()?;
    /// device.set_limit(2048); // so many bytes has the device
    /// let layers = [(); 4].map(|()| SharedMem::from(vec![7; 1024]));
    /// for layer in &layers {
    ///     layer.upload(&queue, ..)?;
    /// }
    /// let stats = Budget::of(&*device).stats();
    /// assert_eq!((stats.in_use, stats.evictable, stats.evicted.count), (2048, 2048, 2));
    /// # Ok::<(), synced_mem::Error>(())
    /// ```
    ///
    /// # Panics
    /// In a forked process, of a device from before the fork.
    pub fn of(device: &dyn Device) -> Self {
        let ledger = device.meter().ledger(device.id()).unwrap_or_else(|error| panic!("{error}"));
        Self { ledger: Arc::clone(ledger), is_of_device: true }
    }

    /// Counts a memory from now on, and lets the memory give its copy up for others. The budget does not keep the
    /// memory. A second time changes nothing, nor does it in a budget [of a device](Self::of).
    pub fn add(&self, memory: &SharedMem) {
        if self.is_of_device {
            return;
        }
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
