//! Which queues may still be using a copy, and for which of these queues a new access has to wait. Pure: no wait takes
//! place here. Two facts carry the rest: a queue works in order, and "q waits for p" covers all work that p was given
//! before that moment. So no event is kept here, only which queue uses which bytes how. Work under a guard counts until
//! the guard is gone. A leaked guard counts until the memory ends, because more work might be launched under it; so
//! each leaked guard keeps one entry here, one in the borrow table, and one handle. Waiting takes place outside the
//! lock, while others enter more: a wait ends the uses that were entered before the wait began.

use std::ops::Range;
use std::sync::Arc;

use crate::access::Access;
use crate::coherence::borrows::{Guard, LiveGuards};
use crate::coherence::ranges::Ranges;

/// How many ranges of past accesses are kept for each queue and kind of access, at most. Joining two costs only waits.
const MAX_RANGES: usize = 16;

/// Numbers the moments at which uses are entered and waits begin, and knows which waits are under way. One for all
/// copies of a memory, because waiting for a queue concerns all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    now: u64,
    /// When each wait that has not ended began.
    waits: Vec<u64>,
}

impl Clock {
    /// The moment of a use that is entered now.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// A wait begins. The wait ends the uses that were entered before the returned moment.
    pub(crate) fn begin(&mut self) -> u64 {
        self.now += 1;
        self.waits.push(self.now);
        self.now
    }

    /// The wait that began then is over.
    pub(crate) fn end(&mut self, began: u64) {
        if let Some(index) = self.waits.iter().position(|&wait| wait == began) {
            self.waits.swap_remove(index);
        }
    }

    /// Whether a wait under way ends a use that was entered at `moment`, but no use that is entered now.
    pub(crate) fn separates(&self, moment: u64) -> bool {
        self.separates_from(moment, self.now)
    }

    fn separates_from(&self, earlier: u64, later: u64) -> bool {
        self.waits.iter().any(|&wait| earlier < wait && wait <= later)
    }
}

/// The waits of one operation so far. An operation plans again after each wait, and need not wait twice for the same
/// use.
#[derive(Clone, Debug)]
pub(crate) struct Waited<Q> {
    /// Who waited (`None` is the host), for which queue, and when that began.
    done: Vec<(Option<Q>, Q, u64)>,
}

impl<Q> Waited<Q> {
    pub(crate) const fn new() -> Self {
        Self { done: Vec::new() }
    }
}

impl<Q: PartialEq> Waited<Q> {
    /// Whether `by` has waited for this queue.
    pub(crate) fn has(&self, by: Option<&Q>, queue: &Q) -> bool {
        self.done.iter().any(|(waiter, waited, _)| waiter.as_ref() == by && waited == queue)
    }

    pub(crate) fn add(&mut self, by: Option<Q>, queue: Q, began: u64) {
        // The later wait covers the earlier one.
        self.done.retain(|(waiter, waited, _)| *waiter != by || *waited != queue);
        self.done.push((by, queue, began));
    }

    fn covers(&self, by: Option<&Q>, queue: &Q, entered: u64) -> bool {
        self.done.iter().any(|(waiter, waited, began)| waiter.as_ref() == by && waited == queue && entered < *began)
    }
}

/// The queues that may still be using one copy. `Q` is a handle of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Uses<Q> {
    /// One for each queue and kind of access, and more only while waits are under way; none of them is spent.
    entries: Vec<Entry<Q>>,
}

/// The work of one kind that one queue may still be doing.
#[derive(Clone, Debug)]
struct Entry<Q> {
    queue: Q,
    access: Access,
    /// When the last of `past` was entered.
    last: u64,
    /// Where accesses whose guard is gone, or that never had one, may still be at work.
    past: Ranges,
    /// Where guards live, under which more work may be launched at any time.
    live: LiveGuards,
    /// Shares that tokens without a guard hold, for `past`: more work may be launched under a token until the token is
    /// dropped, of which there is no notice. Seldom more than one.
    holds: Vec<Arc<()>>,
}

impl<Q> Uses<Q> {
    /// No queue uses the copy.
    pub(crate) const fn new() -> Self {
        Uses { entries: Vec::new() }
    }

