//! Conversions between types. A float outside the range of an integer type becomes the nearest value. NaN becomes 0 if
//! source and target both have less than 64 bits, else the integer with only the top bit set (PTX ISA 9.0, `cvt`).

use super::float;
use crate::ptx::{Kind, Rounding, Type};

/// Converts a value.
pub(super) fn convert(to: Type, from: Type, rounding: Rounding, is_saturating: bool, a: u64) -> u64 {
    match (from.is_float(), to.is_float()) {
        (false, false) if is_saturating => clamp(to, from.whole(a)),
        (false, false) => to.whole(from.whole(a) as u64) as u64,
        (false, true) => from_whole(to, from.whole(a)),
        (true, false) => to_whole(to, from, rounding, float::value(from, a)),
        (true, true) => from_float(to, round(rounding, from.bits == to.bits, float::value(from, a))),
    }
}

/// The nearest value of the type.
fn clamp(to: Type, value: i128) -> u64 {
    let (least, greatest) = match to.kind {
        Kind::Signed => (-(1i128 << (to.bits - 1)), (1i128 << (to.bits - 1)) - 1),
        _ => (0, (1i128 << to.bits) - 1),
    };
    value.clamp(least, greatest) as u64
}

fn from_whole(to: Type, value: i128) -> u64 {
    match to.bits {
        // Values that double precision cannot represent exactly are infinite in half precision anyway.
        16 => u64::from(half::f16::from_f64(value as f64).to_bits()),
        32 => float::bits_32(value as f32),
        _ => float::bits_64(value as f64),
    }
}

fn to_whole(to: Type, from: Type, rounding: Rounding, value: f64) -> u64 {
    if value.is_nan() {
        return if from.bits < 64 && to.bits < 64 { 0 } else { 1 << (to.bits - 1) };
    }
    // The cast saturates to 128 bits, also for infinities.
    clamp(to, round(rounding, true, value) as i128)
}

/// Rounds to an integer, if the conversion does.
fn round(rounding: Rounding, is_to_whole: bool, value: f64) -> f64 {
    match rounding {
        _ if !is_to_whole => value,
        Rounding::None => value,
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

fn from_float(to: Type, value: f64) -> u64 {
    match to.bits {
        16 if value.is_nan() => 0x7fff,
        16 => u64::from(half::f16::from_f64(value).to_bits()),
        32 => float::bits_32(value as f32),
        _ => float::bits_64(value),
    }
}
