//! A set of bytes as few ranges: sorted, disjoint, never adjacent, never empty. Relies on nothing. The usual sets, no
//! range and one range, stand in the value itself and never allocate. A set has no bound: its owner coarsens a set that
//! has grown too long, or gives bytes up.

use std::iter;
use std::ops::Range;

/// Whether two ranges have a byte in common.
#[inline]
pub(crate) fn meet(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

/// A set of byte ranges. Two equal sets have the same ranges, however the sets were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ranges {
    /// The lowest range; `0..0` when the set is empty.
    first: Range<usize>,
    /// The ranges above `first`.
    rest: Vec<Range<usize>>,
}

impl Ranges {
    /// The empty set.
    pub(crate) const fn new() -> Self {
        Ranges { first: 0..0, rest: Vec::new() }
    }

    /// The bytes of one range, which may be empty.
    pub(crate) fn of(range: Range<usize>) -> Self {
        let mut ranges = Ranges::new();
        ranges.insert(range);
        ranges
    }

    /// Whether no byte is in the set.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// How many ranges the set has.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(!self.is_empty()) + self.rest.len()
    }

    /// Whether the set has more than `most` ranges, of which there is one at least.
    #[inline]
    pub(crate) fn has_more_than(&self, most: usize) -> bool {
        self.rest.len() >= most
    }

    /// Whether every byte of `range` is in the set: always, if `range` is empty.
    #[inline]
    pub(crate) fn contains(&self, range: &Range<usize>) -> bool {
        // Neighbours are not adjacent, so one of ours holds all of it or the set does not.
        range.is_empty() || self.reaching(range).is_some_and(|ours| ours.start <= range.start && range.end <= ours.end)
    }

    /// Whether some byte of `range` is in the set.
    #[inline]
    pub(crate) fn overlaps(&self, range: &Range<usize>) -> bool {
        !range.is_empty() && self.reaching(range).is_some_and(|ours| ours.start < range.end)
    }

    /// Adds the bytes of `range`, as one range with all those that `range` overlaps or touches.
    #[inline]
    pub(crate) fn insert(&mut self, range: Range<usize>) {
        if !self.contains(&range) {
            self.merge(range);
        }
    }

    fn merge(&mut self, range: Range<usize>) {
        if self.is_empty() {
            self.first = range;
            return;
        }
        let from = self.count_while(|ours| ours.end < range.start);
        let to = self.count_while(|ours| ours.start <= range.end);
        let mut whole = range;
        if from < to {
            whole.start = whole.start.min(self.at(from).start);
            whole.end = whole.end.max(self.at(to - 1).end);
        }
        self.replace(from..to, [whole, 0..0]);
    }

    /// Takes the bytes of `range` out.
    #[inline]
    pub(crate) fn remove(&mut self, range: &Range<usize>) {
        if self.overlaps(range) {
            self.cut(range);
        }
    }

    fn cut(&mut self, range: &Range<usize>) {
        if self.rest.is_empty() && range.start <= self.first.start && self.first.end <= range.end {
            *self = Ranges::new();
            return;
        }
        let from = self.count_while(|ours| ours.end <= range.start);
        let to = self.count_while(|ours| ours.start < range.end);
        let below = self.at(from).start..range.start;
        let above = range.end..self.at(to - 1).end;
        self.replace(from..to, [below, above]);
    }

    /// The ranges, from the lowest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let first = iter::once(&self.first).filter(|first| !first.is_empty());
        first.chain(&self.rest).cloned()
    }

    /// The parts of the set that lie inside `range`.
    pub(crate) fn within<'a>(&'a self, range: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let Range { start, end } = *range;
        let from = self.count_while(|ours| ours.end <= start);
        (from..self.len())
            .map(|index| self.at(index))
            .take_while(move |ours| ours.start < end && start < end)
            .map(move |ours| ours.start.max(start)..ours.end.min(end))
    }

    /// The bytes of `range` that are not in the set.
    pub(crate) fn missing(&self, range: &Range<usize>) -> Ranges {
        let mut missing = Ranges::new();
        let mut from = range.start;
        for ours in self.within(range) {
            missing.append(from..ours.start);
            from = ours.end;
        }
        missing.append(from..range.end);
        missing
    }

    /// Adds a range above all others, and not adjacent to them. An empty range adds nothing.
    fn append(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        if self.is_empty() { self.first = range } else { self.rest.push(range) }
    }

    /// The gaps between neighbours, one fewer than there are ranges.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let pairs = self.iter().zip(self.iter().skip(1));
        pairs.map(|(below, above)| below.end..above.start)
    }

    /// Closes the smallest gaps, the lowest of equal ones first, until at most `most` ranges stand, or one. For sets in
    /// which a byte too much is safe.
    pub(crate) fn coarsen(&mut self, most: usize) {
        while self.len() > most {
            let Some(gap) = self.gaps().min_by_key(|gap| gap.len()) else {
                return;
            };
            self.insert(gap);
        }
    }

    /// The lowest of our ranges that ends above the start of `range`.
    #[inline]
    fn reaching(&self, range: &Range<usize>) -> Option<&Range<usize>> {
        // An empty set has `0..0` here, which no range starts below.
        if range.start < self.first.end {
            return Some(&self.first);
        }
        self.rest.get(self.rest.partition_point(|ours| ours.end <= range.start))
    }

    /// How many ranges from the lowest on are `low`: `low` holds up to some range, and for none above it.
    #[inline]
    fn count_while(&self, low: impl Fn(&Range<usize>) -> bool) -> usize {
        if self.is_empty() || !low(&self.first) {
            return 0;
        }
        1 + self.rest.partition_point(low)
    }

    /// The range of that index.
    fn at(&self, index: usize) -> &Range<usize> {
        match index.checked_sub(1) {
            None => &self.first,
            Some(index) => &self.rest[index],
        }
    }

    /// Puts those of `pieces` that are not empty in the place of the ranges of these indices.
    fn replace(&mut self, indices: Range<usize>, pieces: [Range<usize>; 2]) {
        let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
        if let Some(start) = indices.start.checked_sub(1) {
            self.rest.splice(start..indices.end - 1, pieces);
            return;
        }
        let kept = (indices.end == 0 && !self.is_empty()).then(|| self.first.clone());
        let mut front = pieces.chain(kept);
        let first = front.next();
        self.rest.splice(..indices.end.saturating_sub(1), front);
        self.first = match first {
            Some(first) => first,
            None if self.rest.is_empty() => 0..0,
            None => self.rest.remove(0),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: usize = 8;

    /// The set whose bytes are the bits of `mask`, put in one at a time, from the highest.
    fn set(mask: u32) -> Ranges {
        let mut ranges = Ranges::new();
        for byte in (0..SPAN).rev().filter(|byte| mask >> byte & 1 == 1) {
            ranges.insert(byte..byte + 1);
        }
        ranges
    }

    /// The runs of set bits, found byte by byte: the definition of every set here.
    fn runs(mask: u32) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for byte in (0..SPAN).filter(|byte| mask >> byte & 1 == 1) {
            match runs.last_mut() {
                Some(run) if run.end == byte => run.end = byte + 1,
                _ => runs.push(byte..byte + 1),
            }
        }
        runs
    }

    fn bits(range: &Range<usize>) -> u32 {
        range.clone().map(|byte| 1 << byte).sum()
    }

    /// Every range of the span, also the empty ones.
    fn every_range() -> impl Iterator<Item = Range<usize>> {
        (0..=SPAN).flat_map(|start| (start..=SPAN).map(move |end| start..end))
    }

    fn listed(ranges: &Ranges) -> Vec<Range<usize>> {
        ranges.iter().collect()
    }

    /// Compares with the definition, and with the same set made in another way: equality rests on a set having one
    /// form.
    fn check(ranges: &Ranges, mask: u32) {
        assert_eq!(listed(ranges), runs(mask));
        assert_eq!(*ranges, set(mask), "the form of a set is unique");
    }

    #[test]
    fn every_set_of_eight_bytes_is_as_its_bytes_say() {
        for mask in 0..1 << SPAN {
            let (ranges, runs) = (set(mask), runs(mask));
            check(&ranges, mask);
            assert_eq!(ranges.is_empty(), mask == 0);
            assert_eq!(ranges.len(), runs.len());
            let gaps: Vec<_> = runs.windows(2).map(|two| two[0].end..two[1].start).collect();
            assert_eq!(ranges.gaps().collect::<Vec<_>>(), gaps);
        }
    }

    #[test]
    fn every_range_meets_every_set_as_its_bytes_say() {
        for mask in 0..1 << SPAN {
            let ranges = set(mask);
            for range in every_range() {
                let asked = bits(&range);
                assert_eq!(ranges.contains(&range), mask & asked == asked, "{range:?}");
                assert_eq!(ranges.overlaps(&range), mask & asked != 0, "{range:?}");
                let within: Vec<_> = ranges.within(&range).collect();
                assert_eq!(within, runs(mask & asked), "{ranges:?} within {range:?}");
                check(&ranges.missing(&range), asked & !mask);
                let mut more = ranges.clone();
                more.insert(range.clone());
                check(&more, mask | asked);
                let mut less = ranges.clone();
                less.remove(&range);
                check(&less, mask & !asked);
            }
        }
    }

    #[test]
    fn coarsening_closes_the_smallest_gaps_and_no_more_than_it_must() {
        for mask in 0..1 << SPAN {
            for most in 0..=SPAN {
                let mut coarse = set(mask);
                coarse.coarsen(most);
                let mut gaps: Vec<_> = set(mask).gaps().collect();
                gaps.sort_by_key(|gap| gap.len());
                let closed = set(mask).len().saturating_sub(most.max(1));
                let expected = gaps[..closed].iter().map(bits).sum::<u32>() | mask;
                check(&coarse, expected);
            }
        }
    }

    #[test]
    fn one_range_stands_in_the_value_itself() {
        let mut ranges = Ranges::of(4..8);
        ranges.insert(2..6);
        ranges.insert(8..9);
        ranges.remove(&(2..3));
        ranges.remove(&(7..20));
        assert_eq!(ranges, Ranges::of(3..7));
        assert_eq!(ranges.missing(&(0..5)).rest.capacity(), 0);
        ranges.remove(&(0..usize::MAX));
        ranges.insert(0..usize::MAX);
        assert!(ranges.contains(&(0..usize::MAX)));
        assert_eq!(ranges.rest.capacity(), 0, "nothing was allocated");
    }

    #[test]
    fn a_range_that_ends_before_it_starts_is_empty() {
        #[expect(clippy::reversed_empty_ranges)]
        let backwards = 5..2;
        let mut ranges = Ranges::of(0..8);
        ranges.remove(&backwards);
        ranges.insert(backwards.clone());
        assert_eq!(ranges, Ranges::of(0..8));
        assert!(ranges.contains(&backwards) && !ranges.overlaps(&backwards));
        assert_eq!(ranges.within(&backwards).count(), 0);
        assert!(Ranges::of(backwards).is_empty());
    }
}
