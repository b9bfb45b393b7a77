//! The entries of a loopback queue: work on bytes with the performance, and waits.
//! All bytes come from `memory`, by safe code. Knows no order.

use super::kernel::Launch;
use super::memory::{HostBytes, Memory, Piece};
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

impl Task {
    /// The same work, ending half-way, with `message` as the reason. A kernel does not even begin.
    pub(super) fn broken_off(self, message: String) -> Entry {
        let half = match self {
            Task::Upload { to, mut from } => Task::Upload { to: to.first(from.halve()), from },
            Task::Download { from, mut to } => Task::Download { from: from.first(to.halve()), to },
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
        let mut bytes = vec![0; from.len()];
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
