//! Detects races: records which thread accessed each byte last. Two accesses race if two threads make them, one
//! writes, and no barrier separates them. Blocks of a grid are never ordered; two atomic accesses do not race.
//! Of the readers, the last two are kept.

/// The accesses to one byte; thread 0 means no access.
#[derive(Clone, Copy, Default)]
pub(super) struct Cell {
    writer: Mark,
    readers: [Mark; 2],
    is_atomic: bool,
}

/// A thread, and the number of barriers before the access.
#[derive(Clone, Copy, Default, PartialEq)]
struct Mark {
    thread: u32,
    epoch: u16,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Atomic,
}

/// The thread that makes an access, and the barriers before.
#[derive(Clone, Copy)]
pub(super) struct Now {
    /// Counted over the launch from 1, block by block.
    pub(super) thread: u32,
    /// Threads of a block.
    pub(super) threads: u32,
    /// Counts the barriers of the thread's warp.
    pub(super) warp_epoch: u16,
    /// The value of that count at the block's last barrier.
    pub(super) block_epoch: u16,
}

impl Now {
    /// Whether an earlier access certainly ended before this one.
    fn is_after(&self, mark: Mark) -> bool {
        if mark.thread == 0 || mark.thread == self.thread {
            return true;
        }
        let place = |thread: u32| ((thread - 1) / self.threads, (thread - 1) % self.threads / 32);
        let ((block, warp), (my_block, my_warp)) = (place(mark.thread), place(self.thread));
        let epoch = if warp == my_warp { self.warp_epoch } else { self.block_epoch };
        block == my_block && mark.epoch < epoch
    }

    fn is_of_block(&self, mark: Mark) -> bool {
        mark.thread != 0 && (mark.thread - 1) / self.threads == (self.thread - 1) / self.threads
    }
}

impl Cell {
    /// Records an access, and returns the thread that it races with, if any.
    fn touch(&mut self, now: &Now, kind: Kind) -> Option<u32> {
        let mark = Mark { thread: now.thread, epoch: now.warp_epoch };
        let are_atomic = self.is_atomic && kind == Kind::Atomic;
        let written = (!are_atomic && !now.is_after(self.writer)).then_some(self.writer);
        if kind == Kind::Read {
            self.note_reader(now, mark);
            return written.map(|mark| mark.thread);
        }
        let read = self.readers.into_iter().find(|reader| !now.is_after(*reader));
        *self = Cell { writer: mark, readers: [Mark::default(); 2], is_atomic: kind == Kind::Atomic };
        written.or(read).map(|mark| mark.thread)
    }

    /// Keeps this reader and one other, if possible of another block, because barriers order only readers of the same
    /// block.
    fn note_reader(&mut self, now: &Now, mark: Mark) {
        let [last, other] = &mut self.readers;
        if last.thread != mark.thread {
            let is_foreign_kept = other.thread != 0 && !now.is_of_block(*other);
            if !(is_foreign_kept && now.is_of_block(*last)) {
                *other = *last;
            }
        }
        *last = mark;
    }
}

/// Records an access to several bytes, and returns the thread that it races with, if any.
pub(super) fn touch(cells: &mut [Cell], now: &Now, kind: Kind) -> Option<u32> {
    cells.iter_mut().fold(None, |found, cell| cell.touch(now, kind).or(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(thread: u32, warp_epoch: u16, block_epoch: u16) -> Now {
        Now { thread, threads: 64, warp_epoch, block_epoch }
    }

    /// The race of the last of these accesses to one byte.
    fn last(accesses: &[(Now, Kind)]) -> Option<u32> {
        let mut cell = [Cell::default()];
        accesses.iter().map(|(now, kind)| touch(&mut cell, now, *kind)).last().flatten()
    }

    #[test]
    fn two_threads_without_a_barrier_race_if_one_writes() {
        use Kind::{Atomic, Read, Write};
        for (first, second, is_race) in [
            (Read, Read, false),
            (Read, Write, true),
            (Write, Read, true),
            (Write, Write, true),
            (Atomic, Atomic, false),
            (Atomic, Read, true),
            (Write, Atomic, true),
            (Read, Atomic, true),
        ] {
            // Threads of one warp, of two warps, and of two blocks.
            for other in [2, 40, 70] {
                let found = last(&[(now(1, 1, 1), first), (now(other, 1, 1), second)]);
                assert_eq!(found, is_race.then_some(1), "{first:?} {second:?} {other}");
            }
            assert_eq!(last(&[(now(1, 1, 1), first), (now(1, 1, 1), second)]), None);
        }
    }

    #[test]
    fn a_barrier_orders_a_block_and_a_warps_own_one_warp() {
        use Kind::Write;
        let after = |other, warp_epoch, block_epoch| {
            last(&[(now(1, 1, 1), Write), (now(other, warp_epoch, block_epoch), Write)])
        };
        assert_eq!([after(2, 2, 1), after(40, 2, 1), after(40, 2, 2), after(70, 2, 2)], [None, Some(1), None, Some(1)]);
    }

    #[test]
    fn a_reader_of_another_block_is_not_forgotten() {
        use Kind::{Read, Write};
        let found = last(&[
            (now(70, 1, 1), Read),
            (now(1, 1, 1), Read),
            (now(2, 1, 1), Read),
            (now(3, 1, 1), Read),
            (now(4, 2, 2), Write),
        ]);
        assert_eq!(found, Some(70));
    }
}
