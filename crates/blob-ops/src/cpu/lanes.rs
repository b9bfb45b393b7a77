//! Raw bytes to lanes: one [`Element`] for each dtype, one [`Lane`] for each type that kernels compute in.
//!
//! ```text
//! stored as lanes, aligned:  the bytes themselves          f16, bf16, bool:  lane[i] = widened element i, in scratch
//! ```
//! A lane holds its element exactly; only i64 and u64 are rounded, when they become f64.
//! Bytes may lie at any alignment. Nothing here knows instruction sets: the vectoriser sees slices and arrays.

use crate::scalar::Scalar;
use bytemuck::Pod;
use half::{bf16, f16};
use std::ops::AddAssign;

/// Lanes in a row: two AVX-512 registers of f64, four of AVX2, eight of SSE2.
pub(crate) const LANES: usize = 16;

/// Rows in a group. Sixteen steps of one lane are written out for the compiler, which then takes several lanes at once;
/// written the other way round, the compiler takes the lanes apart, at least with thin LTO, and is three times slower.
pub(crate) const ROWS: usize = 16;

/// Elements in a group.
pub(crate) const GROUP: usize = ROWS * LANES;

/// Elements in a block: 16 KiB of f32, which stays in the first-level cache for the second pass.
pub(crate) const BLOCK: usize = 4096;

/// Room for the lanes of one block, of any type: 32 KiB, kept on the stack by each worker. Cleared only when a dtype
/// is not stored as its lanes: clearing it for a sum of 64 KiB of f32, which has no need of it, took a fifth of the
/// time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch(Option<[u64; BLOCK]>);

impl Scratch {
    /// As many lanes, of any content.
    #[inline(always)]
    fn lanes<L: Pod>(&mut self, len: usize) -> &mut [L] {
        &mut bytemuck::cast_slice_mut(self.0.get_or_insert_with(cleared))[..len]
    }
}

/// Not inlined: the room is cleared only where used.
#[inline(never)]
fn cleared() -> [u64; BLOCK] {
    [0; BLOCK]
}

/// Runs the body with a name for the type that stands for the dtype; for bools another body where one is given.
macro_rules! with_element {
    ($dtype:expr, $element:ident => $body:expr) => {
        with_element!($dtype, $element => $body, Bool => {
            type $element = $crate::cpu::lanes::Bool;
            $body
        })
    };
    ($dtype:expr, $element:ident => $body:expr, Bool => $bool:expr) => {
        blob_core::with_dtype!($dtype, $element => $body, Bool => $bool)
    };
}

pub(crate) use with_element;

/// How the bytes of one dtype become lanes.
pub(crate) trait Element {
    /// The type that kernels compute in.
    type Lane: Lane;
    /// The bytes of one element.
    type Raw: Pod;
    /// Bytes of an element.
    const SIZE: usize = size_of::<Self::Raw>();

    /// One element.
    fn lane(raw: Self::Raw) -> Self::Lane;

    /// The lanes of at most [`BLOCK`] whole elements: the bytes themselves where type and alignment allow.
    fn lanes<'a>(bytes: &'a [u8], scratch: &'a mut Scratch) -> &'a [Self::Lane];
}

/// A number that a kernel compares in its own type and sums as f64.
pub(crate) trait Lane: Pod + PartialOrd {
    /// An integer as wide as the lane, so that counting needs no change of width.
    type Tally: Copy + Default + AddAssign + From<bool> + Into<u64>;
    const ZERO: Self;
    /// Whether the square of every value is an f64.
    const EXACT_SQUARE: bool;
    /// Not above any value.
    const LOWEST: Self;
    /// Not below any value.
    const HIGHEST: Self;

    fn wide(self) -> f64;
    fn is_finite(self) -> bool;
    fn scalar(self) -> Scalar;
    /// How many NaN and how many ±Inf.
    fn not_finite(lanes: &[Self]) -> (u64, u64);
}

macro_rules! float_lane {
    ($lane:ty, $tally:ty) => {
        impl Lane for $lane {
            type Tally = $tally;
            const ZERO: Self = 0.0;
            const EXACT_SQUARE: bool = 2 * <$lane>::MANTISSA_DIGITS <= f64::MANTISSA_DIGITS;
            const LOWEST: Self = <$lane>::NEG_INFINITY;
            const HIGHEST: Self = <$lane>::INFINITY;
            #[inline(always)]
            fn wide(self) -> f64 {
                self.into()
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                self.abs() < <$lane>::INFINITY
            }
            #[inline(always)]
            fn scalar(self) -> Scalar {
                Scalar::F(self.into())
            }
            #[inline(always)]
            fn not_finite(lanes: &[Self]) -> (u64, u64) {
                let (mut nan, mut inf) = (0, 0);
                for x in lanes {
                    nan += <$tally>::from(x.is_nan());
                    inf += <$tally>::from(x.abs() == <$lane>::INFINITY);
                }
                (nan.into(), inf.into())
            }
        }
    };
}
float_lane!(f32, u32);
float_lane!(f64, u64);

