//! Statistics of one block of 8- or 16-bit integers: every sum is exact, so any order gives the same bits.
//!
//! ```text
//! for each lane x: sum += x, abs += |x|, squares += x²; m2 = (n·squares − sum²) / n
//! ```

use super::machine::Machine;
use super::order::Ordered;
use super::reduce::Described;
use crate::tree::Partial;
use std::ops::AddAssign;

/// `$square` holds the squares of a block: 4096·2¹⁶ for 8 bits, 4096·2³² for 16.
macro_rules! narrow {
    ($($lane:ty: $square:ty;)*) => { $(
        impl Described for $lane {
            #[inline(always)]
            fn describe<M: Machine>(lanes: &[Self], _: &[u8]) -> Partial {
                of_lanes::<$square, _>(lanes)
            }
        }
    )* };
}
narrow!(u8: u32; i8: u32; u16: u64; i16: u64;);

#[inline(always)]
fn of_lanes<S: Default + AddAssign + From<u32> + Into<u64>, L: Ordered + Into<i32>>(lanes: &[L]) -> Partial {
    let order = L::order(lanes);
    let (mut sum, mut abs, mut squares) = (0i32, 0u32, S::default());
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
