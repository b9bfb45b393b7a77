//! Where values are: histograms, and the search for what is not finite.

use super::{SIZES, histogram, isas, oracle, tensor};
use crate::cpu::finite::find;
use crate::{Error, Histogram, count_nonfinite};
use blob_core::DType;

#[test]
fn histograms_on_every_instruction_set() {
    for isa in isas() {
        for &dtype in DType::ALL {
            let bytes = tensor(dtype, 12_295, 5, true);
            for bins in [1, 2, 7, 64, 254, 255, 1000, 1 << 16] {
                let want = oracle::bins(dtype, &bytes, -3.0, 100.0, bins);
                let got = histogram(isa, dtype, &bytes, &[7, 10_000], -3.0, 100.0, bins);
                assert_eq!(got, want, "{} {dtype:?} {bins} bins", isa.name());
            }
        }
    }
}

#[test]
fn edges_belong_to_the_bin_above_but_the_last() {
    let values = [0.0f64, 0.5, 1.0, 1.5, 2.0, 3.999, 4.0, 4.0000001, -1e-300, f64::NAN, f64::INFINITY];
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
    for isa in isas() {
        let got = histogram(isa, DType::F64, &bytes, &[9], 0.0, 4.0, 4);
        assert_eq!(got, (vec![2, 2, 1, 2], 4));
        assert_eq!(histogram(isa, DType::F64, &bytes, &[9], 2.0, 2.0, 3), (vec![1, 0, 0], 10));
    }
}

/// Where `max − min` is no f64, or its inverse is not.
#[test]
fn ranges_as_wide_and_as_narrow_as_f64() {
    for isa in isas() {
        for top in [f64::MAX, f64::from_bits(4), 1e-300] {
            let values: Vec<u8> =
                [-top, -top / 2.0, 0.0, top / 2.0, top].iter().flat_map(|x| x.to_ne_bytes()).collect();
            let got = histogram(isa, DType::F64, &values, &[usize::MAX], -top, top, 4);
            assert_eq!(got, (vec![1, 1, 1, 2], 0), "{top:e}");
        }
    }
}

#[test]
fn a_histogram_needs_bins_and_a_range() {
    let make = |min, max, bins| Histogram::new(DType::F32, min, max, bins).map(|_| ());
    for wanted in [0, 65_537] {
        assert!(matches!(make(0.0, 1.0, wanted), Err(Error::Bins { bins }) if bins == wanted));
    }
    let (low, high) = (1.0, 0.0);
    let refused = make(low, high, 4);
    assert!(matches!(refused, Err(Error::Range { min, max }) if (min, max) == (low, high)));
    let error = make(0.0, f64::INFINITY, 4).expect_err("no range");
    assert_eq!(error.to_string(), "histogram: range 0 to inf is not finite and rising");
    assert!(make(f64::NAN, 1.0, 4).is_err());
}

#[test]
fn what_is_not_finite_is_found_where_it_is() {
    for isa in isas() {
        for &dtype in DType::ALL {
            for len in SIZES {
                let bytes = tensor(dtype, len, 11, true);
                let values = oracle::elements(dtype, &bytes);
                let found = find(isa, dtype, &bytes);
                let first = values.iter().position(|e| !e.1.is_finite());
                assert_eq!(found.first, first.map(|i| i as u64), "{dtype:?} × {len}");
                assert_eq!(found.nan, values.iter().filter(|e| e.1.is_nan()).count() as u64);
                assert_eq!(found.inf, values.iter().filter(|e| e.1.is_infinite()).count() as u64);
            }
        }
    }
    let mut bytes = vec![0; 4 * 10_000];
    bytes[4 * 5000..][..4].copy_from_slice(&f32::NAN.to_ne_bytes());
    assert_eq!(count_nonfinite(DType::F32, &bytes).first_index, Some(5000));
    let found = count_nonfinite(DType::BF16, &[0, 0, 0x80, 0x7F, 0xC0, 0x7F, 0xFF]);
    let native = if cfg!(target_endian = "little") { (1, 1, Some(1)) } else { (0, 0, None) };
    assert_eq!((found.nan, found.inf, found.first_index), native);
}
