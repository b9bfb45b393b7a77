//! A thread that runs a program: what each step does to shared memories, and the guards that are kept over several
//! steps. Alone, each step is compared with the model; beside others, with the shadow and with what explains an error.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use synced_mem::loopback::Fault;
use synced_mem::{DeviceMut, DeviceRef, Error, HostMut, HostRef, SharedMem};

use super::model::{Model, Refusal};
use super::op::{Intent, OWN, Op, SITES};
use super::owned::Owned;
use super::shadow::{By, Expected, Shadow};
use super::world::{Counts, Subject, World};

pub(crate) struct Worker<'a> {
    pub(crate) world: &'a World,
    pub(crate) by: By,
    pub(crate) held: Vec<Held>,
    pub(crate) own: Owned,
    /// The memory whose ranges the step has bounded.
    pub(crate) bounded: Option<Arc<Subject>>,
    /// Told what each step does.
    says: &'a (dyn Fn(String) + Sync),
}

/// A guard that outlives its step.
pub(crate) struct Held {
    pub(crate) subject: Arc<Subject>,
    /// In cells.
    pub(crate) range: Range<usize>,
    /// The model's number.
    borrow: Option<u64>,
    pub(crate) guard: Guard,
}

pub(crate) enum Guard {
    HostRef(HostRef),
    HostMut(HostMut),
    DeviceRef(DeviceRef<'static>),
    DeviceMut(DeviceMut<'static>),
}

/// What a step was, by the model.
pub(super) enum Judged<T, R> {
    Done(T, R),
    Refused,
    /// It failed, or the model cannot tell.
    Unknown,
}

/// How many guards a thread keeps beside others.
const MAX_HELD: usize = 4;

impl<'a> Worker<'a> {
    pub(crate) fn new(world: &'a World, thread: usize, own: Owned, says: &'a (dyn Fn(String) + Sync)) -> Self {
        Self { world, by: By { thread, step: 0 }, held: Vec::new(), own, bounded: None, says }
    }

    pub(crate) fn step(&mut self, op: &Op) {
        self.by.step += 1;
        self.bounded = None;
        (self.says)(format!("step {}: {op:?}", self.by.step));
        match op.clone() {
            Op::Readers { reads, twice } => self.own.readers(self.world, self.by, &reads, twice),
            Op::Renew { memory: OWN, len, shares } => self.renew_own(len, shares),
            Op::Host { memory: OWN, .. }
            | Op::Device { memory: OWN, .. }
            | Op::PrefetchHost { memory: OWN, .. }
            | Op::Evict { memory: OWN, .. }
            | Op::Shrink(OWN)
            | Op::Adopt { memory: OWN, .. }
            | Op::Scatter { memory: OWN, .. } => self.own.step(self.world, self.by, op),
            Op::Host { memory, range, intent, keep } => self.borrow(memory, None, &range, intent, keep),
            Op::Device { memory, queue, range, intent, keep } => {
                self.borrow(memory, Some(queue), &range, intent, keep);
            }
            Op::Again(guard) => self.again(guard),
            Op::Drop(guard) => drop(self.take(guard)),
            Op::Leak(guard) => self.leak(guard),
            Op::PrefetchHost { memory, range } => self.prefetch_host(memory, &range),
            Op::Evict { memory, site, refuse, .. } => self.evict(memory, site, refuse),
            Op::Shrink(memory) => self.world.memory(memory).memory.shrink(),
            Op::Adopt { memory, how } => self.adopt(memory, how),
            Op::Copy { to, at, from, range } => self.copy(to, at, from, &range),
            // What fails here fails again where it matters.
            Op::Synchronize(queue) => drop(self.world.queue(queue).synchronize()),
            Op::Scatter { memory, queue, start, step, count } => {
                let cells = self.world.memory(memory).cells();
                let intent = if queue.is_none() { Intent::Write } else { Intent::Overwrite };
                for cell in (start..cells).step_by(step).take(count) {
                    self.borrow(memory, queue, &(cell..cell + 1), intent, false);
                }
            }
            Op::Lend(steps) => self.lend(&steps),
            Op::Fail { device, operation, nth } => {
                self.world.devices[device].fail(operation, nth, Fault::Refused);
                Counts::one(&self.world.counts.injected);
            }
            Op::FailRead(nth) => {
                self.world.tapes.fail(nth);
                Counts::one(&self.world.counts.injected);
            }
            Op::Limit { device, bytes } => self.world.devices[device].set_limit(bytes.unwrap_or(usize::MAX)),
            Op::Panic(queue) => self.world.panic(queue),
            Op::RenewQueue(queue) => self.world.renew_queue(queue),
            Op::Renew { memory, len, shares } => {
                let subject = if len % 2 == 1 {
                    self.world.tapes.subject(len)
                } else if shares {
                    Subject::shared(SharedMem::new_in(len, &self.world.pool), Shadow::zeros(len))
                } else {
                    Subject::shared(SharedMem::new(len), Shadow::zeros(len))
                };
                self.world.renew_memory(memory, subject);
            }
        }
        Counts::one(&self.world.counts.steps);
    }

    // ---- borrows ----

    fn borrow(&mut self, memory: usize, queue: Option<usize>, range: &Range<usize>, intent: Intent, keep: bool) {
        let (world, subject) = (self.world, self.world.memory(memory));
        let range = subject.fit(range);
        let bytes = subject.bytes(&range);
        let Some(_entered) = subject.enter(&bytes) else {
            return;
        };
        let before = self.before(&subject);
        // Beside others, now and then with some patience.
        let micros = if !world.is_alone && self.by.step.is_multiple_of(6) { self.by.step * 7 % 500 } else { 0 };
        let on = queue.map(|queue| world.queue(queue));
        let result = subject.memory.with_timeout(Duration::from_micros(micros), |shared| {
            let bytes = bytes.clone();
            match (&on, intent) {
                (None, Intent::Read) => shared.host(bytes).map(Guard::HostRef),
                (None, Intent::Write) => shared.host_mut(bytes).map(Guard::HostMut),
                (None, Intent::Overwrite) => shared.host_overwrite(bytes).map(Guard::HostMut),
                (Some(on), Intent::Read) => shared.device(on, bytes).map(Guard::DeviceRef),
                (Some(on), Intent::Write) => shared.device_mut(on, bytes).map(Guard::DeviceMut),
                (Some(on), Intent::Overwrite) => shared.device_overwrite(on, bytes).map(Guard::DeviceMut),
            }
        });
        let Some((guard, replica)) = self.agree(&subject, result, &before, |model| match queue {
            None => model.host(&range, intent),
            Some(queue) => model.device(queue / 2, &range, intent),
        }) else {
            return;
        };
        let borrow = replica.and_then(|at| Some(subject.model()?.borrow(&range, intent.writes(), at)));
        let mut held = Held { subject: Arc::clone(&subject), range, borrow, guard };
        self.bounded = Some(Arc::clone(&subject));
        self.work(&mut held, intent);
        if keep && !(world.rules.threads && self.held.len() >= MAX_HELD) {
            self.held.push(held);
        } else {
            self.release(&held);
        }
    }

    /// Reads or writes what a guard gives.
    fn work(&self, held: &mut Held, intent: Intent) {
        let (world, by, shadow) = (self.world, self.by, &held.subject.shadow);
        let bytes = held.subject.bytes(&held.range);
        let before = shadow.expected(bytes.clone());
        let known = (intent != Intent::Overwrite).then_some(&before);
        let after = if intent.writes() { shadow.next(&bytes, intent, by) } else { Vec::new() };
        Counts::one(&world.counts.comparisons);
        match &mut held.guard {
            Guard::HostRef(found) => self.compare("read on the host", &before, found),
            Guard::HostMut(found) => {
                known.inspect(|known| self.compare("written on the host", known, found));
                found.copy_from_slice(&after);
            }
            Guard::DeviceRef(token) => world.launch_read(&format!("a kernel of {by:?}"), token, &before),
            Guard::DeviceMut(token) => {
                world.launch_write(&format!("a kernel that writes, of {by:?}"), token, known, &after);
            }
        }
        if intent.writes() {
            shadow.write(bytes.start, &after, by);
        }
    }

    pub(super) fn compare(&self, what: &str, expected: &Expected, found: &[u8]) {
        self.world.notes.compare(&format!("{:?}, {what}", self.by), expected, found);
    }

    fn again(&mut self, guard: usize) {
        if let Some(guard) = guard.checked_rem(self.held.len()) {
            let mut held = self.held.swap_remove(guard);
            let writes = matches!(held.guard, Guard::HostMut(_) | Guard::DeviceMut(_));
            self.work(&mut held, if writes { Intent::Write } else { Intent::Read });
            self.held.push(held);
        }
    }

    fn release(&self, held: &Held) {
        if let (Some(mut model), Some(borrow)) = (held.subject.model(), held.borrow) {
            model.release(borrow);
        }
    }

    /// A guard, about to be dropped.
    pub(crate) fn take(&mut self, guard: usize) -> Option<Held> {
        let guard = guard.checked_rem(self.held.len())?;
        let held = self.held.swap_remove(guard);
        self.release(&held);
        Some(held)
    }

    fn leak(&mut self, guard: usize) {
        // Beside others only readers: what a writer holds is never compared again.
        if let Some(guard) = guard.checked_rem(self.held.len())
            && (!self.world.rules.threads || matches!(self.held[guard].guard, Guard::DeviceRef(_)))
        {
            let held = self.held.swap_remove(guard);
            // An empty range conflicts with none, but a host guard holds the memory all the same.
            held.subject.leaked.store(true, Ordering::SeqCst);
            self.world.leaked.store(true, Ordering::SeqCst);
            std::mem::forget(held.guard);
        }
    }

    // ---- agreeing ----

    /// Where everything is valid; asked only where a step of a thread alone may fail.
    pub(super) fn before(&self, subject: &Subject) -> Vec<[bool; SITES]> {
        let rules = self.world.rules;
        if rules.failures && !rules.threads { subject.validity(self.world) } else { Vec::new() }
    }

    /// Compares a result with what the model says, and lets the model take the step if it was taken. Without a model,
    /// an error has to have a reason.
    pub(super) fn agree<T, R>(
        &self,
        subject: &Arc<Subject>,
        result: Result<T, Error>,
        before: &[[bool; SITES]],
        predict: impl FnOnce(&mut Model) -> Result<R, Refusal>,
    ) -> Option<(T, Option<R>)> {
        let Some(mut model) = subject.model().map(|model| model.clone()) else {
            return self.world.hear(result).map(|done| (done, None));
        };
        let predicted = predict(&mut model);
        let Judged::Done(done, predicted) = self.judge(result, predicted, &[(subject, before)]) else {
            return None;
        };
        subject.model().into_iter().for_each(|mut known| *known = model.clone());
        Some((done, Some(predicted)))
    }

    /// Compares a result with what the models say of it, and after a failure looks whether the memories that the step
    /// uses have lost a byte.
    pub(super) fn judge<T, R>(
        &self,
        result: Result<T, Error>,
        predicted: Result<R, Refusal>,
        used: &[(&Arc<Subject>, &[[bool; SITES]])],
    ) -> Judged<T, R> {
        let rules = self.world.rules;
        match (result, predicted) {
            (Ok(done), Ok(predicted)) => Judged::Done(done, predicted),
            (
                Err(
                    Error::Device { .. }
                    | Error::DeviceOutOfMemory { .. }
                    | Error::Exhausted { .. }
                    | Error::Origin { .. },
                ),
                _,
            ) if rules.failures => {
                // What a queue that failed was to bring to the host may not have arrived, and a device's copy that it
                // used, or that a copy may have written, is given up where others hold its bytes.
                used.iter().for_each(|(subject, before)| self.check_nothing_lost(subject, before));
                Judged::Unknown
            }
            // Without the model's validity, whether a copy is the only one is not known.
            (Ok(_), Err(Refusal::OnlyCopy)) | (Err(Error::OnlyCopy { .. }), Ok(_)) if !rules.exact => Judged::Unknown,
            (Err(Error::Conflict { .. }), Err(Refusal::Conflict)) => Judged::Refused,
            (Err(Error::OnlyCopy { .. }), Err(Refusal::OnlyCopy)) => Judged::Refused,
            (Err(error), Ok(_)) => panic!("{error}, but the model says it works"),
            (result, Err(refusal)) => panic!("the model says {refusal:?}, but: {:?}", result.map(|_| "done")),
        }
    }

    /// After a failure: a cell that was valid is valid somewhere.
    pub(super) fn check_nothing_lost(&self, subject: &Subject, before: &[[bool; SITES]]) {
        let after = subject.validity(self.world);
        for (cell, (before, after)) in before.iter().zip(after).enumerate() {
            assert!(!before.contains(&true) || after.contains(&true), "cell {cell}: {before:?} became {after:?}");
        }
    }
}
