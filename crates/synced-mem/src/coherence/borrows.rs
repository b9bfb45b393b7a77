//! The live borrows of a shared memory: of each the byte range, the access, the copy; and the live guards under which
//! one queue may launch more work. Pure bookkeeping over `intervals`. A few stand in a list, which costs no allocation
//! once grown, the others in trees: with n borrows on c copies a question costs O(c log n), a change O(log n), and a
//! borrow that soon ends reaches no tree.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::access::Access;
use crate::coherence::intervals::Intervals;
use crate::coherence::ranges::meet;
use crate::coherence::replicas::Slot;
use crate::error::Error;

/// How many borrows stand in the list, at most: reading the whole list costs less than a step down a tree outside the
/// cache.
const FEW: usize = 16;

/// No entry is empty, and no writer overlaps another entry, whatever copies the two are. When the list is full, further
/// borrows go into trees, and no borrow moves until its end.
#[derive(Debug, Default)]
pub(crate) struct Borrows {
    /// At most [`FEW`].
    few: Vec<(u64, Borrow)>,
    many: Many,
    next: u64,
    /// How many threads wait for a borrow to end. Waking without a sleeper would cost a system call.
    pub(crate) waiting: usize,
    /// How many borrows have ended while a thread waited.
    pub(crate) ended: u64,
    /// How many guards write to the host's own memory now.
    pub(crate) host_writers: usize,
}

#[derive(Debug)]
struct Borrow {
    range: Range<usize>,
    access: Access,
    slot: Slot,
    /// Whether the borrow counts in [`Borrows::host_writers`].
    writes_host: bool,
}

/// Borrows in trees.
#[derive(Debug, Default)]
struct Many {
    held: BTreeMap<u64, Borrow>,
    /// By slot.
    copies: Vec<OnCopy>,
}

/// The borrows on one copy.
#[derive(Debug, Default)]
struct OnCopy {
    readers: Intervals,
    writers: Intervals,
}

impl Borrows {
    /// Whether this borrow may be added.
    #[inline]
    pub(crate) fn check(&self, range: &Range<usize>, access: Access) -> Result<(), Error> {
        let writers_only = access == Access::Read;
        refuse(self.find(range, writers_only, None), range, access)
    }

    /// Whether no borrow meets `range` on this copy, so that the copy may give the range up.
    pub(crate) fn check_copy(&self, slot: Slot, range: &Range<usize>) -> Result<(), Error> {
        refuse(self.find(range, false, Some(slot)), range, Access::Write)
    }

    /// Whether a borrow to write meets `range`.
    pub(crate) fn writes(&self, range: &Range<usize>) -> bool {
        self.find(range, true, None).is_some()
    }

    /// Whether a borrow meets `range`.
    pub(crate) fn touches(&self, range: &Range<usize>) -> bool {
        self.find(range, false, None).is_some()
    }

    /// One of those that overlap `range`, among the writers or all, on one copy or on any.
    #[inline]
    fn find(&self, range: &Range<usize>, writers_only: bool, slot: Option<Slot>) -> Option<&Borrow> {
        let mut few = self.few.iter().map(|(_, held)| held).filter(|held| {
            meet(&held.range, range)
                && !(writers_only && held.access == Access::Read)
                && slot.is_none_or(|slot| slot == held.slot)
        });
        few.next().or_else(|| self.many.find(range, writers_only, slot))
    }

    /// Enters a borrow that has been checked.
    #[inline]
    pub(crate) fn insert(&mut self, range: Range<usize>, access: Access, slot: Slot) -> u64 {
        let id = self.next;
        self.next += 1;
        let borrow = Borrow { range, access, slot, writes_host: false };
        if self.few.len() < FEW {
            self.few.push((id, borrow))
        } else {
            self.many.insert(id, borrow)
        }
        id
    }

    /// The guard of a borrow gets the host's own memory, to write there.
    #[inline]
    pub(crate) fn write_host(&mut self, id: u64) {
        let few = self.few.iter_mut().rfind(|(held, _)| *held == id).map(|(_, borrow)| borrow);
        if let Some(borrow) = few.or_else(|| self.many.held.get_mut(&id)) {
            self.host_writers += usize::from(!borrow.writes_host);
            borrow.writes_host = true;
        }
    }

    /// The guard of a borrow gets the bytes of this copy.
    #[cold]
    pub(crate) fn lie_on(&mut self, id: u64, slot: Slot) {
        match self.few.iter_mut().rfind(|(held, _)| *held == id) {
            Some((_, borrow)) => borrow.slot = slot,
            None => {
                if let Some(borrow) = self.many.remove(id) {
                    self.many.insert(id, Borrow { slot, ..borrow });
                }
            }
        }
    }

    /// Ends a borrow. Returns its copy.
    #[inline]
    pub(crate) fn remove(&mut self, id: u64) -> Option<Slot> {
        let borrow = match self.few.iter().rposition(|(held, _)| *held == id) {
            Some(index) => self.few.swap_remove(index).1,
            None => self.many.remove(id)?,
        };
        self.host_writers -= usize::from(borrow.writes_host);
        Some(borrow.slot)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.held.is_empty()
    }
}

