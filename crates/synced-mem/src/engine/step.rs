//! How an operation on a memory runs: it is decided, entered and enqueued under the lock, and waited for outside it.
//!
//! An operation is a step that is taken under the lock. Where it needs a queue to have finished something it stops and
//! says so; the lock is released, the queue waited for, and the step taken again from its start. So nothing that was
//! found before a wait is believed after it, and what a step concludes, it concludes under one lock.
//! It relies on `ordering` to end by a wait only what was entered before it. It decides nothing about bytes.

use std::mem;
use std::sync::PoisonError;

use crate::Error;
use crate::coherence::uses::Waited;
use crate::engine::copies::Line;
use crate::engine::events::Aftermath;
use crate::engine::state::State;
use crate::sync::{Mutex, MutexGuard};

/// Why a step ended before its aim.
pub(crate) enum Stop {
    Fail(Error),
    /// The step is to be taken again after this.
    Wait(Wait),
}

/// Waits to be made before the step can go on; `None` as the waiter is the host.
pub(crate) struct Wait {
    by: Option<Line>,
    queues: Vec<Line>,
}

/// What is to be waited for, as it was decided under the lock.
struct Plan {
    by: Option<Line>,
    began: u64,
    /// Each with whether it is known to have failed. No other queue is made to wait for such a one, since it would fail too.
    queues: Vec<(Line, bool)>,
}

/// A wait that has ended.
struct Over {
    by: Option<Line>,
    began: u64,
    /// Each with whether the host has synchronised it.
    finished: Vec<(Line, bool)>,
    failed: Option<Failure>,
}

struct Failure {
    line: Line,
    error: Error,
    kind: FailureKind,
}

enum FailureKind {
    /// The queue was known to have failed before.
    Known,
    /// It still failed when it was asked again.
    Lasting,
    /// It did not.
    Once,
    /// The queue works, but this thread cannot wait for it.
    Deadlock,
}

enum Next<R, L> {
    Done(Result<R, Error>, L),
    Wait(Plan),
}

/// What an operation leaves to do, after it has ended.
enum Rest {
    /// Only user code.
    Tell(Aftermath),
    /// Ranges to merge, memory to give back.
    Tidy,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Fail(error)
    }
}

impl Stop {
    /// Stops when there are queues to wait for.
    pub(crate) fn unless_waited(by: Option<&Line>, queues: Vec<Line>) -> Result<(), Stop> {
        if queues.is_empty() {
            return Ok(());
        }
        let by = by.cloned();
        Err(Stop::Wait(Wait { by, queues }))
    }
}

/// For what is nobody's error: a failure is no result, and a wait is still waited for.
pub(crate) fn unless_failed<R>(result: Result<R, Stop>) -> Result<Option<R>, Stop> {
    match result {
        Ok(result) => Ok(Some(result)),
        Err(Stop::Fail(_)) => Ok(None),
        Err(wait) => Err(wait),
    }
}

impl Plan {
    /// Waits. The lock is not held.
    fn perform(self) -> Over {
        let Plan { by, began, queues } = self;
        let (mut finished, mut failed) = (Vec::new(), None);
        for (line, was_known) in queues {
            let waiter = by.as_ref().filter(|_| !was_known);
            let done = match waiter {
                None => line.queue().synchronize(),
                Some(by) => by.queue().wait_for(&**line.queue()),
            };
            if let Err(error) = done {
                let kind = match error {
                    Error::Deadlock { .. } => FailureKind::Deadlock,
                    _ if was_known => FailureKind::Known,
                    _ if lasts(&line, if waiter.is_some() { 2 } else { 1 }) => FailureKind::Lasting,
                    _ => FailureKind::Once,
                };
                failed = Some(Failure { line, error, kind });
                break;
            }
            finished.push((line, waiter.is_none()));
        }
        Over { by, began, finished, failed }
    }
}

/// Whether a queue fails every time that it is asked, this many times.
fn lasts(line: &Line, times: usize) -> bool {
    let fails = |_| matches!(line.queue().synchronize(), Err(error) if !matches!(error, Error::Deadlock { .. }));
    (0..times).all(fails)
}

/// The way to a state.
pub(crate) trait Door {
    /// Runs `step` while nothing else changes the state.
    fn with<R>(&mut self, step: impl FnOnce(&mut State) -> R) -> R;
}