macro_rules! integer_lane {
    ($lane:ty, $tally:ty, $scalar:ident) => {
        impl Lane for $lane {
            type Tally = $tally;
            const ZERO: Self = 0;
            const EXACT_SQUARE: bool = size_of::<$lane>() <= 2;
            const LOWEST: Self = <$lane>::MIN;
            const HIGHEST: Self = <$lane>::MAX;
            #[inline(always)]
            fn wide(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                true
            }
            #[inline(always)]
            fn scalar(self) -> Scalar {
                Scalar::$scalar(self.into())
            }
            #[inline(always)]
            fn not_finite(_: &[Self]) -> (u64, u64) {
                (0, 0)
            }
        }
    };
}
integer_lane!(i8, u32, I);
integer_lane!(u8, u32, U);
integer_lane!(i16, u32, I);
integer_lane!(u16, u32, U);
integer_lane!(i32, u32, I);
integer_lane!(u32, u32, U);
integer_lane!(i64, u64, I);
integer_lane!(u64, u64, U);

macro_rules! stored_as_lanes {
    ($($element:ty)*) => { $(
        impl Element for $element {
            type Lane = $element;
            type Raw = [u8; size_of::<$element>()];
            #[inline(always)]
            fn lane(raw: Self::Raw) -> $element {
                <$element>::from_ne_bytes(raw)
            }
            #[inline(always)]
            fn lanes<'a>(bytes: &'a [u8], scratch: &'a mut Scratch) -> &'a [$element] {
                bytemuck::try_cast_slice(bytes).unwrap_or_else(|_| {
                    let copy = scratch.lanes(bytes.len());
                    copy.copy_from_slice(bytes);
                    bytemuck::cast_slice(copy)
                })
            }
        }
    )* };
}
stored_as_lanes!(i8 u8 i16 u16 i32 u32 i64 u64 f32 f64);

/// The marker of [`DType::Bool`](blob_core::DType): a byte, and every byte but 0 counts as 1.
pub(crate) struct Bool;

macro_rules! converted {
    ($element:ty, $lane:ty, $size:literal, $convert:expr) => {
        impl Element for $element {
            type Lane = $lane;
            type Raw = [u8; $size];
            #[inline(always)]
            fn lane(raw: Self::Raw) -> $lane {
                $convert(raw)
            }
            #[inline(always)]
            fn lanes<'a>(bytes: &'a [u8], scratch: &'a mut Scratch) -> &'a [$lane] {
                let raw = bytes.as_chunks::<$size>().0;
                let lanes = scratch.lanes(raw.len());
                for (lane, raw) in lanes.iter_mut().zip(raw) {
                    *lane = Self::lane(*raw);
                }
                lanes
            }
        }
    };
}
converted!(Bool, u8, 1, |[byte]: [u8; 1]| u8::from(byte != 0));
converted!(f16, f32, 2, |raw| widen_f16(u16::from_ne_bytes(raw)));
converted!(bf16, f32, 2, |raw| f32::from_bits(u32::from(u16::from_ne_bytes(raw)) << 16));

/// Exact, branch-free and without subnormal operands, which cost a microcode assist on some machines.
///
/// The two-way trick of Maratyszcza's FP16 (`fp16_ieee_to_fp32_value`): normal numbers are moved into place and
/// rescaled, subnormal ones are made the low bits of 0.5, from which 0.5 is taken away again.
#[inline(always)]
pub(super) fn widen_f16(bits: u16) -> f32 {
    let word = u32::from(bits) << 16;
    let sign = word & 0x8000_0000;
    let twice = word.wrapping_add(word);
    let normal = f32::from_bits((twice >> 4) + (0xE0 << 23)) * f32::from_bits(0x0780_0000);
    let subnormal = f32::from_bits((twice >> 17) | (126 << 23)) - 0.5;
    let magnitude = if twice < 1 << 27 { subnormal } else { normal };
    f32::from_bits(sign | magnitude.to_bits())
}
