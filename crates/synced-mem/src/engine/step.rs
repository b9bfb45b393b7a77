//! How an operation on a memory runs: lock, plan, perform the steps; unlock to wait, and plan again. So no finding from
//! before a wait is used after the wait, and every conclusion is drawn under one lock. Relies on `uses`: a wait ends
//! only uses that were entered before the wait. No decision about bytes is taken here.

use std::panic::resume_unwind;
use std::sync::Arc;

use crate::borrow::QueueHandle;
use crate::coherence::plan::{self, Next, Progress, Refusal, Request, Step};
use crate::coherence::replicas::{HOST, HOSTS, Slot};
use crate::engine::perform::outside::{self, Outside};
use crate::engine::perform::room::Room;
use crate::engine::state::{Operation, State};
use crate::engine::wait::{Failure, FailureKind, Wait, Waited};
use crate::error::Error;
use crate::host::pool::HostPool;
use crate::stats::EventKind;
use crate::sync::Door;

/// At most this many failed queues are remembered of those that no copy names any more. A forgotten one is found out
/// again.
const MAX_BROKEN: usize = 64;

/// Why an operation pauses.
enum Pause {
    Wait(Wait),
    /// Until more steps than these have been settled.
    Settle(u64),
    Outside(Box<Outside>),
    Room(Room),
    /// For a buffer of so many bytes of a pool that is slow.
    Stock(HostPool, usize),
}

/// The end of a pause.
enum Ended {
    Wait(Waited),
    Outside(Box<outside::Ended>),
    /// For the memory of a copy.
    Room(Slot, Result<(), Error>),
}

/// Plans and performs until the request is met or refused; then runs `last`, under the same lock, and before it, where
/// the request is met, `done`, with whether a step was performed.
pub(super) fn run<R, L>(
    door: &mut impl Door<State>,
    operation: &mut Operation<'_>,
    check: impl Fn(&State) -> Result<(), Error>,
    done: impl Fn(&mut State, bool) -> R,
    last: impl Fn(&mut State) -> L,
) -> (Result<R, Error>, L) {
    let mut course =
        Course { progress: Progress::new(), has_acted: false, has_asked_device: false, ended: None, failure: None };
    loop {
        let has_brought = matches!(course.ended, Some(Ended::Outside(_)));
        let paused = door.with(|state| match state.advance(operation, &mut course, &check) {
            Ok(None) => Ok((Ok(done(state, course.has_acted)), last(state))),
            Ok(Some(pause)) => Err(pause),
            Err(error) => Ok((Err(error), last(state))),
        });
        if has_brought {
            door.settled();
        }
        match paused {
            Ok(ended) => return ended,
            Err(Pause::Wait(wait)) => course.ended = Some(Ended::Wait(wait.perform())),
            Err(Pause::Outside(step)) => {
                let mut ended = step.perform();
                if let Some(panic) = ended.take_panic() {
                    // The caller's own panic goes on when nothing is left of the step.
                    drop(door.with(|state| state.settle(ended)));
                    door.settled();
                    resume_unwind(panic);
                }
                course.ended = Some(Ended::Outside(Box::new(ended)));
            }
            Err(Pause::Room(room)) => course.ended = Some(Ended::Room(room.slot, room.make())),
            Err(Pause::Stock(pool, bytes)) => {
                let stocked = pool.take(bytes).map(|buffer| operation.stock = Some(buffer));
                course.ended = Some(Ended::Room(HOST, stocked));
            }
            Err(Pause::Settle(settled)) => door.settle(|state| state.settlements == settled),
        }
    }
}

/// How far an operation has come.
struct Course {
    progress: Progress<QueueHandle>,
    /// Whether a step has been performed.
    has_acted: bool,
    /// Whether a device that had no block has been asked for room.
    has_asked_device: bool,
    ended: Option<Ended>,
    /// Why the last of its steps that failed did.
    failure: Option<Error>,
}

