//! The facts of one memory, as a value: which bytes of which copy are valid, which copies have memory, which queues may
//! still use a copy or are to deliver bytes, which queues have failed, which ranges are borrowed. `plan` decides from
//! the facts. Pure: no byte and no call of a queue is here. Relies on `replicas` and `uses`. After an action or a wait
//! the facts are changed here; no action is performed here.

mod landing;
mod users;

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use crate::access::Access;
use crate::coherence::borrows::Borrows;
use crate::coherence::broken::Broken;
use crate::coherence::moving::Moving;
use crate::coherence::ranges::Ranges;
use crate::coherence::replicas::{ORIGIN, Replicas, Slot};
use crate::coherence::uses::{Clock, Uses, Waited};

/// The host's own memory: the only host copy that is ever written.
pub(crate) const HOST: Slot = Slot(0);
/// Adopted read-only bytes.
pub(crate) const ADOPTED: Slot = Slot(1);
/// How many of the slots, the lowest, are the host's.
pub(crate) const HOSTS: usize = 2;

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

/// Bytes that a queue has yet to deliver.
#[derive(Debug)]
struct Arriving<Q> {
    queue: Q,
    /// When the last of it was entered.
    last: u64,
    ranges: Ranges,
}

impl Slot {
    /// Whether this is a copy on the host.
    pub(crate) fn is_host(self) -> bool {
        self.0 < HOSTS
    }

    /// Which of the devices this is.
    pub(crate) fn device(self) -> Option<usize> {
        self.0.checked_sub(HOSTS).filter(|_| self != ORIGIN)
    }

    /// The slot of a device by its index.
    pub(crate) fn of_device(index: usize) -> Self {
        Slot(HOSTS + index)
    }
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

    /// The queues that may still write `range` in the copies that hold it, but for one.
    pub(crate) fn deliverers(&self, slot: Slot, range: &Range<usize>, waited: &Waited<Q>) -> Vec<Q> {
        let mut queues = self.copy(HOST).uses.waits(None, range, Access::Read, waited);
        for other in self.device_slots().filter(|&other| other != slot) {
            if self.replicas.valid(other).overlaps(range) {
                queues.extend(self.copy(other).uses.waits(None, range, Access::Read, waited));
            }
        }
        queues.dedup();
        queues
    }

    /// The working queues that have yet to deliver bytes of this copy to other copies. The `overwritten` bytes do not
    /// count.
    pub(crate) fn working_deliverers(&self, slot: Slot, overwritten: &Range<usize>, waited: &Waited<Q>) -> Vec<Q> {
        let mut queues = Vec::new();
        for held in self.replicas.valid(slot).iter() {
            let mut kept = Ranges::of(held);
            kept.remove(overwritten);
            for part in kept.iter() {
                queues.extend(self.deliverers(slot, &part, waited));
            }
        }
        queues.retain(|queue| !self.broken.has(queue));
        queues.dedup();
        queues
    }

    /// The bytes that queues of this kind have yet to deliver to a host copy. From a failed queue the bytes may never
    /// come.
    pub(crate) fn awaited(&self, slot: Slot, mut kind: impl FnMut(&Q) -> bool) -> impl Iterator<Item = Range<usize>> {
        let theirs = self.copy(slot).arriving.iter().filter(move |arriving| kind(&arriving.queue));
        theirs.flat_map(|arriving| arriving.ranges.iter())
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

    /// A queue will write `range` of a host copy.
    pub(crate) fn arrive(&mut self, slot: Slot, queue: &Q, range: &Range<usize>) {
        self.enter(slot, queue, range, Access::Write, None);
        let arriving = &mut self.copies[slot.0].arriving;
        arriving.retain_mut(|arriving| {
            arriving.ranges.remove(range);
            !arriving.ranges.is_empty()
        });
        let (clock, last) = (&self.clock, self.clock.now());
        let mut ours = arriving.iter_mut().filter(|arriving| arriving.queue == *queue);
        match ours.find(|arriving| !clock.separates(arriving.last)) {
            Some(arriving) => {
                arriving.ranges.insert(range.clone());
                arriving.last = last;
            }
            None => arriving.push(Arriving { queue: queue.clone(), last, ranges: Ranges::of(range.clone()) }),
        }
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

    /// A queue has failed: the bytes that it was to deliver may not have arrived, so the host gives up those which
    /// another copy holds. There is no slice of these bytes yet, because none is handed out before the queue has been
    /// synchronised.
    pub(crate) fn distrust(&mut self, queue: &Q) {
        let lost: Vec<_> = self.awaited(HOST, |by| by == queue).collect();
        for range in lost {
            let only = self.replicas.only_in(HOST, &range);
            for shared in only.missing(&range).iter() {
                self.replicas.give_up(HOST, &shared);
                self.copies[HOST.0].expect_no_more(queue, &shared);
            }
        }
    }
}

impl<Q: PartialEq> CopyFacts<Q> {
    /// No delivery of these bytes by this queue is expected any more.
    fn expect_no_more(&mut self, queue: &Q, range: &Range<usize>) {
        self.arriving.retain_mut(|arriving| {
            if arriving.queue == *queue {
                arriving.ranges.remove(range);
            }
            !arriving.ranges.is_empty()
        });
    }
}
