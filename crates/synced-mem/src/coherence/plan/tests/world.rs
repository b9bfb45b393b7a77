//! A memory as the facts have it, and in truth: which bytes are right, and what queues may still do to them.

mod moving;
mod waits;

pub(super) use moving::Arrival;

use std::ops::Range;

use super::super::*;
use crate::access::Intent::{Overwrite, Read};
use crate::coherence::facts::moving::Moving;
use crate::coherence::ranges::Ranges;
use crate::coherence::replicas::{ADOPTED, ORIGIN};

pub(super) const SLOTS: usize = 4;
/// By device, as `10 * kind + device`: the home queues; others of them that work; and queues that have failed.
pub(super) const HOME: [u8; 2] = [10, 11];
pub(super) const OTHER: [u8; 2] = [20, 21];
pub(super) const FAILED: [u8; 2] = [30, 31];

pub(super) fn has_failed(queue: u8) -> bool {
    FAILED.contains(&queue)
}

/// What a byte of a copy is at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Byte {
    Stale,
    Valid,
    Arriving,
    Broken,
}

pub(super) const ALL: [Byte; 4] = [Byte::Stale, Byte::Valid, Byte::Arriving, Byte::Broken];

/// What a queue may still do to a byte of a copy.
#[derive(Clone, Debug)]
pub(super) struct Work {
    queue: u8,
    access: Access,
    /// Who has waited for it: queues, and `None` as the host.
    known: Vec<Option<u8>>,
}

/// A byte of a copy in truth.
#[derive(Clone, Debug, Default)]
pub(super) struct Truth {
    /// Whether it has the newest value when all queues that work have ended.
    is_right: bool,
    work: Vec<Work>,
}

/// A memory of so many bytes.
pub(super) struct World<const BYTES: usize> {
    pub(super) facts: Facts<u8>,
    /// By slot and byte.
    truth: [[Truth; BYTES]; SLOTS],
    /// Whether the byte has a value to lose.
    written: [bool; BYTES],
    /// A transfer of another thread, which is still under way.
    moving: Option<Moving>,
    /// The queue of that transfer, and what it will have come to.
    arrival: (u8, Arrival),
    fails: bool,
}

/// How the devices and the host are, beside the bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setting {
    /// The two devices reach each other.
    pub(super) reach: bool,
    /// Failures are known from the start.
    pub(super) known: bool,
    /// The host's own memory is a slice that no queue may see.
    pub(super) lent: bool,
    /// The bytes that the origin has, one bit a byte.
    pub(super) origin: u8,
    pub(super) reads_whole: bool,
    /// Transfers between the host and a device are made without the lock.
    pub(super) staged: bool,
    /// Staged transfers to the second device fail.
    pub(super) fails: bool,
    /// The devices share the host's memory.
    pub(super) shares: bool,
}

impl Truth {
    /// Whether the byte is right, and known to be written by no queue.
    fn is_there(&self) -> bool {
        self.is_right && self.work.iter().all(|work| work.access == Access::Read || work.known.contains(&None))
    }
}

impl<const BYTES: usize> World<BYTES> {
    /// `None` where no memory is ever like this.
    pub(super) fn new(bytes: [[Byte; BYTES]; SLOTS], setting: Setting) -> Option<Self> {
        let Setting { reach, known, lent, origin, reads_whole, staged, fails, shares } = setting;
        let mut facts = Facts::new(BYTES);
        for home in HOME {
            let slot = facts.add_device(home, |_, _| reach);
            facts.copies[slot.0].stages = [staged; 2];
            facts.copies[slot.0].shares_host = shares;
        }
        let truth = std::array::from_fn(|_| std::array::from_fn(|_| Truth::default()));
        let written = std::array::from_fn(|at| origin >> at & 1 == 1);
        let mut world = World { facts, truth, written, moving: None, arrival: (0, Arrival::Done), fails };
        let mut kept = Ranges::new();
        (0..BYTES).filter(|at| world.written[*at]).for_each(|at| kept.insert(at..at + 1));
        world.facts.replicas.keep_in_origin(kept);
        world.facts.reads_whole = reads_whole;
        if lent {
            // A lent slice is there from the start, and no queue brings its bytes.
            if bytes[HOST.0].iter().any(|byte| matches!(byte, Byte::Arriving | Byte::Broken)) {
                return None;
            }
            world.facts.put_memory(HOST, true);
        }
        for (slot, bytes) in bytes.iter().enumerate().map(|(slot, bytes)| (Slot(slot), bytes)) {
            if bytes.iter().any(|byte| *byte != Byte::Stale) && !world.facts.copy(slot).has_memory {
                world.facts.put_memory(slot, false);
            }
            for (at, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte != Byte::Stale) {
                world.written[at] = true;
                world.facts.replicas.add(slot, at..at + 1);
                world.truth[slot.0][at].is_right = *byte != Byte::Broken;
                // What arrives on the host comes on a queue of the first device.
                let device = slot.device().unwrap_or(0);
                match byte {
                    Byte::Arriving => world.enqueue(slot, HOME[device], &(at..at + 1), Access::Write),
                    Byte::Broken => world.enqueue(slot, FAILED[device], &(at..at + 1), Access::Write),
                    Byte::Stale | Byte::Valid => {}
                }
            }
        }
        if known {
            for queue in FAILED {
                world.facts.broken.add(queue, Error::OutOfMemory { bytes: 0 });
                // Bytes that another copy holds are taken from the host when it is found out.
                if world.facts.awaited(HOST, |by| *by == queue).any(|range| !world.is_only(HOST, &range)) {
                    return None;
                }
            }
        }
        Some(world)
    }

