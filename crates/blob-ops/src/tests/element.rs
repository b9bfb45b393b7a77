//! Element-wise operations: every dtype, size, instruction set and number of threads against loops over one element.

use super::{Random, blob, isas};
use crate::cpu::Isa;
use crate::cpu::forced::with_isa;
use crate::{Scalar, add, add_flush_subnormals, axpy, fill, scale, update};
use blob_core::{AnyBlob, DType, Part, Shape};
use half::{bf16, f16};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Op {
    Add,
    AddFlushed,
    Axpy,
    Update,
    Scale,
    Fill,
}

pub(super) const OPS: [Op; 6] = [Op::Add, Op::AddFlushed, Op::Axpy, Op::Update, Op::Scale, Op::Fill];

/// A factor that every dtype holds.
const ALPHA: Scalar = Scalar::U(3);

/// `y` afterwards.
pub(super) fn run(isa: Isa, op: Op, dtype: DType, y: &[u8], x: &[u8]) -> Vec<u8> {
    let mut out = blob(dtype, y);
    let other = blob(dtype, x);
    with_isa(isa, || match op {
        Op::Add => add(&mut out, &other, Part::Data),
        Op::AddFlushed => add_flush_subnormals(&mut out, &other, Part::Data),
        Op::Axpy => axpy(&mut out, ALPHA, &other, Part::Data),
        Op::Scale => scale(&mut out, ALPHA, Part::Data),
        Op::Fill => fill(&mut out, ALPHA, Part::Data),
        Op::Update => {
            out.diff_mut().bytes().unwrap().copy_from_slice(x);
            update(&mut out)
        }
    })
    .expect("numbers of one shape");
    out.data().bytes().unwrap().to_vec()
}

/// One float operation, in whatever type it is computed in.
macro_rules! float {
    ($op:expr, $y:expr, $x:expr, $number:ty, $least:expr) => {{
        let flush = |v| match $op {
            Op::AddFlushed if v > -$least && v < $least => v * 0.0,
            _ => v,
        };
        let (y, x) = (flush($y), flush($x));
        match $op {
            Op::Add | Op::AddFlushed => y + x,
            Op::Axpy => y + x * 3.0,
            Op::Update => y - x,
            Op::Scale => y * 3.0,
            Op::Fill => 3.0,
        }
    }};
}

/// One element, with the half crate's conversions and the standard library's arithmetic.
fn expected(op: Op, dtype: DType, y: &[u8], x: &[u8]) -> Vec<u8> {
    macro_rules! integer {
        ($t:ty) => {{
            let [y, x] = [y, x].map(|v| <$t>::from_ne_bytes(v.try_into().unwrap()));
            match op {
                Op::Add | Op::AddFlushed => y.wrapping_add(x),
                Op::Axpy => y.wrapping_add(x.wrapping_mul(3)),
                Op::Update => y.wrapping_sub(x),
                Op::Scale => y.wrapping_mul(3),
                Op::Fill => 3,
            }
            .to_ne_bytes()
            .to_vec()
        }};
    }
    macro_rules! wide {
        ($t:ty) => {{
            let [y, x] = [y, x].map(|v| <$t>::from_ne_bytes(v.try_into().unwrap()));
            let sum = float!(op, y, x, $t, <$t>::MIN_POSITIVE);
            // What the sum of two normal numbers leaves may be subnormal.
            let flushed = match op {
                Op::AddFlushed if sum.abs() < <$t>::MIN_POSITIVE => sum * 0.0,
                _ => sum,
            };
            flushed.to_ne_bytes().to_vec()
        }};
    }
    macro_rules! half {
        ($t:ty) => {{
            let [y, x] = [y, x].map(|v| <$t>::from_ne_bytes(v.try_into().unwrap()).to_f32());
            let least = <$t>::MIN_POSITIVE.to_f32();
            let sum = <$t>::from_f32(float!(op, y, x, $t, least));
            let flushed = match op {
                Op::AddFlushed if sum.to_f32().abs() < least => <$t>::from_f32(sum.to_f32() * 0.0),
                _ => sum,
            };
            flushed.to_ne_bytes().to_vec()
        }};
    }
    match dtype {
        DType::U8 => integer!(u8),
        DType::I8 => integer!(i8),
        DType::I16 => integer!(i16),
        DType::U16 => integer!(u16),
        DType::I32 => integer!(i32),
        DType::U32 => integer!(u32),
        DType::I64 => integer!(i64),
        DType::U64 => integer!(u64),
        DType::F32 => wide!(f32),
        DType::F64 => wide!(f64),
        DType::F16 => half!(f16),
        DType::BF16 => half!(bf16),
        other => panic!("the oracle does not know {other:?}"),
    }
}

fn is_nan(dtype: DType, element: &[u8]) -> bool {
    match dtype {
        DType::F16 => f16::from_ne_bytes(element.try_into().unwrap()).is_nan(),
        DType::BF16 => bf16::from_ne_bytes(element.try_into().unwrap()).is_nan(),
        DType::F32 => f32::from_ne_bytes(element.try_into().unwrap()).is_nan(),
        DType::F64 => f64::from_ne_bytes(element.try_into().unwrap()).is_nan(),
        _ => false,
    }
}

/// Every element as expected; of NaN only that it is one, their bits have a test of their own.
pub(super) fn check(op: Op, dtype: DType, y: &[u8], x: &[u8], got: &[u8], what: &str) {
    let size = dtype.size();
    assert_eq!(got.len(), y.len(), "{what}");
    let elements = y.chunks(size).zip(x.chunks(size)).zip(got.chunks(size));
    for (i, ((y, x), got)) in elements.enumerate() {
        let want = expected(op, dtype, y, x);
        let same = got == want || is_nan(dtype, got) && is_nan(dtype, &want);
        assert!(same, "{what}, {i}: {y:x?} and {x:x?}: {got:x?}, want {want:x?}");
    }
}

