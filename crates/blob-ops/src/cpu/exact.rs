//! Statistics of one block of 8- or 16-bit integers: every sum is exact, so any order gives the same bits.

use super::lanes::{Element, Lane, Scratch};
use super::{Kernel, Machine};
use crate::tree::Partial;
use std::marker::PhantomData;
use std::ops::AddAssign;

/// An integer of at most 16 bits.
pub(crate) trait Narrow: Lane + Into<i32> {
    /// Holds the squares of a block: 4096·2¹⁶ for 8 bits, 4096·2³² for 16.
    type Square: Default + AddAssign + From<u32> + Into<u64>;
}
impl Narrow for u8 {
    type Square = u32;
}
impl Narrow for i8 {
    type Square = u32;
}
impl Narrow for u16 {
    type Square = u64;
}
impl Narrow for i16 {
    type Square = u64;
}

/// The statistics of at least one and at most [`BLOCK`](super::lanes::BLOCK) elements.
pub(crate) struct Exact<'a, E> {
    pub(crate) bytes: &'a [u8],
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) element: PhantomData<E>,
}

impl<E: Element<Lane: Narrow>> Kernel for Exact<'_, E> {
    type Out = Partial;
    #[inline(always)]
    fn run<M: Machine>(self) -> Partial {
        let lanes = E::lanes(self.bytes, self.scratch);
        let order = E::Lane::order(lanes);
        let (mut sum, mut abs) = (0i32, 0u32);
        let mut squares = <E::Lane as Narrow>::Square::default();
        for &x in lanes {
            let v: i32 = x.into();
            sum += v;
            abs += v.unsigned_abs();
            squares += (v.unsigned_abs() * v.unsigned_abs()).into();
        }
        let (count, squares) = (lanes.len() as u64, squares.into());
        // n·Σx² − (Σx)² ≤ 2¹²·2¹²·2³², so that the only rounding is the division's.
        let spread = (count * squares) as i64 - i64::from(sum) * i64::from(sum);
        Partial {
            count,
            nan: 0,
            inf: 0,
            zeros: order.zeros,
            sum: sum.into(),
            abs: abs.into(),
            squares: squares as f64,
            m2: spread as f64 / count.max(1) as f64,
            min: order.min.scalar(),
            max: order.max.scalar(),
        }
    }
}
