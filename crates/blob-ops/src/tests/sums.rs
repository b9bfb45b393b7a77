//! `asum` and `sumsq`: bit for bit against loops in the documented order, near the true sum, exact for integers.

use super::{blob, isas, oracle, tensor};
use crate::cpu::Isa;
use crate::cpu::forced::with_isa;
use crate::cpu::sums::Term;
use crate::{Error, Scalar, asum, stats, sumsq};
use blob_core::{AnyBlob, DType, Part, Shape};

pub(super) const TERMS: [Term; 2] = [Term::Absolute, Term::Square];

fn sum_on(isa: Isa, term: Term, blob: &AnyBlob) -> Result<Scalar, Error> {
    with_isa(isa, || match term {
        Term::Absolute => asum(blob, Part::Data),
        Term::Square => sumsq(blob, Part::Data),
    })
}

fn term(term: Term, x: f64) -> f64 {
    match term {
        Term::Absolute => x.abs(),
        Term::Square => x * x,
    }
}

/// The documented order: 16 lanes in groups of 256, then 0+8, 1+9, …
fn block(terms: &[f64]) -> f64 {
    let mut lanes = [0.0; 16];
    for group in terms.chunks(256) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane += group.iter().skip(i).step_by(16).fold(0.0, |sum, x| sum + x);
        }
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    lanes[0]
}

/// The greatest power of two of blocks on the left.
fn tree(blocks: &[f64]) -> f64 {
    match blocks {
        [] => 0.0,
        [one] => *one,
        _ => {
            let left = (blocks.len() + 1).next_power_of_two() / 2;
            let left = if left == blocks.len() { left / 2 } else { left };
            tree(&blocks[..left]) + tree(&blocks[left..])
        }
    }
}

/// Floats to the last bit, integers exactly or none where u64 is too small.
pub(super) fn expected(what: Term, dtype: DType, bytes: &[u8]) -> Option<Scalar> {
    let elements = oracle::elements(dtype, bytes);
    if dtype.is_float() {
        let terms: Vec<f64> = elements.iter().map(|e| term(what, e.1)).collect();
        let blocks: Vec<f64> = terms.chunks(4096).map(block).collect();
        return Some(Scalar::F(tree(&blocks)));
    }
    let mut sum = 0u128;
    for (scalar, _) in elements {
        let magnitude = match scalar {
            Scalar::I(x) => u128::from(x.unsigned_abs()),
            Scalar::U(x) => x.into(),
            Scalar::F(x) => panic!("{x} is no integer"),
        };
        sum = match what {
            Term::Absolute => sum.checked_add(magnitude)?,
            Term::Square => sum.checked_add(magnitude.checked_mul(magnitude)?)?,
        };
    }
    u64::try_from(sum).ok().map(Scalar::U)
}

fn same(got: Scalar, want: Scalar) -> bool {
    match (got, want) {
        (Scalar::F(got), Scalar::F(want)) => got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
        (got, want) => got == want,
    }
}

pub(super) fn check(isa: Isa, what: Term, dtype: DType, bytes: &[u8], want: Option<Scalar>) {
    let case = format!("{what:?} {} {dtype:?} × {}", isa.name(), bytes.len() / dtype.size());
    match (sum_on(isa, what, &blob(dtype, bytes)), want) {
        (Ok(got), Some(want)) => assert!(same(got, want), "{case}: {got:?}, want {want:?}"),
        (Err(Error::Overflow { dtype: named, .. }), None) => assert_eq!(named, dtype),
        (got, want) => panic!("{case}: {got:?}, want {want:?}"),
    }
}

/// The true sum in twice the precision: within 10⁻¹⁵ here, where the proven bound is 5·10⁻¹⁵.
#[test]
fn sums_of_floats_are_near_the_truth() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for (seed, len) in [1usize, 4097, 100_003, 1_000_003].into_iter().enumerate() {
            let bytes = tensor(dtype, len, seed as u64 + 40, false);
            let want = oracle::expected(dtype, &bytes);
            for isa in isas() {
                let got = |what| sum_on(isa, what, &blob(dtype, &bytes)).unwrap();
                let near = |got: Scalar, want: f64| {
                    let off = (got.as_f64() - want).abs();
                    assert!(off <= 1e-15 * want, "{dtype:?} × {len}: {got} {want:e} {off:e}");
                };
                near(got(Term::Absolute), want.l1);
                near(got(Term::Square), want.squares);
            }
        }
    }
}

