//! Conversions: every pair of dtypes, size, instruction set and number of threads against a search for the nearest
//! element.

use super::{blob, in_pool, isas, oracle};
use crate::convert::check_bytes;
use crate::cpu::Isa;
use crate::cpu::forced::with_isa;
use crate::{Error, Scalar, convert_checked, convert_into};
use blob_core::{AnyBlob, DType, Part};
use half::{bf16, f16};
use std::cmp::Ordering;

/// How a number's magnitude compares with a midpoint. Exact: a midpoint has a bit more than a value, and is whole where
/// an integer is rounded.
fn compare(x: Scalar, midpoint: f64) -> Ordering {
    match x {
        Scalar::F(x) => x.abs().total_cmp(&midpoint),
        Scalar::I(x) if x.unsigned_abs() > 1 << 53 => u128::from(x.unsigned_abs()).cmp(&(midpoint as u128)),
        Scalar::U(x) if x > 1 << 53 => u128::from(x).cmp(&(midpoint as u128)),
        x => x.as_f64().abs().total_cmp(&midpoint),
    }
}

/// The nearest of the values of all bit patterns below Inf, ties to the even one; `value` rises with the bits.
fn nearest_half(x: Scalar, value: impl Fn(u16) -> f64, infinite: u16, beyond: f64) -> u16 {
    let sign = if x.as_f64().is_sign_negative() { 0x8000 } else { 0 };
    let (mut low, mut high) = (0, infinite);
    while low < high {
        let next = if low + (high - low) / 2 + 1 == infinite { beyond } else { value(low + (high - low) / 2 + 1) };
        let middle = low + (high - low) / 2;
        // Whether x rounds to `middle` or below.
        match (compare(x, (value(middle) + next) / 2.0), middle % 2) {
            (Ordering::Less, _) | (Ordering::Equal, 0) => high = middle,
            _ => low = middle + 1,
        }
    }
    sign | low
}

fn to_half(x: Scalar, dtype: DType) -> u16 {
    match dtype {
        DType::F16 => nearest_half(x, |b| f16::from_bits(b).to_f64(), 0x7C00, 65_536.0),
        _ => nearest_half(x, |b| bf16::from_bits(b).to_f64(), 0x7F80, 2f64.powi(128)),
    }
}

/// An element, or none where only NaN is asked for.
fn expected(x: Scalar, to: DType) -> Option<Vec<u8>> {
    let nan = matches!(x, Scalar::F(x) if x.is_nan());
    // Saturates, drops fractions, and makes NaN 0.
    let whole = match x {
        Scalar::I(x) => x.into(),
        Scalar::U(x) => x.into(),
        Scalar::F(x) => x as i128,
    };
    macro_rules! clamped {
        ($t:ty) => {
            (whole.clamp(<$t>::MIN.into(), <$t>::MAX.into()) as $t).to_ne_bytes().to_vec()
        };
    }
    macro_rules! rounded {
        ($t:ty) => {
            match x {
                Scalar::I(x) => (x as $t).to_ne_bytes().to_vec(),
                Scalar::U(x) => (x as $t).to_ne_bytes().to_vec(),
                Scalar::F(x) => (x as $t).to_ne_bytes().to_vec(),
            }
        };
    }
    Some(match to {
        DType::U8 => clamped!(u8),
        DType::I8 => clamped!(i8),
        DType::I16 => clamped!(i16),
        DType::U16 => clamped!(u16),
        DType::I32 => clamped!(i32),
        DType::U32 => clamped!(u32),
        DType::I64 => clamped!(i64),
        DType::U64 => clamped!(u64),
        DType::Bool => vec![u8::from(x.as_f64() != 0.0)],
        _ if nan => return None,
        DType::F32 => rounded!(f32),
        DType::F64 => rounded!(f64),
        half => to_half(x, half).to_ne_bytes().to_vec(),
    })
}

/// Whether a checked conversion must take it, said with the conversion itself.
pub(super) fn survives(x: Scalar, to: DType) -> bool {
    let Some(bytes) = expected(x, to) else {
        return true;
    };
    let (back, _) = oracle::elements(to, &bytes)[0];
    match (x, back) {
        (Scalar::F(x), Scalar::F(back)) => back.is_finite() || !x.is_finite(),
        (_, Scalar::F(back)) => back.is_finite(),
        (Scalar::F(x), back) => back.as_f64() == x && as_i128(back) == x as i128,
        (x, back) => as_i128(x) == as_i128(back),
    }
}