    /// Whether no queue uses the copy.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many there are to be waited for, by queue and kind of access.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The queues of the oldest entries, as many as there are entries beyond `most`. Entries under which more may be
    /// launched are passed over, and so are queues that do not work.
    pub(crate) fn oldest_past(&self, most: usize, works: impl Fn(&Q) -> bool) -> impl Iterator<Item = &Q> {
        let past = self.entries.iter().filter(move |entry| {
            let is_held = entry.holds.iter().any(|hold| Arc::strong_count(hold) > 1);
            entry.live.is_empty() && !is_held && works(&entry.queue)
        });
        past.take(self.len().saturating_sub(most)).map(|entry| &entry.queue)
    }

    /// Finds out which tokens without a guard are gone. A wait that begins from now on ends the work that was launched
    /// under them.
    pub(crate) fn release_holds(&mut self, clock: &Clock) {
        for entry in self.entries.iter_mut().filter(|entry| !entry.holds.is_empty()) {
            let known = entry.holds.len();
            entry.holds.retain_mut(|hold| Arc::get_mut(hold).is_none());
            if entry.holds.len() < known {
                // Something may have been launched until now. An entry whose tokens live keeps its moment, so that an
                // operation which has waited for it need not wait again.
                entry.last = clock.now();
            }
        }
    }

    /// After any change of the past: inserted and cut ranges must not grow without end, and spent entries go.
    fn bound(&mut self) {
        if self.entries.iter().any(|entry| entry.past.len() > MAX_RANGES || entry.is_spent()) {
            self.entries.retain_mut(|entry| {
                entry.past.coarsen(MAX_RANGES);
                !entry.is_spent()
            });
        }
    }
}

impl<Q: Clone + PartialEq> Uses<Q> {
    /// The queues to wait for before `access` to `range`, each once: those with an entry that overlaps and conflicts,
    /// because one of the two writes, and that this operation has not `waited` for. `by` is the queue of the access,
    /// which need not wait for itself; `None` is the host. Without a queue to wait for, no memory is allocated.
    pub(crate) fn waits(&self, by: Option<&Q>, range: &Range<usize>, access: Access, waited: &Waited<Q>) -> Vec<Q> {
        let conflicting = self
            .entries
            .iter()
            .filter(|entry| entry.conflicts(by, range, access, |entered| !waited.covers(by, &entry.queue, entered)));
        each_once(conflicting.map(|entry| &entry.queue))
    }

    /// Whether an access has nothing to wait for.
    #[inline]
    pub(crate) fn is_free(&self, by: Option<&Q>, range: &Range<usize>, access: Access) -> bool {
        !self.entries.iter().any(|entry| entry.conflicts(by, range, access, |_| true))
    }

    /// Enters an access of `by` whose waits have been enqueued. With a guard, more may be launched until its release.
    ///
    /// A write supersedes the past that it covers, because the write waited for that past, and later accesses wait for
    /// the write. A read supersedes nothing, because later readers do not wait for a read. Live guards always stay.
    pub(crate) fn enter(&mut self, by: &Q, range: Range<usize>, access: Access, guard: Option<u64>, clock: &Clock) {
        if range.is_empty() || (guard.is_none() && self.entered(by, &range, access, clock).is_some()) {
            return;
        }
        if access == Access::Write {
            for entry in &mut self.entries {
                entry.past.remove(&range);
            }
        }
        self.entry(by, access, clock).enter(range, guard, clock);
        if guard.is_none() || access == Access::Write {
            self.bound();
        }
    }

