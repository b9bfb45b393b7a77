//! The facts of one memory, as a value: which bytes of which copy are valid, which copies have memory, which queues may
//! still use a copy or are to deliver bytes, which queues have failed, which ranges are borrowed. `plan` decides from
//! the facts. Pure: no byte and no call of a queue is here. Relies on `replicas` and `uses`. After an action or a wait
//! the facts are changed here; no action is performed here.

pub(crate) mod moving;
mod users;

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use crate::access::{Access, Intent};
use crate::coherence::borrows::Borrows;
use crate::coherence::facts::moving::{Arriving, Moving};
use crate::coherence::ranges::Ranges;
use crate::coherence::replicas::{ADOPTED, HOST, HOSTS, ORIGIN, Replicas, Slot};
use crate::coherence::uses::{Clock, Uses, Waited};
use crate::error::Error;

/// At most this many uses a copy has, by queue and kind of access, before the queues of the oldest are waited for.
/// Otherwise a queue for each request would be kept until the next write, and asked at each access.
const MAX_USERS: usize = 64;
/// How many host buffers are kept until their queues are idle, at most, unless a queue is broken.
const MAX_RETIRED: usize = 2;

/// `Q` is a handle of a queue.
#[derive(Debug)]
pub(crate) struct Facts<Q> {
    /// Length in bytes. Never 0 where something is asked for: empty accesses are answered earlier.
    pub(crate) len: usize,
    pub(crate) replicas: Replicas,
    /// By slot.
    pub(crate) copies: Vec<CopyFacts<Q>>,
    /// For each host buffer that is read no more: the queues that may still use the buffer.
    pub(crate) retired: Vec<Uses<Q>>,
    pub(crate) clock: Clock,
    pub(crate) broken: Broken<Q>,
    /// The live borrows; empty in a `SyncedMem`.
    pub(crate) borrows: Borrows,
    /// Whether the origin is read for all bytes that it alone holds, whichever are asked for.
    pub(crate) reads_whole: bool,
    /// The transfers of threads without the lock, no two of the same bytes to one copy.
    pub(crate) outside: Vec<Moving>,
    /// The copy that was written last, or asked for on a device. Reads on the host leave it.
    pub(crate) last: Option<Slot>,
}

/// One copy, without its bytes.
#[derive(Debug)]
pub(crate) struct CopyFacts<Q> {
    pub(crate) has_memory: bool,
    /// Whether the bytes are a slice that no queue may see.
    pub(crate) is_lent: bool,
    /// Of a device: the last queue that used this copy. Work that names no queue runs here.
    pub(crate) home: Option<Q>,
    /// Of a device: whether its work reads host copies where they lie.
    pub(crate) shares_host: bool,
    /// Of a device, by host copy: whether transfers between the two may wait for the device.
    pub(crate) stages: [bool; HOSTS],
    /// The devices from which there is a direct way to this one.
    pub(crate) reaches: Vec<Slot>,
    /// The transfers and launches that may still read or write the copy. Kernels touch a host copy to read it alone, on
    /// devices that share the host's memory.
    pub(crate) uses: Uses<Q>,
    /// Of a host copy: the bytes that a queue has yet to deliver, exactly, each byte with the last queue that writes
    /// it. (`uses` may name too many bytes, which costs waits only.)
    arriving: Vec<Arriving<Q>>,
}

/// The queues whose failure lasts, as far as they are known, each with its error. The list saves waits and stops a
/// failure from spreading; no soundness rests on it. A queue that works again is taken off it.
#[derive(Debug)]
pub(crate) struct Broken<Q> {
    known: Vec<(Q, Error)>,
}

impl<Q> CopyFacts<Q> {
    fn new(home: Option<Q>) -> Self {
        let (reaches, arriving, stages) = (Vec::new(), Vec::new(), [false; HOSTS]);
        CopyFacts {
            has_memory: false,
            is_lent: false,
            home,
            shares_host: false,
            stages,
            reaches,
            uses: Uses::new(),
            arriving,
        }
    }
}

impl<Q> Facts<Q> {
    pub(crate) fn new(len: usize) -> Self {
        Self {
            len,
            replicas: Replicas::new(len),
            copies: vec![CopyFacts::new(None), CopyFacts::new(None)],
            retired: Vec::new(),
            clock: Clock::default(),
            broken: Broken::new(),
            borrows: Borrows::default(),
            reads_whole: false,
            outside: Vec::new(),
            last: None,
        }
    }

    // ---- questions ----

    /// All bytes.
    pub(crate) fn whole(&self) -> Range<usize> {
        0..self.len
    }

