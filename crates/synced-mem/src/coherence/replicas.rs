//! Which bytes of which copy are valid, and which bytes must be moved before a copy can be used. Pure: decisions alone.
//! Relies on `Ranges` alone. Knows no buffer, no queue and no borrow: who may write when is settled elsewhere. The rule
//! that everything here keeps: a byte that was ever written is valid in some copy.

use std::ops::Range;

use crate::access::Head;
use crate::coherence::ranges::Ranges;

/// A copy of the memory, by its number: 0 is the host's own writable memory, 1 read-only host bytes that were adopted,
/// and from 2 on there is one for each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) usize);

/// The origin, which stands for no copy: its bytes are only read, and never become valid again there after a write.
pub(crate) const ORIGIN: Slot = Slot(usize::MAX);

/// The host's own memory: the only host copy that is ever written.
pub(crate) const HOST: Slot = Slot(0);
/// Adopted read-only bytes.
pub(crate) const ADOPTED: Slot = Slot(1);
/// How many of the slots, the lowest, are the host's.
pub(crate) const HOSTS: usize = 2;

static NOWHERE: Ranges = Ranges::new();

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

/// One step on the way to a valid range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// These bytes are valid in `from` and wanted in `to`.
    Copy {
        /// The copy that holds the bytes.
        from: Slot,
        /// The copy that lacks the bytes.
        to: Slot,
        /// The bytes.
        range: Range<usize>,
    },
    /// These bytes were never written, and become zero in `to`.
    Fill {
        /// The copy that lacks the bytes.
        to: Slot,
        /// The bytes.
        range: Range<usize>,
    },
}

/// The most ranges that a copy keeps, by the length of the memory: the ranges take at most a quarter of the room of the
/// bytes, except in a small memory, whose gaps cost little to close.
const MAX_RANGES: usize = 256;
const MIN_RANGES: usize = 16;
const BYTES_A_RANGE: usize = 4 * size_of::<Range<usize>>();

/// The valid ranges of every copy of one memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Replicas {
    /// The length of the memory in bytes.
    len: usize,
    /// How many ranges a copy may have.
    most: usize,
    /// By slot.
    valid: Vec<Ranges>,
    /// The bytes that the origin holds. None where there are no such bytes.
    origin: Option<Box<Ranges>>,
}

impl Replicas {
    /// An untouched memory of `len` bytes: the two slots of the host, and nothing valid in them.
    pub(crate) fn new(len: usize) -> Self {
        Replicas {
            len,
            most: (len / BYTES_A_RANGE).clamp(MIN_RANGES, MAX_RANGES),
            valid: vec![Ranges::new(); HOSTS],
            origin: None,
        }
    }

    /// The same, of a memory whose bytes an origin holds.
    pub(crate) fn of_origin(len: usize) -> Self {
        let origin = (len > 0).then(|| Box::new(Ranges::of(0..len)));
        Replicas { origin, ..Replicas::new(len) }
    }

    /// The origin holds these bytes alone.
    #[cfg(test)]
    pub(crate) fn keep_in_origin(&mut self, kept: Ranges) {
        self.origin = (!kept.is_empty()).then(|| Box::new(kept));
    }

    /// A copy may have no more ranges than this, however long the memory is.
    #[cfg(test)]
    pub(crate) fn keep_at_most(&mut self, most: usize) {
        self.most = most;
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.valid.len()
    }

    /// One more copy, with nothing valid in it.
    pub(crate) fn add_slot(&mut self) -> Slot {
        self.valid.push(Ranges::new());
        Slot(self.valid.len() - 1)
    }

    /// The valid ranges of a copy, or of the origin.
    #[inline]
    pub(crate) fn valid(&self, slot: Slot) -> &Ranges {
        match self.valid.get(slot.0) {
            Some(valid) => valid,
            None => self.of_the_origin(),
        }
    }

    #[cold]
    fn of_the_origin(&self) -> &Ranges {
        self.origin.as_deref().unwrap_or(&NOWHERE)
    }

