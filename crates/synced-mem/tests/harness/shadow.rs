//! What every byte of a memory should be, and which step of which thread wrote it last.
//! It relies on the memory's own borrows: who writes a cell holds its bytes for writing, who compares holds them for
//! reading. Were these broken, the cells are atomic, so that a difference is found and nothing is undefined.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::op::Intent;

/// A step of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By {
    pub(crate) thread: usize,
    pub(crate) step: u64,
}

/// A byte that may be anything, because a failure cut its writing short.
const UNKNOWN: u64 = 1 << 8;

pub(crate) struct Shadow {
    /// The byte, whether it is unknown, and from bit 16 on who wrote it: 8 bits of thread, 40 of step.
    cells: Vec<AtomicU64>,
}

/// What some bytes should be, as it was at a moment.
#[derive(Clone)]
pub(crate) struct Expected {
    start: usize,
    cells: Vec<u64>,
}

impl Shadow {
    pub(crate) fn zeros(len: usize) -> Self {
        Self { cells: (0..len).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The bytes of an origin.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { cells: bytes.iter().map(|byte| AtomicU64::new(u64::from(*byte))).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    /// `bytes` have been written from `at` on.
    pub(crate) fn write(&self, at: usize, bytes: &[u8], by: By) {
        let writer = (by.thread as u64) << 16 | by.step << 24;
        for (cell, byte) in self.cells[at..].iter().zip(bytes) {
            cell.store(u64::from(*byte) | writer, Ordering::SeqCst);
        }
    }

    /// The bytes of a write to `range` in a step: others in each step, and at each place. A write leaves some as they
    /// were; an overwrite does not know them.
    pub(crate) fn next(&self, range: &Range<usize>, intent: Intent, by: By) -> Vec<u8> {
        let cells = self.cells[range.clone()].iter().zip(range.clone());
        let next = cells.map(|(cell, place)| {
            let old = cell.load(Ordering::SeqCst);
            if intent == Intent::Write && old & UNKNOWN == 0 && (place as u64 + by.step).is_multiple_of(3) {
                return old as u8;
            }
            let path = (by.thread as u64) << 56 | by.step << 32 | place as u64;
            (path.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8
        });
        next.collect()
    }

    /// `range` may be anything from now on.
    pub(crate) fn forget(&self, range: Range<usize>) {
        for cell in &self.cells[range] {
            cell.fetch_or(UNKNOWN, Ordering::SeqCst);
        }
    }

    pub(crate) fn expected(&self, range: Range<usize>) -> Expected {
        let cells = self.cells[range.clone()].iter();
        Expected { start: range.start, cells: cells.map(|cell| cell.load(Ordering::SeqCst)).collect() }
    }

    /// From `at` on it is what another memory is.
    pub(crate) fn copy(&self, at: usize, from: &Expected) {
        for (cell, value) in self.cells[at..].iter().zip(&from.cells) {
            cell.store(*value, Ordering::SeqCst);
        }
    }
}

impl Expected {
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    /// What is wrong with `found`, if anything is.
    pub(crate) fn difference(&self, found: &[u8]) -> Option<String> {
        if self.len() != found.len() {
            return Some(format!("{} bytes, not {}", found.len(), self.len()));
        }
        let is_wrong = |(cell, found): (&u64, &u8)| *cell & UNKNOWN == 0 && *cell as u8 != *found;
        let wrong = || self.cells.iter().zip(found).enumerate();
        let (index, (cell, byte)) = wrong().find(|(_, pair)| is_wrong(*pair))?;
        let count = wrong().filter(|(_, pair)| is_wrong(*pair)).count();
        let (place, writer) = (self.start + index, Writer(*cell));
        let right = *cell as u8;
        Some(format!(
            "byte {place} is {byte:#04x}, not {right:#04x}, {writer}; {count} bytes of {} are wrong",
            self.len()
        ))
    }
}

struct Writer(u64);

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 >> 16 {
            0 => f.write_str("which it was from the start"),
            by => write!(f, "which thread {} wrote in step {}", by & 0xFF, by >> 8),
        }
    }
}
