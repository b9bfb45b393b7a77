//! Statistics of one block: 16 lanes in f64, passes over a block that lies in the first-level cache, no FMA.
//!
//! ```text
//! sum[i] += x,  abs[i] += |x|                       for lane i = element mod 16
//! m2[i] += (x − mean)²,  squares[i] += x²           with mean = sum/n
//! lanes are added as a tree: 0+8, 1+9, …, then 0+4, …, 0+2, …, 0+1
//! ```
//! A block that has NaN or Inf (seen by its Σ|x|, which then is not finite), or a last row of fewer than 16, is first
//! copied with something harmless in the holes. Plain Rust, inlined into each instruction set by `Isa::run`; as Rust
//! neither reorders nor contracts float arithmetic, all of them give the same bits.

// Lanes are indexed because several arrays walk together.
#![allow(clippy::needless_range_loop)]

use super::Isa;
use super::lanes::{BLOCK, Element, GROUP, LANES, Lane, ROWS, Scratch, with_element};
use super::machine::{Kernel, Machine};
use super::order::Ordered;
use crate::tree::Partial;
use blob_core::DType;
use std::marker::PhantomData;

/// The statistics of a block of whole elements, at least one. `ahead` are the bytes that follow, asked for while
/// this block is in the cache and memory would idle.
pub(crate) fn block(isa: Isa, dtype: DType, bytes: &[u8], ahead: &[u8], scratch: &mut Scratch) -> Partial {
    with_element!(dtype, E => isa.run(Describe::<E> { bytes, ahead, scratch, element: PhantomData }))
}

struct Describe<'a, E> {
    bytes: &'a [u8],
    ahead: &'a [u8],
    scratch: &'a mut Scratch,
    element: PhantomData<E>,
}

impl<E: Element<Lane: Described>> Kernel for Describe<'_, E> {
    type Out = Partial;
    #[inline(always)]
    fn run<M: Machine>(self) -> Partial {
        // 8-byte elements wait for memory anyway, and 2-byte ones for the arithmetic: no gain.
        let ahead = if E::SIZE == 4 { self.ahead } else { &[] };
        E::Lane::describe::<M>(E::lanes(self.bytes, self.scratch), ahead)
    }
}

/// A lane that has statistics: those of a float, 32- or 64-bit integer are here, the others in `exact.rs`.
pub(crate) trait Described: Ordered {
    /// Of at least one and at most [`BLOCK`] lanes.
    fn describe<M: Machine>(lanes: &[Self], ahead: &[u8]) -> Partial;
}

macro_rules! wide {
    ($($lane:ty)*) => { $(
        impl Described for $lane {
            #[inline(always)]
            fn describe<M: Machine>(lanes: &[Self], ahead: &[u8]) -> Partial {
                of_lanes::<M, _>(lanes, ahead)
            }
        }
    )* };
}
wide!(f32 f64 i32 u32 i64 u64);

#[inline(always)]
fn of_lanes<M: Machine, L: Ordered>(lanes: &[L], ahead: &[u8]) -> Partial {
    let (groups, last) = lanes.as_chunks();
    let sums = if last.is_empty() { Sums::of_full::<M, _>(groups, ahead) } else { None };
    let sums = sums.unwrap_or_else(|| Sums::with_holes::<M, _>(lanes));
    let order = L::order(lanes);
    Partial {
        count: lanes.len() as u64,
        nan: sums.nan,
        inf: sums.inf,
        zeros: order.zeros,
        sum: sums.sum,
        abs: sums.abs,
        squares: sums.squares,
        m2: sums.m2,
        min: order.min.scalar(),
        max: order.max.scalar(),
    }
}

/// Σx, Σ|x|, Σx² and Σ(x − mean)² over the finite elements, and how many others there are.
struct Sums {
    nan: u64,
    inf: u64,
    sum: f64,
    abs: f64,
    squares: f64,
    m2: f64,
}

impl Sums {
    /// Of rows without holes, or `None` if there is one, or if Σ|x| overflows.
    #[inline(always)]
    fn of_full<M: Machine, L: Lane>(groups: &[[L; GROUP]], ahead: &[u8]) -> Option<Self> {
        let (sum, abs) = sum_and_abs(groups);
        if !abs.is_finite() {
            return None;
        }
        let (m2, squares) = m2_and_squares::<M, _>(groups, ahead, sum / (groups.len() * GROUP) as f64);
        Some(Sums { nan: 0, inf: 0, sum, abs, squares, m2 })
    }

    /// The same additions, with the element 0, or the difference 0, where there is no finite element.
    #[inline(always)]
    fn with_holes<M: Machine, L: Lane>(lanes: &[L]) -> Self {
        let (nan, inf) = L::not_finite(lanes);
        let mut filled = [0.0; BLOCK];
        let groups = lanes.len().div_ceil(GROUP);
        fill(&mut filled, lanes, 0.0);
        let (sum, abs) = sum_and_abs(&filled.as_chunks().0[..groups]);
        let (squares, _) = m2_and_squares::<M, _>(&filled.as_chunks().0[..groups], &[], 0.0);
        let mean = match lanes.len() as u64 - nan - inf {
            0 => 0.0,
            count => sum / count as f64,
        };
        fill(&mut filled, lanes, mean);
        let (m2, _) = m2_and_squares::<M, _>(&filled.as_chunks().0[..groups], &[], mean);
        Sums { nan, inf, sum, abs, squares, m2 }
    }
}

/// `lanes` as f64, with `hole` for values that are not finite or missing at the end.
#[inline(always)]
fn fill<L: Lane>(filled: &mut [f64; BLOCK], lanes: &[L], hole: f64) {
    let (used, missing) = filled.split_at_mut(lanes.len());
    for (v, &x) in used.iter_mut().zip(lanes) {
        *v = if x.is_finite() { x.wide() } else { hole };
    }
    missing.fill(hole);
}

#[inline(always)]
fn sum_and_abs<L: Lane>(groups: &[[L; GROUP]]) -> (f64, f64) {
    let mut sum = [0.0; LANES];
    let mut abs = [0.0; LANES];
    for group in groups {
        for i in 0..LANES {
            for row in 0..ROWS {
                let v = group[row * LANES + i].wide();
                sum[i] += v;
                abs[i] += v.abs();
            }
        }
    }
    (tree_sum(sum), tree_sum(abs))
}

#[inline(always)]
fn m2_and_squares<M: Machine, L: Lane>(groups: &[[L; GROUP]], ahead: &[u8], mean: f64) -> (f64, f64) {
    let mut m2 = [0.0; LANES];
    let mut squares = [0.0; LANES];
    let mut ahead = ahead.chunks(size_of::<[L; GROUP]>());
    for group in groups {
        for line in ahead.next().unwrap_or(&[]).chunks(64) {
            M::prefetch(line);
        }
        for i in 0..LANES {
            for row in 0..ROWS {
                let v = group[row * LANES + i].wide();
                let d = v - mean;
                m2[i] += d * d;
                squares[i] += v * v;
            }
        }
    }
    (tree_sum(m2), tree_sum(squares))
}

#[inline(always)]
fn tree_sum(mut lanes: [f64; LANES]) -> f64 {
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}
