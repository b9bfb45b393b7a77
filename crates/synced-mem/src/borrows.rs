//! The live borrows of a shared memory: which byte ranges, for what, on which copy.
//! Pure bookkeeping. No entry is empty, and no writer overlaps another entry, on whichever copies the two are.

use std::ops::Range;

use crate::replicas::Slot;
use crate::{Access, Error};

#[derive(Default)]
pub(crate) struct Borrows {
    held: Vec<Borrow>,
    next: u64,
    /// How many threads wait for a borrow to end. Waking nobody would cost a system call.
    pub(crate) waiting: usize,
}

struct Borrow {
    id: u64,
    range: Range<usize>,
    access: Access,
    slot: Slot,
}

impl Borrow {
    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.range.start.max(range.start) < self.range.end.min(range.end)
    }

    fn in_the_way(&self, wanted: Access, wanted_range: &Range<usize>) -> Error {
        Error::Conflict {
            wanted,
            wanted_range: wanted_range.clone(),
            held: self.access,
            held_range: self.range.clone(),
        }
    }
}

impl Borrows {
    /// Whether this borrow may be added. Time linear in the number of live borrows.
    pub(crate) fn check(&self, range: &Range<usize>, access: Access) -> Result<(), Error> {
        let conflicts = |held: &&Borrow| {
            (access == Access::Write || held.access == Access::Write) && held.overlaps(range)
        };
        match self.held.iter().find(conflicts) {
            None => Ok(()),
            Some(held) => Err(held.in_the_way(access, range)),
        }
    }

    /// Whether nobody borrows any of `range` on this copy, so that it may be given up there.
    pub(crate) fn check_copy(&self, slot: Slot, range: &Range<usize>) -> Result<(), Error> {
        let on_copy = |held: &&Borrow| held.slot == slot && held.overlaps(range);
        match self.held.iter().find(on_copy) {
            None => Ok(()),
            Some(held) => Err(held.in_the_way(Access::Write, range)),
        }
    }

    /// Whether somebody may be writing some of `range`.
    pub(crate) fn writes(&self, range: &Range<usize>) -> bool {
        let writes = |held: &Borrow| held.access == Access::Write && held.overlaps(range);
        self.held.iter().any(writes)
    }

    /// Whether somebody borrows some of `range`.
    pub(crate) fn touches(&self, range: &Range<usize>) -> bool {
        self.held.iter().any(|held| held.overlaps(range))
    }

    /// The number that the next [`insert`](Self::insert) returns.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Enters a borrow that has been checked.
    pub(crate) fn insert(&mut self, range: Range<usize>, access: Access, slot: Slot) -> u64 {
        let id = self.next;
        self.next += 1;
        self.held.push(Borrow {
            id,
            range,
            access,
            slot,
        });
        id
    }

    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(index) = self.held.iter().position(|held| held.id == id) {
            self.held.swap_remove(index);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}
