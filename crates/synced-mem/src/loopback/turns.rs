//! Which thread runs which kernel, and who waits for its end, over all machines: so that a thread that would wait for
//! itself, through any number of others, gets an error and does not hang.
//! It relies on a thread to say what it waits for before it does. It sees no other way of waiting than that.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// One run of one kernel; no two have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Turn(u64);

#[derive(Default)]
struct Turns {
    next: u64,
    /// Where kernels run.
    runs: HashMap<Turn, ThreadId>,
    /// What threads wait for. An entry whose run is over means nothing.
    waits: HashMap<ThreadId, Turn>,
}

static TURNS: LazyLock<Mutex<Turns>> = LazyLock::new(Mutex::default);

fn turns() -> MutexGuard<'static, Turns> {
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turn {
    /// This thread is about to run a kernel.
    pub(super) fn begin() -> Self {
        let mut turns = turns();
        turns.next += 1;
        let turn = Turn(turns.next);
        turns.runs.insert(turn, thread::current().id());
        turn
    }

    /// The kernel has run.
    pub(super) fn end(self) {
        turns().runs.remove(&self);
    }

    /// This thread is about to wait for the end of a run; `false` when that run cannot end before this thread goes on.
    pub(super) fn await_end(self) -> bool {
        let mut turns = turns();
        let own = thread::current().id();
        let mut wanted = self;
        while let Some(runner) = turns.runs.get(&wanted) {
            if *runner == own {
                return false;
            }
            match turns.waits.get(runner) {
                Some(next) => wanted = *next,
                None => break,
            }
        }
        turns.waits.insert(own, self);
        true
    }

    /// This thread has stopped waiting.
    pub(super) fn awaited() {
        turns().waits.remove(&thread::current().id());
    }
}
