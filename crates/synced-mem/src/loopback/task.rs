//! The entries of a loopback queue: work on bytes with the performance, and waits.
//! Relies on the contracts of `Queue::upload` and `Queue::download` for the host bytes that pending work points to;
//! device bytes come from `memory`, by safe code. Knows no order.

use std::ptr::NonNull;

use super::kernel::Launch;
use super::memory::{Memory, POISON, Piece};
use crate::QueueId;

/// One place of a queue.
pub(super) enum Entry {
    Work(Task),
    /// Work that is broken off: the rest, and the message of the failure.
    Broken(Task, String),
    /// Ready when the other queue has done this many entries.
    Wait {
        other: QueueId,
        until: u64,
    },
}

/// One piece of work.
pub(super) enum Task {
    Upload {
        to: Piece,
        from: HostBytes,
    },
    Download {
        from: Piece,
        to: HostBytes,
    },
    /// An upload of bytes of its own, as many as the piece has.
    Put {
        to: Piece,
        bytes: Vec<u8>,
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

/// Host bytes that a pending upload reads, or a pending download writes.
pub(super) struct HostBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a pointer to plain bytes, which have no thread; by the contract of `new` the task that holds it may use
// them on the thread that runs the task.
unsafe impl Send for HostBytes {}

impl HostBytes {
    /// # Safety
    /// Until this value is dropped, the `len` bytes at `start` may be used from any thread: for an upload they are
    /// readable and do not change, for a download they are writable and have no other user.
    pub(super) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len }
    }

    /// For the upload that this was made for.
    fn read(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len, "a task is made with equal lengths");
        // SAFETY: by the contract of `new` the source is readable and stable; the target is a unique borrow of as many
        // bytes, and so cannot overlap bytes that another may read.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr(), to.as_mut_ptr(), self.len) }
    }

    /// For the download that this was made for; poison in the place of bytes that are gone.
    fn write(&self, from: Option<&[u8]>) {
        assert!(from.is_none_or(|from| from.len() == self.len), "a task is made with equal lengths");
        let start = self.start.as_ptr();
        if let Some(from) = from {
            // SAFETY: by the contract of `new` the target is writable and ours alone, so it overlaps no borrowed slice;
            // the source is a borrow of as many bytes.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), start, self.len) }
        } else {
            // SAFETY: by the contract of `new`, for a download, the `len` bytes at `start` are writable and have no
            // other user until this value is dropped.
            unsafe { start.write_bytes(POISON, self.len) }
        }
    }
}

impl Task {
    /// The same work, ending half-way, with `message` as the reason. A kernel does not even begin.
    pub(super) fn broken_off(self, message: String) -> Entry {
        let half = match self {
            Task::Upload { to, mut from } => {
                from.len /= 2;
                Task::Upload { to: to.first(from.len), from }
            }
            Task::Download { from, mut to } => {
                to.len /= 2;
                Task::Download { from: from.first(to.len), to }
            }
            Task::Put { to, bytes } => Task::Put { to: to.first(bytes.len() / 2), bytes },
            Task::Copy { to, from } => {
                let len = to.range.len() / 2;
                Task::Copy { to: to.first(len), from: from.first(len) }
            }
            Task::Fill(piece) => Task::Fill(piece.first(piece.range.len() / 2)),
            Task::Launch(launch) => return Entry::Work(Task::Launch(launch.broken_off(message))),
            Task::Free(_) => return Entry::Work(self),
        };
        Entry::Broken(half, message)
    }

    /// The same work, with the host bytes of an upload read now.
    pub(super) fn with_own_bytes(self) -> Self {
        let Task::Upload { to, from } = self else {
            return self;
        };
        let mut bytes = vec![0; from.len];
        from.read(&mut bytes);
        Task::Put { to, bytes }
    }

    /// Performs work other than a kernel.
    pub(super) fn perform(self, memory: &mut Memory) {
        match self {
            Task::Upload { to, from } => {
                if let Some(bytes) = memory.write(&to) {
                    from.read(bytes);
                }
            }
            Task::Download { from, to } => to.write(memory.read(&from)),
            Task::Put { to, bytes } => {
                if let Some(out) = memory.write(&to) {
                    out.copy_from_slice(&bytes[..out.len()]);
                }
            }
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
