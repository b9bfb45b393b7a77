//! What a loopback queue carries: work on bytes, and how it is performed.
//! It relies on the contracts of `Queue::upload` and `Queue::download` for the host bytes that pending work points to;
//! device bytes come from `memory`, by safe code. It knows no order.

use std::ptr::NonNull;

use super::kernel::Launch;
use super::machine::Entry;
use super::memory::{Memory, POISON, Piece};

/// One piece of work.
pub(super) enum Task {
    Upload {
        to: Piece,
        from: HostSource,
    },
    Download {
        from: Piece,
        to: HostTarget,
    },
    Copy {
        to: Piece,
        from: Piece,
    },
    Fill(Piece),
    /// Frees the slot at this address.
    Free(u64),
    Launch(Launch),
}

/// Host bytes that a pending upload reads.
pub(super) struct HostSource {
    start: NonNull<u8>,
    len: usize,
}

/// Host bytes that a pending download writes.
pub(super) struct HostTarget {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a `HostSource` is a pointer to plain bytes, which have no thread; by the contract of `new` they may be read
// by whichever thread runs the task.
unsafe impl Send for HostSource {}
// SAFETY: as for `HostSource`, with the contract of `HostTarget::new`.
unsafe impl Send for HostTarget {}

impl HostSource {
    /// # Safety
    /// Until this value is dropped, the `len` bytes at `start` are readable from any thread and nobody changes them.
    pub(super) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    fn read(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len, "a task is made with equal lengths");
        // SAFETY: by the contract of `new` the source is readable and stable; the target is a unique borrow of as many
        // bytes, and so cannot overlap bytes that somebody else may read.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr(), to.as_mut_ptr(), self.len) }
    }
}

impl HostTarget {
    /// # Safety
    /// Until this value is dropped, the `len` bytes at `start` are writable from any thread and nobody else uses them.
    pub(super) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    fn write(&self, from: &[u8]) {
        assert_eq!(from.len(), self.len, "a task is made with equal lengths");
        // SAFETY: by the contract of `new` the target is writable and ours alone, so it overlaps no borrowed slice; the
        // source is a borrow of as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.as_ptr(), self.len) }
    }

    fn poison(&self) {
        // SAFETY: as in `write`.
        unsafe { self.start.as_ptr().write_bytes(POISON, self.len) }
    }
}

impl Task {
    /// It, ending half-way; `message` says why. A kernel does not even begin.
    pub(super) fn broken_off(self, message: String) -> Entry {
        let half = match self {
            Task::Upload { to, mut from } => {
                from.len /= 2;
                let to = to.first(from.len);
                Task::Upload { to, from }
            }
            Task::Download { from, mut to } => {
                to.len /= 2;
                let from = from.first(to.len);
                Task::Download { from, to }
            }
            Task::Copy { to, from } => {
                let len = to.range.len() / 2;
                let (to, from) = (to.first(len), from.first(len));
                Task::Copy { to, from }
            }
            Task::Fill(piece) => Task::Fill(piece.first(piece.range.len() / 2)),
            Task::Launch(launch) => return Entry::Work(Task::Launch(launch.broken_off(message))),
            Task::Free(_) => return Entry::Work(self),
        };
        Entry::Broken(half, message)
    }

    /// Performs what is no kernel.
    pub(super) fn perform(self, memory: &mut Memory) {
        match self {
            Task::Upload { to, from } => {
                if let Some(bytes) = memory.write(&to) {
                    from.read(bytes);
                }
            }
            Task::Download { from, to } => match memory.read(&from) {
                Some(bytes) => to.write(bytes),
                None => to.poison(),
            },
            Task::Copy { to, from } => memory.copy(&to, &from),
            Task::Fill(piece) => {
                if let Some(bytes) = memory.write(&piece) {
                    bytes.fill(0);
                }
            }
            Task::Free(slot) => memory.free(slot),
            Task::Launch(_) => unreachable!("a kernel runs unlocked"),
        }
    }
}