pub(super) fn numbers() -> impl Iterator<Item = DType> {
    let all = DType::ALL.iter().copied();
    all.filter(|dtype| *dtype != DType::Bool)
}

/// All bit patterns: NaN with payloads, subnormal numbers, extremes of integers.
fn any_bits(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..bytes).map(|_| random.next() as u8).collect()
}

/// NaN and their payloads too.
#[test]
fn instruction_sets_change_no_bit_of_any_bits() {
    for dtype in numbers() {
        let size = dtype.size();
        for len in [1, 15, 16, 97, 4099] {
            let (y, x) = (any_bits(len * size, 5), any_bits(len * size, 6));
            for op in OPS {
                let want = run(Isa::Portable, op, dtype, &y, &x);
                check(op, dtype, &y, &x, &want, "any bits");
                for isa in isas() {
                    let got = run(isa, op, dtype, &y, &x);
                    assert_eq!(got, want, "{op:?} {} {dtype:?} × {len}", isa.name());
                }
            }
        }
    }
}

fn f32s(bits: &[u32]) -> Vec<u8> {
    bits.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

/// The first operand that is NaN, quiet; of none, x86's own.
#[test]
fn which_nan_comes_out() {
    let (inf, down) = (0x7F80_0000, 0xFF80_0000);
    let y = [0x7F80_0001, 0xFFC0_1234, 0x3F80_0000, inf, 0x7FA0_0000];
    let x = [0x3F80_0000, 0x7FC0_4321, 0xFF80_5678, down, 0x7FC0_0007];
    let sums = [0x7FC0_0001, 0xFFC0_1234, 0xFFC0_5678, 0xFFC0_0000, 0x7FE0_0000];
    for isa in isas() {
        for repeat in [1, 40] {
            let [y, x, sums] = [y, x, sums].map(|bits| f32s(&bits.repeat(repeat)));
            assert_eq!(run(isa, Op::Add, DType::F32, &y, &x), sums);
            assert_eq!(run(isa, Op::AddFlushed, DType::F32, &y, &x), sums);
        }
    }
}

/// What the processor does with DAZ and FTZ: both operands and the sum, signs kept.
#[test]
fn subnormals_are_flushed_with_their_sign() {
    let (tiny, least) = (0x0000_0001, 0x0080_0000);
    let minus = 0x8000_0000;
    let cases = [
        (tiny, 0, 0),
        (minus | tiny, minus, minus),
        (minus | tiny, 0, 0),
        (0x007F_FFFF, least, least),
        // The least normal number and the next one below zero: −2⁻¹⁴⁹ comes out.
        (least, minus | (least + 1), minus),
        (least + 1, minus | least, 0),
        (least, minus | least, 0),
        (least, least, 0x0100_0000),
        (0x3F80_0000, tiny, 0x3F80_0000),
    ];
    for isa in isas() {
        for (y, x, want) in cases {
            let got = run(isa, Op::AddFlushed, DType::F32, &f32s(&[y; 19]), &f32s(&[x; 19]));
            assert_eq!(got, f32s(&[want; 19]), "{y:#x} + {x:#x}");
        }
    }
    let got = run(Isa::Portable, Op::Add, DType::F32, &f32s(&[1]), &f32s(&[2]));
    assert_eq!(got, f32s(&[3]), "IEEE by default");
}

/// Two roundings: with one, as FMA has, 2⁻⁴⁶ would be left.
#[test]
fn axpy_is_not_contracted() {
    let x = 1.0 + f32::EPSILON;
    let y = -(x * x);
    for isa in isas() {
        let mut out = blob(DType::F32, &y.to_ne_bytes().repeat(33));
        let other = blob(DType::F32, &x.to_ne_bytes().repeat(33));
        with_isa(isa, || axpy(&mut out, x, &other, Part::Data)).unwrap();
        assert_eq!(*out.data().elements::<f32>().unwrap(), [0.0; 33]);
    }
}

#[test]
fn the_diff_is_a_part_of_its_own() {
    let mut y = blob(DType::I32, &[1i32, 2].map(i32::to_ne_bytes).concat());
    let mut x = blob(DType::I32, &[0i32, 0].map(i32::to_ne_bytes).concat());
    fill(&mut x, 5, Part::Diff).unwrap();
    add(&mut y, &x, Part::Diff).unwrap();
    axpy(&mut y, -2, &x, Part::Diff).unwrap();
    scale(&mut y, 3, Part::Diff).unwrap();
    assert_eq!(*y.diff().elements::<i32>().unwrap(), [-15, -15]);
    assert_eq!(*y.data().elements::<i32>().unwrap(), [1, 2]);
    update(&mut y).unwrap();
    assert_eq!(*y.data().elements::<i32>().unwrap(), [16, 17]);
    fill(&mut y, 0, Part::Diff).unwrap();
    assert_eq!(*y.diff().elements::<i32>().unwrap(), [0, 0]);
    assert_eq!(*y.data().elements::<i32>().unwrap(), [16, 17]);
}

#[test]
fn what_was_never_touched_stays_so() {
    let mut new = AnyBlob::new(Shape::new([5]).unwrap(), DType::F32).unwrap();
    fill(&mut new, 0, Part::Data).unwrap();
    fill(&mut new, 0, Part::Diff).unwrap();
    update(&mut new).unwrap();
    assert!(!new.memory(Part::Data).is_initialized() && !new.has_diff());
}
