//! How an operation on a memory runs: it is decided, entered and enqueued under the lock, and waited for outside it.
//!
//! An operation is a step that is taken under the lock. Where it needs a queue to have finished something it stops and
//! says so; the lock is released, the queue waited for, and the step taken again from its start. So nothing that was
//! found before a wait is believed after it, and what a step concludes, it concludes under one lock.
//! It relies on `uses` to end by a wait only what was entered before it. It decides nothing about bytes.

use std::mem;
use std::sync::PoisonError;

use crate::coherence::uses::Waited;
use crate::engine::copies::FreedBlock;
use crate::engine::events::Pending;
use crate::engine::queue::QueueHandle;
use crate::engine::state::State;
use crate::engine::waits::{Stop, Wait};
use crate::error::Error;
use crate::sync::{Mutex, MutexGuard};

/// What is to be waited for, as it was decided under the lock.
struct WaitPlan {
    by: Option<QueueHandle>,
    began: u64,
    /// Each queue, and whether it is known to have failed: then the host waits, since a queue that waited would fail
    /// too.
    queues: Vec<(QueueHandle, bool)>,
}

/// A wait that has ended.
struct EndedWait {
    by: Option<QueueHandle>,
    began: u64,
    /// Each queue, and whether the host has synchronised it.
    finished: Vec<(QueueHandle, bool)>,
    failed: Option<Failure>,
}

struct Failure {
    queue: QueueHandle,
    error: Error,
    kind: FailureKind,
}

enum FailureKind {
    /// The queue was known to have failed before.
    Known,
    /// The queue failed again when it was asked again.
    Lasting,
    /// The queue worked when it was asked again.
    Once,
    /// The queue works, but this thread cannot wait for it.
    Deadlock,
}

enum Next<R, L> {
    Done(Result<R, Error>, L),
    Wait(WaitPlan),
}

/// What an operation leaves to do, after it has ended.
enum Followup {
    /// Only user code.
    Tell(Pending),
    /// Ranges to merge, memory to give back.
    Tidy,
}

impl WaitPlan {
    /// Waits. The lock is not held.
    fn perform(self) -> EndedWait {
        let WaitPlan { by, began, queues } = self;
        let (mut finished, mut failed) = (Vec::new(), None);
        for (queue, was_known) in queues {
            let waiter = by.as_ref().filter(|_| !was_known);
            let done = match waiter {
                None => queue.synchronize(),
                Some(by) => by.wait_for(&queue),
            };
            if let Err(error) = done {
                let kind = match error {
                    Error::Deadlock { .. } => FailureKind::Deadlock,
                    _ if was_known => FailureKind::Known,
                    _ if lasts(&queue, if waiter.is_some() { 2 } else { 1 }) => FailureKind::Lasting,
                    _ => FailureKind::Once,
                };
                failed = Some(Failure { queue, error, kind });
                break;
            }
            finished.push((queue, waiter.is_none()));
        }
        EndedWait { by, began, finished, failed }
    }
}

/// Whether a queue fails every time that it is asked, this many times.
fn lasts(queue: &QueueHandle, times: usize) -> bool {
    let fails = |_| matches!(queue.synchronize(), Err(error) if !matches!(error, Error::Deadlock { .. }));
    (0..times).all(fails)
}

/// What leads to a state: its lock, or a reference.
pub(crate) trait WithState {
    /// Runs `step` while nothing else changes the state.
    fn with<R>(&mut self, step: impl FnOnce(&mut State) -> R) -> R;
}

