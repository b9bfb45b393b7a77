//! Moving bytes to a copy: from where, after which waits, and in which memory. A failed queue is asked only for bytes
//! that no one else has, and an origin is read only for bytes that no copy has.

use std::ops::ControlFlow::{Break, Continue};
use std::ops::Range;

use crate::access::Access;
use crate::coherence::facts::moving::Moving;
use crate::coherence::plan::{NOTHING, Next, Plan, Planner, Step, Steps, perform, wait};
use crate::coherence::ranges::meet;
use crate::coherence::replicas::{ADOPTED, Action, HOST, ORIGIN, Slot};

impl<Q: Clone + PartialEq> Planner<'_, Q> {
    pub(super) fn alloc(&self, slot: Slot) -> Plan<Q> {
        if self.facts.copy(slot).has_memory { Continue(()) } else { perform(Step::Alloc(slot)) }
    }

    /// Goes on when `range` of a copy is valid. The copy has memory.
    pub(super) fn bring(&self, to: Slot, range: &Range<usize>) -> Plan<Q> {
        if self.facts.replicas.holds(to, range) {
            return Continue(());
        }
        let mut steps = Steps::default();
        for action in self.facts.replicas.read(to, range, &self.sources(to)) {
            match self.transfer(action) {
                Continue(step) => steps.push(step),
                Break(next) if steps.is_empty() => return Break(next),
                Break(_) => break,
            }
        }
        Break(Ok(Next::Perform(steps)))
    }

    /// Where a copy's bytes come from, best first: to the host from adopted bytes; to a device from another device, if
    /// there is a direct way and no broken queue was to bring them there. The origin is read for bytes that none of
    /// these has. Copies that a broken queue was to fill come last of all.
    pub(super) fn sources(&self, to: Slot) -> Vec<Slot> {
        let (facts, whole) = (self.facts, self.facts.whole());
        let devices = facts
            .device_slots()
            .filter(|slot| *slot != to && facts.is_usable(*slot, None, &whole, Access::Read, &self.so_far.waited));
        let (near, far): (Vec<_>, Vec<_>) =
            devices.partition(|slot| to.is_host() || facts.copy(to).reaches.contains(slot));
        let hosts = if to == HOST { [ADOPTED].as_slice() } else { &[HOST, ADOPTED] };
        let (first, next) = if to == HOST { (hosts, &*near) } else { (&*near, hosts) };
        [first, next, &far, &[ORIGIN]].concat()
    }

    /// The step of an action, once no other work is in the way.
    pub(super) fn transfer(&self, action: Action) -> Plan<Q, Step> {
        let (Action::Fill { to, range } | Action::Copy { to, range, .. }) = &action;
        self.settled(|moving| moving.to == *to && meet(&moving.range, range))?;
        let (from, to, range) = match action {
            Action::Copy { from: ORIGIN, to, range } => return self.read_origin(to, range),
            Action::Fill { to, range } => {
                self.writable(to, &range)?;
                return Continue(Step::Fill { to, range });
            }
            Action::Copy { from, to, range } => (from, to, range),
        };
        match (from.is_host(), to.is_host()) {
            (true, true) => {
                self.free_of_queues(from, &range, Access::Read, &NOTHING)?;
                self.writable(to, &range)?;
                return Continue(Step::Copy { from, to, range });
            }
            (true, false) => {
                // The bytes may be read during the call, so a queue that is to write them is waited for.
                self.free_of_queues(from, &range, Access::Read, &NOTHING)?;
                self.writable(to, &range)?;
            }
            (false, true) => {
                self.ordered_at_home(from, from, &range, Access::Read)?;
                self.replace_host(self.facts.copy(from).home.as_ref(), &range, Access::Write, &NOTHING)?;
                self.ordered_at_home(from, to, &range, Access::Write)?;
            }
            (false, false) if !self.facts.copy(to).reaches.contains(&from) => return self.by_host(to, range),
            (false, false) => {
                self.ordered_at_home(to, from, &range, Access::Read)?;
                self.writable(to, &range)?;
            }
        }
        let step = Step::Copy { from, to, range };
        if self.facts.is_staged(from, to) { Break(Ok(Next::Outside(step))) } else { Continue(step) }
    }

    /// From device to device where there is no direct way. The host becomes valid too.
    pub(super) fn by_host(&self, to: Slot, range: Range<usize>) -> Plan<Q, Step> {
        let from = if self.facts.replicas.holds(ADOPTED, &range) { ADOPTED } else { HOST };
        if from == HOST {
            self.alloc(HOST)?;
            self.bring(HOST, &range)?;
        }
        self.transfer(Action::Copy { from, to, range })
    }

    /// From the origin, without the lock, since an origin is code of the caller's. Bytes that come with others from
    /// an origin that is read as a whole go to the host, and on from there.
    fn read_origin(&self, to: Slot, range: Range<usize>) -> Plan<Q, Step> {
        if self.facts.reads_whole && !to.is_host() {
            return self.by_host(to, range);
        }
        let range = if self.facts.reads_whole { self.run_of_origin(range) } else { range };
        // Bytes that another thread reads, for whichever copy, are had from that copy.
        self.settled(|moving| meet(&moving.range, &range))?;
        self.writable(to, &range)?;
        Break(Ok(Next::Outside(Step::Copy { from: ORIGIN, to, range })))
    }

    /// The bytes around a range, and in it, that the origin alone holds.
    fn run_of_origin(&self, range: Range<usize>) -> Range<usize> {
        let alone = self.facts.replicas.only_in(ORIGIN, &self.facts.whole());
        alone.iter().find(|run| run.start <= range.start && range.end <= run.end).unwrap_or(range)
    }

    // ---- order ----

    /// Goes on when no thread without the lock moves such bytes.
    pub(super) fn settled(&self, concerns: impl Fn(&Moving) -> bool) -> Plan<Q> {
        if self.facts.outside.iter().any(concerns) { Break(Ok(Next::Settle)) } else { Continue(()) }
    }

    /// Goes on when the copy's own work may write `range`: on the host, or on a device's home queue.
    pub(super) fn writable(&self, to: Slot, range: &Range<usize>) -> Plan<Q> {
        if to.is_host() {
            self.free_of_queues(to, range, Access::Write, &NOTHING)
        } else {
            self.ordered_at_home(to, to, range, Access::Write)
        }
    }

    /// Goes on when an access by the home queue of `of` to `range` of a copy comes after every access that conflicts.
    pub(super) fn ordered_at_home(&self, of: Slot, slot: Slot, range: &Range<usize>, access: Access) -> Plan<Q> {
        match &self.facts.copy(of).home {
            Some(home) => self.order(home, slot, range, access),
            None => Continue(()),
        }
    }

    pub(super) fn order(&self, by: &Q, slot: Slot, range: &Range<usize>, access: Access) -> Plan<Q> {
        self.works(by)?;
        wait(Some(by), self.facts.copy(slot).uses.waits(Some(by), range, access, &self.so_far.waited))
    }

    /// A failed queue is asked once more before new work for the queue is refused.
    pub(super) fn works(&self, queue: &Q) -> Plan<Q> {
        if self.facts.broken.has(queue) { wait(None, vec![queue.clone()]) } else { Continue(()) }
    }

    /// Goes on when no queue can touch `range` of a host copy in a way that conflicts with `access`.
    pub(super) fn free_of_queues(
        &self,
        slot: Slot,
        range: &Range<usize>,
        access: Access,
        overwritten: &Range<usize>,
    ) -> Plan<Q> {
        if slot == HOST {
            self.replace_host(None, range, access, overwritten)?;
        }
        wait(None, self.facts.copy(slot).uses.waits(None, range, access, &self.so_far.waited))
    }

    // ---- queues that have failed ----

    /// Gives up the device copies that a broken queue may use, where other copies hold all the bytes: the next access
    /// makes a new copy. Copies that the queue may have written go first, because the others are sound.
    pub(super) fn leave_to_broken(&self) -> Plan<Q> {
        let (facts, whole, waited) = (self.facts, self.facts.whole(), &self.so_far.waited);
        if facts.broken.is_empty() {
            return Continue(());
        }
        for access in [Access::Read, Access::Write] {
            for slot in facts.device_slots() {
                if !facts.is_usable(slot, None, &whole, access, waited)
                    && facts.is_held_elsewhere(slot, &NOTHING, waited)
                {
                    self.settled(|moving| moving.concerns(slot))?;
                    wait(None, facts.working_deliverers(slot, &NOTHING, waited))?;
                    return perform(Step::GiveUp { slot, range: whole });
                }
            }
        }
        Continue(())
    }

    /// Whether a device copy of which `range` is to be overwritten gets other memory: a broken queue may use the memory
    /// that is there, and only `range` would be lost with that memory.
    pub(super) fn is_replaced(&self, slot: Slot, range: &Range<usize>) -> Plan<Q, bool> {
        let (facts, waited) = (self.facts, &self.so_far.waited);
        if facts.is_usable(slot, None, &facts.whole(), Access::Write, waited)
            || !facts.is_held_elsewhere(slot, range, waited)
        {
            return Continue(false);
        }
        self.settled(|moving| moving.concerns(slot))?;
        wait(None, facts.working_deliverers(slot, range, waited))?;
        Continue(true)
    }

    /// Where an access to the host's own memory would have to wait for a broken queue: goes on when other memory has
    /// replaced the old. Not while a guard writes there, nor where a byte would be lost that only the broken queue
    /// could have delivered; the `overwritten` bytes are not missed.
    pub(super) fn replace_host(
        &self,
        by: Option<&Q>,
        range: &Range<usize>,
        access: Access,
        overwritten: &Range<usize>,
    ) -> Plan<Q> {
        let (facts, waited) = (self.facts, &self.so_far.waited);
        let is_broken = |queue: &Q| facts.broken.has(queue);
        if facts.broken.is_empty()
            || !facts.copy(HOST).has_memory
            || facts.is_usable(HOST, by, range, access, waited)
            || self.keeps_host
            || facts.borrows.host_writers > 0
        {
            return Continue(());
        }
        self.settled(|moving| moving.concerns(HOST))?;
        let valid = facts.replicas.valid(HOST);
        for lost in facts.awaited(HOST, is_broken) {
            let [below, above] =
                [lost.start..lost.end.min(overwritten.start), lost.start.max(overwritten.end)..lost.end];
            if valid.overlaps(&below) || valid.overlaps(&above) {
                return Continue(());
            }
        }
        let mut writers = facts.copy(HOST).uses.waits(None, &facts.whole(), Access::Read, waited);
        writers.retain(|queue| !is_broken(queue));
        wait(None, writers)?;
        perform(Step::Replace { slot: HOST, overwritten: overwritten.clone() })
    }
}
