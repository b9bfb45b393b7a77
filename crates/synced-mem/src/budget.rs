//! A limit on the memory that a set of memories takes at one place: when one of them needs room, others give their
//! copies up, those first that have not been borrowed for the longest time. Relies on eviction for what may be given up
//! and where newer bytes go. The lock of a memory is never taken while another is held: a memory that lacks room asks
//! with its own lock released, and the book has a lock of its own, under which no memory is locked.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::access::Location;
use crate::coherence::plan::Dirty;
use crate::error::Error;
use crate::ids::DeviceId;
use crate::shared::SharedMem;
use crate::shared::inner::Inner;
use crate::stats::Traffic;
use crate::sync::{AtomicBool, AtomicUsize, Lock, Ordering, thread_local};

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
/// Blocks are counted while a memory has them: device memory that is freed in the order of a queue, or host memory that
/// a queue has yet to leave, is no longer counted.
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

/// What a budget has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetStats {
    /// How many bytes the memories may take together.
    pub limit: usize,
    /// How many bytes they take now.
    pub in_use: usize,
    /// The most bytes that they took at once. Memories that had blocks when they were added may have passed the limit.
    pub peak: usize,
    /// How many of the bytes in use could be given up now for nothing: nothing borrows them, and they are elsewhere,
    /// too.
    pub evictable: usize,
    /// Copies that were given up for others.
    pub evicted: Traffic,
}

impl Budget {
    /// A budget of so many bytes at a place, with no memory yet.
    pub fn new(location: Location, bytes: usize) -> Self {
        let book = Lock::new(Book::default());
        Self { ledger: Arc::new(Ledger { location, limit: bytes, book }) }
    }

    /// Counts a memory from now on, and lets the memory give its copy up for others. The budget does not keep the
    /// memory. A second time changes nothing.
    pub fn add(&self, memory: &SharedMem) {
        let (inner, ledger) = (&memory.inner, &self.ledger);
        ledger.book.process().expect_current();
        let used = Arc::new(Used {
            taken: AtomicUsize::new(0),
            lately: AtomicBool::new(true),
            leaves: AtomicBool::new(false),
        });
        let account = Arc::new(Account { ledger: Arc::clone(ledger), used: Arc::clone(&used) });
        if inner.lock().enter_budget(&account) {
            let members = &mut ledger.book.lock().members;
            if members.len() == members.capacity() {
                // Those that are gone make room, at a constant cost for each that comes.
                members.retain(|member| member.memory.strong_count() > 0);
            }
            members.push(Member { memory: Arc::downgrade(inner), used });
        }
    }

    /// Makes memories give up their copies until there is room for `bytes` more.
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
        let Ledger { limit, location, .. } = *self.ledger;
        let (mut stats, members) = {
            let book = self.ledger.book.lock();
            let members = book.members.iter().filter_map(|member| {
                let taken = member.used.taken.load(Ordering::Relaxed);
                if taken > 0 { member.memory.upgrade().map(|memory| (memory, taken)) } else { None }
            });
            let members: Vec<_> = members.collect();
            let Book { in_use, peak, evicted, .. } = *book;
            (BudgetStats { limit, in_use, peak, evictable: 0, evicted }, members)
        };
        // With the book unlocked: a memory that needs room is locked when it asks the book.
        let evictable = members.iter().filter(|(memory, _)| memory.is_evictable(location));
        stats.evictable = evictable.map(|(_, taken)| taken).sum();
        stats
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("location", &self.ledger.location).field("stats", &self.stats()).finish()
    }
}

struct Ledger {
    location: Location,
    limit: usize,
    book: Lock<Book>,
}

#[derive(Default)]
struct Book {
    members: Vec<Member>,
    /// The member that is asked next.
    hand: usize,
    in_use: usize,
    peak: usize,
    evicted: Traffic,
}

struct Member {
    memory: Weak<Inner>,
    used: Arc<Used>,
}

/// How a memory uses a budget: known to the budget and to the memory's account, which keeps the budget.
struct Used {
    /// The bytes taken. Changed while the book is locked.
    taken: AtomicUsize,
    /// Whether the memory was borrowed there since it was last asked for its room.
    lately: AtomicBool,
    /// Whether a thread makes the memory give up its room. Set while the book is locked.
    leaves: AtomicBool,
}

/// A memory that leaves a place may have to make room at another, whose memories may have to leave, but not without
/// end.
const MAX_NESTED: usize = 2;

thread_local! {
    static NESTED: Cell<usize> = Cell::default();
}

/// How often room is being made by this thread, this time included.
struct Nested(usize);

impl Nested {
    fn new() -> Self {
        Self(NESTED.with(|nested| {
            nested.set(nested.get() + 1);
            nested.get()
        }))
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        NESTED.with(|nested| nested.set(nested.get() - 1));
    }
}

/// A memory that makes way for others, until this is dropped: an observer may panic meanwhile.
struct Leaving<'a>(&'a Used);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.leaves.store(false, Ordering::Relaxed);
    }
}

/// What a memory takes of a budget. The memory's state has one.
pub(crate) struct Account {
    ledger: Arc<Ledger>,
    used: Arc<Used>,
}

