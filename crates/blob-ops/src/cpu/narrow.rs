//! Numbers to f16 and bf16 with one rounding, to nearest even: branch-free integer code that vectorises.
//!
//! Wider numbers come through an f32 that is rounded to odd and so differs from every value and from every midpoint of
//! two values of the narrow type unless it is exact, so that the second rounding sees the truth (Boldo and Melquiond,
//! *Emulation of FMA and correctly rounded sums*, IEEE TC 57, 2008). An f32 has at least two bits more than either
//! type, among subnormal numbers too.
//!
//! ```text
//! f16:  bits = (magnitude + half a last place, less one, plus the last bit) >> 13, exponent moved by 112
//! bf16: bits = (bits + half a last place, less one, plus the last bit) >> 16
//! ```

/// All bits but the sign.
const MAGNITUDE: u32 = 0x7FFF_FFFF;

/// The bits of Inf.
const INFINITE: u32 = 0x7F80_0000;

/// The nearest f16. NaN keeps the sign and the upper bits of its payload, and is quiet.
#[inline(always)]
pub(crate) fn to_f16(x: f32) -> u16 {
    let magnitude = x.to_bits() & MAGNITUDE;
    let sign = (x.to_bits() >> 16) & 0x8000;
    // The last place of 0.5 is that of an f16 subnormal, so that this addition rounds to it.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let even = (magnitude >> 13) & 1;
    // From 65520 on it rounds to Inf, or past it.
    let normal = (magnitude.wrapping_add(0xFFF + even) >> 13).wrapping_sub(112 << 10);
    let small = magnitude < 113 << 23;
    let number = if small { subnormal } else { normal.min(0x7C00) };
    let nan = 0x7E00 | ((magnitude >> 13) & 0x3FF);
    let found = if magnitude > INFINITE { nan } else { number };
    (sign | found) as u16
}

/// The nearest bf16. NaN keeps the sign and the upper bits of its payload, and is quiet.
#[inline(always)]
pub(crate) fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let number = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | 0x40;
    let is_nan = bits & MAGNITUDE > INFINITE;
    (if is_nan { nan } else { number }) as u16
}

/// A number that can be rounded to odd.
pub(crate) trait Odd: Copy {
    /// Rounds to odd: the number as f32 if exact, else the neighbour whose last bit is set.
    fn odd(self) -> f32;
}

impl Odd for f32 {
    #[inline(always)]
    fn odd(self) -> f32 {
        self
    }
}

impl Odd for f64 {
    #[inline(always)]
    fn odd(self) -> f32 {
        let near = self as f32;
        let bits = near.to_bits();
        // A NaN has no neighbours. From an even one the other neighbour lies on the other side of the number; of Inf it
        // is the greatest finite number, of 0 the least subnormal one of the same sign.
        let inexact = f64::from(near) != self && !self.is_nan();
        let away = f64::from(near).abs() > self.abs();
        let other = if away { bits.wrapping_sub(1) } else { bits.wrapping_add(1) };
        f32::from_bits(if inexact && bits & 1 == 0 { other } else { bits })
    }
}

macro_rules! exact_in {
    ($wider:ty: $($integer:ty)*) => { $(
        impl Odd for $integer {
            #[inline(always)]
            fn odd(self) -> f32 {
                <$wider>::from(self).odd()
            }
        }
    )* };
}
exact_in!(f32: i8 u8 i16 u16);
exact_in!(f64: i32 u32);

macro_rules! long {
    ($integer:ty) => {
        impl Odd for $integer {
            #[inline(always)]
            fn odd(self) -> f32 {
                // 53 bits are left, and the lost ones mark the last of them.
                let lost = <$integer>::from(self & 0x7FF != 0);
                let marked = ((self >> 11) | lost) << 11;
                let short = self.abs_diff(0) <= 1 << 53;
                (if short { self as f64 } else { marked as f64 }).odd()
            }
        }
    };
}
long!(i64);
long!(u64);
