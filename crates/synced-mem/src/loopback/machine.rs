//! A loopback machine: its lock, and how its work runs: what the mode runs after a call, and what a synchronisation
//! needs. It relies on `schedule` for the order, and on `turns` to say when a thread would wait for itself. The lock is
//! held but for the run of a kernel; meanwhile other threads enqueue, and run what does not wait for it.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::schedule::{Kernels, State};
use super::task::{Entry, Task};
use super::turns::Turn;
use crate::QueueId;

/// When enqueued work runs. A kernel runs only within [`launch`](super::launch),
/// [`Queue::wait_for`](crate::Queue::wait_for) and [`Queue::synchronize`](crate::Queue::synchronize), which a memory
/// never calls with its lock held; other calls leave it, and what lies behind it on its queue, pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// At once, within the call that enqueues it.
    Immediate,
    /// Not before a queue is synchronised; and then only that queue's work and, transitively, what it waits for.
    Deferred,
    /// After every call, some tasks of some queues that are ready, drawn from this seed. The same calls with the same
    /// seed run in the same order, as long as one thread makes them.
    Random(u64),
}

/// The devices that share a lock.
pub(super) struct Machine {
    pub(super) mode: Mode,
    state: Mutex<State>,
    /// Signalled when a kernel has ended.
    ended: Condvar,
}

/// This thread would have to wait for a kernel that it runs itself.
pub(super) struct Deadlock;

impl Machine {
    pub(super) fn new(mode: Mode) -> Self {
        let seed = match mode {
            Mode::Random(seed) => seed,
            Mode::Immediate | Mode::Deferred => 0,
        };
        Self { mode, state: Mutex::new(State::new(seed)), ended: Condvar::new() }
    }

    /// Panics of kernels are caught within, so the state is whole even if the lock is poisoned.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs what the mode runs after an entry got a position of a queue. Fails where this thread would have to wait for
    /// a kernel that it runs; the entry is pending then. With [`Kernels::Leave`] it waits for nothing and cannot fail.
    pub(super) fn after_call<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        queue: QueueId,
        position: u64,
        kernels: Kernels,
    ) -> Result<MutexGuard<'a, State>, Deadlock> {
        match self.mode {
            Mode::Immediate => self.run_until(state, queue, position + 1, kernels),
            Mode::Deferred => Ok(state),
            Mode::Random(_) => Ok(self.run_some(state, kernels)),
        }
    }

    /// Runs everything that the queue carries and waits for.
    pub(super) fn run_all<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        queue: QueueId,
    ) -> Result<MutexGuard<'a, State>, Deadlock> {
        if let Mode::Random(_) = self.mode {
            state = self.run_some(state, Kernels::Run);
        }
        let tail = state.lane(queue).tail();
        self.run_until(state, queue, tail, Kernels::Run)
    }

    /// Runs a queue up to a position, and before each wait what it waits for, and nothing else. An entry waits only for
    /// entries older than itself, so this ends, as far as the kernels do.
    fn run_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        queue: QueueId,
        until: u64,
        kernels: Kernels,
    ) -> Result<MutexGuard<'a, State>, Deadlock> {
        let mut goals = vec![(queue, until)];
        while let Some(&(queue, until)) = goals.last() {
            if state.done(queue) >= until {
                goals.pop();
                continue;
            }
            let lane = state.lane(queue);
            if lane.is_left(kernels) {
                break;
            } else if let Some(turn) = lane.running {
                state = self.await_end(state, turn)?;
            } else if let Some(goal) = state.obstacle(queue) {
                goals.push(goal);
            } else {
                state = self.step(state, queue);
            }
        }
        Ok(state)
    }

    fn await_end<'a>(&'a self, state: MutexGuard<'a, State>, turn: Turn) -> Result<MutexGuard<'a, State>, Deadlock> {
        if !turn.await_end() {
            return Err(Deadlock);
        }
        let state = self.ended.wait(state);
        Turn::awaited();
        Ok(state.unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a random number of entries, each of a random queue among those that are ready.
    fn run_some<'a>(&'a self, mut state: MutexGuard<'a, State>, kernels: Kernels) -> MutexGuard<'a, State> {
        for _ in 0..state.draw_count() {
            let Some(chosen) = state.draw(kernels) else {
                break;
            };
            state = self.step(state, chosen);
        }
        state
    }

    /// Runs the next entry of a queue, which is ready.
    fn step<'a>(&'a self, mut state: MutexGuard<'a, State>, queue: QueueId) -> MutexGuard<'a, State> {
        let result = match state.lane(queue).pending.pop_front() {
            Some(Entry::Work(Task::Launch(mut launch))) => {
                launch.load(&mut state.memory);
                let turn = Turn::begin();
                state.lane(queue).running = Some(turn);
                drop(state);
                let ran = launch.run();
                state = self.state();
                turn.end();
                state.lane(queue).running = None;
                self.ended.notify_all();
                ran.store(&mut state.memory)
            }
            Some(Entry::Work(task)) => {
                task.perform(&mut state.memory);
                Ok(())
            }
            Some(Entry::Broken(task, message)) => {
                task.perform(&mut state.memory);
                Err(message)
            }
            Some(Entry::Wait { other, until }) => state.inherit(other, until),
            None => return state,
        };
        state.advance(queue, result);
        state
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("mode", &self.mode).finish_non_exhaustive()
    }
}