/// Entered even when poisoned: a state changes only after its action succeeded, so a panic leaves a valid one.
impl Door for &Mutex<State> {
    fn with<R>(&mut self, step: impl FnOnce(&mut State) -> R) -> R {
        step(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Door for &mut State {
    fn with<R>(&mut self, step: impl FnOnce(&mut State) -> R) -> R {
        step(self)
    }
}

/// A lock that is held when the operation begins, so that what was found under it is still true in the first step, and
/// that each later step takes anew.
pub(crate) struct Locked<'a> {
    pub(crate) state: &'a Mutex<State>,
    pub(crate) lock: Option<MutexGuard<'a, State>>,
}

impl Door for Locked<'_> {
    fn with<R>(&mut self, step: impl FnOnce(&mut State) -> R) -> R {
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        step(&mut self.lock.take().unwrap_or_else(lock))
    }
}

/// Runs an operation to its end, and then what it left to do. `tidy` keeps the sets of ranges bounded; its failure is
/// nobody's.
pub(crate) fn act<R>(
    mut door: impl Door,
    mut tidy: impl FnMut(&mut State) -> Result<(), Stop>,
    mut step: impl FnMut(&mut State) -> Result<R, Stop>,
) -> Result<R, Error> {
    let (result, rest) = run(&mut door, &mut step, State::rest);
    match rest {
        None => {}
        Some(Rest::Tell(aftermath)) => aftermath.run(),
        Some(Rest::Tidy) => tidy_up(&mut door, &mut tidy),
    }
    result
}

#[cold]
fn tidy_up(door: &mut impl Door, tidy: &mut impl FnMut(&mut State) -> Result<(), Stop>) {
    let _ = run(door, tidy, |_| ());
    let _ = run(door, &mut State::settle_retired, |_| ());
    let _ = run(door, &mut State::settle_users, |_| ());
    for leaving in door.with(|state| mem::take(&mut state.leaving)) {
        let settled = leaving.settle();
        door.with(|state| state.left(leaving, settled));
    }
    let aftermath = door.with(|state| {
        state.is_tidying = false;
        state.aftermath()
    });
    if let Some(aftermath) = aftermath {
        aftermath.run();
    }
}

/// Takes a step until it has come to its end; then `last`, under the same lock.
fn run<R, L>(
    door: &mut impl Door,
    step: &mut impl FnMut(&mut State) -> Result<R, Stop>,
    last: impl Fn(&mut State) -> L,
) -> (Result<R, Error>, L) {
    let mut waited = Waited::default();
    let mut over: Option<Over> = None;
    loop {
        let next = door.with(|state| {
            if let Some(over) = over.take()
                && let Err(error) = state.resume(over, &mut waited)
            {
                return Next::Done(Err(error), last(state));
            }
            state.waits.waited.take_over(&mut waited);
            let result = state.leave_to_broken();
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
            Next::Wait(plan) => over = Some(plan.perform()),
        }
    }
}

impl State {
    fn plan(&mut self, wait: Wait) -> Plan {
        let Wait { by, queues } = wait;
        let known = |line: Line| {
            let known = self.waits.broken.has(&line);
            (line, known)
        };
        let queues = queues.into_iter().map(known).collect();
        let began = self.waits.clock.begin();
        Plan { by, began, queues }
    }

    /// After a wait, well or not: what it has ended is forgotten, and nothing else. A failure that lasts is noted, and the
    /// step taken again, which may do without that queue; with a queue that was known to have failed it could not.
    fn resume(&mut self, over: Over, waited: &mut Waited<Line>) -> Result<(), Error> {
        self.waits.clock.end(over.began);
        for (line, synchronized) in over.finished {
            if synchronized {
                self.waits.broken.remove(&line);
                self.finished(&line, over.began);
            }
            waited.add(over.by.clone(), line, over.began);
        }
        let Some(failure) = over.failed else {
            return Ok(());
        };
        let Failure { line, error, kind } = failure;
        match kind {
            FailureKind::Known => return Err(line.named(&error)),
            FailureKind::Lasting => {
                self.broke(&line, &error);
                return Ok(());
            }
            FailureKind::Once if over.by.is_none() => self.distrust(&line),
            FailureKind::Once | FailureKind::Deadlock => {}
        }
        Err(error)
    }

    /// One thread at a time tidies up, so that the others need not wait for what that waits for.
    fn rest(&mut self) -> Option<Rest> {
        if self.is_untidy() && !self.is_tidying {
            self.is_tidying = true;
            return Some(Rest::Tidy);
        }
        self.aftermath().map(Rest::Tell)
    }
}