    pub(crate) fn copy(&self, slot: Slot) -> &CopyFacts<Q> {
        &self.copies[slot.0]
    }

    pub(crate) fn slots(&self) -> impl DoubleEndedIterator<Item = Slot> + use<Q> {
        (0..self.copies.len()).map(Slot)
    }

    /// Every copy, and the origin.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Slot> + use<Q> {
        self.slots().chain([ORIGIN])
    }

    pub(crate) fn device_slots(&self) -> impl Iterator<Item = Slot> + use<Q> {
        (HOSTS..self.copies.len()).map(Slot)
    }

    /// Whether any byte of `range` is valid anywhere.
    pub(crate) fn is_written_in(&self, range: &Range<usize>) -> bool {
        self.holders().any(|slot| self.replicas.valid(slot).overlaps(range))
    }

    /// How many bytes of `range` are in none of these copies.
    pub(crate) fn lacking(&self, slots: &[Slot], range: &Range<usize>) -> usize {
        let mut missing = Ranges::of(range.clone());
        for &slot in slots {
            for held in self.replicas.valid(slot).within(range) {
                missing.remove(&held);
            }
        }
        missing.iter().map(|range| range.len()).sum()
    }

    /// The copy that serves an access on the host: adopted memory serves readers while it holds the range and our own
    /// memory does not.
    pub(crate) fn host_slot(&self, range: &Range<usize>, intent: Intent) -> Slot {
        let is_adopted = self.copy(ADOPTED).has_memory
            && intent == Intent::Read
            && self.replicas.holds(ADOPTED, range)
            && !self.replicas.holds(HOST, range);
        if is_adopted { ADOPTED } else { HOST }
    }

    /// The copy that serves an access on a device whose own copy is `own`. A device that shares the host's memory reads
    /// bytes there, unless its own copy has all of them. No queue sees a lent slice.
    #[inline]
    pub(crate) fn device_slot(&self, own: Slot, range: &Range<usize>, intent: Intent) -> Slot {
        if !self.copy(own).shares_host || intent != Intent::Read || self.replicas.holds(own, range) {
            return own;
        }
        let host = self.host_slot(range, intent);
        if self.copy(host).is_lent { own } else { host }
    }

    /// Whether a transfer from one copy to another ends with its step: one of a lent slice, or one that may wait for
    /// the device.
    pub(crate) fn is_staged(&self, from: Slot, to: Slot) -> bool {
        let (host, device) = if from.is_host() { (from, to) } else { (to, from) };
        let is_transfer = host.is_host() && !device.is_host();
        is_transfer && (self.copy(host).is_lent || self.copy(device).stages[host.0])
    }

    // ---- after an action ----

    /// A queue of a device that this memory was never on. `reaches` says whether one of two queues reaches the other's
    /// device.
    pub(crate) fn add_device(&mut self, home: Q, reaches: impl Fn(&Q, &Q) -> bool) -> Slot {
        let slot = self.replicas.add_slot();
        let mut new = CopyFacts::new(None);
        for other in self.device_slots() {
            let copy = &mut self.copies[other.0];
            let Some(there) = &copy.home else { continue };
            if reaches(&home, there) {
                new.reaches.push(other);
            }
            if reaches(there, &home) {
                copy.reaches.push(slot);
            }
        }
        new.home = Some(home);
        self.copies.push(new);
        slot
    }

    /// The copy has got memory that no queue has used.
    pub(crate) fn put_memory(&mut self, slot: Slot, is_lent: bool) {
        let copy = &mut self.copies[slot.0];
        (copy.has_memory, copy.is_lent) = (true, is_lent);
    }

    /// The copy's memory has been taken away. Returns its users.
    pub(crate) fn take_memory(&mut self, slot: Slot) -> Uses<Q> {
        let copy = &mut self.copies[slot.0];
        (copy.has_memory, copy.is_lent) = (false, false);
        copy.arriving.clear();
        mem::replace(&mut copy.uses, Uses::new())
    }
}

impl<Q: Clone + PartialEq> Facts<Q> {
    // ---- questions ----

    /// Whether an access to this copy need not wait for a queue that has failed. `by` is `None` for the host.
    pub(crate) fn is_usable(
        &self,
        slot: Slot,
        by: Option<&Q>,
        range: &Range<usize>,
        access: Access,
        waited: &Waited<Q>,
    ) -> bool {
        self.broken.is_empty() || !self.broken.has_any(&self.copy(slot).uses.waits(by, range, access, waited))
    }

    /// The copy that a queue is the home of.
    pub(crate) fn home_of(&self, queue: &Q) -> Option<Slot> {
        self.device_slots().find(|slot| self.copy(*slot).home.as_ref() == Some(queue))
    }