    fn is_only(&self, slot: Slot, range: &Range<usize>) -> bool {
        self.facts.replicas.only_in(slot, range) == Ranges::of(range.clone())
    }

    fn bytes(&mut self, slot: Slot, range: &Range<usize>) -> &mut [Truth] {
        &mut self.truth[slot.0][range.clone()]
    }

    fn enqueue(&mut self, slot: Slot, queue: u8, range: &Range<usize>, access: Access) {
        assert!(!self.facts.copy(slot).is_lent, "a queue sees a lent slice");
        match (slot.is_host(), access) {
            (true, Access::Write) => self.facts.arrive(slot, &queue, range),
            _ => self.facts.enter(slot, &queue, range, access, None),
        }
        for byte in self.bytes(slot, range) {
            byte.work.push(Work { queue, access, known: Vec::new() });
        }
    }

    /// Nothing that conflicts with an access may still be at work, but for what `by` comes after.
    fn may_touch(&self, slot: Slot, by: Option<u8>, range: &Range<usize>, access: Access) {
        assert!(self.facts.copy(slot).has_memory, "{slot:?} has no memory");
        for work in self.truth[slot.0][range.clone()].iter().flat_map(|byte| &byte.work) {
            let conflicts = access == Access::Write || work.access == Access::Write;
            let is_after = Some(work.queue) == by || work.known.contains(&by);
            assert!(!conflicts || is_after, "{access:?} of {slot:?} {range:?} by {by:?} meets {work:?}");
        }
    }

    /// A copy is used as a source.
    fn is_source(&self, slot: Slot, range: &Range<usize>) -> bool {
        assert!(self.facts.replicas.holds(slot, range), "a source that is stale");
        slot == ORIGIN || self.truth[slot.0][range.clone()].iter().all(|byte| byte.is_right)
    }

    fn home(&self, slot: Slot) -> u8 {
        self.facts.copy(slot).home.expect("a device")
    }

