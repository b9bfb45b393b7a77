//! NaN and Inf by their exponent bits alone: no conversion, so it runs as fast as memory.
//!
//! ```text
//! for each step of 1024 words: any = some word has all exponent bits set; only then count them one by one
//! ```

use super::Isa;
use super::machine::{Kernel, Machine};
use blob_core::{DType, with_dtype};
use bytemuck::Pod;
use half::{bf16, f16};
use std::ops::BitAnd;

/// Words tested before the answer is looked at.
const STEP: usize = 1024;

/// Looks for NaN and Inf among whole elements.
pub(crate) fn find(isa: Isa, dtype: DType, bytes: &[u8]) -> Found {
    with_dtype!(dtype, T => T::find(isa, bytes))
}

/// An element type, by which of its values are not finite.
trait Search {
    fn find(_: Isa, _: &[u8]) -> Found {
        Found::default()
    }
}

macro_rules! finite {
    ($($element:ty)*) => { $(impl Search for $element {})* };
}

finite!(u8 i8 i16 u16 i32 u32 i64 u64 bool);

macro_rules! floats {
    ($($float:ty, $fraction_bits:literal;)*) => { $(
        impl Search for $float {
            fn find(isa: Isa, bytes: &[u8]) -> Found {
                isa.run(Find { bytes, exponent: <$float>::INFINITY.to_bits(), fraction: (1 << $fraction_bits) - 1 })
            }
        }
    )* };
}

floats! {
    f16, 10;
    bf16, 7;
    f32, 23;
    f64, 52;
}

/// A float as an unsigned word.
trait Word: Pod + BitAnd<Output = Self> + Eq + Default {}
impl Word for u16 {}
impl Word for u32 {}
impl Word for u64 {}

/// Which elements are not finite.
struct Find<'a, W> {
    /// Whole elements.
    bytes: &'a [u8],
    /// All exponent bits.
    exponent: W,
    /// All fraction bits: none of them set means Inf.
    fraction: W,
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