impl Many {
    fn find(&self, range: &Range<usize>, writers_only: bool, slot: Option<Slot>) -> Option<&Borrow> {
        if self.held.is_empty() {
            return None;
        }
        let copies = self.copies.iter().enumerate();
        let mut asked = copies.filter(|(index, _)| slot.is_none_or(|slot| slot.0 == *index));
        let id = asked.find_map(|(_, copy)| copy.find(range, writers_only))?;
        self.held.get(&id)
    }

    fn insert(&mut self, id: u64, borrow: Borrow) {
        let slot = borrow.slot.0;
        if self.copies.len() <= slot {
            self.copies.resize_with(slot + 1, OnCopy::default);
        }
        let tree = self.copies[slot].of(borrow.access);
        tree.insert(borrow.range.clone(), id);
        self.held.insert(id, borrow);
    }

    fn remove(&mut self, id: u64) -> Option<Borrow> {
        let held = self.held.remove(&id)?;
        self.copies[held.slot.0].of(held.access).remove(&held.range, id);
        Some(held)
    }
}

impl OnCopy {
    fn find(&self, range: &Range<usize>, writers_only: bool) -> Option<u64> {
        let writer = self.writers.find(range);
        if writers_only { writer } else { writer.or_else(|| self.readers.find(range)) }
    }

    fn of(&mut self, access: Access) -> &mut Intervals {
        match access {
            Access::Read => &mut self.readers,
            Access::Write => &mut self.writers,
        }
    }
}

/// The error of a borrow of `range` that another borrow is in the way of.
fn refuse(held: Option<&Borrow>, range: &Range<usize>, wanted: Access) -> Result<(), Error> {
    match held {
        None => Ok(()),
        Some(held) => Err(Error::Conflict {
            wanted,
            wanted_range: range.clone(),
            held: held.access,
            held_range: held.range.clone(),
        }),
    }
}

// ---- of one queue ----

/// The live guards under which one queue may launch more work of one kind, each with its range. The newest stand in the
/// list.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveGuards {
    /// At most [`FEW`].
    few: Vec<Guard>,
    /// The others, if there are any: boxed, because most memories never have as many.
    many: Option<Box<ManyGuards>>,
}

/// A guard that was not yet released.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub(crate) number: u64,
    pub(crate) entered: u64,
    pub(crate) range: Range<usize>,
}

/// Guards in trees. Never empty.
#[derive(Clone, Debug, Default)]
struct ManyGuards {
    held: BTreeMap<u64, Guard>,
    /// Their ranges, by number.
    places: Intervals,
}

impl LiveGuards {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_none()
    }

    #[inline]
    pub(crate) fn insert(&mut self, guard: Guard) {
        if self.few.len() == FEW {
            self.move_to_trees(0);
        }
        self.few.push(guard);
    }

    #[cold]
    fn move_to_trees(&mut self, index: usize) {
        let guard = self.few.remove(index);
        let many = self.many.get_or_insert_default();
        many.places.insert(guard.range.clone(), guard.number);
        many.held.insert(guard.number, guard);
    }

    /// Takes a guard out, if it is here: its range.
    #[inline]
    pub(crate) fn remove(&mut self, number: u64) -> Option<Range<usize>> {
        match self.few.iter().rposition(|guard| guard.number == number) {
            Some(at) => Some(self.few.swap_remove(at).range),
            None if self.many.is_none() => None,
            None => self.remove_of_trees(number),
        }
    }

    #[cold]
    fn remove_of_trees(&mut self, number: u64) -> Option<Range<usize>> {
        let many = self.many.as_mut()?;
        let guard = many.held.remove(&number)?;
        many.places.remove(&guard.range, number);
        if many.held.is_empty() {
            self.many = None;
        }
        Some(guard.range)
    }

    /// Whether a guard has a byte of `range`, and was entered at a moment that is `awaited`.
    #[inline]
    pub(crate) fn any(&self, range: &Range<usize>, awaited: impl Fn(u64) -> bool) -> bool {
        self.few.iter().any(|guard| meet(&guard.range, range) && awaited(guard.entered))
            || self.many.as_ref().is_some_and(|many| many.any(range, awaited))
    }

    pub(crate) fn append(&mut self, other: Self) {
        let many = other.many.into_iter().flat_map(|many| many.held.into_values());
        other.few.into_iter().chain(many).for_each(|guard| self.insert(guard));
    }
}