    pub(super) fn perform(&mut self, step: &Step, by: Option<u8>) {
        match step {
            Step::Alloc(slot) => self.alloc(*slot),
            Step::Replace { slot: HOST, overwritten } => self.replace_host(overwritten),
            Step::Replace { slot, overwritten } => {
                self.empty(*slot);
                self.alloc(*slot);
                self.facts.replicas.claim(*slot, overwritten.clone());
                [0..overwritten.start, overwritten.end..BYTES]
                    .iter()
                    .for_each(|rest| self.facts.replicas.give_up(*slot, rest));
            }
            Step::Copy { from, to, range } => {
                let queue = [to, from].into_iter().find_map(|slot| slot.device().map(|_| self.home(*slot)));
                let is_right = self.is_source(*from, range) || queue.is_some_and(has_failed);
                assert!(is_right, "bytes are brought from where a failed queue was to bring them");
                self.may_touch(*from, if from.is_host() { None } else { queue }, range, Access::Read);
                self.may_touch(*to, queue, range, Access::Write);
                if let Some(queue) = queue {
                    self.enqueue(*from, queue, range, Access::Read);
                    self.enqueue(*to, queue, range, Access::Write);
                }
                self.now_valid(*to, range);
                self.bytes(*to, range).iter_mut().for_each(|byte| byte.is_right = !queue.is_some_and(has_failed));
            }
            Step::Fill { to, range } => {
                assert!(range.clone().all(|at| !self.written[at]), "bytes that were written are filled");
                let queue = to.device().map(|_| self.home(*to));
                self.may_touch(*to, queue, range, Access::Write);
                queue.into_iter().for_each(|queue| self.enqueue(*to, queue, range, Access::Write));
                self.now_valid(*to, range);
                range.clone().for_each(|at| self.written[at] = true);
            }
            Step::Receive { to, range, replaces } => {
                if *replaces {
                    self.perform(&Step::Replace { slot: *to, overwritten: range.clone() }, by);
                }
                self.may_touch(*to, by, range, Access::Write);
                self.enqueue(*to, self.home(*to), range, Access::Write);
                self.claim(*to, range);
            }
            Step::GiveUp { slot, range } => {
                let held: Vec<_> = self.facts.replicas.valid(*slot).within(range).flatten().collect();
                for at in held {
                    let others = self.facts.holders().filter(|other| other != slot);
                    let mut others = others.filter(|other| self.facts.replicas.holds(*other, &(at..at + 1)));
                    assert!(
                        others.any(|other| other == ORIGIN || self.truth[other.0][at].is_there()),
                        "byte {at} is nowhere else yet"
                    );
                }
                self.facts.replicas.give_up(*slot, range);
                let is_used = self.facts.outside.iter().any(|moving| moving.concerns(*slot));
                if *slot != ORIGIN && self.facts.replicas.valid(*slot).is_empty() && !is_used {
                    self.empty(*slot);
                }
            }
            Step::Adopt => {
                [HOST, ADOPTED].into_iter().for_each(|slot| self.empty(slot));
                self.facts.put_memory(ADOPTED, false);
                self.claim(ADOPTED, &(0..BYTES));
            }
        }
    }

    /// A read of the origin, or a transfer of a lent slice, which ends with its step. False: the queue had been known
    /// to have failed.
    pub(super) fn perform_outside(&mut self, step: &Step, progress: &mut Progress<u8>) -> bool {
        let Step::Copy { from, to, range } = step else { panic!("{step:?} is no transfer") };
        if *from == ORIGIN {
            assert!(self.is_source(ORIGIN, range));
            let queue = to.device().map(|_| self.home(*to));
            self.may_touch(*to, queue, range, Access::Write);
            // A copy that a failed queue may use is a source of the last resort.
            for at in range.clone() {
                for slot in self.facts.slots().filter(|slot| self.facts.replicas.holds(*slot, &(at..at + 1))) {
                    let mut work = self.truth[slot.0].iter().flat_map(|byte| &byte.work);
                    assert!(work.any(|work| has_failed(work.queue)), "byte {at} is read again that {slot:?} has");
                }
            }
            if let Some(queue) = queue {
                self.enqueue(*to, queue, range, Access::Write);
                if has_failed(queue) {
                    return false;
                }
            }
            self.now_valid(*to, range);
            return true;
        }
        let (device, host) = if to.is_host() { (*from, *to) } else { (*to, *from) };
        if !self.facts.copy(host).is_lent {
            return self.perform_staged(step, progress);
        }
        let (queue, accesses) = (
            self.home(device),
            if to.is_host() { (Access::Read, Access::Write) } else { (Access::Write, Access::Read) },
        );
        assert!(self.is_source(*from, range) || has_failed(queue), "bytes are brought from where they are not");
        self.may_touch(device, Some(queue), range, accesses.0);
        self.may_touch(host, None, range, accesses.1);
        self.enqueue(device, queue, range, accesses.0);
        if has_failed(queue) {
            return self.wait(None, &[queue], progress);
        }
        self.now_valid(*to, range);
        self.wait(None, &[queue], progress)
    }

    fn alloc(&mut self, slot: Slot) {
        assert!(!self.facts.copy(slot).has_memory);
        self.facts.put_memory(slot, false);
        if slot.device().is_some() {
            self.enqueue(slot, self.home(slot), &(0..BYTES), Access::Write);
        }
    }

    fn empty(&mut self, slot: Slot) {
        let is_used = self.moving.as_ref().is_some_and(|moving| moving.concerns(slot));
        assert!(!is_used, "{slot:?} loses its memory during {:?}", self.moving);
        drop(self.facts.take_memory(slot));
        self.truth[slot.0] = std::array::from_fn(|_| Truth::default());
    }