    /// The entry that covers this access already, if entering the access without a guard would change nothing: the
    /// usual case of one queue. After a wait the moment of the last access changes, even if that wait is over, because
    /// the operation that has waited still relies on the moment.
    #[inline]
    fn entered(&self, by: &Q, range: &Range<usize>, access: Access, clock: &Clock) -> Option<usize> {
        let mut found = None;
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.is_of(by, access) && entry.last == clock.now() {
                if !entry.past.contains(range) {
                    return None;
                }
                found = Some(index);
                if access == Access::Read {
                    break;
                }
            } else if access == Access::Write && entry.past.overlaps(range) {
                return None;
            }
        }
        found
    }

    /// Enters the access of a token without a guard. While the share that is returned is held, the use is not over.
    pub(crate) fn enter_token(
        &mut self,
        by: &Q,
        range: &Range<usize>,
        access: Access,
        clock: &Clock,
    ) -> Option<Arc<()>> {
        let index = self.entered(by, range, access, clock).or_else(|| {
            self.enter(by, range.clone(), access, None, clock);
            self.entries.iter().position(|entry| entry.is_of(by, access) && entry.past.contains(range))
        })?;
        let entry = &mut self.entries[index];
        if entry.holds.is_empty() {
            entry.holds.push(Arc::default());
        }
        entry.holds.first().cloned()
    }

    /// The guard was dropped: no more is launched under the guard, and its work counts as past.
    pub(crate) fn release(&mut self, guard: u64, clock: &Clock) {
        // A guard is entered once.
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            let Some(range) = entry.live.remove(guard) else { continue };
            let access = entry.access;
            // Work may have been launched under the guard until now.
            if clock.separates(entry.last) {
                let queue = entry.queue.clone();
                self.entry(&queue, access, clock).enter(range, None, clock);
            } else {
                entry.last = clock.now();
                entry.past.insert(range);
            }
            self.bound();
            return;
        }
    }

    /// Forgets the past of a queue, after a wait for the queue that began then. Work under a live guard stays, and so
    /// does work under a token that was not known to be gone.
    pub(crate) fn finish(&mut self, by: &Q, began: u64) {
        let entries = self.entries.iter_mut();
        for entry in entries.filter(|entry| entry.queue == *by && entry.last < began && entry.holds.is_empty()) {
            entry.past = Ranges::new();
        }
        self.bound();
    }

    /// Every queue with an entry, each once. A copy is freed or evicted after a wait for all these queues.
    pub(crate) fn queues(&self) -> Vec<Q> {
        each_once(self.entries.iter().map(|entry| &entry.queue))
    }

    /// Whether this queue has an entry.
    pub(crate) fn has(&self, queue: &Q) -> bool {
        self.entries.iter().any(|entry| entry.queue == *queue)
    }

    /// Whether whatever this queue still does is a read under which nothing more may be launched.
    pub(crate) fn only_reads(&self, queue: &Q) -> bool {
        let mut own = self.entries.iter().filter(|entry| entry.queue == *queue);
        own.all(|entry| entry.access == Access::Read && entry.live.is_empty() && entry.holds.is_empty())
    }

    /// Enters the reads of a queue as reads by another, after [`only_reads`](Self::only_reads).
    pub(crate) fn hand_over(&mut self, from: &Q, to: &Q, clock: &Clock) {
        let old: Vec<_> = self.entries.extract_if(.., |entry| entry.queue == *from).collect();
        for range in old.iter().flat_map(|entry| entry.past.iter()) {
            self.enter(to, range, Access::Read, None, clock);
        }
    }

    /// The entry that an access of this queue and kind belongs to now; made if there is none.
    fn entry(&mut self, queue: &Q, access: Access, clock: &Clock) -> &mut Entry<Q> {
        let mut entries = self.entries.iter();
        let ours = entries.position(|entry| entry.is_of(queue, access) && !clock.separates(entry.last));
        let index = ours.unwrap_or_else(|| {
            self.join(queue, access, clock);
            self.entries.push(Entry::new(queue.clone(), access));
            self.entries.len() - 1
        });
        let entry = &mut self.entries[index];
        entry.last = clock.now();
        entry
    }

    /// Makes one of a queue's entries for each kind of access that no wait under way tells apart any more.
    fn join(&mut self, queue: &Q, access: Access, clock: &Clock) {
        let mut old: Vec<_> = self.entries.extract_if(.., |entry| entry.is_of(queue, access)).collect();
        old.sort_by_key(|entry| entry.last);
        for entry in old {
            match self.entries.last_mut() {
                Some(before) if before.is_of(queue, access) && !clock.separates_from(before.last, entry.last) => {
                    before.last = entry.last;
                    entry.past.iter().for_each(|range| before.past.insert(range));
                    before.live.append(entry.live);
                    before.holds.extend(entry.holds);
                }
                _ => self.entries.push(entry),
            }
        }
    }
}

impl<Q> Entry<Q> {
    fn new(queue: Q, access: Access) -> Self {
        Entry { queue, access, last: 0, past: Ranges::new(), live: LiveGuards::default(), holds: Vec::new() }
    }

