//! The next action of a memory for a request, decided from the facts alone, so that every decision can be tried without
//! a device. No action is performed here. `engine::step` plans again after each wait and each batch of steps, and never
//! reuses an older plan.
//!
//! The rules: a queue gets work after all conflicting work; the host touches bytes when no queue does; a failed queue
//! is waited for only where no one else has the bytes; a byte that was ever written is valid in some copy after every
//! step.

mod moves;
mod room;

use std::ops::ControlFlow::{self, Break, Continue};
use std::ops::Range;

use crate::access::{Access, Intent};
use crate::coherence::facts::Facts;
use crate::coherence::ranges::meet;
use crate::coherence::replicas::{HOST, Slot};
use crate::coherence::uses::Waited;
use crate::error::Error;

/// A wish. Ranges lie within the memory, and have bytes.
#[derive(Clone, Debug)]
pub(crate) enum Request<Q> {
    /// Bytes on the host.
    Host { range: Range<usize>, intent: Intent },
    /// Bytes on the device of a queue, for its work. The queue is the home of its device's copy, unless it has failed.
    Device { by: Q, range: Range<usize>, intent: Intent },
    /// Bytes on their way to the host.
    Prefetch { range: Range<usize> },
    /// No bytes of `range` in this copy; for a copy of the host, in neither of the host's; or none in the origin.
    Evict { slot: Slot, range: Range<usize>, dirty: Dirty },
    /// Bytes of another memory in place of these, copied by a queue, as for `Device`.
    Receive { by: Q, range: Range<usize> },
    /// Memory from outside in the place of whatever there was.
    Adopt,
    /// Few valid ranges in each copy.
    Bound(Bound),
    /// The end of the work that these queues have now.
    Idle(Vec<Q>),
}

/// How an eviction treats bytes that no other copy holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dirty {
    Move,
    Refuse,
}

/// How the number of valid ranges may be bounded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Plain slices may show any valid byte: gaps are closed, and nothing is given up.
    Gaps,
    /// There are no plain slices but of these bytes, which are about to be written.
    AllBut(Range<usize>),
}

/// The next action. `Q` is a handle of a queue.
#[derive(Debug)]
pub(crate) enum Next<Q> {
    /// A queue, or as `None` the host, waits for these queues.
    Wait(Option<Q>, Vec<Q>),
    /// Another thread moves these bytes without the lock: wait for that thread.
    Settle,
    /// Steps that enqueue work at most.
    Perform(Steps),
    /// A step that ends with its work, and is performed without the lock.
    Outside(Step),
    /// The request is met: the bytes may be handed out, to a writer as valid nowhere else.
    Done,
}

/// One change of a memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The copy gets memory, without a valid byte.
    Alloc(Slot),
    /// The copy gets other memory, and the old memory is left to a failed queue. On the host the valid bytes move
    /// along. On a device no byte does: `overwritten` alone counts as valid there, and is written next.
    Replace { slot: Slot, overwritten: Range<usize> },
    /// Bytes that are valid in `from`, a copy or the origin, become valid in `to`.
    Copy { from: Slot, to: Slot, range: Range<usize> },
    /// Bytes that are valid nowhere become zeros in `to`.
    Fill { to: Slot, range: Range<usize> },
    /// Another memory's bytes, which are valid in `to` alone then. `replaces`: in memory of their own, as by `Replace`.
    Receive { to: Slot, range: Range<usize>, replaces: bool },
    /// The copy holds the range no more, nor memory if the range was all.
    GiveUp { slot: Slot, range: Range<usize> },
    /// The memory from outside takes the place of all copies.
    Adopt,
}

impl Step {
    /// The copy that changes.
    pub(crate) fn slot(&self) -> Slot {
        match self {
            Step::Alloc(slot)
            | Step::Replace { slot, .. }
            | Step::GiveUp { slot, .. }
            | Step::Copy { to: slot, .. }
            | Step::Fill { to: slot, .. }
            | Step::Receive { to: slot, .. } => *slot,
            Step::Adopt => HOST,
        }
    }
}

