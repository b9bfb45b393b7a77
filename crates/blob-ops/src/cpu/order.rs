//! Minimum, maximum and zeros of a block: exact in any order, in the lane's own type.
//!
//! ```text
//! for each lane x: min = lesser of (x, min), max = greater of (x, max), zeros += (x == 0)
//! ```
//! Integers go through one accumulator, which the compiler may split as it likes. It may not with floats, for which
//! 16 lanes are kept.

// Lanes are indexed because several arrays walk together.
#![allow(clippy::needless_range_loop)]

use super::lanes::{GROUP, LANES, Lane, ROWS};

/// Of a block of at least one element.
pub(crate) struct Order<L> {
    /// Without meaning if all is NaN, as `max`.
    pub(crate) min: L,
    pub(crate) max: L,
    pub(crate) zeros: u64,
}

/// A lane whose extremes and zeros are known of a block.
pub(crate) trait Ordered: Lane {
    /// The extremes and the zeros among `lanes`, NaN left out.
    fn order(lanes: &[Self]) -> Order<Self>;
}

macro_rules! ordered {
    ($order:ident: $($lane:ty)*) => { $(
        impl Ordered for $lane {
            #[inline(always)]
            fn order(lanes: &[Self]) -> Order<Self> {
                $order(lanes)
            }
        }
    )* };
}
ordered!(of_floats: f32 f64);
ordered!(of_integers: i8 u8 i16 u16 i32 u32 i64 u64);

#[inline(always)]
fn of_integers<L: Lane + Ord>(lanes: &[L]) -> Order<L> {
    let (mut min, mut max) = (L::HIGHEST, L::LOWEST);
    let mut zeros = L::Tally::default();
    for &x in lanes {
        min = min.min(x);
        max = max.max(x);
        zeros += (x == L::ZERO).into();
    }
    Order { min, max, zeros: zeros.into() }
}

#[inline(always)]
fn of_floats<L: Lane>(lanes: &[L]) -> Order<L> {
    let (groups, last) = lanes.as_chunks::<GROUP>();
    let mut min = [L::HIGHEST; LANES];
    let mut max = [L::LOWEST; LANES];
    let mut zeros = [L::Tally::default(); LANES];
    for group in groups {
        for i in 0..LANES {
            for row in 0..ROWS {
                let x = group[row * LANES + i];
                min[i] = lower(x, min[i]);
                max[i] = higher(x, max[i]);
                zeros[i] += (x == L::ZERO).into();
            }
        }
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            min[i] = lower(min[i + half], min[i]);
            max[i] = higher(max[i + half], max[i]);
        }
    }
    let mut order = Order { min: min[0], max: max[0], zeros: zeros.into_iter().map(Into::into).sum() };
    for &x in last {
        order.min = lower(x, order.min);
        order.max = higher(x, order.max);
        order.zeros += u64::from(x == L::ZERO);
    }
    order
}

/// `b` if `a` is NaN: operands as `minps` takes them.
#[inline(always)]
fn lower<L: Lane>(a: L, b: L) -> L {
    if a < b { a } else { b }
}

/// `b` if `a` is NaN.
#[inline(always)]
fn higher<L: Lane>(a: L, b: L) -> L {
    if a > b { a } else { b }
}