    fn enter(&mut self, range: Range<usize>, guard: Option<u64>, clock: &Clock) {
        let entered = clock.now();
        match guard {
            Some(number) => self.live.insert(Guard { number, entered, range }),
            None => self.past.insert(range),
        }
    }

    fn is_spent(&self) -> bool {
        self.past.is_empty() && self.live.is_empty()
    }
}

impl<Q: PartialEq> Entry<Q> {
    fn is_of(&self, queue: &Q, access: Access) -> bool {
        self.access == access && self.queue == *queue
    }

    /// Whether an access has to come after something of this entry that was entered at a moment which it `awaits`.
    #[inline]
    fn conflicts(&self, by: Option<&Q>, range: &Range<usize>, access: Access, awaits: impl Fn(u64) -> bool) -> bool {
        if !conflict(self.access, access) || Some(&self.queue) == by || range.is_empty() {
            return false;
        }
        (self.past.overlaps(range) && awaits(self.last)) || self.live.any(range, awaits)
    }
}

/// Whether the order of two accesses to the same bytes matters.
fn conflict(one: Access, other: Access) -> bool {
    one == Access::Write || other == Access::Write
}

/// These queues, each once, in order.
pub(crate) fn each_once<'a, Q: Clone + PartialEq + 'a>(queues: impl Iterator<Item = &'a Q>) -> Vec<Q> {
    let mut each = Vec::new();
    for queue in queues {
        if !each.contains(queue) {
            each.push(queue.clone());
        }
    }
    each
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use super::*;

    /// One bit for each thing a queue may be doing: byte, queue, and whether it writes.
    type Items = u32;

    const BOTH: [Access; 2] = [Access::Read, Access::Write];

    /// How large the world is that is searched through.
    #[derive(Clone, Copy)]
    struct Size {
        queues: usize,
        span: usize,
        /// How many guards are held or leaked at a time, at most; a guard's number is its place.
        guards: usize,
        /// Whether the host may wait while others go on.
        waits: bool,
    }

    impl Size {
        fn with_waits(self) -> Self {
            Size { waits: true, ..self }
        }

        fn ranges(self) -> impl Iterator<Item = Range<usize>> {
            let span = self.span;
            (0..span).flat_map(move |start| (start + 1..=span).map(move |end| start..end))
        }

        fn accesses(self) -> impl Iterator<Item = (Range<usize>, Access)> {
            self.ranges().flat_map(|range| BOTH.map(|access| (range.clone(), access)))
        }

        /// The items of a queue and kind of access over a range.
        fn items(self, queue: usize, access: Access, range: &Range<usize>) -> Items {
            let kind = usize::from(access == Access::Write);
            range.clone().map(|byte| 1_u32 << ((byte * self.queues + queue) * 2 + kind)).sum()
        }

        /// The items of a queue over a range, of both kinds.
        fn items_of(self, queue: usize, range: &Range<usize>) -> Items {
            let kinds = BOTH.map(|access| self.items(queue, access, range));
            kinds[0] | kinds[1]
        }

        /// The items of all queues over a range that must be ordered before an access to it.
        fn before(self, access: Access, range: &Range<usize>) -> Items {
            let kinds = BOTH.into_iter().filter(|kind| conflict(*kind, access));
            let items = kinds.flat_map(|kind| (0..self.queues).map(move |queue| self.items(queue, kind, range)));
            items.sum()
        }
    }

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Guard {
        queue: usize,
        access: Access,
        range: Range<usize>,
        /// No more work is launched under the guard, and the guard is never released.
        leaked: bool,
    }

    /// The truth, as happens-before: of each queue the last operation on each byte of each kind, and who is known to
    /// run after it. This is a vector clock, cut down to the one comparison that finds a race.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Model {
        /// By queue, the host last: the items whose last operation happens before whatever this queue is given next.
        known: Vec<Items>,
        /// The entries that `Uses` should have, byte by byte.
        past: Items,
        guards: Vec<Option<Guard>>,
        wait: Option<Wait>,
    }

    /// The host waits for a queue with the lock released, and others go on.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Wait {
        queue: usize,
        /// The knowledge of the host at the end of the wait.
        known: Items,
        /// The uses that were entered since the wait began.
        fresh: Items,
    }

    #[derive(Clone)]
    struct World {
        size: Size,
        uses: Uses<usize>,
        clock: Clock,
        began: u64,
        model: Model,
    }

    impl World {
        fn new(size: Size) -> Self {
            World {
                size,
                uses: Uses::new(),
                clock: Clock::default(),
                began: 0,
                model: Model {
                    // Operations that never took place are known to all.
                    known: vec![Items::MAX; size.queues + 1],
                    past: 0,
                    guards: vec![None; size.guards],
                    wait: None,
                },
            }
        }

        fn host(&self) -> usize {
            self.size.queues
        }

        /// An operation of a queue on these bytes: everything that conflicts must be known to happen before it.
        fn operate(&mut self, queue: usize, range: &Range<usize>, access: Access) {
            let known = &mut self.model.known;
            // The host launches the operation, after all work that the host has waited for.
            known[queue] |= known[self.size.queues];
            let others = self.size.before(access, range) & !self.size.items_of(queue, range);
            assert_eq!(others & !known[queue], 0, "a race: {:?}", self.uses);
            let done = self.size.items(queue, access, range);
            known.iter_mut().for_each(|known| *known &= !done);
            known[queue] |= done;
            if let Some(wait) = &mut self.model.wait {
                wait.known &= !done;
            }
        }

        /// "by waits for each of these": a late event on the tail of each.
        fn wait(&mut self, by: usize, queues: &[usize]) {
            for queue in queues {
                self.model.known[by] |= self.model.known[*queue];
            }
        }

        /// The right answer of `waits`, in any order.
        fn conflicting(&self, by: Option<usize>, range: &Range<usize>, access: Access) -> Vec<usize> {
            let held = self.model.past | self.live(|_| true);
            let before = self.size.before(access, range) & held;
            let queues = (0..self.size.queues)
                .filter(|queue| Some(*queue) != by && before & self.size.items_of(*queue, range) != 0);
            queues.collect()
        }

        /// The items of some of the guards.
        fn live(&self, which: impl Fn(&Guard) -> bool) -> Items {
            let guards = self.model.guards.iter().flatten().filter(|guard| which(guard));
            guards.fold(0, |items, guard| items | self.size.items(guard.queue, guard.access, &guard.range))
        }

        /// Whether the rules of borrowing allow an access: the holder of a guard conflicts with none.
        fn is_free(&self, range: &Range<usize>, access: Access) -> bool {
            self.live(|guard| !guard.leaked) & self.size.before(access, range) == 0
        }

        fn waits(&mut self, by: Option<usize>, range: &Range<usize>, access: Access) {
            let waited = Waited::new();
            let mut waits = self.uses.waits(by.as_ref(), range, access, &waited);
            waits.sort_unstable();
            assert_eq!(waits, self.conflicting(by, range, access));
            self.wait(by.unwrap_or(self.host()), &waits);
        }

        /// An access of a queue: at once without a guard, and with one only when something is launched under it.
        fn enter(&mut self, queue: usize, range: &Range<usize>, access: Access, guard: Option<usize>) {
            self.waits(Some(queue), range, access);
            let number = guard.map(|guard| guard as u64);
            let entered = range.clone();
            self.uses.enter(&queue, entered, access, number, &self.clock);
            if access == Access::Write {
                self.model.past &= !self.size.before(access, range);
            }
            if let Some(guard) = guard {
                self.model.guards[guard] = Some(Guard { queue, access, range: range.clone(), leaked: false });
            } else {
                self.passed(self.size.items(queue, access, range));
                self.operate(queue, range, access);
            }
        }

        fn host_access(&mut self, range: &Range<usize>, access: Access) {
            let waits = self.conflicting(None, range, access);
            self.waits(None, range, access);
            let unknown = self.size.before(access, range) & !self.model.known[self.host()];
            assert_eq!(unknown, 0, "the host races: {:?}", self.uses);
            waits.into_iter().for_each(|queue| self.finish(queue));
        }

        /// A wait during which nothing else happens.
        fn finish(&mut self, queue: usize) {
            let began = self.clock.begin();
            self.wait(self.host(), &[queue]);
            self.clock.end(began);
            self.uses.finish(&queue, began);
            self.model.past &= !self.items_ever(queue);
        }

        fn items_ever(&self, queue: usize) -> Items {
            self.size.items_of(queue, &(0..self.size.span))
        }

        fn begin(&mut self, queue: usize) {
            self.began = self.clock.begin();
            self.model.wait = Some(Wait { queue, known: self.model.known[queue], fresh: 0 });
        }

        fn end(&mut self) {
            let Some(wait) = self.model.wait.take() else {
                return;
            };
            self.clock.end(self.began);
            self.uses.finish(&wait.queue, self.began);
            let host = self.host();
            self.model.known[host] |= wait.known;
            self.model.past &= !(self.items_ever(wait.queue) & !wait.fresh);
        }

        /// The work that a queue was given becomes past.
        fn passed(&mut self, items: Items) {
            self.model.past |= items;
            if let Some(wait) = &mut self.model.wait {
                wait.fresh |= items;
            }
        }

        fn release(&mut self, guard: usize) {
            self.uses.release(guard as u64, &self.clock);
            if let Some(gone) = self.model.guards[guard].take() {
                self.passed(self.size.items(gone.queue, gone.access, &gone.range));
            }
        }

        /// The rules of every state.
        fn check(&self) {
            let live = self.live(|_| true);
            let mut past = 0;
            for entry in &self.uses.entries {
                assert!(!entry.is_spent(), "{:?}", self.uses);
                let ranges = entry.past.iter();
                past |= ranges.fold(0, |items, range| items | self.size.items(entry.queue, entry.access, &range));
            }
            assert_eq!(past, self.model.past, "{:?}", self.uses);
            assert_eq!(self.uses.is_empty(), live | past == 0);
            let mut free = self.clone();
            let (host, queues) = (self.host(), self.uses.queues());
            free.wait(host, &queues);
            assert_eq!(free.model.known[host], Items::MAX, "freed in use: {:?}", self.uses);
        }

        /// The state after one step.
        fn after(&self, step: impl FnOnce(&mut World)) -> World {
            let mut next = self.clone();
            step(&mut next);
            next
        }

        /// Every state one step away.
        fn steps(&self) -> Vec<World> {
            let mut next = Vec::new();
            let vacant = self.model.guards.iter().position(Option::is_none);
            for (range, access) in self.size.accesses().filter(|(r, a)| self.is_free(r, *a)) {
                next.push(self.after(|world| world.host_access(&range, access)));
                for queue in 0..self.size.queues {
                    next.push(self.after(|world| world.enter(queue, &range, access, None)));
                    if vacant.is_some() {
                        next.push(self.after(|world| world.enter(queue, &range, access, vacant)));
                    }
                }
            }
            for queue in 0..self.size.queues {
                next.push(self.after(|world| world.finish(queue)));
                if self.model.wait.is_none() && self.size.waits {
                    next.push(self.after(|world| world.begin(queue)));
                }
            }
            if self.model.wait.is_some() {
                next.push(self.after(World::end));
            }
            for (place, guard) in self.model.guards.iter().enumerate() {
                if let Some(guard) = guard.as_ref().filter(|guard| !guard.leaked) {
                    self.steps_of(place, guard, &mut next);
                }
            }
            next
        }

        /// Under a guard something is launched, or it is released, or leaked.
        fn steps_of(&self, place: usize, guard: &Guard, next: &mut Vec<World>) {
            let Guard { queue, access, range, .. } = guard;
            next.push(self.after(|world| world.operate(*queue, range, *access)));
            next.push(self.after(|world| world.release(place)));
            let leaked = Some(Guard { leaked: true, ..guard.clone() });
            next.push(self.after(|world| world.model.guards[place] = leaked));
        }
    }

    /// Checks every state that at most `depth` steps reach, and each step from those. Returns how many there are.
    fn explore(size: Size, depth: usize) -> usize {
        let start = World::new(size);
        let mut seen = HashSet::from([start.model.clone()]);
        let mut todo = VecDeque::from([(start, 0)]);
        while let Some((world, steps)) = todo.pop_front() {
            world.check();
            if steps == depth {
                continue;
            }
            for next in world.steps() {
                if seen.insert(next.model.clone()) {
                    todo.push_back((next, steps + 1));
                }
            }
        }
        seen.len()
    }

    const fn size(queues: usize, span: usize, guards: usize) -> Size {
        Size { queues, span, guards, waits: false }
    }

    // The counts are there so that a search that stops early is noticed.

    #[test]
    fn no_race_in_any_state_of_two_queues_with_two_guards_on_a_byte() {
        assert_eq!(explore(size(2, 1, 2), usize::MAX), 16_589);
    }

    #[test]
    fn no_race_in_any_state_of_two_or_three_queues_without_guards() {
        assert_eq!(explore(size(3, 1, 0), usize::MAX), 1_914);
        assert_eq!(explore(size(2, 2, 0), usize::MAX), 12_043);
    }

    #[test]
    fn no_race_within_a_few_steps_of_three_queues() {
        assert_eq!(explore(size(3, 1, 2), 5), 19_293);
        assert_eq!(explore(size(3, 2, 2), 3), 12_625);
        assert_eq!(explore(size(3, 4, 1), 2), 6_301);
    }

    #[test]
    fn no_race_within_a_few_steps_on_two_or_three_bytes() {
        assert_eq!(explore(size(2, 2, 2), 4), 30_148);
        assert_eq!(explore(size(2, 3, 2), 3), 24_923);
    }

    #[test]
    fn no_race_while_the_host_waits_with_the_lock_released() {
        assert_eq!(explore(size(2, 1, 1).with_waits(), usize::MAX), 137_233);
        assert_eq!(explore(size(2, 1, 2).with_waits(), 5), 9_192);
        assert_eq!(explore(size(2, 2, 1).with_waits(), 4), 35_962);
    }

    #[test]
    fn what_comes_during_a_wait_does_not_keep_what_was_before_it() {
        let (mut uses, mut clock) = (Uses::new(), Clock::default());
        uses.enter(&1, 0..8, Access::Write, None, &clock);
        let began = clock.begin();
        uses.enter(&1, 8..16, Access::Write, None, &clock);
        clock.end(began);
        uses.finish(&1, began);
        assert_eq!(host_waits(&uses, 0..8, Access::Write), []);
        assert_eq!(host_waits(&uses, 8..16, Access::Write), [1]);
    }

    #[test]
    fn work_under_a_guard_that_ends_during_a_wait_is_not_waited_for_by_it() {
        let (mut uses, mut clock) = (Uses::new(), Clock::default());
        uses.enter(&1, 0..8, Access::Write, None, &clock);
        uses.enter(&1, 8..16, Access::Write, Some(5), &clock);
        let began = clock.begin();
        uses.release(5, &clock);
        clock.end(began);
        uses.finish(&1, began);
        assert_eq!(host_waits(&uses, 0..8, Access::Write), []);
        assert_eq!(host_waits(&uses, 8..16, Access::Write), [1]);
    }

    #[test]
    fn waits_that_overlap_without_end_do_not_pile_up_entries() {
        let (mut uses, mut clock) = (Uses::new(), Clock::default());
        let mut began = clock.begin();
        for byte in 0..100 {
            uses.enter(&1, byte..byte + 1, Access::Read, None, &clock);
            let next = clock.begin();
            clock.end(began);
            began = next;
        }
        assert!(uses.entries.len() <= 3, "{uses:?}");
        for byte in 0..100 {
            assert_eq!(host_waits(&uses, byte..byte + 1, Access::Write), [1]);
        }
    }

    #[test]
    fn an_operation_does_not_wait_twice_for_the_same_and_waits_for_what_came_since() {
        let (mut uses, mut clock) = (Uses::new(), Clock::default());
        uses.enter(&1, 0..8, Access::Write, None, &clock);
        uses.enter(&2, 0..8, Access::Read, Some(5), &clock);
        let (began, mut waited) = (clock.begin(), Waited::new());
        clock.end(began);
        waited.add(None, 1, began);
        waited.add(None, 2, began);
        assert!(uses.waits(None, &(0..8), Access::Write, &waited).is_empty());
        assert_eq!(uses.waits(Some(&3), &(0..8), Access::Write, &waited), [1, 2], "another has not waited");
        uses.enter(&1, 4..6, Access::Read, None, &clock);
        assert_eq!(uses.waits(None, &(0..8), Access::Write, &waited), [1]);
    }

    #[test]
    fn what_an_operation_enters_after_its_own_wait_is_not_taken_for_waited_for() {
        let (mut clock, mut uses, mut waited) = (Clock::default(), Uses::new(), Waited::new());
        uses.enter(&1, 0..8, Access::Write, None, &clock);
        let began = clock.begin();
        clock.end(began);
        waited.add(Some(2), 1, began);
        let waits = |uses: &Uses<u8>, range| uses.waits(Some(&2), &range, Access::Read, &waited);
        assert!(waits(&uses, 0..8).is_empty());
        // Within the bytes that the entry covers already.
        uses.enter(&1, 4..6, Access::Write, None, &clock);
        assert_eq!(waits(&uses, 4..6), [1]);
    }

    fn host_waits(uses: &Uses<u8>, range: Range<usize>, access: Access) -> Vec<u8> {
        uses.waits(None, &range, access, &Waited::new())
    }

    /// Forty pieces of a copy of 400 bytes, all apart.
    fn pieces() -> impl Iterator<Item = Range<usize>> {
        (0..40).map(|n| 10 * n..10 * n + 3)
    }

    fn longest(uses: &Uses<u8>) -> usize {
        let lengths = uses.entries.iter().map(|entry| entry.past.len());
        lengths.max().unwrap_or(0)
    }

    #[test]
    fn a_scattered_past_is_bounded_and_forgets_nothing() {
        let clock = Clock::default();
        for guard in [None, Some(7)] {
            let mut uses = Uses::new();
            for (n, range) in (0..).zip(pieces()) {
                uses.enter(&1, range, Access::Read, guard.map(|first| first + n), &clock);
            }
            (0..40).for_each(|n| uses.release(7 + n, &clock));
            assert_eq!(longest(&uses), MAX_RANGES);
            for byte in pieces().flatten() {
                assert_eq!(host_waits(&uses, byte..byte + 1, Access::Write), [1]);
            }
            assert!(host_waits(&uses, 393..400, Access::Write).is_empty());
        }
    }

    #[test]
    fn a_past_that_is_cut_to_pieces_is_bounded() {
        let (mut uses, clock) = (Uses::new(), Clock::default());
        uses.enter(&1, 0..400, Access::Read, None, &clock);
        for range in pieces() {
            uses.enter(&2, range.clone(), Access::Write, None, &clock);
        }
        assert_eq!(longest(&uses), MAX_RANGES);
    }

    #[test]
    fn what_a_token_holds_ends_with_a_wait_that_began_when_it_was_gone() {
        let (mut uses, mut clock) = (Uses::new(), Clock::default());
        let wait = |clock: &mut Clock| {
            let began = clock.begin();
            clock.end(began);
            began
        };
        uses.enter(&1, 0..8, Access::Read, None, &clock);
        let hold = uses.enter_token(&1, &(2..4), Access::Read, &clock);
        let again = uses.enter_token(&1, &(2..4), Access::Read, &clock);
        uses.release_holds(&clock);
        let began = wait(&mut clock);
        drop((hold, again));
        uses.finish(&1, began);
        assert!(!uses.is_empty(), "the wait began before the token was gone");
        let began = wait(&mut clock);
        uses.finish(&1, began);
        assert!(!uses.is_empty(), "it was not known to be gone");
        uses.release_holds(&clock);
        uses.finish(&1, began);
        assert!(!uses.is_empty(), "it was found out after the wait");
        let began = wait(&mut clock);
        uses.finish(&1, began);
        assert!(uses.is_empty());
    }

    #[test]
    fn an_access_that_waits_for_no_queue_allocates_nothing() {
        let (mut uses, clock, waited) = (Uses::new(), Clock::default(), Waited::new());
        uses.enter(&1, 0..8, Access::Write, None, &clock);
        let waits = |by, range| uses.waits(by, &range, Access::Write, &waited);
        assert_eq!(waits(Some(&1), 0..8).capacity(), 0);
        assert_eq!(waits(None, 8..9).capacity(), 0);
    }

    #[test]
    fn an_access_to_no_bytes_is_none() {
        let (mut uses, clock) = (Uses::new(), Clock::default());
        for guard in [None, Some(1)] {
            uses.enter(&1, 3..3, Access::Write, guard, &clock);
            assert!(uses.is_empty());
        }
        uses.enter(&1, 0..8, Access::Write, Some(1), &clock);
        uses.enter(&2, 4..9, Access::Write, None, &clock);
        assert!(host_waits(&uses, 5..5, Access::Write).is_empty());
    }
}