    /// Whether the copy that serves an access has the bytes, so that there is nothing to do but to hand them out: the
    /// usual case. The plan would say `Done`. `by` is `None` for the host.
    pub(crate) fn is_met(&self, slot: Slot, by: Option<&Q>, range: &Range<usize>, intent: Intent) -> bool {
        let copy = self.copy(slot);
        self.broken.is_empty()
            && copy.has_memory
            && (intent == Intent::Overwrite || self.replicas.holds(slot, range))
            && (intent == Intent::Read || self.outside.is_empty())
            && copy.uses.is_free(by.filter(|_| !slot.is_host()), range, intent.access())
    }

    /// Whether every byte of this copy, except the `overwritten` ones, is in a copy that no broken queue may have
    /// written.
    pub(crate) fn is_held_elsewhere(&self, slot: Slot, overwritten: &Range<usize>, waited: &Waited<Q>) -> bool {
        let whole = self.whole();
        let others = self.holders().filter(|other| {
            *other != slot && (other.device().is_none() || self.is_usable(*other, None, &whole, Access::Read, waited))
        });
        let others: Vec<_> = others.map(|other| self.replicas.valid(other)).collect();
        self.replicas.valid(slot).iter().all(|held| {
            let mut alone = Ranges::of(held.clone());
            alone.remove(overwritten);
            for other in &others {
                other.within(&held).for_each(|part| alone.remove(&part));
            }
            alone.is_empty()
        })
    }

    /// Whether an operation leaves ranges to merge, buffers to free or users to wait for.
    pub(crate) fn is_untidy(&self) -> bool {
        !self.replicas.is_bounded()
            || self.retired.len() > MAX_RETIRED
            || (self.copies.iter().any(|copy| copy.uses.len() > MAX_USERS) && !self.excess_users().is_empty())
    }

    // ---- after an action ----

    /// Work of a queue has been ordered after all that conflicts with it, and may be enqueued.
    ///
    /// The entry stands before the work is enqueued, so that work of an enqueuing call that failed is waited for too.
    pub(crate) fn enter(&mut self, slot: Slot, by: &Q, range: &Range<usize>, access: Access, guard: Option<u64>) {
        self.copies[slot.0].uses.enter(by, range.clone(), access, guard, &self.clock);
    }

    /// The same for a token of one owner, which has no guard.
    pub(crate) fn enter_token(&mut self, slot: Slot, by: &Q, range: &Range<usize>, access: Access) -> Option<Arc<()>> {
        self.copies[slot.0].uses.enter_token(by, range, access, &self.clock)
    }

    /// A borrow is over: no more work is launched under the borrow.
    pub(crate) fn release(&mut self, borrow: u64) {
        if let Some(slot) = self.borrows.remove(borrow) {
            self.copies[slot.0].uses.release(borrow, &self.clock);
        }
    }

    /// A wait for a queue that began then has ended well: the work of the queue is over, and its bytes have arrived.
    pub(crate) fn wait_ended(&mut self, queue: &Q, began: u64) {
        for copy in &mut self.copies {
            copy.uses.finish(queue, began);
            copy.arriving.retain(|arriving| arriving.queue != *queue || arriving.last >= began);
        }
        self.retired.iter_mut().for_each(|uses| uses.finish(queue, began));
    }
}

impl<Q> Broken<Q> {
    pub(crate) const fn new() -> Self {
        Self { known: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The queues, from the one that has been known for longest.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Q> {
        self.known.iter().map(|(queue, _)| queue)
    }

    /// Forgets all but these.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Q) -> bool) {
        self.known.retain(|(queue, _)| keep(queue));
    }
}

impl<Q: PartialEq> Broken<Q> {
    pub(crate) fn has(&self, queue: &Q) -> bool {
        self.queues().any(|known| known == queue)
    }

    /// Whether one of these is broken.
    pub(crate) fn has_any(&self, queues: &[Q]) -> bool {
        queues.iter().any(|queue| self.has(queue))
    }

    pub(crate) fn add(&mut self, queue: Q, error: Error) {
        if !self.has(&queue) {
            self.known.push((queue, error));
        }
    }

    /// The queue works again, or is forgotten.
    pub(crate) fn remove(&mut self, queue: &Q) {
        self.retain(|known| known != queue);
    }

    /// The first of the known ones that is among these, and its error.
    pub(crate) fn first_of(&self, queues: &[Q]) -> Option<(&Q, &Error)> {
        let mut known = self.known.iter();
        known.find(|(queue, _)| queues.contains(queue)).map(|(queue, error)| (queue, error))
    }
}