impl State {
    /// Plans and performs until there is something to be done outside the lock.
    fn advance(
        &mut self,
        operation: &mut Operation<'_>,
        course: &mut Course,
        check: impl Fn(&State) -> Result<(), Error>,
    ) -> Result<Option<Pause>, Error> {
        if let Some(ended) = course.ended.take() {
            self.resume(ended, &operation.request, course)?;
        }
        check(self)?;
        if !self.facts.broken.is_empty() {
            // Queues that only this list still holds have used no copy, and get no new work.
            self.facts.broken.retain(|queue| Arc::strong_count(queue) > 1);
        }
        if let Request::Device { by, .. } | Request::Receive { by, .. } = &operation.request {
            self.make_home(by);
        }
        loop {
            let steps = match plan::next(&self.facts, &operation.request, &course.progress) {
                Ok(Next::Perform(steps)) => match steps.allocates().and_then(|slot| self.lacks(slot, operation)) {
                    None => steps,
                    Some(pause) => return Ok(Some(pause)),
                },
                Ok(Next::Done) => {
                    if let (Request::Prefetch { range }, false) = (&operation.request, course.has_acted) {
                        self.events.count_on(EventKind::Avoided, range, self.facts.copy(HOST));
                    }
                    return Ok(None);
                }
                Ok(Next::Wait(by, queues)) => return Ok(Some(Pause::Wait(self.begin_wait(by, queues)))),
                Ok(Next::Settle) => return Ok(Some(Pause::Settle(self.settlements))),
                Ok(Next::Outside(step)) => match self.begin(&step) {
                    Some(step) => {
                        course.has_acted = true;
                        return Ok(Some(Pause::Outside(Box::new(step))));
                    }
                    None => return Err(Error::OutOfMemory { bytes: self.facts.len }),
                },
                Err(Refusal::Error(error)) => return Err(error),
                Err(Refusal::Failed) => {
                    return Err(course.failure.take().unwrap_or(Error::OutOfMemory { bytes: self.facts.len }));
                }
            };
            course.has_acted = true;
            for step in steps {
                match self.perform(&step, operation) {
                    Ok(()) => course.progress.did(&step),
                    Err(error) => match self.room_for(&step, &error, &operation.request, course) {
                        Some(room) => return Ok(Some(Pause::Room(room))),
                        None => {
                            self.step_failed(&step, error, &operation.request, course);
                            break;
                        }
                    },
                }
            }
        }
    }

    /// What has to be had with the lock released, before a copy gets memory. Room comes last: the room that is reserved
    /// here is that of a step that follows under the same lock.
    fn lacks(&self, slot: Slot, operation: &Operation<'_>) -> Option<Pause> {
        let pool = self.pool.as_ref().filter(|pool| slot == HOST && operation.stock.is_none() && pool.is_slow());
        match pool {
            Some(pool) => Some(Pause::Stock(pool.clone(), self.facts.len)),
            None => self.reserve(slot).map(Pause::Room),
        }
    }

    /// Room for the block that a step has not got. For the sake of order alone no device is waited for, and no other
    /// memory gives anything up.
    fn room_for(
        &self,
        step: &Step,
        error: &Error,
        request: &Request<QueueHandle>,
        course: &mut Course,
    ) -> Option<Room> {
        if matches!(request, Request::Bound(_)) {
            return None;
        }
        let room = self.room_after(step.slot(), error, course.has_asked_device)?;
        course.has_asked_device = true;
        if let Step::Alloc(slot) = step {
            self.release_room(*slot);
        }
        Some(room)
    }

    fn step_failed(&mut self, step: &Step, error: Error, request: &Request<QueueHandle>, course: &mut Course) {
        course.progress.failed(step);
        if let Step::Alloc(slot) = step
            // Another thread may have come meanwhile.
            && !self.facts.copy(*slot).has_memory
        {
            self.release_room(*slot);
        }
        match request {
            // No access asked for the step: the failure is counted, and reported to the observer.
            Request::Bound(_) => self.failed(error),
            _ => course.failure = Some(error),
        }
    }

    /// A step that no access asked for has failed. No byte was lost.
    pub(super) fn failed(&mut self, error: Error) {
        self.events.count(EventKind::Failure, 0..0, 0, None, Some(error));
    }

