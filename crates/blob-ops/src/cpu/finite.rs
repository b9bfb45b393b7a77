//! NaN and Inf by their exponent bits alone: no conversion, so it runs as fast as memory.

use super::{Kernel, Machine};
use bytemuck::Pod;
use std::ops::BitAnd;

/// Words tested before anyone looks at the answer.
const STEP: usize = 1024;

/// A float as an unsigned word.
pub(crate) trait Word: Pod + BitAnd<Output = Self> + Eq + Default {}
impl Word for u16 {}
impl Word for u32 {}
impl Word for u64 {}

/// Which elements are not finite.
pub(crate) struct Find<'a, W> {
    /// Whole elements.
    pub(crate) bytes: &'a [u8],
    /// All exponent bits.
    pub(crate) exponent: W,
    /// All fraction bits: none of them set means Inf.
    pub(crate) fraction: W,
}

/// How many, and the index of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Found {
    pub(crate) nan: u64,
    pub(crate) inf: u64,
    pub(crate) first: Option<u64>,
}

impl<W: Word> Kernel for Find<'_, W> {
    type Out = Found;
    #[inline(always)]
    fn run<M: Machine>(self) -> Found {
        let mut found = Found::default();
        for (step, words) in self.bytes.chunks(STEP * size_of::<W>()).enumerate() {
            let mut any = false;
            for word in words.chunks_exact(size_of::<W>()) {
                any |= self.not_finite(bytemuck::pod_read_unaligned(word));
            }
            if any {
                self.count(words, (step * STEP) as u64, &mut found);
            }
        }
        found
    }
}

impl<W: Word> Find<'_, W> {
    #[inline(always)]
    fn not_finite(&self, word: W) -> bool {
        word & self.exponent == self.exponent
    }

    #[inline(always)]
    fn count(&self, words: &[u8], start: u64, found: &mut Found) {
        for (i, word) in words.chunks_exact(size_of::<W>()).enumerate() {
            let word = bytemuck::pod_read_unaligned(word);
            if self.not_finite(word) {
                found.first.get_or_insert(start + i as u64);
                let inf = word & self.fraction == W::default();
                found.inf += u64::from(inf);
                found.nan += u64::from(!inf);
            }
        }
    }
}
