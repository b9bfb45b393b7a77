//! Where the names of a table are cut: at one place in all, and so that no two look alike.
//!
//! Pure. A shown name then stands for one tensor, which `select` finds again.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::output::width::{cut_ends, dots, width};

/// So many places are tried. Few are enough, as names differ at an end or shortly before.
const TRIES: usize = 24;

/// The columns that are kept at the two ends of a name which is wider than both and the dots between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    head: usize,
    tail: usize,
}

/// The names of a table's rows.
pub(crate) trait EachName {
    /// Calls a function with every name.
    fn each(&self, call: &mut dyn FnMut(&str));
}

impl<F: Fn(&mut dyn FnMut(&str))> EachName for F {
    fn each(&self, call: &mut dyn FnMut(&str)) {
        self(call);
    }
}

impl Cut {
    /// The cut in the middle of names of more than `most` columns.
    pub(super) fn middle(most: usize, ascii: bool) -> Self {
        let room = most.saturating_sub(width(dots(ascii)));
        Self { head: room.div_ceil(2), tail: room / 2 }
    }

    /// A cut to `most` columns that leaves no two names alike; `None` if there is none.
    pub(crate) fn distinct(names: &dyn EachName, most: usize, ascii: bool) -> Option<Self> {
        let room = most.checked_sub(width(dots(ascii)))?;
        let mut heads: Vec<usize> = (0..=TRIES).map(|step| room * step / TRIES).collect();
        heads.push(room.div_ceil(2));
        // From the middle on; the beginnings of names are more alike than the ends.
        heads.sort_by_key(|head| ((2 * head).abs_diff(room.next_multiple_of(2)), *head));
        heads.dedup();
        heads.into_iter().map(|head| Self { head, tail: room - head }).find(|cut| cut.is_distinct(names, ascii))
    }

    fn is_distinct(self, names: &dyn EachName, ascii: bool) -> bool {
        let (mut seen, mut is_distinct) = (HashSet::new(), true);
        names.each(&mut |name| {
            if is_distinct {
                let mut hasher = DefaultHasher::new();
                self.of(name, ascii).hash(&mut hasher);
                is_distinct = seen.insert(hasher.finish());
            }
        });
        is_distinct
    }

    /// A name, cut.
    pub(crate) fn of(self, name: &str, ascii: bool) -> Cow<'_, str> {
        cut_ends(name, self.head, self.tail, ascii)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(names: &[&str], most: usize) -> Option<Vec<String>> {
        let cut = Cut::distinct(&|each: &mut dyn FnMut(&str)| names.iter().for_each(|name| each(name)), most, false)?;
        Some(names.iter().map(|name| cut.of(name, false).into_owned()).collect())
    }

    #[test]
    fn names_are_cut_where_they_are_alike() {
        let deep = ["net_stage1_unit1_conv0_weight", "net_stage1_unit1_conv1_weight", "net_stage2_unit1_conv0_weight"];
        assert_eq!(shown(&deep, 29).unwrap(), deep);
        // Cut in the middle, the first two would both be `net_stage1…1_weight` or the like.
        let at = shown(&deep, 24).unwrap();
        assert_eq!(at.iter().collect::<HashSet<_>>().len(), 3, "{at:?}");
        assert!(at.iter().all(|name| width(name) <= 24), "{at:?}");
        assert_eq!(shown(&["abcdefgh-1-hgfedcba", "abcdefgh-2-hgfedcba"], 8), None);
    }
}