/// A sum of 2²⁴ and 2²⁰ − 1 ones, which f32 cannot count.
#[test]
fn ones_are_counted() {
    let mut data = vec![1.0f32; 1 << 20];
    data[0] = 16_777_216.0;
    let blob = blob(DType::F32, bytemuck::cast_slice(&data));
    assert_eq!(asum(&blob, Part::Data).unwrap(), Scalar::F(17_825_791.0));
}

#[test]
fn nan_and_inf_take_part() {
    for isa in isas() {
        for (hole, want) in
            [(f32::NAN, f64::NAN), (f32::NEG_INFINITY, f64::INFINITY), (f32::from_bits(0xFF80_0001), f64::NAN)]
        {
            for at in [0, 4095, 4096, 5000] {
                let mut data = vec![1.0f32; 5001];
                data[at] = hole;
                let doubles: Vec<f64> = data.iter().map(|&value| f64::from(value)).collect();
                let single = blob(DType::F32, bytemuck::cast_slice(&data));
                let double = blob(DType::F64, bytemuck::cast_slice(&doubles));
                for (what, blob) in TERMS.into_iter().flat_map(|what| [(what, &single), (what, &double)]) {
                    let got = sum_on(isa, what, blob).unwrap().as_f64();
                    assert_eq!(got.to_bits(), want.to_bits(), "{hole} at {at} of {}", blob.dtype());
                }
            }
        }
    }
}

#[test]
fn sums_of_integers_are_exact_or_refused() {
    let of = |values: &[u64]| blob(DType::U64, bytemuck::cast_slice(values));
    let root = u64::from(u32::MAX);
    assert_eq!(sumsq(&of(&[root, 1 << 16]), Part::Data).unwrap(), Scalar::U(root * root + (1 << 32)));
    assert_eq!(asum(&of(&[u64::MAX - 1, 1]), Part::Data).unwrap(), Scalar::U(u64::MAX));
    for refused in [
        asum(&of(&[u64::MAX, 1]), Part::Data),
        sumsq(&of(&[1 << 32]), Part::Data),
        sumsq(&of(&[root; 3]), Part::Data),
        // Twice u128::MAX stands for too much, too.
        sumsq(&of(&[u64::MAX; 4097]), Part::Data),
    ] {
        match refused {
            Err(Error::Overflow { dtype, .. }) => assert_eq!(dtype, DType::U64),
            other => panic!("{other:?}"),
        }
    }
    let lowest = blob(DType::I64, &i64::MIN.to_ne_bytes());
    assert_eq!(asum(&lowest, Part::Data).unwrap(), Scalar::U(1 << 63));
}

#[test]
fn nothing_is_zero_and_stays_untouched() {
    for (dtype, zero) in [(DType::F32, Scalar::F(0.0)), (DType::I8, Scalar::U(0))] {
        for dims in [&[0, 5][..], &[2, 3]] {
            let new = AnyBlob::new(Shape::new(dims).unwrap(), dtype).unwrap();
            for part in [Part::Data, Part::Diff] {
                assert_eq!(asum(&new, part).unwrap(), zero);
                assert_eq!(sumsq(&new, part).unwrap(), zero);
            }
            assert!(!new.memory(Part::Data).is_initialized() && !new.has_diff());
        }
    }
    let bools = blob(DType::Bool, &[1]);
    let refused = asum(&bools, Part::Data);
    assert!(matches!(refused, Err(Error::NoArithmetic { dtype, .. }) if dtype == DType::Bool));
}

#[test]
fn the_diff_has_sums_of_its_own() {
    let mut y = blob(DType::I16, &[0; 8]);
    crate::fill(&mut y, -7, Part::Diff).unwrap();
    assert_eq!(asum(&y, Part::Diff).unwrap(), Scalar::U(28));
    assert_eq!(sumsq(&y, Part::Diff).unwrap(), Scalar::U(196));
    assert_eq!(asum(&y, Part::Data).unwrap(), Scalar::U(0));
    assert_eq!(stats(&y, Part::Diff).unwrap().max, Some(Scalar::I(-7)));
}

/// A fused sum would round once. Two numbers of one lane and zeros: in a longer sum the difference would be lost.
#[test]
fn squares_of_f64_are_rounded_on_every_instruction_set() {
    for start in 0..200 {
        let mut values = [0.0; 17];
        [values[0], values[16]] = [start, start + 1].map(|i| (f64::from(i) + 0.1).sqrt());
        let bytes = values.map(f64::to_ne_bytes).concat();
        let want = Scalar::F(values[0] * values[0] + values[16] * values[16]);
        for isa in isas() {
            let got = sum_on(isa, Term::Square, &blob(DType::F64, &bytes)).unwrap();
            assert_eq!(got, want, "{start} {isa:?}");
        }
    }
}