    // ---- waiting ----

    fn begin_wait(&mut self, by: Option<QueueHandle>, queues: Vec<QueueHandle>) -> Wait {
        let known = queues.iter().map(|queue| self.facts.broken.has(queue)).collect::<Vec<_>>();
        let queues = queues.into_iter().zip(known).collect();
        self.facts.release_host_holds();
        Wait { by, began: self.facts.clock.begin(), queues }
    }

    /// After a wait, successful or not: forgets the uses that the wait has ended, and no others.
    #[cold]
    fn resume(&mut self, ended: Ended, request: &Request<QueueHandle>, course: &mut Course) -> Result<(), Error> {
        match ended {
            Ended::Wait(waited) => self.wait_ended(waited, course),
            Ended::Room(_, Ok(())) => Ok(()),
            Ended::Room(slot, Err(error)) => {
                self.step_failed(&Step::Alloc(slot), error, request, course);
                Ok(())
            }
            Ended::Outside(ended) => {
                let step = ended.step();
                match self.settle(*ended) {
                    Ok(Some(waited)) => self.wait_ended(waited, course),
                    Ok(None) => Ok(()),
                    Err(error) => {
                        self.step_failed(&step, error, request, course);
                        Ok(())
                    }
                }
            }
        }
    }

    /// A lasting failure is noted and the request planned again, since the request may do without that queue. The
    /// request could not do without a queue that was known to have failed.
    fn wait_ended(&mut self, ended: Waited, course: &mut Course) -> Result<(), Error> {
        self.facts.clock.end(ended.began);
        for (queue, synchronized) in ended.finished {
            if synchronized {
                self.facts.broken.remove(&queue);
                self.facts.wait_ended(&queue, ended.began);
                self.sweep();
            }
            course.progress.waited.add(ended.by.clone(), queue, ended.began);
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
            FailureKind::Once if ended.by.is_none() => self.facts.distrust(&queue),
            FailureKind::Once | FailureKind::CalledFromKernel => {}
        }
        Err(error)
    }

    // ---- queues that have failed ----

    /// A queue's failure lasts. The bytes that the queue was to deliver are not trusted, and memory that the queue may
    /// use is left to the queue.
    fn queue_failed(&mut self, queue: &QueueHandle, error: &Error) {
        self.facts.distrust(queue);
        self.facts.broken.add(queue.clone(), queue.named(error));
        let broken = &self.facts.broken;
        for (known, copy) in self.facts.copies[HOSTS..].iter_mut().zip(&self.devices) {
            if known.home.as_ref() != Some(queue) {
                continue;
            }
            let mut users = known.uses.queues();
            users.reverse();
            users.extend(copy.memory.as_ref().map(|memory| memory.queue.clone()));
            // A queue of another device may have read this copy as well.
            users.retain(|user| user.device().id() == copy.device && !broken.has(user));
            if let Some(home) = users.into_iter().next() {
                known.home = Some(home);
            }
        }
        self.sweep();
        self.forget_broken();
    }

    /// Forgets the oldest of too many broken queues. A queue that a copy names is not forgotten: the queue would be
    /// waited for again, and an operation that found such queues out in turns would not end. Reads of host copies by
    /// forgotten queues never end.
    fn forget_broken(&mut self) {
        let facts = &mut self.facts;
        let too_many = facts.broken.queues().count().saturating_sub(MAX_BROKEN);
        let unused = facts.broken.queues().filter(|queue| !queue.is_lost() && !facts.needs(queue));
        let unused: Vec<_> = unused.take(too_many).cloned().collect();
        for queue in unused {
            if facts.host_is_used_by(&queue) {
                let known = facts.broken.queues().find(|known| known.is_lost()).cloned();
                let lost = known.unwrap_or_else(|| QueueHandle::lost(&queue));
                if let Err(error) = lost.synchronize() {
                    facts.broken.add(lost.clone(), lost.named(&error));
                }
                facts.hand_over(&queue, &lost);
            }
            facts.broken.remove(&queue);
        }
    }
}
