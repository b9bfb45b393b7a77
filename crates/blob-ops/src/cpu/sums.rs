//! Σ|x| and Σx² of one block: floats in f64 with 16 lanes, integers exactly. No FMA but where it changes no bit.
//!
//! ```text
//! lane[element mod 16] of a group of 256 += f(x), lanes of the block += lanes of the group
//! lanes are added as a tree: 0+8, 1+9, …, then 0+4, …, 0+2, …, 0+1
//! ```
//! The two levels leave a lane 15 + 15 additions where one level would have 255, at the cost of one in sixteen: on
//! Caffe's tables one level is off by up to 2·10⁻¹⁵.
//!
//! Elements missing in a last group of 256 are zeros, which change no bit of a sum of numbers that are not negative.
//! NaN and Inf take part, as in Caffe's `asum` and `sumsq`; `reduce.rs`, for statistics, leaves them out.

// Lanes are indexed because several arrays walk together.
#![allow(clippy::needless_range_loop)]

use super::Isa;
use super::lanes::{Element, GROUP, LANES, Lane, ROWS, Scratch, with_element};
use super::machine::{Kernel, Machine};
use crate::tree::Join;
use blob_core::DType;
use std::marker::PhantomData;

/// The terms that are added up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Term {
    Absolute,
    Square,
}

/// The sum of a run of elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Total {
    Float(f64),
    /// Exact, or `u128::MAX` where that is no u64 anyway.
    Whole(u128),
}

impl Join for Total {
    fn join(self, right: Self) -> Self {
        match (self, right) {
            (Total::Float(left), Total::Float(right)) => Total::Float(left + right),
            (Total::Whole(left), Total::Whole(right)) => Total::Whole(left.saturating_add(right)),
            // A tensor has one dtype.
            (left, _) => left,
        }
    }
}

/// The sum of the terms of a block of whole elements. Asks for nothing ahead: a block is read once and in order, and
/// with a prefetch of the next one a sum took 0.55 of memcpy's time instead of 0.47 (256 MiB of f32, AMD EPYC Zen 4).
pub(crate) fn block(isa: Isa, term: Term, dtype: DType, bytes: &[u8], scratch: &mut Scratch) -> Total {
    // Conversion to f64 bounds the sum of squares: 16,384 f32 in cache take 1.33 µs in registers of AVX-512, 1.07 with
    // FMA, 0.80 with FMA in those of AVX2; sums of magnitudes 1.22 and 1.65 (AMD EPYC Zen 4).
    let isa = match term {
        Term::Square => isa.narrower(),
        Term::Absolute => isa,
    };
    with_element!(dtype, E => isa.run(Sum::<E> { term, bytes, scratch, element: PhantomData }))
}

struct Sum<'a, E> {
    term: Term,
    bytes: &'a [u8],
    scratch: &'a mut Scratch,
    element: PhantomData<E>,
}

impl<E: Element<Lane: Summed>> Kernel for Sum<'_, E> {
    type Out = Total;
    #[inline(always)]
    fn run<M: Machine>(self) -> Total {
        E::Lane::total::<M>(self.term, E::lanes(self.bytes, self.scratch))
    }
}

/// A lane whose magnitudes and squares can be summed.
trait Summed: Lane {
    fn total<M: Machine>(term: Term, lanes: &[Self]) -> Total;
}

macro_rules! float {
    ($($lane:ty)*) => { $(
        impl Summed for $lane {
            #[inline(always)]
            fn total<M: Machine>(term: Term, lanes: &[Self]) -> Total {
                Total::Float(match term {
                    Term::Absolute => sum(lanes, |sum, v| sum + v.abs()),
                    // The same bits, as the product is exact.
                    Term::Square if M::FUSED && Self::EXACT_SQUARE => sum(lanes, |sum, v| v.mul_add(v, sum)),
                    Term::Square => sum(lanes, |sum, v| sum + v * v),
                })
            }
        }
    )* };
}
float!(f32 f64);

#[inline(always)]
fn sum<L: Lane>(lanes: &[L], add: impl Fn(f64, f64) -> f64) -> f64 {
    let (groups, last) = lanes.as_chunks::<GROUP>();
    let mut sums = [0.0; LANES];
    for group in groups {
        add_group(&mut sums, group, &add);
    }
    if !last.is_empty() {
        let mut group = [L::ZERO; GROUP];
        group[..last.len()].copy_from_slice(last);
        add_group(&mut sums, &group, &add);
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
    }
    sums[0]
}

#[inline(always)]
fn add_group<L: Lane>(sums: &mut [f64; LANES], group: &[L; GROUP], add: &impl Fn(f64, f64) -> f64) {
    for i in 0..LANES {
        let mut sum = 0.0;
        for row in 0..ROWS {
            sum = add(sum, group[row * LANES + i].wide());
        }
        sums[i] += sum;
    }
}

macro_rules! integer {
    ($($lane:ty)*) => { $(
        impl Summed for $lane {
            #[inline(always)]
            fn total<M: Machine>(term: Term, lanes: &[Self]) -> Total {
                let magnitudes = lanes.iter().map(|x| u64::from(x.abs_diff(0)));
                if term == Term::Absolute {
                    return Total::Whole(halves(magnitudes));
                }
                // A square of 2⁶⁴ or more: the total is no u64.
                if magnitudes.clone().fold(0, |all, x| all | x) >> 32 != 0 {
                    return Total::Whole(u128::MAX);
                }
                Total::Whole(halves(magnitudes.map(|x| x * x)))
            }
        }
    )* };
}
integer!(i8 u8 i16 u16 i32 u32 i64 u64);

/// The sum of at most 2³² numbers; upper and lower halves are added separately, so that nothing overflows.
#[inline(always)]
fn halves(terms: impl Iterator<Item = u64>) -> u128 {
    let (mut low, mut high) = (0u64, 0u64);
    for x in terms {
        low += x & 0xFFFF_FFFF;
        high += x >> 32;
    }
    u128::from(low) + (u128::from(high) << 32)
}
