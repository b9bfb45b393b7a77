//! Elements of one dtype as those of another.
//!
//! The rules are those of `blob_ops::convert`, which this crate does not know: everything becomes the nearest element.

use blob_core::{DType, Element};
use half::{bf16, f16};

/// A Rust type as which any array can be read. Sealed: the types of [`DType`] and no others.
///
/// A value becomes the nearest one of the type: rounded to nearest even, once, on the way to a float, cut towards zero
/// on the way to an integer. A value out of range becomes an infinity, or the least or greatest integer. NaN is 0 as an
/// integer. A bool is 0 or 1, and everything but 0 is true.
pub trait Number: Element + sealed::Convert {}

impl<T: Element + sealed::Convert> Number for T {}

mod sealed {
    /// A value that holds one of any dtype.
    #[derive(Clone, Copy)]
    pub enum Wide {
        Int(i128),
        Float(f64),
    }

    pub trait Convert: Sized {
        /// Reads a stored value, whose bytes are little-endian and as many as the type has.
        fn stored(bytes: &[u8]) -> Wide;
        fn nearest(value: Wide) -> Self;
    }
}

use sealed::{Convert, Wide};

/// The bytes of exactly one element.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap_or([0; N])
}

macro_rules! numbers {
    ($wide:ident, $value:ident => $nearest:expr, $($number:ty)*) => { $(
        impl Convert for $number {
            fn stored(bytes: &[u8]) -> Wide {
                Wide::$wide(Self::from_le_bytes(array(bytes)).into())
            }

            fn nearest($value: Wide) -> Self {
                $nearest
            }
        }
    )* };
}

numbers!(Int, value => match value {
    Wide::Int(value) => value.clamp(Self::MIN.into(), Self::MAX.into()) as Self,
    Wide::Float(value) => value as Self,
}, u8 i8 i16 u16 i32 u32 i64 u64);
numbers!(Float, value => match value {
    Wide::Int(value) => value as Self,
    Wide::Float(value) => value as Self,
}, f32 f64);
numbers!(Float, value => Self::from_f32(to_odd(value)), f16 bf16);

impl Convert for bool {
    fn stored(bytes: &[u8]) -> Wide {
        Wide::Int(bytes.iter().any(|byte| *byte != 0).into())
    }

    fn nearest(value: Wide) -> Self {
        match value {
            Wide::Int(value) => value != 0,
            Wide::Float(value) => value != 0.0,
        }
    }
}

/// Rounds to odd: of the two neighbours of a value that f32 lacks, the one whose last bit is set. Rounding that to a
/// narrower float gives the same as rounding the value itself.
fn to_odd(value: Wide) -> f32 {
    let (near, order) = match value {
        Wide::Int(value) => (value as f32, (value as f32 as i128).unsigned_abs().cmp(&value.unsigned_abs())),
        Wide::Float(value) => {
            let near = value as f32;
            (near, f64::from(near).abs().partial_cmp(&value.abs()).unwrap_or(std::cmp::Ordering::Equal))
        }
    };
    match order {
        std::cmp::Ordering::Equal => near,
        std::cmp::Ordering::Greater => f32::from_bits((near.to_bits() - 1) | 1),
        std::cmp::Ordering::Less => f32::from_bits(near.to_bits() | 1),
    }
}

/// Appends the elements in these little-endian bytes, each as the nearest one of another type; `None` for a dtype that
/// no array of this crate's formats has.
pub(crate) fn convert<T: Number>(dtype: DType, bytes: &[u8], out: &mut Vec<T>) -> Option<()> {
    let stored = match dtype {
        DType::F32 => f32::stored,
        DType::F64 => f64::stored,
        DType::F16 => f16::stored,
        DType::BF16 => bf16::stored,
        DType::U8 => u8::stored,
        DType::I8 => i8::stored,
        DType::I16 => i16::stored,
        DType::U16 => u16::stored,
        DType::I32 => i32::stored,
        DType::U32 => u32::stored,
        DType::I64 => i64::stored,
        DType::U64 => u64::stored,
        DType::Bool => bool::stored,
        _ => return None,
    };
    out.extend(bytes.chunks_exact(dtype.size()).map(|value| T::nearest(stored(value))));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one<T: Number>(dtype: DType, bytes: &[u8]) -> T {
        let mut out = Vec::new();
        convert(dtype, bytes, &mut out).expect("a known dtype");
        out.pop().expect("one value")
    }

    #[test]
    fn values_become_the_nearest() {
        assert_eq!(one::<i8>(DType::F32, &(-1e9_f32).to_le_bytes()), -128);
        assert_eq!(one::<i8>(DType::F32, &f32::NAN.to_le_bytes()), 0);
        assert_eq!(one::<u8>(DType::I64, &(-3_i64).to_le_bytes()), 0);
        assert_eq!(one::<i32>(DType::F64, &(-1.9_f64).to_le_bytes()), -1);
        assert_eq!(one::<f32>(DType::U64, &u64::MAX.to_le_bytes()), 1.8446744e19);
        assert_eq!(one::<f16>(DType::F64, &1e9_f64.to_le_bytes()), f16::INFINITY);
        assert!(one::<bool>(DType::F32, &f32::NAN.to_le_bytes()));
        assert_eq!(one::<f64>(DType::Bool, &[1]), 1.0);
        assert_eq!(one::<i64>(DType::I64, &i64::MIN.to_le_bytes()), i64::MIN);
    }

    /// 1 + 2⁻⁸ + 2⁻³⁰ lies just above the middle of two bf16, and rounds to that middle as an f32; so does the integer.
    #[test]
    fn narrow_floats_are_rounded_once() {
        let above = 1.0 + 2f64.powi(-8) + 2f64.powi(-30);
        assert_eq!(one::<bf16>(DType::F64, &above.to_le_bytes()), bf16::from_f32(1.0 + 2f32.powi(-7)));
        assert_eq!(one::<bf16>(DType::F64, &(-above).to_le_bytes()), bf16::from_f32(-1.0 - 2f32.powi(-7)));
        let above = (1_i64 << 40) + (1 << 32) + 1;
        assert_eq!(one::<bf16>(DType::I64, &above.to_le_bytes()).to_f64(), 2f64.powi(40) + 2f64.powi(33));
        let below = (1_i64 << 40) + (1 << 32) - 1;
        assert_eq!(one::<bf16>(DType::I64, &below.to_le_bytes()).to_f64(), 2f64.powi(40));
    }
}