fn as_i128(x: Scalar) -> i128 {
    match x {
        Scalar::I(x) => x.into(),
        Scalar::U(x) => x.into(),
        Scalar::F(x) => x as i128,
    }
}

pub(super) fn run(isa: Isa, from: DType, bytes: &[u8], to: DType) -> Vec<u8> {
    let source = blob(from, bytes);
    let mut out = AnyBlob::new(source.shape().clone(), to).unwrap();
    with_isa(isa, || convert_into(&source, &mut out, Part::Data)).unwrap();
    out.data().bytes().unwrap().to_vec()
}

pub(super) fn check(from: DType, bytes: &[u8], to: DType, got: &[u8], what: &str) {
    let elements = oracle::elements(from, bytes);
    assert_eq!(got.len(), elements.len() * to.size());
    for (i, ((x, _), got)) in elements.into_iter().zip(got.chunks(to.size())).enumerate() {
        match expected(x, to) {
            Some(want) => assert_eq!(got, want, "{what}, {i}: {x:?}"),
            None => assert!(oracle::elements(to, got)[0].1.is_nan(), "{what}, {i}: {x:?}"),
        }
    }
}

/// The first element that does not survive.
fn first_lost(from: DType, bytes: &[u8], to: DType) -> Option<(usize, Scalar)> {
    let mut elements = oracle::elements(from, bytes).into_iter().map(|e| e.0).enumerate();
    elements.find(|(_, x)| !survives(*x, to))
}

fn check_lost(isa: Isa, from: DType, bytes: &[u8], to: DType) {
    let want = first_lost(from, bytes, to);
    match (with_isa(isa, || check_bytes(from, bytes, to, Part::Data)), want) {
        (Ok(()), None) => {}
        (Err(Error::Lost { part, index, value, dtype }), Some((at, x))) => {
            assert_eq!((part, index, dtype), (Part::Data, at, to), "{from:?}");
            assert_eq!(value.to_string(), x.to_string());
        }
        (got, want) => panic!("{from:?} to {to:?} on {}: {got:?}, want {want:?}", isa.name()),
    }
}