impl ManyGuards {
    #[cold]
    fn any(&self, range: &Range<usize>, awaited: impl Fn(u64) -> bool) -> bool {
        self.places.any(range, |number| self.held.get(&number).is_some_and(|guard| awaited(guard.entered)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
        one.start.max(other.start) < one.end.min(other.end)
    }

    proptest::proptest! {
        /// Against a list of all borrows, of which each question reads every one. Most steps want to read, and little
        /// is in their way, so that many cases fill the list, go on in the trees, and come back.
        #[test]
        fn the_table_answers_as_a_list_of_borrows_does(
            steps in proptest::collection::vec(proptest::prelude::any::<(u8, u8, u8, u8)>(), 0..200),
        ) {
            let mut table = Borrows::default();
            let mut list: Vec<(u64, Range<usize>, Access, Slot)> = Vec::new();
            for (what, start, len, slot) in steps {
                let (start, slot) = (usize::from(start % 96), Slot(usize::from(slot % 3)));
                let range = start..start + usize::from(len % 6);
                let access = if what % 4 == 0 { Access::Write } else { Access::Read };
                let writes = |access: Access| access == Access::Write;
                let hit = |one: &&(u64, Range<usize>, Access, Slot)| overlap(&one.1, &range);
                let conflict = list.iter().filter(hit).any(|one| writes(access) || writes(one.2));
                proptest::prop_assert_eq!(table.check(&range, access).is_err(), conflict);
                if let Err(Error::Conflict { held, held_range, .. }) = table.check(&range, access) {
                    proptest::prop_assert!(overlap(&held_range, &range) && (writes(access) || writes(held)));
                    proptest::prop_assert!(list.iter().any(|one| one.1 == held_range && one.2 == held));
                }
                let on_copy = list.iter().filter(hit).any(|one| one.3 == slot);
                proptest::prop_assert_eq!(table.check_copy(slot, &range).is_err(), on_copy);
                proptest::prop_assert_eq!(table.writes(&range), list.iter().filter(hit).any(|one| writes(one.2)));
                proptest::prop_assert_eq!(table.touches(&range), list.iter().any(|one| hit(&one)));
                if what % 5 == 0 && !list.is_empty() {
                    table.remove(list.swap_remove(usize::from(what) % list.len()).0);
                } else if !conflict && !range.is_empty() {
                    let next = table.next;
                    let id = table.insert(range.clone(), access, slot);
                    proptest::prop_assert_eq!(id, next);
                    list.push((id, range, access, slot));
                }
                proptest::prop_assert_eq!(table.is_empty(), list.is_empty());
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn guards_in_trees_answer_as_those_in_a_list(steps: Vec<(u8, u8, u8, u8)>) {
            let mut guards = LiveGuards::default();
            let mut list: Vec<Guard> = Vec::new();
            for (number, (what, start, len, moment)) in (0..).zip(steps) {
                let start = usize::from(start % 64);
                let range = start..start + 1 + usize::from(len % 8);
                let awaited = |entered: u64| entered < u64::from(moment);
                let expected = list.iter().any(|guard| overlap(&guard.range, &range) && awaited(guard.entered));
                proptest::prop_assert_eq!(guards.any(&range, awaited), expected);
                if what % 4 == 0 && !list.is_empty() {
                    let guard = list.swap_remove(usize::from(what) % list.len());
                    proptest::prop_assert_eq!(guards.remove(guard.number), Some(guard.range));
                    proptest::prop_assert_eq!(guards.remove(guard.number), None);
                } else {
                    let guard = Guard { number, entered: u64::from(moment), range };
                    guards.insert(guard.clone());
                    list.push(guard);
                }
                proptest::prop_assert_eq!(guards.is_empty(), list.is_empty());
                if what == 1 {
                    let mut joined = LiveGuards::default();
                    joined.append(guards);
                    guards = joined;
                }
            }
        }
    }

    /// Counted, not timed: how many guards a question looks at.
    #[test]
    fn a_question_looks_at_the_guards_in_the_way_alone() {
        let mut guards = LiveGuards::default();
        for number in 0..100_000 {
            let start = number as usize * 8;
            guards.insert(Guard { number, entered: number, range: start..start + 8 });
        }
        assert_eq!(guards.few.len(), FEW);
        let asked = std::cell::Cell::new(0);
        for at in [400, 50_000, 99_999] {
            let range = at * 8..at * 8 + 12;
            asked.set(0);
            assert!(!guards.any(&range, |_| {
                asked.set(asked.get() + 1);
                false
            }));
            assert_eq!(asked.get(), if at == 99_999 { 1 } else { 2 });
        }
        // A guard that comes and goes reaches no tree, once there is room in the list.
        let in_trees = |guards: &LiveGuards| guards.many.as_ref().map_or(0, |many| many.held.len());
        let mut trees = None;
        for number in 100_000..100_100 {
            guards.insert(Guard { number, entered: number, range: 0..8 });
            assert_eq!(in_trees(&guards), *trees.get_or_insert(in_trees(&guards)));
            guards.remove(number);
            assert_eq!(Some(in_trees(&guards)), trees);
        }
        for number in 0..100_000 {
            assert!(guards.remove(number).is_some());
        }
        assert!(guards.is_empty());
    }
}