    fn replace_host(&mut self, overwritten: &Range<usize>) {
        let valid: Vec<_> = self.facts.replicas.valid(HOST).iter().flatten().collect();
        for at in valid.into_iter().filter(|at| !overwritten.contains(at)) {
            self.may_touch(HOST, None, &(at..at + 1), Access::Read);
        }
        let is_used = self.moving.as_ref().is_some_and(|moving| moving.concerns(HOST));
        assert!(!is_used, "the host's memory is replaced during {:?}", self.moving);
        drop(self.facts.take_memory(HOST));
        self.facts.put_memory(HOST, false);
        self.truth[HOST.0].iter_mut().for_each(|byte| byte.work.clear());
    }

    fn now_valid(&mut self, slot: Slot, range: &Range<usize>) {
        self.check_moving(slot, range);
        self.facts.replicas.add(slot, range.clone());
        self.bytes(slot, range).iter_mut().for_each(|byte| byte.is_right = true);
    }

    fn claim(&mut self, slot: Slot, range: &Range<usize>) {
        self.facts.slots().for_each(|other| self.check_moving(other, range));
        self.facts.replicas.claim(slot, range.clone());
        self.now_valid(slot, range);
        range.clone().for_each(|at| self.written[at] = true);
        if self.facts.copy(ADOPTED).has_memory && self.facts.replicas.valid(ADOPTED).is_empty() {
            self.empty(ADOPTED);
        }
    }

    /// No byte that was written is lost.
    pub(super) fn check(&self) {
        for at in 0..BYTES {
            let mut slots = self.facts.holders();
            let is_held = slots.any(|slot| self.facts.replicas.holds(slot, &(at..at + 1)));
            assert!(is_held || !self.written[at], "byte {at} is lost");
        }
    }

    /// What holds when a request is met.
    pub(super) fn check_met(&mut self, request: &Request<u8>) {
        match request {
            Request::Host { range, intent } => {
                let slot = self.facts.host_slot(range, *intent);
                self.hand_out(slot, None, range, *intent);
            }
            Request::Device { by, range, intent } => {
                let own = self.facts.home_of(by).expect("the copy of a queue that works");
                let slot = self.facts.device_slot(own, range, *intent);
                // A device that reads host bytes where they lie does so at once, or later.
                self.hand_out(slot, Some(*by).filter(|_| !slot.is_host()), range, *intent);
                if slot.is_host() {
                    self.enqueue(slot, *by, range, Access::Read);
                }
            }
            Request::Prefetch { range } => {
                assert!(self.facts.replicas.holds(self.facts.host_slot(range, Read), range));
            }
            Request::Evict { slot, range, .. } => {
                let slots = if *slot == HOST { vec![HOST, ADOPTED] } else { vec![*slot] };
                assert!(slots.iter().all(|slot| !self.facts.replicas.valid(*slot).overlaps(range)));
            }
            Request::Receive { .. } => {}
            Request::Idle(queues) => {
                let mut work = self.truth.iter().flatten().flat_map(|byte| &byte.work);
                assert!(!work.any(|work| queues.contains(&work.queue)), "{queues:?} still work");
            }
            Request::Adopt => assert!(self.facts.replicas.holds(ADOPTED, &(0..BYTES))),
            Request::Bound(bound) => {
                let has_failed =
                    self.truth.iter().flatten().flat_map(|byte| &byte.work).any(|work| has_failed(work.queue));
                let is_read_for = (0..BYTES).any(|at| self.is_only(ORIGIN, &(at..at + 1)));
                let may_stay = has_failed || self.fails || *bound == Bound::Gaps || is_read_for;
                assert!(may_stay || self.facts.replicas.is_bounded(), "too many ranges");
            }
        }
    }

    fn hand_out(&mut self, slot: Slot, by: Option<u8>, range: &Range<usize>, intent: Intent) {
        self.may_touch(slot, by, range, intent.access());
        // On a queue that has failed, what it was to do before comes to nothing, as the work does that follows.
        let is_right = intent == Overwrite || self.is_source(slot, range) || by.is_some_and(has_failed);
        assert!(is_right, "{slot:?} {range:?} for {by:?}");
        if intent != Read {
            self.claim(slot, range);
        }
    }
}