/// The values around which something changes: ends, halves, powers of two and their neighbours.
fn edges(dtype: DType) -> Vec<u8> {
    let mut floats = vec![f64::NAN, f64::INFINITY, 0.1, 0.5, 1.5, 2.5, 1e300, 5e-324];
    let mut integers: Vec<i128> = vec![u64::MAX.into(), 65_519, 65_520, 65_521];
    for exponent in 0..64 {
        let power = 1i128 << exponent;
        let midpoint = power + (power >> 8) + (power >> 9);
        integers.extend([power - 1, power, power + 1, midpoint, midpoint + 1, midpoint - 1]);
    }
    for exponent in [-149, -140, -133, -126, -25, -24, -20, -14, 7, 15, 31, 32, 63, 64, 127] {
        let power = 2f64.powi(exponent);
        for fraction in [0.0, 0.25, 0.5, 1.0 / 512.0, 3.0 / 256.0, 1.0 / 2048.0, 3.0 / 2048.0] {
            let x = power * (1.0 + fraction);
            floats.extend([x, x.next_up(), x.next_down(), (x as f32).next_down().into()]);
        }
    }
    for x in [65_504.0, 65_520.0, f64::from(f32::MAX), 2f64.powi(128) - 2f64.powi(103)] {
        floats.extend([x, x.next_up(), x.next_down()]);
    }
    floats.extend(integers.iter().map(|x| *x as f64));
    macro_rules! integer {
        ($t:ty) => {{
            let signed = integers.iter().flat_map(|x| [*x, -*x]);
            let all = signed.filter_map(|x| <$t>::try_from(x).ok()).chain([<$t>::MIN, <$t>::MAX]);
            all.flat_map(|x| x.to_ne_bytes()).collect()
        }};
    }
    let all = floats.iter().flat_map(|x| [*x, -*x]);
    match dtype {
        DType::U8 => integer!(u8),
        DType::I8 => integer!(i8),
        DType::I16 => integer!(i16),
        DType::U16 => integer!(u16),
        DType::I32 => integer!(i32),
        DType::U32 => integer!(u32),
        DType::I64 => integer!(i64),
        DType::U64 => integer!(u64),
        DType::F64 => all.flat_map(f64::to_ne_bytes).collect(),
        DType::F32 => all.flat_map(|x| (x as f32).to_ne_bytes()).collect(),
        DType::F16 | DType::BF16 => (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect(),
        _ => vec![0, 1],
    }
}

#[test]
fn edges_are_rounded_once_and_saturate() {
    for &from in DType::ALL {
        let bytes = edges(from);
        for &to in DType::ALL {
            for isa in isas() {
                let got = run(isa, from, &bytes, to);
                check(from, &bytes, to, &got, &format!("{from:?} to {to:?} on {}", isa.name()));
            }
            for element in bytes.chunks(from.size()).take(2000) {
                check_lost(Isa::detect(), from, element, to);
            }
        }
    }
}

/// Several that are lost, in several pieces: the first one is named, whatever the threads do.
#[test]
fn the_first_that_is_lost_is_named() {
    for first in [0, 511, 512, 4095, 300_000, 599_999] {
        let mut data = vec![1.0f32; 600_000];
        data[first..].iter_mut().step_by(70_001).for_each(|x| *x = 1.5);
        let source = blob(DType::F32, bytemuck::cast_slice(&data));
        for threads in [1, 2, 7] {
            match in_pool(threads, || convert_checked(&source, DType::I32)) {
                Err(Error::Lost { index, value, .. }) => {
                    assert_eq!((index, value), (first, Scalar::F(1.5)));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// f32 holds them without a change, and that would leave them signalling.
#[test]
fn nan_of_bf16_becomes_quiet() {
    let words: Vec<u8> = [0x7F81u16, 0xFF81, 0x7FC1, 0x7F80, 0x0001].map(u16::to_ne_bytes).concat();
    for isa in isas() {
        let mut y = empty(5);
        with_isa(isa, || convert_into(&blob(DType::BF16, &words), &mut y, Part::Data)).unwrap();
        let got = y.data().elements::<f32>().unwrap().iter().map(|y| y.to_bits()).collect::<Vec<_>>();
        let want = [0x7FC1_0000, 0xFFC1_0000, 0x7FC1_0000, 0x7F80_0000, 0x0001_0000];
        assert_eq!(got, want, "{isa:?}");
    }
}

#[test]
fn an_untouched_diff_stays_so_and_the_target_becomes_zeros() {
    let source = blob(DType::F16, &[0, 0x3C]);
    let mut y = empty(1);
    y.diff_mut().elements::<f32>().unwrap()[0] = 1.0;
    convert_into(&source, &mut y, Part::Diff).unwrap();
    assert!(!source.has_diff());
    assert_eq!(*y.diff().elements::<f32>().unwrap(), [0.0]);
}

fn empty(count: usize) -> AnyBlob {
    let shape = blob_core::Shape::new([count]).unwrap();
    AnyBlob::new(shape, DType::F32).unwrap()
}

/// From 32 MiB on the target is written past the caches, by way of a buffer; the last part of it is no whole one.
#[test]
fn large_conversions_and_fills_past_the_caches() {
    let count = (33 << 18) + 4099;
    let source: Vec<u8> = (0..2 * count).map(|i| (i ^ (i >> 9)) as u8).collect();
    for dtype in [DType::F16, DType::BF16] {
        let x = blob(dtype, &source);
        for isa in isas() {
            for threads in [1, 2] {
                let mut y = empty(count);
                in_pool(threads, || with_isa(isa, || convert_into(&x, &mut y, Part::Data).unwrap()));
                let words = source.as_chunks::<2>().0.iter().map(|raw| u16::from_ne_bytes(*raw));
                let want = words.map(|word| match dtype {
                    DType::F16 => f16::from_bits(word).to_f32(),
                    _ => bf16::from_bits(word).to_f32(),
                });
                let got = y.data().elements::<f32>().unwrap();
                let mut pairs = got.iter().zip(want);
                let is_same = pairs.all(|(got, want)| got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan());
                assert!(is_same, "{dtype} {isa:?} {threads}");
            }
        }
    }
    let mut y = empty(count);
    crate::fill(&mut y, 1.25, Part::Data).unwrap();
    assert!(y.data().elements::<f32>().unwrap().iter().all(|y| *y == 1.25));
    crate::fill(&mut y, 0, Part::Data).unwrap();
    assert!(y.data().bytes().unwrap().iter().all(|byte| *byte == 0));
}