    /// Whether no slot has more ranges than it should. The origin is not asked: where it has gaps, others hold bytes.
    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        !self.valid.iter().any(|valid| valid.has_more_than(self.most))
    }

    /// Whether all of `range` is valid in `slot`.
    #[inline]
    pub(crate) fn holds(&self, slot: Slot, range: &Range<usize>) -> bool {
        self.valid(slot).contains(range)
    }

    /// Whether any byte is valid anywhere.
    pub(crate) fn is_written(&self) -> bool {
        self.origin.is_some() || self.valid.iter().any(|ranges| !ranges.is_empty())
    }

    /// The actions that make `range` of `to` valid, in order of position: a copy for each run of missing bytes with one
    /// source, a fill for each run that no copy holds. A byte comes from the first holder in `order`; copies that
    /// `order` leaves out come last, by number. Nothing missing: nothing to do, and no allocation.
    pub(crate) fn read(&self, to: Slot, range: &Range<usize>, order: &[Slot]) -> Vec<Action> {
        debug_assert!(range.is_empty() || range.end <= self.len);
        let mut actions = Vec::new();
        for gap in self.valid(to).missing(range).iter() {
            let mut rest = gap;
            while !rest.is_empty() {
                let (from, end) = self.run(&rest, order);
                let range = rest.start..end;
                actions.push(match from {
                    Some(from) => Action::Copy { from, to, range },
                    None => Action::Fill { to, range },
                });
                rest.start = end;
            }
        }
        actions
    }

    /// After an action succeeded: these bytes of `slot` equal those of the other copies that hold them.
    #[inline]
    pub(crate) fn add(&mut self, slot: Slot, range: Range<usize>) {
        debug_assert!(range.is_empty() || range.end <= self.len);
        self.valid[slot.0].insert(range);
    }

    /// A write, overwrite or adoption: these bytes are valid in `slot` alone.
    #[inline]
    pub(crate) fn claim(&mut self, slot: Slot, range: Range<usize>) {
        for (index, ranges) in self.valid.iter_mut().enumerate() {
            if index != slot.0 {
                ranges.remove(&range);
            }
        }
        if self.origin.is_some() {
            self.leave_origin(&range);
        }
        self.add(slot, range);
    }

    /// Evicts: these bytes of `slot` are valid no more. The caller has asked [`Replicas::only_in`] first.
    pub(crate) fn give_up(&mut self, slot: Slot, range: &Range<usize>) {
        debug_assert!(self.only_in(slot, range).is_empty(), "the only copy");
        match self.valid.get_mut(slot.0) {
            Some(valid) => valid.remove(range),
            None => self.leave_origin(range),
        }
    }

    #[cold]
    fn leave_origin(&mut self, range: &Range<usize>) {
        let Some(origin) = &mut self.origin else { return };
        origin.remove(range);
        if origin.is_empty() {
            self.origin = None;
        }
    }

    /// The bytes of `range` that `slot`, a copy or the origin, alone holds.
    pub(crate) fn only_in(&self, slot: Slot, range: &Range<usize>) -> Ranges {
        let mut only = Ranges::new();
        for part in self.valid(slot).within(range) {
            only.insert(part);
        }
        for other in (0..self.slots()).map(Slot).chain([ORIGIN]).filter(|other| *other != slot) {
            self.valid(other).within(range).for_each(|part| only.remove(&part));
        }
        only
    }

    /// When `slot` has too many ranges: the smallest gap that `may_close` allows.
    pub(crate) fn gap_to_close(&self, slot: Slot, may_close: impl Fn(&Range<usize>) -> bool) -> Option<Range<usize>> {
        let valid = self.crowded(slot)?;
        valid.gaps().filter(may_close).min_by_key(|gap| gap.len())
    }

    /// When `slot` has too many ranges: the smallest range of which the other copies hold every byte, and that
    /// `may_drop` allows.
    pub(crate) fn range_to_drop(&self, slot: Slot, may_drop: impl Fn(&Range<usize>) -> bool) -> Option<Range<usize>> {
        let ranges = self.crowded(slot)?.iter();
        ranges.filter(|range| self.only_in(slot, range).is_empty() && may_drop(range)).min_by_key(|range| range.len())
    }

    /// Where the memory is valid, as Caffe would say it. A memory of no bytes is never more than `Uninitialized`.
    pub(crate) fn head(&self) -> Head {
        let whole = 0..self.len;
        let (hosts, devices) = self.valid.split_at(HOSTS);
        let mut host_lacks = Ranges::of(whole.clone());
        let held = hosts.iter().flat_map(Ranges::iter);
        held.for_each(|held| host_lacks.remove(&held));
        let host_all = host_lacks.is_empty();
        let host_none = hosts.iter().all(Ranges::is_empty);
        let device_all = devices.iter().any(|device| device.contains(&whole));
        let device_none = devices.iter().all(Ranges::is_empty);
        if host_none && device_none && self.origin.is_some() {
            Head::AtOrigin
        } else if host_none && device_none {
            Head::Uninitialized
        } else if host_all && device_none {
            Head::AtHost
        } else if host_none && device_all {
            Head::AtDevice
        } else if host_all && device_all {
            Head::Synced
        } else {
            Head::Mixed
        }
    }

    /// The ranges of `slot` if there are too many.
    pub(crate) fn crowded(&self, slot: Slot) -> Option<&Ranges> {
        Some(self.valid(slot)).filter(|valid| valid.has_more_than(self.most))
    }

    /// The source of the first bytes of `rest`, and the end of the run: where the source ends, or where a more
    /// preferred one begins.
    fn run(&self, rest: &Range<usize>, order: &[Slot]) -> (Option<Slot>, usize) {
        let mut run = rest.clone();
        let others = (0..self.slots()).map(Slot);
        for slot in order.iter().copied().chain(others) {
            let held = self.valid(slot).within(&run).next();
            match held {
                Some(held) if held.start == run.start => return (Some(slot), held.end),
                Some(held) => run.end = held.start,
                None => {}
            }
        }
        (None, run.end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};
    use std::iter;

    use super::*;

    /// One bit a byte.
    type Mask = u32;

    fn bits(range: &Range<usize>) -> Mask {
        range.clone().map(|byte| 1 << byte).sum()
    }

    fn mask(ranges: &Ranges) -> Mask {
        ranges.iter().map(|range| bits(&range)).sum()
    }

    /// An empty range, and all that are not.
    fn every_range(len: usize) -> impl Iterator<Item = Range<usize>> {
        let starts = 0..len;
        let all = starts.flat_map(move |start| (start + 1..=len).map(move |end| start..end));
        all.chain(iter::once(1..1))
    }

    /// The replicas, and the true bytes of each copy.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct World {
        replicas: Replicas,
        /// By slot: the bytes whose value is the newest one, or zero where nothing was written.
        newest: Vec<Mask>,
        /// The bytes that were written or read before, and so have a value to lose.
        touched: Mask,
    }

    impl World {
        fn new(len: usize, slots: usize) -> Self {
            let mut replicas = Replicas::new(len);
            while replicas.slots() < slots {
                replicas.add_slot();
            }
            World { replicas, newest: vec![0; slots], touched: 0 }
        }

        fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
            (0..self.replicas.slots()).map(Slot)
        }

        fn valid(&self, slot: Slot) -> Mask {
            mask(self.replicas.valid(slot))
        }

        fn others(&self, slot: Slot) -> Mask {
            let others = self.slots().filter(|other| *other != slot);
            others.fold(0, |held, other| held | self.valid(other))
        }

        /// Performs an action on the bytes, then tells the replicas.
        fn perform(&mut self, action: &Action) {
            match action {
                Action::Copy { from, to, range } => {
                    let moved = bits(range);
                    assert_eq!(self.valid(*from) & moved, moved, "a source that is stale");
                    let value = self.newest[from.0] & moved;
                    self.newest[to.0] = self.newest[to.0] & !moved | value;
                    self.replicas.add(*to, range.clone());
                }
                Action::Fill { to, range } => {
                    let zeroed = bits(range);
                    self.newest[to.0] = self.newest[to.0] & !zeroed | zeroed & !self.touched;
                    self.touched |= zeroed;
                    self.replicas.add(*to, range.clone());
                }
            }
        }

        fn claim(&mut self, slot: Slot, range: &Range<usize>) {
            let written = bits(range);
            self.newest.iter_mut().for_each(|newest| *newest &= !written);
            self.newest[slot.0] |= written;
            self.touched |= written;
            self.replicas.claim(slot, range.clone());
        }

        /// Bytes that were given up are garbage from then on: the block may be freed.
        fn give_up(&mut self, slot: Slot, range: &Range<usize>) {
            self.newest[slot.0] &= !bits(range);
            self.replicas.give_up(slot, range);
        }

        /// The rules of every state, from the bytes alone.
        fn check(&self) {
            let anywhere = self.slots().fold(0, |held, slot| held | self.valid(slot));
            assert_eq!(anywhere, self.touched, "a byte is lost, or was invented");
            assert_eq!(self.replicas.is_written(), self.touched != 0);
            for slot in self.slots() {
                let stale = self.valid(slot) & !self.newest[slot.0];
                assert_eq!(stale, 0, "{slot:?} has stale bytes that are called valid");
            }
            assert_eq!(self.replicas.head(), self.head());
        }

        fn head(&self) -> Head {
            let all = bits(&(0..self.replicas.len));
            let host = self.valid(Slot(0)) | self.valid(Slot(1));
            let devices: Vec<_> = self.slots().skip(2).map(|slot| self.valid(slot)).collect();
            let whole_device = devices.contains(&all);
            let empty_devices = devices.iter().all(|device| *device == 0);
            match (host == all, host == 0, whole_device, empty_devices) {
                (_, true, _, true) => Head::Uninitialized,
                (true, _, _, true) => Head::AtHost,
                (_, true, true, _) => Head::AtDevice,
                (true, _, true, _) => Head::Synced,
                _ => Head::Mixed,
            }
        }

        /// The actions of a read, byte by byte: the source of each byte, `None` for zero, joined into runs.
        fn plan(valid: &[Mask], to: Slot, range: &Range<usize>, order: &[Slot]) -> Vec<Action> {
            let has = |slot: Slot, byte: usize| valid[slot.0] >> byte & 1 == 1;
            let by_number = (0..valid.len()).map(Slot);
            let mut actions: Vec<(Option<Slot>, Range<usize>)> = Vec::new();
            for byte in range.clone().filter(|byte| !has(to, *byte)) {
                let mut sources = order.iter().copied().chain(by_number.clone());
                let from = sources.find(|from| has(*from, byte));
                match actions.last_mut() {
                    Some((last, run)) if *last == from && run.end == byte => run.end = byte + 1,
                    _ => actions.push((from, byte..byte + 1)),
                }
            }
            let actions = actions.into_iter().map(|(from, range)| match from {
                Some(from) => Action::Copy { from, to, range },
                None => Action::Fill { to, range },
            });
            actions.collect()
        }

        /// Every state one step away; on the way, everything that can be asked is compared with the bytes.
        fn steps(&self, orders: &[Vec<Slot>], mut reached: impl FnMut(World)) {
            let held: Vec<_> = self.slots().map(|slot| self.valid(slot)).collect();
            for slot in self.slots() {
                for range in every_range(self.replicas.len) {
                    let asked = bits(&range);
                    let valid = held[slot.0];
                    assert_eq!(self.replicas.holds(slot, &range), valid & asked == asked);
                    for order in orders {
                        let actions = self.replicas.read(slot, &range, order);
                        assert_eq!(actions, Self::plan(&held, slot, &range, order), "{order:?}");
                    }
                    let mut next = self.clone();
                    let actions = self.replicas.read(slot, &range, &[]);
                    actions.iter().for_each(|action| next.perform(action));
                    assert!(next.replicas.holds(slot, &range), "a read that fell short");
                    reached(next);
                    let mut next = self.clone();
                    next.claim(slot, &range);
                    reached(next);
                    let only = self.replicas.only_in(slot, &range);
                    assert_eq!(mask(&only), valid & asked & !self.others(slot));
                    if only.is_empty() {
                        let mut next = self.clone();
                        next.give_up(slot, &range);
                        reached(next);
                    }
                }
            }
        }
    }

    /// Checks every state that can be reached, and every step from it. Returns how many states there are.
    fn explore(len: usize, slots: usize, orders: &[Vec<Slot>]) -> usize {
        let start = World::new(len, slots);
        let mut seen = HashSet::from([start.clone()]);
        let mut todo = VecDeque::from([start]);
        while let Some(world) = todo.pop_front() {
            world.check();
            world.steps(orders, |next| {
                if !seen.contains(&next) {
                    seen.insert(next.clone());
                    todo.push_back(next);
                }
            });
        }
        seen.len()
    }

    #[test]
    fn every_state_of_three_copies_of_four_bytes_is_coherent() {
        let orders = [[0, 1, 2].map(Slot).to_vec(), [2, 1, 0].map(Slot).to_vec(), vec![Slot(1)]];
        // A byte is valid nowhere, or in one of the seven sets of copies.
        assert_eq!(explore(4, 3, &orders), 8 * 8 * 8 * 8);
    }

    #[test]
    fn every_state_of_two_copies_of_five_bytes_is_coherent() {
        let orders = [vec![Slot(1), Slot(0)]];
        assert_eq!(explore(5, 2, &orders), 4 * 4 * 4 * 4 * 4);
    }

    /// `count` ranges in slot 2, the one numbered `n` at `100 * n` and of `n + 1` bytes; slot 0 holds all bytes.
    fn scattered(count: usize) -> Replicas {
        let mut replicas = Replicas::new(10_000);
        replicas.most = MIN_RANGES;
        let slot = replicas.add_slot();
        for n in 0..count {
            replicas.add(slot, 100 * n..101 * n + 1);
        }
        replicas.add(Slot(0), 0..10_000);
        replicas
    }

    #[test]
    fn the_bound_goes_with_the_length() {
        let bounds = [1, 1 << 10, 4 << 10, 16 << 10, 1 << 40].map(|len| Replicas::new(len).most);
        assert_eq!(bounds, [16, 16, 64, 256, 256]);
    }

    #[test]
    fn only_more_than_sixteen_ranges_are_too_many() {
        for (count, crowded) in [(MIN_RANGES, false), (MIN_RANGES + 1, true)] {
            let replicas = scattered(count);
            assert_eq!(replicas.gap_to_close(Slot(2), |_| true).is_some(), crowded);
            assert_eq!(replicas.range_to_drop(Slot(2), |_| true).is_some(), crowded);
        }
    }

    #[test]
    fn the_smallest_gap_that_may_be_closed_is_closed() {
        let replicas = scattered(20);
        let close = |may: &dyn Fn(&Range<usize>) -> bool| replicas.gap_to_close(Slot(2), may);
        assert_eq!(close(&|_| true), Some(1819..1900));
        assert_eq!(close(&|gap| gap.end <= 1000), Some(910..1000));
        assert_eq!(close(&|_| false), None);
    }

    #[test]
    fn the_smallest_range_that_others_hold_and_that_may_go_is_dropped() {
        let mut replicas = scattered(20);
        let drop = |replicas: &Replicas, least: usize| replicas.range_to_drop(Slot(2), |range| range.len() >= least);
        assert_eq!(drop(&replicas, 0), Some(0..1));
        assert_eq!(drop(&replicas, 5), Some(400..405));
        assert_eq!(drop(&replicas, 21), None);
        replicas.claim(Slot(2), 0..1);
        replicas.claim(Slot(2), 101..102);
        assert_eq!(drop(&replicas, 0), Some(200..203), "0..1 and 101 are here alone");
        let other = replicas.add_slot();
        replicas.add(other, 101..102);
        assert_eq!(drop(&replicas, 0), Some(100..102), "two copies hold it together");
    }

    #[test]
    fn a_read_of_what_is_there_allocates_nothing() {
        let replicas = scattered(20);
        assert_eq!(replicas.read(Slot(2), &(1900..1920), &[Slot(0)]).capacity(), 0);
        assert_eq!(replicas.read(Slot(2), &(5..5), &[Slot(0)]).capacity(), 0);
        assert_eq!(replicas.read(Slot(2), &(1900..1921), &[Slot(0)]).len(), 1);
    }
}
