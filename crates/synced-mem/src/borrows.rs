//! The live borrows of a shared memory: which byte ranges, for what, on which copy.
//! Pure bookkeeping over `intervals`. No entry is empty, and no writer overlaps another entry, on whichever copies the
//! two are. With n live borrows on c copies a question costs O(c log n), a change O(log n).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::intervals::Intervals;
use crate::replicas::Slot;
use crate::{Access, Error};

#[derive(Default)]
pub(crate) struct Borrows {
    held: BTreeMap<u64, Borrow>,
    /// By slot.
    copies: Vec<OnCopy>,
    next: u64,
    /// How many threads wait for a borrow to end. Waking nobody would cost a system call.
    pub(crate) waiting: usize,
}

struct Borrow {
    range: Range<usize>,
    access: Access,
    slot: Slot,
}

/// The borrows on one copy.
#[derive(Default)]
struct OnCopy {
    readers: Intervals,
    writers: Intervals,
}

impl OnCopy {
    /// One of those that overlap `range`.
    fn any(&self, range: &Range<usize>) -> Option<u64> {
        self.writers
            .find(range)
            .or_else(|| self.readers.find(range))
    }

    fn of(&mut self, access: Access) -> &mut Intervals {
        match access {
            Access::Read => &mut self.readers,
            Access::Write => &mut self.writers,
        }
    }
}

impl Borrows {
    /// Whether this borrow may be added.
    pub(crate) fn check(&self, range: &Range<usize>, access: Access) -> Result<(), Error> {
        let mut in_the_way = self.copies.iter().filter_map(|copy| match access {
            Access::Read => copy.writers.find(range),
            Access::Write => copy.any(range),
        });
        self.refuse(in_the_way.next(), range, access)
    }

    /// Whether nobody borrows any of `range` on this copy, so that it may be given up there.
    pub(crate) fn check_copy(&self, slot: Slot, range: &Range<usize>) -> Result<(), Error> {
        let copy = self.copies.get(slot.0);
        self.refuse(copy.and_then(|copy| copy.any(range)), range, Access::Write)
    }

    /// Whether somebody may be writing some of `range`.
    pub(crate) fn writes(&self, range: &Range<usize>) -> bool {
        let mut copies = self.copies.iter();
        copies.any(|copy| copy.writers.find(range).is_some())
    }

    /// Whether somebody borrows some of `range`.
    pub(crate) fn touches(&self, range: &Range<usize>) -> bool {
        self.copies.iter().any(|copy| copy.any(range).is_some())
    }

    fn refuse(&self, id: Option<u64>, range: &Range<usize>, wanted: Access) -> Result<(), Error> {
        match id.and_then(|id| self.held.get(&id)) {
            None => Ok(()),
            Some(held) => Err(Error::Conflict {
                wanted,
                wanted_range: range.clone(),
                held: held.access,
                held_range: held.range.clone(),
            }),
        }
    }

    /// Enters a borrow that has been checked.
    pub(crate) fn insert(&mut self, range: Range<usize>, access: Access, slot: Slot) -> u64 {
        let id = self.next;
        self.next += 1;
        if self.copies.len() <= slot.0 {
            self.copies.resize_with(slot.0 + 1, OnCopy::default);
        }
        self.copies[slot.0].of(access).insert(range.clone(), id);
        let borrow = Borrow {
            range,
            access,
            slot,
        };
        self.held.insert(id, borrow);
        id
    }

    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(held) = self.held.remove(&id) {
            let copy = &mut self.copies[held.slot.0];
            copy.of(held.access).remove(&held.range, id);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
        one.start.max(other.start) < one.end.min(other.end)
    }

    proptest::proptest! {
        /// Against a list of all borrows, of which each question reads every one.
        #[test]
        fn the_table_answers_as_a_list_of_borrows_does(steps: Vec<(u8, u8, u8, u8)>) {
            let mut table = Borrows::default();
            let mut list: Vec<(u64, Range<usize>, Access, Slot)> = Vec::new();
            for (what, start, len, slot) in steps {
                let (start, slot) = (usize::from(start % 24), Slot(usize::from(slot % 3)));
                let range = start..start + usize::from(len % 6);
                let access = if what % 2 == 0 { Access::Read } else { Access::Write };
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
}