/// Steps in their order. Up to four stand in the value itself.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    few: [Option<Step>; 4],
    more: Vec<Step>,
}

impl Steps {
    fn is_empty(&self) -> bool {
        self.few[0].is_none()
    }

    /// The copy that gets memory: such a step is alone.
    pub(crate) fn allocates(&self) -> Option<Slot> {
        match self.few[0] {
            Some(Step::Alloc(slot)) => Some(slot),
            _ => None,
        }
    }

    fn push(&mut self, step: Step) {
        match self.few.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(step),
            None => self.more.push(step),
        }
    }
}

impl From<Step> for Steps {
    fn from(step: Step) -> Self {
        Self { few: [Some(step), None, None, None], more: Vec::new() }
    }
}

impl IntoIterator for Steps {
    type Item = Step;
    type IntoIter =
        std::iter::Chain<std::iter::Flatten<std::array::IntoIter<Option<Step>, 4>>, std::vec::IntoIter<Step>>;

    fn into_iter(self) -> Self::IntoIter {
        self.few.into_iter().flatten().chain(self.more)
    }
}

/// How far a request has come, beyond the facts.
#[derive(Debug)]
pub(crate) struct Progress<Q> {
    pub(crate) waited: Waited<Q>,
    /// The copies that a step has failed for.
    failed: Vec<Slot>,
    /// Whether the step that ends a request has been performed.
    has_ended: bool,
}

impl<Q> Progress<Q> {
    pub(crate) const fn new() -> Self {
        Self { waited: Waited::new(), failed: Vec::new(), has_ended: false }
    }

    /// A step has been performed. Where other memory has taken the place of a device's, nothing may fail any more until
    /// the missing bytes are handed out.
    pub(crate) fn did(&mut self, step: &Step) {
        self.has_ended |= match step {
            Step::Receive { .. } | Step::Adopt => true,
            Step::Replace { slot, .. } => !slot.is_host(),
            _ => false,
        };
    }

    /// A step has failed.
    pub(crate) fn failed(&mut self, step: &Step) {
        self.failed.push(step.slot());
    }
}

/// Why a request is not met.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// As a step has failed, with the error of that step.
    Failed,
    Error(Error),
}

/// Goes on, or ends with the next action.
type Plan<Q, T = ()> = ControlFlow<Result<Next<Q>, Refusal>, T>;

/// The next action for a request.
pub(crate) fn next<Q: Clone + PartialEq>(
    facts: &Facts<Q>,
    request: &Request<Q>,
    so_far: &Progress<Q>,
) -> Result<Next<Q>, Refusal> {
    if so_far.has_ended {
        return Ok(Next::Done);
    }
    let planner = Planner { facts, so_far, keeps_host: request.keeps_host() };
    match planner.plan(request) {
        Break(next) => next,
        Continue(()) => Ok(Next::Done),
    }
}

impl<Q> Request<Q> {
    /// Whether the host's own memory may not be replaced: the caller has an address there.
    fn keeps_host(&self) -> bool {
        matches!(self, Request::Bound(Bound::AllBut(busy)) if !busy.is_empty())
    }

    /// The bytes that are written, or taken from a copy, so that no thread may be moving them meanwhile.
    fn disturbs(&self) -> Option<Range<usize>> {
        match self {
            Request::Host { intent: Intent::Read, .. } | Request::Device { intent: Intent::Read, .. } => None,
            Request::Host { range, .. }
            | Request::Device { range, .. }
            | Request::Receive { range, .. }
            | Request::Evict { range, .. } => Some(range.clone()),
            Request::Adopt => Some(0..usize::MAX),
            Request::Prefetch { .. } | Request::Bound(_) | Request::Idle(_) => None,
        }
    }

    /// Whether the request goes on when a step for this copy has failed.
    fn goes_on_without(&self, slot: Slot) -> bool {
        match self {
            // There may be another device.
            Request::Evict { slot: HOST, .. } => !slot.is_host(),
            Request::Bound(_) => true,
            _ => false,
        }
    }
}

