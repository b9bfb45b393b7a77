//! Numbers drawn from a seed: SplitMix64 (Steele, Lea, Flood 2014), which is a counter and a mixing of its bits.

use std::ops::Range;

pub(crate) struct Draw(u64);

impl Draw {
    /// A sequence of its own for each path of numbers, such as seed, thread and step.
    pub(crate) fn new(path: &[u64]) -> Self {
        let mut draw = Self(0x9E37_79B9_7F4A_7C15);
        for number in path {
            draw.0 ^= *number;
            draw.0 = draw.next();
        }
        draw
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// One of 0, 1, …, `count` - 1; `count` is not 0.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    /// Whether one of `count` equal chances has come true.
    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A range within 0..len: often short, sometimes all, now and then empty.
    pub(crate) fn range(&mut self, len: usize) -> Range<usize> {
        let longest = match self.below(8) {
            0 => return 0..len,
            1..=4 => len.min(9),
            _ => len,
        };
        let start = self.below(len + 1);
        let end = (start + self.below(longest + 1)).min(len);
        start..end
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
