//! Who may still be using a copy, and for whom a new access has to wait. Pure: waiting itself is done by others.
//! It relies on two facts: a queue works in order, and "q waits for p" covers all that p was given before that moment.
//! So no event is kept here, only which queue uses which bytes how; what was launched under a guard counts until the
//! guard is gone, and a guard that was leaked counts for ever.

use std::ops::Range;

use crate::Access;
use crate::ranges::Ranges;

/// At most so many ranges of past accesses a queue and kind of access: a byte too much only makes somebody wait more.
const MOST_RANGES: usize = 16;

/// The queues that may still be using one copy. `Q` is a handle of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Uses<Q> {
    /// One for each queue and kind of access, in order of first use; none of them is spent.
    entries: Vec<Entry<Q>>,
}

/// What one queue may still be doing, of one kind.
#[derive(Clone, Debug)]
struct Entry<Q> {
    queue: Q,
    access: Access,
    /// Where accesses whose guard is gone, or that never had one, may still be at work.
    past: Ranges,
    /// Where guards live, under which more work may be launched at any time.
    live: Vec<Live>,
}

/// A guard that was not yet released.
#[derive(Clone, Debug)]
struct Live {
    guard: u64,
    range: Range<usize>,
}

impl<Q> Uses<Q> {
    /// Nobody uses the copy.
    pub(crate) const fn new() -> Self {
        Uses {
            entries: Vec::new(),
        }
    }

    /// Whether nobody uses the copy.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The host has waited for all of `waits(None, range, access)`: what they did there in the past is done. For a read
    /// that is the writes only, for the readers were not waited for.
    pub(crate) fn settle(&mut self, range: &Range<usize>, access: Access) {
        for entry in &mut self.entries {
            if conflict(entry.access, access) {
                entry.past.remove(range);
            }
        }
        self.bound();
    }

    /// The guard is gone: no more is launched under it, and what was becomes past.
    pub(crate) fn release(&mut self, guard: u64) {
        for Entry { past, live, .. } in &mut self.entries {
            let gone = live.extract_if(.., |live| live.guard == guard);
            gone.for_each(|gone| past.insert(gone.range));
        }
        self.bound();
    }

    /// After any change: what was inserted, or cut in two, must not grow without end, and spent entries go.
    fn bound(&mut self) {
        self.entries.retain_mut(|entry| {
            entry.past.coarsen(MOST_RANGES);
            !entry.is_spent()
        });
    }
}

impl<Q: Clone + PartialEq> Uses<Q> {
    /// Whether there is anybody to wait for: see [`waits`](Self::waits).
    pub(crate) fn must_wait(&self, by: Option<&Q>, range: &Range<usize>, access: Access) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.is_waited_for(by, range, access))
    }

    /// The queues that somebody has to wait for before `access` to `range`, each once: those with an entry that overlaps
    /// and conflicts, because one of the two writes. `by` is the queue that wants it, which need not wait for itself;
    /// `None` is the host. No allocation when there is nobody.
    pub(crate) fn waits(&self, by: Option<&Q>, range: &Range<usize>, access: Access) -> Vec<Q> {
        let entries = self.entries.iter();
        each_once(entries.filter(|entry| entry.is_waited_for(by, range, access)))
    }

    /// Enters an access of `by` whose waits have been enqueued. With a guard, more may be launched until its release.
    ///
    /// A write supersedes what it covers of the past, because it waited for that, and whoever comes later waits for the
    /// write. A read supersedes nothing: later readers do not wait for it. What is live always stays.
    pub(crate) fn enter(
        &mut self,
        by: &Q,
        range: Range<usize>,
        access: Access,
        guard: Option<u64>,
    ) {
        if range.is_empty() || (guard.is_none() && self.is_entered(by, &range, access)) {
            return;
        }
        if access == Access::Write {
            for entry in &mut self.entries {
                entry.past.remove(&range);
            }
        }
        self.entry(by, access).enter(range, guard);
        self.bound();
    }

    /// Whether entering this access without a guard would change nothing: the usual case of one queue.
    fn is_entered(&self, by: &Q, range: &Range<usize>, access: Access) -> bool {
        let mut found = false;
        let same = |entry: &Entry<Q>| entry.access == access && entry.queue == *by;
        let unchanged = self.entries.iter().all(|entry| match same(entry) {
            true => {
                found = entry.past.contains(range);
                found
            }
            false => access == Access::Read || !entry.past.overlaps(range),
        });
        unchanged && found
    }

    /// Forgets what a queue did in the past, after it was synchronised. Only for copies that no guard's launches use:
    /// under a guard, another thread may have launched more since.
    pub(crate) fn finish(&mut self, by: &Q) {
        let entries = self.entries.iter_mut();
        for entry in entries.filter(|entry| entry.queue == *by) {
            entry.past = Ranges::new();
        }
        self.bound();
    }

    /// Every queue with an entry, each once: who frees or evicts the copy waits for all of them.
    pub(crate) fn queues(&self) -> Vec<Q> {
        each_once(self.entries.iter())
    }

    /// The entry of a queue and kind of access, made when there is none.
    fn entry(&mut self, queue: &Q, access: Access) -> &mut Entry<Q> {
        let mut entries = self.entries.iter();
        let found = entries.position(|entry| entry.queue == *queue && entry.access == access);
        let index = found.unwrap_or_else(|| {
            self.entries.push(Entry::new(queue.clone(), access));
            self.entries.len() - 1
        });
        &mut self.entries[index]
    }
}