/// Entered even when poisoned: a state changes only after its action succeeded, so a panic leaves a valid one.
impl WithState for &Mutex<State> {
    fn with<R>(&mut self, step: impl FnOnce(&mut State) -> R) -> R {
        step(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl WithState for &mut State {
    fn with<R>(&mut self, step: impl FnOnce(&mut State) -> R) -> R {
        step(self)
    }
}

/// A lock that is held already when the operation begins: what was found under it is still true in the first step.
/// Later steps take the lock again.
pub(crate) struct Locked<'a> {
    pub(crate) state: &'a Mutex<State>,
    pub(crate) lock: Option<MutexGuard<'a, State>>,
}

impl WithState for Locked<'_> {
    fn with<R>(&mut self, step: impl FnOnce(&mut State) -> R) -> R {
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        step(&mut self.lock.take().unwrap_or_else(lock))
    }
}

/// Runs one step under the lock, and what it left to do, which is user code, after the lock is released. Entered even
/// when poisoned: a state changes only after its action succeeded, so a panic leaves a valid one.
pub(crate) fn with_lock<R>(state: &Mutex<State>, step: impl FnOnce(&mut State) -> R) -> R {
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    let result = step(&mut state);
    let pending = state.take_pending();
    drop(state);
    if let Some(pending) = pending {
        pending.run();
    }
    result
}

/// Runs an operation to its end, and then what it left to do. `coalesce` keeps the sets of ranges bounded.
pub(crate) fn act<R>(
    mut memory: impl WithState,
    mut coalesce: impl FnMut(&mut State) -> Result<(), Stop>,
    mut step: impl FnMut(&mut State) -> Result<R, Stop>,
) -> Result<R, Error> {
    let (result, followup) = run(&mut memory, &mut step, State::followup);
    follow_up(&mut memory, followup, &mut coalesce);
    result
}

/// Gives back the memory of copies that hold no valid byte, and waits for the queues that use it.
pub(crate) fn shrink(mut memory: impl WithState) {
    for queue in memory.with(State::shrink) {
        housekeeping(&mut memory, &mut |state: &mut State| state.wait_at_first(vec![queue.clone()]));
    }
    let followup = memory.with(State::followup);
    follow_up(&mut memory, followup, &mut |_: &mut State| Ok(()));
}

fn follow_up(
    memory: &mut impl WithState,
    followup: Option<Followup>,
    coalesce: &mut impl FnMut(&mut State) -> Result<(), Stop>,
) {
    match followup {
        None => {}
        Some(Followup::Tell(pending)) => pending.run(),
        Some(Followup::Tidy) => tidy(memory, coalesce),
    }
}

#[cold]
fn tidy(memory: &mut impl WithState, coalesce: &mut impl FnMut(&mut State) -> Result<(), Stop>) {
    housekeeping(memory, coalesce);
    housekeeping(memory, &mut State::finish_retired);
    housekeeping(memory, &mut State::finish_oldest_users);
    loop {
        let freed = memory.with(State::take_freed);
        if freed.is_empty() {
            break;
        }
        for freed in freed {
            let finished = freed.finish_uses();
            memory.with(|state| state.end_block(freed, finished));
        }
    }
    if let Some(pending) = memory.with(State::take_pending) {
        pending.run();
    }
}

/// Takes a step that no access asked for. Its failure is counted and reported to the observer, not returned: the access
/// keeps what it got, and the next one takes the step again.
fn housekeeping(memory: &mut impl WithState, step: &mut impl FnMut(&mut State) -> Result<(), Stop>) {
    if let (Err(error), ()) = run(memory, step, |_| ()) {
        memory.with(|state| state.failed(error));
    }
}

/// Repeats a step until it needs no more wait; then runs `last`, under the same lock.
fn run<R, L>(
    memory: &mut impl WithState,
    step: &mut impl FnMut(&mut State) -> Result<R, Stop>,
    last: impl Fn(&mut State) -> L,
) -> (Result<R, Error>, L) {
    let mut waited = Waited::default();
    let mut ended: Option<EndedWait> = None;
    loop {
        let next = memory.with(|state| {
            if let Some(ended) = ended.take()
                && let Err(error) = state.resume(ended, &mut waited)
            {
                return Next::Done(Err(error), last(state));
            }
            state.waits.waited.take_over(&mut waited);
            let result = state.abandon_to_broken();
            let result = result.and_then(|()| step(state));
            waited.take_over(&mut state.waits.waited);
            match result {
                Ok(result) => Next::Done(Ok(result), last(state)),
                Err(Stop::Fail(error)) => Next::Done(Err(error), last(state)),
                Err(Stop::Wait(wait)) => Next::Wait(state.plan(wait)),
            }
        });
        match next {
            Next::Done(result, last) => return (result, last),
            Next::Wait(plan) => ended = Some(plan.perform()),
        }
    }
}

impl State {
    fn plan(&mut self, wait: Wait) -> WaitPlan {
        let Wait { by, queues } = wait;
        let known = queues.iter().map(|queue| self.waits.broken.has(queue)).collect::<Vec<_>>();
        let queues = queues.into_iter().zip(known).collect();
        let began = self.waits.clock.begin();
        WaitPlan { by, began, queues }
    }

    /// After a wait, successful or not: forgets what it has ended, and nothing else. A lasting failure is noted and the
    /// step taken again, since it may do without that queue; of a queue that was known to have failed, it could not.
    fn resume(&mut self, ended: EndedWait, waited: &mut Waited<QueueHandle>) -> Result<(), Error> {
        self.waits.clock.end(ended.began);
        for (queue, synchronized) in ended.finished {
            if synchronized {
                self.waits.broken.remove(&queue);
                self.wait_ended(&queue, ended.began);
            }
            waited.add(ended.by.clone(), queue, ended.began);
        }
        let Some(failure) = ended.failed else {
            return Ok(());
        };
        let Failure { queue, error, kind } = failure;
        match kind {
            FailureKind::Known => return Err(queue.named(&error)),
            FailureKind::Lasting => {
                self.queue_failed(&queue, &error);
                return Ok(());
            }
            FailureKind::Once if ended.by.is_none() => self.invalidate_after_error(&queue),
            FailureKind::Once | FailureKind::Deadlock => {}
        }
        Err(error)
    }

    /// The blocks that the tidying thread is to give back. Without any, tidying is over. That is decided under the lock
    /// under which they were looked for, because a thread that frees a block meanwhile leaves it to the tidying one.
    fn take_freed(&mut self) -> Vec<FreedBlock> {
        let freed = mem::take(&mut self.freed);
        self.is_tidying = !freed.is_empty();
        freed
    }

    /// One thread at a time tidies up, so that the others need not wait for the queues that it waits for.
    fn followup(&mut self) -> Option<Followup> {
        if self.is_untidy() && !self.is_tidying {
            self.is_tidying = true;
            return Some(Followup::Tidy);
        }
        self.take_pending().map(Followup::Tell)
    }
}
