//! The books of budgets: how much the memories of each take, and which of them makes way for others. Memories are known
//! as tenants. The lock of a memory is never taken while another is held: a memory that lacks room asks with its own
//! lock released, and the book has a lock of its own, under which no memory is locked.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use crate::access::{DeviceId, Location};
use crate::coherence::plan::Dirty;
use crate::error::Error;
use crate::stats::Traffic;
use crate::sync::{AtomicBool, AtomicUsize, Lock, Ordering, thread_local};

/// A memory as a budget knows it.
pub(crate) trait Tenant: Send + Sync {
    /// Takes all bytes away from a place for the sake of others.
    fn make_way(&self, at: Location, dirty: Dirty) -> Result<(), Error>;

    /// Whether a place could be made free now, and no byte would be moved for that.
    fn is_evictable(&self, at: Location) -> bool;

    /// Whether a reader that takes no lock has entered since this was last asked. Needs no lock.
    fn was_read(&self) -> bool;
}

/// What a budget has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetStats {
    /// How many bytes the memories may take together.
    pub limit: usize,
    /// How many bytes they take now.
    pub in_use: usize,
    /// The most bytes taken at once. Memories that had blocks when they were added may have passed the limit.
    pub peak: usize,
    /// How many of the bytes in use could be given up now for nothing: nothing borrows them, and they are elsewhere,
    /// too.
    pub evictable: usize,
    /// Copies that were given up for others.
    pub evicted: Traffic,
}

/// What the memories of a budget take together.
pub(crate) struct Ledger {
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
    tenant: Weak<dyn Tenant>,
    used: Arc<Used>,
}

/// How a memory uses a budget: known to the budget and to the memory's account, which keeps the budget.
pub(crate) struct Used {
    /// The bytes taken. Changed while the book is locked.
    taken: AtomicUsize,
    /// Whether the memory was borrowed there since it was last asked for its room.
    lately: AtomicBool,
    /// Whether a thread makes the memory give up the room. Set while the book is locked.
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
    pub(crate) fn new(location: Location, limit: usize) -> Self {
        Self { location, limit, book: Lock::new(Book::default()) }
    }

    pub(crate) fn location(&self) -> Location {
        self.location
    }

    /// An account for a memory that takes nothing yet. Panics in a forked process.
    pub(crate) fn new_account(self: &Arc<Self>) -> Arc<Account> {
        self.book.process().expect_current();
        let used = Arc::new(Used {
            taken: AtomicUsize::new(0),
            lately: AtomicBool::new(true),
            leaves: AtomicBool::new(false),
        });
        Arc::new(Account { ledger: Arc::clone(self), used })
    }

    /// Enters the memory of an account.
    pub(crate) fn enter(&self, tenant: Weak<dyn Tenant>, account: &Account) {
        let members = &mut self.book.lock().members;
        if members.len() == members.capacity() {
            // Those that are gone make room, at a constant cost for each that comes.
            members.retain(|member| member.tenant.strong_count() > 0);
        }
        members.push(Member { tenant, used: Arc::clone(&account.used) });
    }

    /// What was counted so far.
    pub(crate) fn stats(&self) -> BudgetStats {
        let Self { location, limit, .. } = *self;
        let (mut stats, tenants) = {
            let book = self.book.lock();
            let tenants = book.members.iter().filter_map(|member| {
                let taken = member.used.taken.load(Ordering::Relaxed);
                if taken > 0 { member.tenant.upgrade().map(|tenant| (tenant, taken)) } else { None }
            });
            let tenants: Vec<_> = tenants.collect();
            let Book { in_use, peak, evicted, .. } = *book;
            (BudgetStats { limit, in_use, peak, evictable: 0, evicted }, tenants)
        };
        // With the book unlocked: a memory that needs room is locked when it asks the book.
        let evictable = tenants.iter().filter(|(tenant, _)| tenant.is_evictable(location));
        stats.evictable = evictable.map(|(_, taken)| taken).sum();
        stats
    }

