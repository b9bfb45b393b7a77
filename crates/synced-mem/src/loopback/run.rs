//! How the work of a machine runs: what the mode runs after a call, and what a synchronisation needs.
//! It relies on `machine` for what is pending and in which order, and on `turns` to say when a thread would wait for itself.
//! The lock is held but for the run of a kernel; meanwhile other threads enqueue, and run what does not wait for it.

use std::sync::{MutexGuard, PoisonError};

use super::Mode;
use super::Operation;
use super::machine::{Entry, Machine, State};
use super::task::Task;
use super::turns::Turn;
use crate::{DeviceId, Error, QueueId};

/// This thread would have to wait for a kernel that it runs itself.
pub(super) struct Deadlock;

/// Why a synchronisation fails.
pub(super) enum Failure {
    Deadlock,
    /// Some work has failed.
    Lost(String),
}

impl From<Deadlock> for Failure {
    fn from(_: Deadlock) -> Self {
        Failure::Deadlock
    }
}

impl Failure {
    pub(super) fn error(self, device: DeviceId, queue: QueueId, operation: Operation) -> Error {
        match self {
            Failure::Deadlock => Error::deadlock(queue, operation.name()),
            Failure::Lost(message) => Error::device(device, operation.name(), message),
        }
    }
}

impl Machine {
    /// Appends to a queue and runs what the mode runs now; says which position it got. Fails where this thread would have
    /// to wait for a kernel that it runs; the entry is pending then.
    pub(super) fn enqueue<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        queue: QueueId,
        entry: Entry,
    ) -> Result<u64, Deadlock> {
        let position = state.append(queue, entry);
        match self.mode() {
            Mode::Immediate => drop(self.run_until(state, queue, position + 1)?),
            Mode::Deferred => {}
            Mode::Random(_) => drop(self.run_some(state)),
        }
        Ok(position)
    }

    /// Runs everything that the queue carries and waits for; fails, now and always, if some of it failed.
    pub(super) fn synchronize<'a>(&'a self, mut state: MutexGuard<'a, State>, queue: QueueId) -> Result<(), Failure> {
        if let Mode::Random(_) = self.mode() {
            state = self.run_some(state);
        }
        let tail = state.lane(queue).tail();
        self.run_until(state, queue, tail)?.failure(queue).map_err(Failure::Lost)
    }

    /// Runs a queue up to a position, and before each wait what it waits for, and nothing else. An entry waits only for
    /// entries older than itself, so this ends, as far as the kernels do.
    fn run_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        queue: QueueId,
        until: u64,
    ) -> Result<MutexGuard<'a, State>, Deadlock> {
        let mut goals = vec![(queue, until)];
        while let Some(&(queue, until)) = goals.last() {
            if state.done(queue) >= until {
                goals.pop();
            } else if let Some(turn) = state.running(queue) {
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
    fn run_some<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        for _ in 0..state.draw_count() {
            let Some(chosen) = state.draw() else {
                break;
            };
            state = self.step(state, chosen);
        }
        state
    }

    /// Runs the next entry of a queue, which is ready.
    fn step<'a>(&'a self, mut state: MutexGuard<'a, State>, queue: QueueId) -> MutexGuard<'a, State> {
        let result = match state.lane(queue).pending.pop_front() {
            Some(Entry::Work(Task::Launch(launch))) => {
                let kernel = launch.load(&mut state.memory);
                let turn = Turn::begin();
                state.lane(queue).running = Some(turn);
                drop(state);
                let ran = kernel.run();
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
