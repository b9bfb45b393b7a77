//! Arithmetic on floats, rounded to nearest, with subnormals. Every NaN result has the same bits whatever the operands
//! were, so that tests detect code that relies on a NaN's payload, which a GPU does not promise.

use crate::ptx::{Binary, Ternary, Test, Type, Unary};

/// The NaN that a GPU gives in single precision.
pub(super) const NAN_32: u32 = 0x7fff_ffff;
/// The same for double precision.
pub(super) const NAN_64: u64 = 0xfff8_0000_0000_0000;

/// The bits of a result.
pub(super) fn bits_32(value: f32) -> u64 {
    u64::from(if value.is_nan() { NAN_32 } else { value.to_bits() })
}

/// The bits of a result.
pub(super) fn bits_64(value: f64) -> u64 {
    if value.is_nan() { NAN_64 } else { value.to_bits() }
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Operations on one value. Sign operations change the sign bit, also of a NaN.
pub(super) fn unary(f: Unary, ty: Type, a: u64) -> u64 {
    let sign = 1 << (ty.bits - 1);
    match (f, ty.bits) {
        (Unary::Move, _) => a,
        (Unary::Negate, _) => a ^ sign,
        (Unary::Absolute, _) => a & !sign,
        (Unary::SquareRoot, 32) => bits_32(single(a).sqrt()),
        (Unary::SquareRoot, _) => bits_64(f64::from_bits(a).sqrt()),
        (Unary::Reciprocal, 32) => bits_32(1.0 / single(a)),
        (Unary::Reciprocal, _) => bits_64(1.0 / f64::from_bits(a)),
        _ => unreachable!("the reader takes this of whole numbers only"),
    }
}

/// Operations on two values.
pub(super) fn binary(f: Binary, ty: Type, a: u64, b: u64) -> u64 {
    if f == Binary::CopySign {
        // PTX has the sign first.
        let sign = 1 << (ty.bits - 1);
        return a & sign | b & !sign;
    }
    if ty.bits == 32 {
        let (x, y) = (single(a), single(b));
        bits_32(match f {
            Binary::Add => x + y,
            Binary::Subtract => x - y,
            Binary::Multiply => x * y,
            Binary::Divide => x / y,
            _ => extreme(f == Binary::Minimum, f64::from(x), f64::from(y)) as f32,
        })
    } else {
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        bits_64(match f {
            Binary::Add => x + y,
            Binary::Subtract => x - y,
            Binary::Multiply => x * y,
            Binary::Divide => x / y,
            _ => extreme(f == Binary::Minimum, x, y),
        })
    }
}

/// The minimum or maximum. If one value is NaN, the result is the other; -0 is less than 0.
fn extreme(is_least: bool, x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        return if x.is_nan() { y } else { x };
    }
    let is_x_less = x < y || x == y && x.is_sign_negative();
    if is_x_less == is_least { x } else { y }
}

/// Operations on three values.
pub(super) fn ternary(f: Ternary, ty: Type, a: u64, b: u64, c: u64) -> u64 {
    match (f, ty.bits) {
        (Ternary::Select, _) => {
            if c & 1 == 1 {
                a
            } else {
                b
            }
        }
        (Ternary::Fused, 32) => bits_32(single(a).mul_add(single(b), single(c))),
        (Ternary::Fused, _) => bits_64(f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c))),
        _ => unreachable!("the reader takes this of whole numbers only"),
    }
}

/// The value of a float of any width, which double precision represents exactly.
pub(super) fn value(ty: Type, bits: u64) -> f64 {
    match ty.bits {
        16 => half::f16::from_bits(bits as u16).to_f64(),
        32 => f64::from(single(bits)),
        _ => f64::from_bits(bits),
    }
}

/// Compares two values of any type.
pub(super) fn compare(test: Test, is_unordered: bool, ty: Type, a: u64, b: u64) -> bool {
    use std::cmp::Ordering;
    let order =
        if ty.is_float() { value(ty, a).partial_cmp(&value(ty, b)) } else { Some(ty.whole(a).cmp(&ty.whole(b))) };
    match (test, order) {
        (Test::Numbers, _) => order.is_some(),
        (Test::NotNumbers, _) => order.is_none(),
        (_, None) => is_unordered,
        (Test::Equal, Some(order)) => order == Ordering::Equal,
        (Test::NotEqual, Some(order)) => order != Ordering::Equal,
        (Test::Less, Some(order)) => order == Ordering::Less,
        (Test::LessEqual, Some(order)) => order != Ordering::Greater,
        (Test::Greater, Some(order)) => order == Ordering::Greater,
        (Test::GreaterEqual, Some(order)) => order != Ordering::Less,
    }
}