impl<Q> Entry<Q> {
    fn new(queue: Q, access: Access) -> Self {
        Entry {
            queue,
            access,
            past: Ranges::new(),
            live: Vec::new(),
        }
    }

    fn enter(&mut self, range: Range<usize>, guard: Option<u64>) {
        match guard {
            Some(guard) => self.live.push(Live { guard, range }),
            None => self.past.insert(range),
        }
    }

    fn overlaps(&self, range: &Range<usize>) -> bool {
        let meets = |live: &Live| live.range.start < range.end && range.start < live.range.end;
        self.past.overlaps(range) || (!range.is_empty() && self.live.iter().any(meets))
    }

    fn is_waited_for(&self, by: Option<&Q>, range: &Range<usize>, access: Access) -> bool
    where
        Q: PartialEq,
    {
        conflict(self.access, access) && Some(&self.queue) != by && self.overlaps(range)
    }

    fn is_spent(&self) -> bool {
        self.past.is_empty() && self.live.is_empty()
    }
}

/// Whether the order of two accesses to the same bytes matters.
fn conflict(one: Access, other: Access) -> bool {
    one == Access::Write || other == Access::Write
}

/// The queues of these entries, each once, in order.
fn each_once<'a, Q: Clone + PartialEq + 'a>(entries: impl Iterator<Item = &'a Entry<Q>>) -> Vec<Q> {
    let mut queues = Vec::new();
    for entry in entries {
        if !queues.contains(&entry.queue) {
            queues.push(entry.queue.clone());
        }
    }
    queues
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
        /// At most so many guards are held or leaked at a time; a guard's number is its place.
        guards: usize,
    }

    impl Size {
        fn ranges(self) -> impl Iterator<Item = Range<usize>> {
            let span = self.span;
            (0..span).flat_map(move |start| (start + 1..=span).map(move |end| start..end))
        }

        fn accesses(self) -> impl Iterator<Item = (Range<usize>, Access)> {
            self.ranges()
                .flat_map(|range| BOTH.map(|access| (range.clone(), access)))
        }

        /// The items of a queue and kind of access over a range.
        fn items(self, queue: usize, access: Access, range: &Range<usize>) -> Items {
            let kind = usize::from(access == Access::Write);
            let item = |byte| 1_u32 << ((byte * self.queues + queue) * 2 + kind);
            range.clone().map(item).sum()
        }

        /// The items of a queue over a range, of both kinds.
        fn items_of(self, queue: usize, range: &Range<usize>) -> Items {
            let kinds = BOTH.map(|access| self.items(queue, access, range));
            kinds[0] | kinds[1]
        }

        /// The items of all queues over a range that must be ordered before an access to it.
        fn before(self, access: Access, range: &Range<usize>) -> Items {
            let kinds = BOTH.into_iter().filter(|kind| conflict(*kind, access));
            let items = kinds
                .flat_map(|kind| (0..self.queues).map(move |queue| self.items(queue, kind, range)));
            items.sum()
        }
    }

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Guard {
        queue: usize,
        access: Access,
        range: Range<usize>,
        /// Nothing is launched under it any more, but nobody will ever release it.
        leaked: bool,
    }

    /// What really happens, as happens-before: of each queue the last operation on each byte of each kind, and who is
    /// known to run after it. This is a vector clock, cut down to the one comparison that finds a race.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Model {
        /// By queue, the host last: the items whose last operation happens before whatever this queue is given next.
        known: Vec<Items>,
        /// What `Uses` should hold, byte by byte.
        past: Items,
        guards: Vec<Option<Guard>>,
    }

    #[derive(Clone)]
    struct World {
        size: Size,
        uses: Uses<usize>,
        model: Model,
    }

    impl World {
        fn new(size: Size) -> Self {
            World {
                size,
                uses: Uses::new(),
                model: Model {
                    // What was never done is known to everybody.
                    known: vec![Items::MAX; size.queues + 1],
                    past: 0,
                    guards: vec![None; size.guards],
                },
            }
        }

        fn host(&self) -> usize {
            self.size.queues
        }

        /// An operation of a queue on these bytes: everything that conflicts must be known to happen before it.
        fn operate(&mut self, queue: usize, range: &Range<usize>, access: Access) {
            let known = &mut self.model.known;
            // The host launches it, so it comes after all that the host has waited for.
            known[queue] |= known[self.size.queues];
            let others = self.size.before(access, range) & !self.size.items_of(queue, range);
            assert_eq!(others & !known[queue], 0, "a race: {:?}", self.uses);
            let done = self.size.items(queue, access, range);
            known.iter_mut().for_each(|known| *known &= !done);
            known[queue] |= done;
        }

        /// "by waits for each of these": a late event on the tail of each.
        fn wait(&mut self, by: usize, queues: &[usize]) {
            for queue in queues {
                self.model.known[by] |= self.model.known[*queue];
            }
        }

        /// What `waits` must say, in any order.
        fn conflicting(
            &self,
            by: Option<usize>,
            range: &Range<usize>,
            access: Access,
        ) -> Vec<usize> {
            let held = self.model.past | self.live(|_| true);
            let before = self.size.before(access, range) & held;
            let queues = (0..self.size.queues).filter(|queue| {
                Some(*queue) != by && before & self.size.items_of(*queue, range) != 0
            });
            queues.collect()
        }

        /// The items of some of the guards.
        fn live(&self, which: impl Fn(&Guard) -> bool) -> Items {
            let guards = self
                .model
                .guards
                .iter()
                .flatten()
                .filter(|guard| which(guard));
            guards.fold(0, |items, guard| {
                items | self.size.items(guard.queue, guard.access, &guard.range)
            })
        }

        /// Whether the rules of borrowing allow an access: who holds a guard is never in conflict with anybody.
        fn is_free(&self, range: &Range<usize>, access: Access) -> bool {
            self.live(|guard| !guard.leaked) & self.size.before(access, range) == 0
        }

        fn waits(&mut self, by: Option<usize>, range: &Range<usize>, access: Access) {
            let mut waits = self.uses.waits(by.as_ref(), range, access);
            waits.sort_unstable();
            assert_eq!(waits, self.conflicting(by, range, access));
            self.wait(by.unwrap_or(self.host()), &waits);
        }

        /// An access of a queue: at once without a guard, and with one only when something is launched under it.
        fn enter(
            &mut self,
            queue: usize,
            range: &Range<usize>,
            access: Access,
            guard: Option<usize>,
        ) {
            self.waits(Some(queue), range, access);
            let number = guard.map(|guard| guard as u64);
            self.uses.enter(&queue, range.clone(), access, number);
            if access == Access::Write {
                self.model.past &= !self.size.before(access, range);
            }
            if let Some(guard) = guard {
                self.model.guards[guard] = Some(Guard {
                    queue,
                    access,
                    range: range.clone(),
                    leaked: false,
                });
            } else {
                self.model.past |= self.size.items(queue, access, range);
                self.operate(queue, range, access);
            }
        }

        fn host_access(&mut self, range: &Range<usize>, access: Access) {
            self.waits(None, range, access);
            let unknown = self.size.before(access, range) & !self.model.known[self.host()];
            assert_eq!(unknown, 0, "the host races: {:?}", self.uses);
            self.uses.settle(range, access);
            self.model.past &= !self.size.before(access, range);
        }

        fn finish(&mut self, queue: usize) {
            self.wait(self.host(), &[queue]);
            self.uses.finish(&queue);
            let whole = 0..self.size.span;
            self.model.past &= !self.size.items_of(queue, &whole);
        }

        fn release(&mut self, guard: usize) {
            self.uses.release(guard as u64);
            if let Some(gone) = self.model.guards[guard].take() {
                self.model.past |= self.size.items(gone.queue, gone.access, &gone.range);
            }
        }

        /// What must hold in every state.
        fn check(&self) {
            let live = self.live(|_| true);
            let mut past = 0;
            for entry in &self.uses.entries {
                assert!(!entry.is_spent(), "{:?}", self.uses);
                let ranges = entry.past.iter();
                past |= ranges.fold(0, |items, range| {
                    items | self.size.items(entry.queue, entry.access, &range)
                });
            }
            assert_eq!(past, self.model.past, "{:?}", self.uses);
            assert_eq!(self.uses.is_empty(), live | past == 0);
            let mut free = self.clone();
            let (host, queues) = (self.host(), self.uses.queues());
            free.wait(host, &queues);
            assert_eq!(
                free.model.known[host],
                Items::MAX,
                "freed in use: {:?}",
                self.uses
            );
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
            let Guard {
                queue,
                access,
                range,
                ..
            } = guard;
            next.push(self.after(|world| world.operate(*queue, range, *access)));
            next.push(self.after(|world| world.release(place)));
            let leaked = Some(Guard {
                leaked: true,
                ..guard.clone()
            });
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
        Size {
            queues,
            span,
            guards,
        }
    }

    // The counts are there so that a search that stops early is noticed.

    #[test]
    fn no_race_in_any_state_of_two_queues_with_two_guards_on_a_byte() {
        assert_eq!(explore(size(2, 1, 2), usize::MAX), 16_691);
    }

    #[test]
    fn no_race_in_any_state_of_two_or_three_queues_without_guards() {
        assert_eq!(explore(size(3, 1, 0), usize::MAX), 2_115);
        assert_eq!(explore(size(2, 2, 0), usize::MAX), 15_937);
    }

    #[test]
    fn no_race_within_a_few_steps_of_three_queues() {
        assert_eq!(explore(size(3, 1, 2), 5), 19_695);
        assert_eq!(explore(size(3, 2, 2), 3), 13_168);
        assert_eq!(explore(size(3, 4, 1), 2), 6_451);
    }

    #[test]
    fn no_race_within_a_few_steps_on_two_or_three_bytes() {
        assert_eq!(explore(size(2, 2, 2), 4), 31_942);
        assert_eq!(explore(size(2, 3, 2), 3), 26_424);
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
        for guard in [None, Some(7)] {
            let mut uses = Uses::new();
            for range in pieces() {
                uses.enter(&1, range, Access::Read, guard);
            }
            uses.release(7);
            assert_eq!(longest(&uses), MOST_RANGES);
            for byte in pieces().flatten() {
                assert_eq!(uses.waits(None, &(byte..byte + 1), Access::Write), [1]);
            }
            assert!(uses.waits(None, &(393..400), Access::Write).is_empty());
        }
    }

    #[test]
    fn a_past_that_is_cut_to_pieces_is_bounded() {
        let mut written = Uses::new();
        let mut settled = Uses::new();
        for uses in [&mut written, &mut settled] {
            uses.enter(&1, 0..400, Access::Read, None);
        }
        for range in pieces() {
            written.enter(&2, range.clone(), Access::Write, None);
            settled.settle(&range, Access::Write);
        }
        assert_eq!(longest(&written), MOST_RANGES);
        assert_eq!(longest(&settled), MOST_RANGES);
    }

    #[test]
    fn a_queue_is_named_once_and_never_to_itself() {
        let mut uses = Uses::new();
        uses.enter(&1, 0..8, Access::Write, None);
        uses.enter(&1, 0..8, Access::Read, None);
        uses.enter(&2, 4..8, Access::Read, None);
        assert_eq!(uses.waits(None, &(0..8), Access::Write), [1, 2]);
        assert_eq!(uses.waits(Some(&1), &(0..8), Access::Write), [2]);
        assert_eq!(uses.waits(Some(&2), &(0..8), Access::Read), [1]);
        assert_eq!(uses.queues(), [1, 2]);
    }

    #[test]
    fn what_waits_for_nobody_allocates_nothing() {
        let mut uses = Uses::new();
        uses.enter(&1, 0..8, Access::Write, None);
        assert_eq!(uses.waits(Some(&1), &(0..8), Access::Write).capacity(), 0);
        assert_eq!(uses.waits(None, &(8..9), Access::Write).capacity(), 0);
    }

    #[test]
    fn an_access_to_no_bytes_is_none() {
        let mut uses = Uses::new();
        for guard in [None, Some(1)] {
            uses.enter(&1, 3..3, Access::Write, guard);
            assert!(uses.is_empty());
        }
        uses.enter(&1, 0..8, Access::Write, Some(1));
        uses.enter(&2, 4..9, Access::Write, None);
        assert!(uses.waits(None, &(5..5), Access::Write).is_empty());
    }
}
