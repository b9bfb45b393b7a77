//! Byte ranges by number, any of which may overlap: is some byte of a range in one of them, and in which? Relies on
//! nothing. A treap by start, in which each node knows where the last range below it ends (Cormen et al., "Introduction
//! to Algorithms", interval trees): every question and change costs O(log n). No range is empty.

use std::cmp::Ordering;
use std::ops::Range;

/// The ranges, each with a number that no other range here has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intervals {
    nodes: Vec<Node>,
    /// Nodes that may be used again.
    free_links: Vec<Link>,
    root: Option<Link>,
}

/// For how many entries room is kept when the last has gone.
const KEPT: usize = 8;

/// A node's place in `nodes`.
type Link = usize;

#[derive(Clone, Debug)]
struct Node {
    range: Range<usize>,
    id: u64,
    /// The greatest end of this node's range and of all below it.
    last: usize,
    left: Option<Link>,
    right: Option<Link>,
}

/// The order of the nodes.
type Key = (usize, u64);

impl Node {
    fn key(&self) -> Key {
        (self.range.start, self.id)
    }
}

impl Intervals {
    /// One of the ranges that hold some byte of `range`: its number.
    pub(crate) fn find(&self, range: &Range<usize>) -> Option<u64> {
        let mut at = self.root.filter(|_| !range.is_empty());
        while let Some(link) = at {
            let node = &self.nodes[link];
            if self.last(node.left) > range.start {
                // If none of the left ones overlaps, the one that ends last there starts above, and so do all further
                // on.
                at = node.left;
            } else if node.range.start >= range.end {
                return None;
            } else if node.range.end > range.start {
                return Some(node.id);
            } else {
                at = node.right;
            }
        }
        None
    }

    /// Whether a range that holds some byte of `range` is `accepted`, by its number. Each that is not costs O(log n).
    pub(crate) fn any(&self, range: &Range<usize>, accepted: impl Fn(u64) -> bool) -> bool {
        !range.is_empty() && self.any_below(self.root, range, &accepted)
    }

    fn any_below(&self, link: Option<Link>, range: &Range<usize>, accepted: &impl Fn(u64) -> bool) -> bool {
        let Some(node) = link.map(|link| &self.nodes[link]).filter(|node| node.last > range.start) else {
            return false;
        };
        if self.any_below(node.left, range, accepted) {
            return true;
        }
        // What starts behind the range has nothing in it, nor has anything to the right.
        node.range.start < range.end
            && ((node.range.end > range.start && accepted(node.id)) || self.any_below(node.right, range, accepted))
    }

