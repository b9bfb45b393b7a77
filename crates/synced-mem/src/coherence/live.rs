//! The live guards under which one queue may launch more work of one kind, each with its range. A few of the newest
//! stand in a list, which costs no allocation once grown; older ones stand in trees, so that the end of a guard, and
//! the question whether one is in the way, cost O(log n) of n, and a guard that soon ends reaches no tree. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::coherence::intervals::Intervals;

/// How many guards stand in the list, at most, as in `borrows`.
const FEW: usize = 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct LiveGuards {
    /// At most [`FEW`].
    few: Vec<Guard>,
    /// The others, if there are any: boxed, because most memories never have as many.
    many: Option<Box<Many>>,
}

/// A guard that was not yet released.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub(crate) number: u64,
    pub(crate) entered: u64,
    pub(crate) range: Range<usize>,
}

impl Guard {
    fn meets(&self, range: &Range<usize>) -> bool {
        self.range.start < range.end && range.start < self.range.end
    }
}

/// Guards in trees. Never empty.
#[derive(Clone, Debug, Default)]
struct Many {
    held: BTreeMap<u64, Guard>,
    /// Their ranges, by number.
    places: Intervals,
}

impl LiveGuards {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_none()
    }

    #[inline]
    pub(crate) fn insert(&mut self, guard: Guard) {
        if self.few.len() == FEW {
            self.move_to_trees(0);
        }
        self.few.push(guard);
    }

    #[cold]
    fn move_to_trees(&mut self, index: usize) {
        let guard = self.few.remove(index);
        let many = self.many.get_or_insert_default();
        many.places.insert(guard.range.clone(), guard.number);
        many.held.insert(guard.number, guard);
    }

    /// Takes a guard out, if it is here: its range.
    #[inline]
    pub(crate) fn remove(&mut self, number: u64) -> Option<Range<usize>> {
        match self.few.iter().rposition(|guard| guard.number == number) {
            Some(at) => Some(self.few.swap_remove(at).range),
            None if self.many.is_none() => None,
            None => self.remove_of_trees(number),
        }
    }

    #[cold]
    fn remove_of_trees(&mut self, number: u64) -> Option<Range<usize>> {
        let many = self.many.as_mut()?;
        let guard = many.held.remove(&number)?;
        many.places.remove(&guard.range, number);
        if many.held.is_empty() {
            self.many = None;
        }
        Some(guard.range)
    }

    /// Whether a guard has a byte of `range`, and was entered at a moment that is `awaited`.
    #[inline]
    pub(crate) fn any(&self, range: &Range<usize>, awaited: impl Fn(u64) -> bool) -> bool {
        self.few.iter().any(|guard| guard.meets(range) && awaited(guard.entered))
            || self.many.as_ref().is_some_and(|many| many.any(range, awaited))
    }

    pub(crate) fn append(&mut self, other: Self) {
        let many = other.many.into_iter().flat_map(|many| many.held.into_values());
        other.few.into_iter().chain(many).for_each(|guard| self.insert(guard));
    }
}

impl Many {
    #[cold]
    fn any(&self, range: &Range<usize>, awaited: impl Fn(u64) -> bool) -> bool {
        self.places.any(range, |number| self.held.get(&number).is_some_and(|guard| awaited(guard.entered)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn guards_in_trees_answer_as_those_in_a_list(steps: Vec<(u8, u8, u8, u8)>) {
            let mut guards = LiveGuards::default();
            let mut list: Vec<Guard> = Vec::new();
            for (number, (what, start, len, moment)) in (0..).zip(steps) {
                let start = usize::from(start % 64);
                let range = start..start + 1 + usize::from(len % 8);
                let awaited = |entered: u64| entered < u64::from(moment);
                let meets = |guard: &Guard| guard.range.start.max(range.start) < guard.range.end.min(range.end);
                let expected = list.iter().any(|guard| meets(guard) && awaited(guard.entered));
                proptest::prop_assert_eq!(guards.any(&range, awaited), expected);
                if what % 4 == 0 && !list.is_empty() {
                    let guard = list.swap_remove(usize::from(what) % list.len());
                    proptest::prop_assert_eq!(guards.remove(guard.number), Some(guard.range));
                    proptest::prop_assert_eq!(guards.remove(guard.number), None);
                } else {
                    let guard = Guard { number, entered: u64::from(moment), range };
                    guards.insert(guard.clone());
                    list.push(guard);
                }
                proptest::prop_assert_eq!(guards.is_empty(), list.is_empty());
                if what == 1 {
                    let mut joined = LiveGuards::default();
                    joined.append(guards);
                    guards = joined;
                }
            }
        }
    }

    /// Counted, not timed: how many guards a question looks at.
    #[test]
    fn a_question_looks_at_the_guards_in_the_way_alone() {
        let mut guards = LiveGuards::default();
        for number in 0..100_000 {
            let start = number as usize * 8;
            guards.insert(Guard { number, entered: number, range: start..start + 8 });
        }
        assert_eq!(guards.few.len(), FEW);
        let asked = std::cell::Cell::new(0);
        for at in [400, 50_000, 99_999] {
            let range = at * 8..at * 8 + 12;
            asked.set(0);
            assert!(!guards.any(&range, |_| {
                asked.set(asked.get() + 1);
                false
            }));
            assert_eq!(asked.get(), if at == 99_999 { 1 } else { 2 });
        }
        // A guard that comes and goes reaches no tree, once there is room in the list.
        let in_trees = |guards: &LiveGuards| guards.many.as_ref().map_or(0, |many| many.held.len());
        let mut trees = None;
        for number in 100_000..100_100 {
            guards.insert(Guard { number, entered: number, range: 0..8 });
            assert_eq!(in_trees(&guards), *trees.get_or_insert(in_trees(&guards)));
            guards.remove(number);
            assert_eq!(Some(in_trees(&guards)), trees);
        }
        for number in 0..100_000 {
            assert!(guards.remove(number).is_some());
        }
        assert!(guards.is_empty());
    }
}