impl Ledger {
    /// Makes others give up copies until there is room. No memory is locked by this thread. Another thread may take the
    /// room: then the memory asks again. A memory that leaves may need room elsewhere, and so come here again for
    /// another budget: one that leaves already is not asked, nor are those that have been `tried`.
    fn make_room(&self, bytes: usize, mut tried: Vec<Arc<Used>>) -> Result<(), Error> {
        let Ledger { location, limit, .. } = *self;
        let nested = Nested::new();
        loop {
            let mut book = self.book.enter()?;
            let in_use = book.in_use;
            if bytes <= limit.saturating_sub(in_use) {
                return Ok(());
            }
            let mut kept = Vec::new();
            let may_help = bytes <= limit && nested.0 <= MAX_NESTED;
            let victim = if may_help { book.victim(location, &tried, &mut kept) } else { None };
            drop(book);
            drop(kept);
            let Some((memory, used)) = victim else {
                return Err(Error::OverBudget { location, bytes, limit, in_use });
            };
            let held = used.taken.load(Ordering::Relaxed);
            let leaving = Leaving(&used);
            // One that cannot leave is left where it is.
            if memory.make_way(location, Dirty::Move).is_ok() {
                self.has_left(&used, held);
            }
            drop(leaving);
            // Not even one that has left is asked again: another that had to make way for it elsewhere may be here now,
            // and the two would change places for ever.
            tried.push(used);
        }
    }

    /// Counts a memory that has made way, if it has.
    fn has_left(&self, used: &Used, held: usize) -> bool {
        let has_left = used.taken.load(Ordering::Relaxed) == 0;
        if has_left {
            let evicted = &mut self.book.lock().evicted;
            evicted.count += 1;
            evicted.bytes += held as u64;
        }
        has_left
    }

    /// The device has no block for one of the memories: makes another give its block up, if it can for nothing.
    fn relieve(&self, device: DeviceId, bytes: usize, own: &Arc<Used>) -> Result<(), Error> {
        let (mut tried, mut borrowed, mut dirty) = (vec![Arc::clone(own)], 0, 0);
        loop {
            let mut kept = Vec::new();
            let (victim, in_use) = {
                let mut book = self.book.enter()?;
                (book.victim(self.location, &tried, &mut kept), book.in_use)
            };
            drop(kept);
            let Some((memory, used)) = victim else {
                return Err(match in_use {
                    0 => Error::DeviceOutOfMemory { device, bytes },
                    in_use => Error::Exhausted { device, bytes, in_use, borrowed, dirty },
                });
            };
            let held = used.taken.load(Ordering::Relaxed);
            let leaving = Leaving(&used);
            let evicted = memory.make_way(self.location, Dirty::Refuse);
            drop(leaving);
            match evicted {
                Ok(()) if self.has_left(&used, held) => return Ok(()),
                Err(Error::Conflict { .. }) => borrowed += 1,
                Err(Error::OnlyCopy { .. }) => dirty += 1,
                _ => {}
            }
            tried.push(used);
        }
    }
}

impl Book {
    fn take(&mut self, used: &Used, bytes: usize) {
        used.taken.store(bytes, Ordering::Relaxed);
        self.in_use += bytes;
        self.peak = self.peak.max(self.in_use);
    }

    /// The next member that has room to give, is not `tried`, and was not borrowed since it was last asked; from now on
    /// it leaves. The book is gone through twice at most: the first time may only clear the marks. The last handle of a
    /// memory may end with one that is made here, so all are `kept` until the book is unlocked.
    fn victim(
        &mut self,
        location: Location,
        tried: &[Arc<Used>],
        kept: &mut Vec<Arc<Inner>>,
    ) -> Option<(Arc<Inner>, Arc<Used>)> {
        self.members.retain(|member| member.memory.strong_count() > 0);
        for _ in 0..2 * self.members.len() {
            let at = self.hand % self.members.len();
            self.hand = at + 1;
            let Member { memory, used } = &self.members[at];
            let has_room = used.taken.load(Ordering::Relaxed) > 0 && !used.leaves.load(Ordering::Relaxed);
            if !has_room || tried.iter().any(|one| Arc::ptr_eq(one, used)) {
                continue;
            }
            let Some(memory) = memory.upgrade() else { continue };
            let is_read = location == Location::Host && memory.readers.has_one_entered();
            if used.lately.swap(false, Ordering::Relaxed) || is_read {
                kept.push(memory);
                continue;
            }
            used.leaves.store(true, Ordering::Relaxed);
            return Some((memory, Arc::clone(used)));
        }
        None
    }
}

impl Account {
    pub(crate) fn location(&self) -> Location {
        self.ledger.location
    }

    pub(crate) fn is_of(&self, other: &Account) -> bool {
        Arc::ptr_eq(&self.ledger, &other.ledger)
    }

    /// Takes room for a block, if there is room. Says whether none was taken before.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<bool> {
        let mut book = self.ledger.book.lock();
        let is_new = self.used.taken.load(Ordering::Relaxed) == 0;
        if is_new && bytes > self.ledger.limit.saturating_sub(book.in_use) {
            return None;
        }
        if is_new {
            book.take(&self.used, bytes);
        }
        Some(is_new)
    }

    /// The memory has a block there, whether room was reserved for it or not.
    pub(crate) fn has(&self, bytes: usize) {
        let mut book = self.ledger.book.lock();
        if self.used.taken.load(Ordering::Relaxed) == 0 {
            book.take(&self.used, bytes);
        }
    }

    /// The memory has no block there any more.
    pub(crate) fn release(&self) {
        let mut book = self.ledger.book.lock();
        book.in_use -= self.used.taken.swap(0, Ordering::Relaxed);
    }

    /// The memory was borrowed there.
    pub(crate) fn touch(&self) {
        // Relaxed: the mark orders nothing.
        self.used.lately.store(true, Ordering::Relaxed);
    }

    /// The device has no block. See [`Ledger::relieve`].
    pub(crate) fn relieve(&self, device: DeviceId, bytes: usize) -> Result<(), Error> {
        self.ledger.relieve(device, bytes, &self.used)
    }

    /// Makes others give up copies until there is room. See [`Ledger::make_room`].
    pub(crate) fn make_room(&self, bytes: usize) -> Result<(), Error> {
        self.ledger.make_room(bytes, vec![Arc::clone(&self.used)])
    }
}