    /// Adds a range that is not empty.
    pub(crate) fn insert(&mut self, range: Range<usize>, id: u64) {
        let (key, end) = ((range.start, id), range.end);
        let node = Node { last: end, range, id, left: None, right: None };
        let link = match self.free_links.pop() {
            Some(link) => {
                self.nodes[link] = node;
                link
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        let mut above = None;
        let mut at = self.root;
        while let Some(here) = at.filter(|&here| weight(self.nodes[here].id) > weight(id)) {
            let node = &mut self.nodes[here];
            node.last = node.last.max(end);
            let right = node.key() < key;
            above = Some((here, right));
            at = if right { node.right } else { node.left };
        }
        (self.nodes[link].left, self.nodes[link].right) = self.split(at, key);
        self.measure(link);
        match above {
            Some((above, true)) => self.nodes[above].right = Some(link),
            Some((above, false)) => self.nodes[above].left = Some(link),
            None => self.root = Some(link),
        }
    }

    /// Takes a range out that was added with this number.
    pub(crate) fn remove(&mut self, range: &Range<usize>, id: u64) {
        self.root = self.cut(self.root, range.end, (range.start, id));
        if self.root.is_none() {
            // Room for a few stays: a borrow that comes and goes allocates nothing.
            self.nodes.clear();
            self.nodes.shrink_to(KEPT);
            self.free_links.clear();
            self.free_links.shrink_to(KEPT);
        }
    }

    /// The tree without the node of this key, whose range has this end.
    fn cut(&mut self, link: Option<Link>, end: usize, key: Key) -> Option<Link> {
        let link = link?;
        let Node { left, right, .. } = self.nodes[link];
        match self.nodes[link].key().cmp(&key) {
            Ordering::Less => self.nodes[link].right = self.cut(right, end, key),
            Ordering::Greater => self.nodes[link].left = self.cut(left, end, key),
            Ordering::Equal => {
                self.free_links.push(link);
                return self.merge(left, right);
            }
        }
        if self.nodes[link].last == end {
            self.measure(link);
        }
        Some(link)
    }

    fn last(&self, link: Option<Link>) -> usize {
        link.map_or(0, |link| self.nodes[link].last)
    }

    fn measure(&mut self, link: Link) {
        let Node { left, right, .. } = self.nodes[link];
        let below = self.last(left).max(self.last(right));
        let node = &mut self.nodes[link];
        node.last = node.range.end.max(below);
    }

    /// The nodes below `key`, and the others.
    fn split(&mut self, link: Option<Link>, key: Key) -> (Option<Link>, Option<Link>) {
        let Some(link) = link else {
            return (None, None);
        };
        let node = &self.nodes[link];
        if node.key() < key {
            let (low, high) = self.split(node.right, key);
            self.nodes[link].right = low;
            self.measure(link);
            (Some(link), high)
        } else {
            let (low, high) = self.split(node.left, key);
            self.nodes[link].left = high;
            self.measure(link);
            (low, Some(link))
        }
    }

    /// One tree of two, of which the first is below the second.
    fn merge(&mut self, low: Option<Link>, high: Option<Link>) -> Option<Link> {
        let (Some(one), Some(other)) = (low, high) else {
            return low.or(high);
        };
        let root = if weight(self.nodes[one].id) > weight(self.nodes[other].id) {
            self.nodes[one].right = self.merge(self.nodes[one].right, high);
            one
        } else {
            self.nodes[other].left = self.merge(low, self.nodes[other].left);
            other
        };
        self.measure(root);
        Some(root)
    }
}

/// Which of two nodes stands higher: practically random, so that the tree is about 2 log n high (the finishing
/// step of SplitMix64).
fn weight(id: u64) -> u64 {
    let mixed = (id ^ (id >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The height below a node, and that it is ordered, heaped and measured.
    fn check(tree: &Intervals, link: Option<Link>) -> usize {
        let Some(link) = link else { return 0 };
        let node = &tree.nodes[link];
        let mut last = node.range.end;
        let mut height = 0;
        for (child, above) in [(node.left, false), (node.right, true)] {
            if let Some(child) = child {
                let child = &tree.nodes[child];
                assert!(weight(child.id) <= weight(node.id));
                let after = (child.range.start, child.id) > (node.range.start, node.id);
                assert_eq!(after, above);
                last = last.max(child.last);
            }
            height = height.max(check(tree, child));
        }
        assert_eq!(node.last, last);
        height + 1
    }

    proptest::proptest! {
        #[test]
        fn a_range_is_found_where_a_list_finds_one(steps: Vec<(u8, u8, u8)>) {
            let mut tree = Intervals::default();
            let mut list: Vec<(u64, Range<usize>)> = Vec::new();
            for (id, (what, start, len)) in (0..).zip(steps) {
                let start = usize::from(start % 32);
                let range = start..start + usize::from(len % 8);
                let found = tree.find(&range);
                let overlaps = |held: &Range<usize>| held.start.max(range.start) < held.end.min(range.end);
                proptest::prop_assert_eq!(found.is_some(), list.iter().any(|(_, held)| overlaps(held)));
                if let Some(found) = found {
                    let held = list.iter().find(|(id, _)| *id == found);
                    proptest::prop_assert!(held.is_some_and(|(_, held)| overlaps(held)));
                }
                if what % 3 == 0 && !list.is_empty() {
                    let (id, range) = list.swap_remove(usize::from(what) % list.len());
                    tree.remove(&range, id);
                } else if !range.is_empty() {
                    tree.insert(range.clone(), id);
                    list.push((id, range));
                }
                check(&tree, tree.root);
                proptest::prop_assert_eq!(tree.root.is_none(), list.is_empty());
            }
        }
    }

    #[test]
    fn the_tree_stays_low_whatever_order_ranges_come_in() {
        for same in [true, false] {
            let mut tree = Intervals::default();
            for id in 0..10_000 {
                let start = if same { 0 } else { id as usize };
                tree.insert(start..start + 1, id);
            }
            // Twice the logarithm of 10,000 is 27; a list would be 10,000 high.
            let height = check(&tree, tree.root);
            assert!(height < 45, "{height} high");
        }
    }

    #[test]
    fn a_removed_node_is_used_again() {
        let mut tree = Intervals::default();
        tree.insert(0..1, 0);
        for id in 1..1000 {
            tree.insert(5..9, id);
            tree.remove(&(5..9), id);
        }
        assert_eq!(tree.nodes.len(), 2);
        for id in 1..1000 {
            tree.insert(5..9, id);
        }
        (1..1000).for_each(|id| tree.remove(&(5..9), id));
        tree.remove(&(0..1), 0);
        assert!(tree.nodes.capacity() <= KEPT, "room for a thousand is kept");
    }
}