struct Planner<'a, Q> {
    facts: &'a Facts<Q>,
    so_far: &'a Progress<Q>,
    keeps_host: bool,
}

fn perform<Q, T>(step: Step) -> Plan<Q, T> {
    Break(Ok(Next::Perform(Steps::from(step))))
}

fn wait<Q>(by: Option<&Q>, queues: Vec<Q>) -> Plan<Q>
where
    Q: Clone,
{
    if queues.is_empty() { Continue(()) } else { Break(Ok(Next::Wait(by.cloned(), queues))) }
}

const NOTHING: Range<usize> = 0..0;

impl<Q: Clone + PartialEq> Planner<'_, Q> {
    fn plan(&self, request: &Request<Q>) -> Plan<Q> {
        if self.so_far.failed.iter().any(|slot| !request.goes_on_without(*slot)) {
            return Break(Err(Refusal::Failed));
        }
        request.disturbs().map_or(Continue(()), |range| self.settled(|moving| meet(&moving.range, &range)))?;
        self.leave_to_broken()?;
        match request {
            Request::Host { range, intent } => self.host(range, *intent),
            Request::Device { by, range, intent } => self.device(by, range, *intent),
            Request::Prefetch { range } => self.prefetch(range),
            Request::Evict { slot: HOST, range, dirty } => self.evict_host(range, *dirty),
            Request::Evict { slot, range, dirty } => self.evict_to_host(*slot, range, *dirty),
            Request::Receive { by, range } => self.receive(by, range),
            Request::Adopt => perform(Step::Adopt),
            Request::Bound(bound) => self.bound(bound),
            // Each once: other threads may add users for as long as this one waits.
            Request::Idle(queues) => {
                let left = queues.iter().filter(|queue| !self.so_far.waited.has(None, queue));
                wait(None, left.cloned().collect())
            }
        }
    }

    // ---- accesses ----

    fn host(&self, range: &Range<usize>, intent: Intent) -> Plan<Q> {
        let (slot, access) = (self.facts.host_slot(range, intent), intent.access());
        self.alloc(slot)?;
        let mut overwritten = range;
        if intent != Intent::Overwrite {
            self.bring(slot, range)?;
            overwritten = &NOTHING;
        }
        self.free_of_queues(slot, range, access, overwritten)
    }

    fn device(&self, by: &Q, range: &Range<usize>, intent: Intent) -> Plan<Q> {
        let access = intent.access();
        let slot = self.copy_of(by)?;
        if self.facts.device_slot(slot, range, intent).is_host() {
            // The device may read at any time from now on, so that the host, not the queue, waits for writes.
            return self.host(range, intent);
        }
        if intent == Intent::Overwrite && self.is_replaced(slot, range)? {
            return perform(Step::Replace { slot, overwritten: range.clone() });
        }
        self.alloc(slot)?;
        if intent != Intent::Overwrite {
            self.bring(slot, range)?;
        }
        self.order(by, slot, range, access)
    }

    fn prefetch(&self, range: &Range<usize>) -> Plan<Q> {
        let slot = self.facts.host_slot(range, Intent::Read);
        self.alloc(slot)?;
        self.bring(slot, range)
    }

    fn receive(&self, by: &Q, range: &Range<usize>) -> Plan<Q> {
        let slot = self.copy_of(by)?;
        let replaces = self.is_replaced(slot, range)?;
        if !replaces {
            self.alloc(slot)?;
            self.order(by, slot, range, Access::Write)?;
        }
        perform(Step::Receive { to: slot, range: range.clone(), replaces })
    }

    /// The copy that a queue which works is the home of.
    fn copy_of(&self, by: &Q) -> Plan<Q, Slot> {
        self.works(by)?;
        match self.facts.home_of(by) {
            Some(slot) => Continue(slot),
            None => Break(Err(Refusal::Failed)),
        }
    }
}

#[cfg(test)]
mod tests;
