//! NaN and Inf by their exponent bits alone: no conversion, so it runs as fast as memory.
//!
//! ```text
//! for each step of 1024 words: any = some word has all exponent bits set; only then count them one by one
//! ```

use super::Isa;
use super::lanes::no_kernel;
use super::machine::{Kernel, Machine};
use blob_core::DType;
use bytemuck::Pod;
use half::{bf16, f16};
use std::ops::BitAnd;

/// Words tested before the answer is looked at.
const STEP: usize = 1024;

/// Looks for NaN and Inf among whole elements.
pub(crate) fn find(isa: Isa, dtype: DType, bytes: &[u8]) -> Found {
    match dtype {
        DType::F16 => isa.run(Find { bytes, exponent: f16::INFINITY.to_bits(), fraction: 0x03FF }),
        DType::BF16 => isa.run(Find { bytes, exponent: bf16::INFINITY.to_bits(), fraction: 0x007F }),
        DType::F32 => isa.run(Find { bytes, exponent: f32::INFINITY.to_bits(), fraction: 0x007F_FFFF }),
        DType::F64 => isa.run(Find { bytes, exponent: f64::INFINITY.to_bits(), fraction: (1 << 52) - 1 }),
        other if other.is_float() => no_kernel(other),
        _ => Found::default(),
    }
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