    /// Makes others give up copies until there is room. No memory is locked by this thread. Another thread may take the
    /// room: then the memory asks again. A memory that leaves may need room elsewhere, and so come here again for
    /// another budget: one that leaves already is not asked, nor are those that have been `tried`.
    pub(crate) fn make_room(&self, bytes: usize, mut tried: Vec<Arc<Used>>) -> Result<(), Error> {
        let Ledger { location, limit, .. } = *self;
        let nested = Nested::new();
        loop {
            let mut book = self.book.enter().ok_or(Error::Forked)?;
            let in_use = book.in_use;
            if bytes <= limit.saturating_sub(in_use) {
                return Ok(());
            }
            let mut kept = Vec::new();
            let may_help = bytes <= limit && nested.0 <= MAX_NESTED;
            let victim = if may_help { book.victim(location, &tried, &mut kept) } else { None };
            drop(book);
            drop(kept);
            let Some((tenant, used)) = victim else {
                return Err(Error::OverBudget { location, bytes, limit, in_use });
            };
            let held = used.taken.load(Ordering::Relaxed);
            let leaving = Leaving(&used);
            // One that cannot leave is left where it is.
            if tenant.make_way(location, Dirty::Move).is_ok() {
                self.has_left(&used, held);
            }
            drop(leaving);
            // Not even one that has left is asked again: another that had to make way for it elsewhere may be here now,
            // and the two would change places for ever.
            tried.push(used);
        }
    }

    /// Counts a memory, if that has made way.
    fn has_left(&self, used: &Used, held: usize) -> bool {
        let has_left = used.taken.load(Ordering::Relaxed) == 0;
        if has_left {
            let evicted = &mut self.book.lock().evicted;
            evicted.count += 1;
            evicted.bytes += held as u64;
        }
        has_left
    }

    /// The device has no block for a memory, which has this account here, if any: makes another memory give its block
    /// up, if it can for nothing.
    pub(crate) fn relieve(&self, device: DeviceId, bytes: usize, own: Option<&Account>) -> Result<(), Error> {
        let mut tried: Vec<_> = own.iter().map(|own| Arc::clone(&own.used)).collect();
        let (mut borrowed, mut dirty) = (0, 0);
        loop {
            let mut kept = Vec::new();
            let (victim, in_use) = {
                let mut book = self.book.enter().ok_or(Error::Forked)?;
                (book.victim(self.location, &tried, &mut kept), book.in_use)
            };
            drop(kept);
            let Some((tenant, used)) = victim else {
                return Err(match in_use {
                    0 => Error::DeviceOutOfMemory { device, bytes },
                    in_use => Error::Exhausted { device, bytes, in_use, borrowed, dirty },
                });
            };
            let held = used.taken.load(Ordering::Relaxed);
            let leaving = Leaving(&used);
            let evicted = tenant.make_way(self.location, Dirty::Refuse);
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
        kept: &mut Vec<Arc<dyn Tenant>>,
    ) -> Option<(Arc<dyn Tenant>, Arc<Used>)> {
        self.members.retain(|member| member.tenant.strong_count() > 0);
        for _ in 0..2 * self.members.len() {
            let at = self.hand % self.members.len();
            self.hand = at + 1;
            let Member { tenant, used } = &self.members[at];
            let has_room = used.taken.load(Ordering::Relaxed) > 0 && !used.leaves.load(Ordering::Relaxed);
            if !has_room || tried.iter().any(|one| Arc::ptr_eq(one, used)) {
                continue;
            }
            let Some(tenant) = tenant.upgrade() else { continue };
            let is_read = location == Location::Host && tenant.was_read();
            if used.lately.swap(false, Ordering::Relaxed) || is_read {
                kept.push(tenant);
                continue;
            }
            used.leaves.store(true, Ordering::Relaxed);
            return Some((tenant, Arc::clone(used)));
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
        self.ledger.relieve(device, bytes, Some(self))
    }

    /// Makes others give up copies until there is room. See [`Ledger::make_room`].
    pub(crate) fn make_room(&self, bytes: usize) -> Result<(), Error> {
        self.ledger.make_room(bytes, vec![Arc::clone(&self.used)])
    }
}
