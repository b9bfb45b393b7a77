//! Arithmetic on integers and bits, by the PTX ISA. Results may have more bits than the register; the caller
//! truncates them.

use crate::ptx::{Binary, Ternary, Type, Unary};

/// Operations on one value.
pub(super) fn unary(f: Unary, ty: Type, a: u64) -> u64 {
    let bits = a & ty.mask();
    match f {
        Unary::Move => a,
        Unary::Not => !a,
        Unary::LogicNot => !a & 1,
        Unary::Negate => a.wrapping_neg(),
        Unary::Absolute => ty.whole(a).unsigned_abs() as u64,
        Unary::CountOnes => u64::from(bits.count_ones()),
        Unary::LeadingZeros => u64::from(bits.leading_zeros() + ty.bits - 64),
        Unary::Reverse => bits.reverse_bits() >> (64 - ty.bits),
        Unary::FindTop | Unary::FindTopShift => {
            // For a negative number, the highest bit that differs from the sign.
            let bits = if ty.whole(a) < 0 { !a & ty.mask() } else { bits };
            match (bits.checked_ilog2(), f) {
                (None, _) => u64::from(u32::MAX),
                (Some(top), Unary::FindTop) => u64::from(top),
                (Some(top), _) => u64::from(ty.bits - 1 - top),
            }
        }
        Unary::SquareRoot | Unary::Reciprocal => unreachable!("the reader takes these of floats only"),
    }
}

/// A function of two values; chosen once, then run for each thread.
pub(super) fn binary(f: Binary) -> fn(Type, u64, u64) -> u64 {
    match f {
        Binary::Add => |_, a, b| a.wrapping_add(b),
        Binary::Subtract => |_, a, b| a.wrapping_sub(b),
        Binary::Multiply => |_, a, b| a.wrapping_mul(b),
        Binary::MultiplyHigh => |ty, a, b| high(ty, ty.whole(a), ty.whole(b)),
        Binary::MultiplyWide => |ty, a, b| ty.whole(a).wrapping_mul(ty.whole(b)) as u64,
        // The ISA does not define a division by zero; the hardware gives all ones.
        Binary::Divide => |ty, a, b| match ty.whole(b) {
            0 => !0,
            divisor => ty.whole(a).wrapping_div(divisor) as u64,
        },
        Binary::Remainder => |ty, a, b| match ty.whole(b) {
            0 => !0,
            divisor => ty.whole(a).wrapping_rem(divisor) as u64,
        },
        Binary::Minimum => |ty, a, b| ty.whole(a).min(ty.whole(b)) as u64,
        Binary::Maximum => |ty, a, b| ty.whole(a).max(ty.whole(b)) as u64,
        Binary::And => |_, a, b| a & b,
        Binary::Or => |_, a, b| a | b,
        Binary::Xor => |_, a, b| a ^ b,
        // A distance beyond the type shifts everything out.
        Binary::ShiftLeft => |_, a, b| a.checked_shl(b as u32).unwrap_or_default(),
        Binary::ShiftRight => |ty, a, b| (ty.whole(a) >> (b as u32).min(ty.bits)) as u64,
        Binary::CopySign => unreachable!("the reader takes this of floats only"),
    }
}

/// The upper half of a product.
fn high(ty: Type, x: i128, y: i128) -> u64 {
    match ty.kind {
        crate::ptx::Kind::Signed => (x.wrapping_mul(y) >> ty.bits) as u64,
        _ => ((x as u128).wrapping_mul(y as u128) >> ty.bits) as u64,
    }
}

/// Operations on three values.
pub(super) fn ternary(f: Ternary, ty: Type, a: u64, b: u64, c: u64) -> u64 {
    match f {
        Ternary::MultiplyAdd => a.wrapping_mul(b).wrapping_add(c),
        Ternary::MultiplyAddHigh => high(ty, ty.whole(a), ty.whole(b)).wrapping_add(c),
        Ternary::MultiplyAddWide => (ty.whole(a).wrapping_mul(ty.whole(b)) as u64).wrapping_add(c),
        Ternary::Select => {
            if c & 1 == 1 {
                a
            } else {
                b
            }
        }
        Ternary::Permute => permute(a, b, c),
        Ternary::FunnelLeft { is_clamped } => (pair(a, b) << funnel(c, is_clamped)) >> 32,
        Ternary::FunnelRight { is_clamped } => pair(a, b) >> funnel(c, is_clamped),
        Ternary::Extract => extract(ty, a, b, c),
        Ternary::Logic(table) => (0..8).filter(|row| table >> row & 1 == 1).fold(0, |all, row| {
            let part = |value: u64, bit: u32| if row >> bit & 1 == 1 { value } else { !value };
            all | part(a, 2) & part(b, 1) & part(c, 0)
        }),
        Ternary::Difference => ((ty.whole(a) - ty.whole(b)).unsigned_abs() as u64).wrapping_add(c),
        Ternary::DotBytes(signs) => dot(a, b, signs).wrapping_add(c),
        Ternary::Fused => unreachable!("the reader takes this of floats only"),
    }
}

/// The sum of the products of the four bytes of each value.
fn dot(a: u64, b: u64, signs: [bool; 2]) -> u64 {
    let byte = |value: u64, at: usize, is_signed: bool| {
        let byte = value.to_le_bytes()[at];
        if is_signed { i64::from(byte as i8) } else { i64::from(byte) }
    };
    (0..4).map(|at| byte(a, at, signs[0]) * byte(b, at, signs[1])).sum::<i64>() as u64
}

/// The words `b:a`.
fn pair(a: u64, b: u64) -> u64 {
    (b & 0xffff_ffff) << 32 | a & 0xffff_ffff
}

fn funnel(distance: u64, is_clamped: bool) -> u32 {
    let distance = distance as u32;
    if is_clamped { distance.min(32) } else { distance % 32 }
}

/// Four of the eight bytes of `b:a`, chosen by the digits of a selector. If a digit's top bit is set, the result is the
/// byte's sign, replicated.
fn permute(a: u64, b: u64, selector: u64) -> u64 {
    let bytes = pair(a, b).to_le_bytes();
    (0..4).fold(0, |all, at| {
        let digit = selector >> (4 * at) & 15;
        let byte = bytes[(digit % 8) as usize];
        let picked = if digit & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 };
        all | u64::from(picked) << (8 * at)
    })
}

/// `len` bits from a position on; bits beyond the value are copies of the sign of the extracted field.
fn extract(ty: Type, a: u64, at: u64, len: u64) -> u64 {
    let (at, len) = (at as u32 & 0xff, len as u32 & 0xff);
    let value = ty.whole(a);
    let taken = if at >= ty.bits { value >> (ty.bits - 1).min(127) } else { value >> at };
    let is_signed = ty.kind == crate::ptx::Kind::Signed;
    match len {
        0 => 0,
        _ if len >= ty.bits => {
            if is_signed || at < ty.bits {
                taken as u64
            } else {
                0
            }
        }
        _ if is_signed => ((taken as i64) << (64 - len) >> (64 - len)) as u64,
        _ if at >= ty.bits => 0,
        _ => taken as u64 & (!0 >> (64 - len)),
    }
}

/// Inserts `len` bits of `a` into `b` at a position.
pub(super) fn insert(ty: Type, a: u64, b: u64, at: u64, len: u64) -> u64 {
    let (at, len) = (at as u32 & 0xff, len as u32 & 0xff);
    if len == 0 || at >= ty.bits {
        return b;
    }
    let mask = (!0u64 >> (64 - len.min(64))) << at;
    b & !mask | a << at & mask
}
