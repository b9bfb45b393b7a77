//! A bit for each byte of memory: whether it was written.

/// A row of bits, at first all unset.
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub(crate) fn new(len: usize) -> Bits {
        Bits { words: vec![0; len.div_ceil(64)] }
    }

    /// Sets the bits of a range.
    pub(crate) fn set(&mut self, at: usize, len: usize) {
        for (word, mask) in masks(at, len) {
            self.words[word] |= mask;
        }
    }

    /// Whether all bits of a range are set.
    pub(crate) fn has(&self, at: usize, len: usize) -> bool {
        masks(at, len).all(|(word, mask)| self.words[word] & mask == mask)
    }

    /// The bits of a range as a row of their own.
    pub(crate) fn part(&self, at: usize, len: usize) -> Bits {
        let mut part = Bits::new(len);
        let word = |index: usize| self.words.get(index).copied().unwrap_or_default();
        for (index, each) in part.words.iter_mut().enumerate() {
            let (low, shift) = (at / 64 + index, at % 64);
            *each = word(low) >> shift | word(low + 1).checked_shl(64 - shift as u32).unwrap_or_default();
        }
        part
    }

    /// Takes over the bits of another row, which has this many, from `at` on.
    pub(crate) fn put(&mut self, at: usize, from: &Bits, len: usize) {
        for (word, mask) in masks(at, len) {
            // The row's bits that belong to this word: those before `at` do not count.
            let bits = match (word * 64).checked_sub(at) {
                Some(skipped) => from.part(skipped, (len - skipped).min(64)).words[0],
                None => from.words[0] << (at - word * 64),
            };
            self.words[word] = self.words[word] & !mask | bits & mask;
        }
    }
}

/// The words that a range touches, each with the bits of the range there.
fn masks(at: usize, len: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = at + len;
    (at / 64..end.div_ceil(64)).filter(move |_| len > 0).map(move |word| {
        let from = at.saturating_sub(word * 64);
        let to = (end - word * 64).min(64);
        (word, (!0 << from) & (!0 >> (64 - to)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_part_put_elsewhere_is_the_same(set in 0..200usize, len in 0..200usize, at in 0..100usize, to in 0..100usize, n in 0..100usize) {
            let (mut from, mut into) = (Bits::new(400), Bits::new(400));
            from.set(set, len);
            into.set(50, 3);
            let before = into.part(0, 400);
            into.put(to, &from.part(at, n), n);
            for index in 0..400 {
                let inside = (to..to + n).contains(&index);
                let wanted = if inside { from.has(at + index - to, 1) } else { before.has(index, 1) };
                prop_assert_eq!(into.has(index, 1), wanted, "{}", index);
            }
            prop_assert!(n == 0 || into.has(to, n) == from.has(at, n));
        }
    }
}
