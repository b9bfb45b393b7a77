//! Finds entries by name: the entries' indices, sorted by name at the first look-up. Takes four bytes an entry.

use std::sync::OnceLock;

#[derive(Debug, Default)]
pub(super) struct Lookup(OnceLock<Vec<u32>>);

impl Lookup {
    /// The index of `name` among `len` entries, whose names `name_of` returns. The names must never change.
    pub(super) fn find<'n>(&self, name: &str, len: usize, name_of: impl Fn(usize) -> &'n str) -> Option<usize> {
        let name_of = |index: &u32| name_of(*index as usize);
        let order = self.0.get_or_init(|| {
            let mut order: Vec<u32> = (0..len as u32).collect();
            order.sort_unstable_by_key(name_of);
            order
        });
        let found = order.binary_search_by(|index| name_of(index).cmp(name)).ok()?;
        Some(order[found] as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_hundred_thousand_names_are_found_in_logarithmic_time() {
        let names: Vec<String> = (0..100_000_u32).map(|i| format!("{:x}", i.wrapping_mul(2_654_435_761))).collect();
        let (lookup, looks) = (Lookup::default(), Cell::new(0_u64));
        let name_of = |index: usize| {
            looks.set(looks.get() + 1);
            names[index].as_str()
        };
        for (index, name) in names.iter().enumerate() {
            assert_eq!(lookup.find(name, names.len(), name_of), Some(index));
            // With log n = 17, sorting reads two names for each of n log n comparisons, and a search reads 17.
            assert!(looks.get() < 100_000 * (4 * 17 + 18), "{}", looks.get());
        }
        assert_eq!(lookup.find("nothing", names.len(), name_of), None);
    }
}
