//! A loopback machine: the lock, and the runs: the work that the mode runs after a call, and the work that a
//! synchronisation needs. Relies on `schedule` for the order. The lock is released for the run of a kernel;
//! meanwhile other threads enqueue, and run work that does not wait for the kernel. A kernel itself waits for no queue,
//! so no two can wait for each other.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::calls::Held;
use super::kernel::is_in_kernel;
use super::schedule::{Lane, State};
use super::task::{Entry, Task};
use crate::sync::Process;
use crate::{DeviceId, QueueId};

/// When enqueued work runs. A kernel runs only within [`launch`](super::launch),
/// [`Queue::wait_for`](crate::Queue::wait_for) and [`Queue::synchronize`](crate::Queue::synchronize), which a memory
/// never calls with a lock held; other calls leave the kernel, and the work behind on the queue, pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// At once, within the call that enqueues. A kernel that another kernel launches waits for the next call from
    /// outside that needs the result.
    Immediate,
    /// Not before a queue is synchronised; and then only that queue's work and, transitively, the work before each
    /// wait.
    Deferred,
    /// After every call, some tasks of some queues that are ready, drawn from this seed. The same calls with the same
    /// seed run in the same order, as long as made by one thread.
    Random(u64),
}

/// The devices that share a lock.
pub(super) struct Machine {
    pub(super) mode: Mode,
    /// The process whose threads may have the lock.
    pub(super) process: Process,
    state: Mutex<State>,
    /// Signalled when a kernel has ended, and when a transfer begins to be held, or is no longer.
    ended: Condvar,
}

impl Machine {
    pub(super) fn new(mode: Mode) -> Self {
        let seed = match mode {
            Mode::Random(seed) => seed,
            Mode::Immediate | Mode::Deferred => 0,
        };
        let process = Process::current();
        Self { mode, process, state: Mutex::new(State::new(seed)), ended: Condvar::new() }
    }

    /// Panics of kernels are caught within, so the state is whole even if the lock is poisoned. Panics itself in a
    /// forked process.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.process.expect_current();
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the mode's work after an entry got a position of a queue. In a kernel, nothing.
    pub(super) fn after_call<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        queue: QueueId,
        position: u64,
    ) -> MutexGuard<'a, State> {
        match self.mode {
            _ if is_in_kernel() => state,
            Mode::Immediate => self.run_until(state, queue, position + 1),
            Mode::Deferred => state,
            Mode::Random(_) => self.run_some(state, Lane::is_next),
        }
    }

    /// The same after a call whose caller may hold a lock that a kernel needs: kernels, and the work behind them, stay
    /// pending.
    pub(super) fn after_locked_call<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        queue: QueueId,
    ) -> MutexGuard<'a, State> {
        match self.mode {
            Mode::Immediate => {
                while state.is_ready(queue, Lane::is_next_without_kernel) {
                    state = self.step(state, queue);
                }
            }
            Mode::Random(_) => state = self.run_some(state, Lane::is_next_without_kernel),
            Mode::Deferred => {}
        }
        state
    }

    /// The next staged transfer of a device waits from now on, before anything of it is done. Gives the number of the
    /// hold.
    pub(super) fn hold(&self, device: DeviceId) -> u64 {
        let mut state = self.state();
        let holds = &mut state.account(device).holds;
        let number = holds.last().map_or(0, |last| last.number + 1);
        holds.push(Held { number, has_begun: false });
        number
    }

    /// Lets the transfer of a hold go on.
    pub(super) fn release(&self, device: DeviceId, number: u64) {
        self.state().account(device).holds.retain(|held| held.number != number);
        self.ended.notify_all();
    }

    /// Whether a transfer comes to be held by a hold within some time.
    pub(super) fn is_held_within(&self, device: DeviceId, number: u64, patience: Duration) -> bool {
        let waited = self.ended.wait_timeout_while(self.state(), patience, |state| {
            let holds = &state.account(device).holds;
            !holds.iter().any(|held| held.number == number && held.has_begun)
        });
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// A staged transfer begins: waits while it is held.
    pub(super) fn while_held<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        device: DeviceId,
    ) -> MutexGuard<'a, State> {
        let mut holds = state.account(device).holds.iter_mut();
        let Some(held) = holds.find(|held| !held.has_begun) else {
            return state;
        };
        held.has_begun = true;
        let number = held.number;
        self.ended.notify_all();
        let released =
            self.ended.wait_while(state, |state| state.account(device).holds.iter().any(|held| held.number == number));
        released.unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs everything that the queue carries and waits for.
    pub(super) fn run_all<'a>(&'a self, mut state: MutexGuard<'a, State>, queue: QueueId) -> MutexGuard<'a, State> {
        if let Mode::Random(_) = self.mode {
            state = self.run_some(state, Lane::is_next);
        }
        let tail = state.lane(queue).tail();
        self.run_until(state, queue, tail)
    }

    /// Runs a queue up to a position, and before each wait the other queue's work, and nothing else. An entry waits
    /// only for entries older than itself, so this ends, as far as the kernels do.
    pub(super) fn run_until<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        queue: QueueId,
        until: u64,
    ) -> MutexGuard<'a, State> {
        let mut goals = vec![(queue, until)];
        while let Some(&(queue, until)) = goals.last() {
            if state.done(queue) >= until {
                goals.pop();
            } else if state.lane(queue).is_running {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if let Some(goal) = state.obstacle(queue) {
                goals.push(goal);
            } else {
                state = self.step(state, queue);
            }
        }
        state
    }

    /// Runs a random number of entries, each of a random queue among those that are ready.
    fn run_some<'a>(&'a self, mut state: MutexGuard<'a, State>, may_run: fn(&Lane) -> bool) -> MutexGuard<'a, State> {
        for _ in 0..state.draw_count() {
            let Some(chosen) = state.draw(may_run) else {
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
                state.lane(queue).is_running = true;
                drop(state);
                let ran = launch.run();
                state = self.state();
                state.lane(queue).is_running = false;
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
