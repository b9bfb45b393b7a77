//! Element-wise operations and sums in Caffe's own results: every row of the tables.
//!
//! Where Caffe differs from IEEE 754 or is wrong, our documented result is asserted, and the row is counted separately.

use std::fmt::Debug;

use blob_core::{AnyBlob, DType, Part, Shape};
use blob_ops::Scalar;

use crate::support::blobs::of_f32;
use crate::support::{data, report, rows};

/// Vigna's SplitMix64, with the seed as the initial state.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    fn f32(&mut self) -> f32 {
        ((self.next() >> 40) as f64 / 16_777_216.0 * 6.0 - 3.0) as f32
    }

    fn f64(&mut self) -> f64 {
        (self.next() >> 11) as f64 / 9_007_199_254_740_992.0 * 6.0 - 3.0
    }
}

pub(crate) fn mix(z: u64) -> u64 {
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// `-0x1.8p+1`, as C prints it.
fn hex_float(text: &str) -> f64 {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    let digits = rest.strip_prefix("0x").expect("a hexadecimal float");
    let (mantissa, exponent) = digits.split_once('p').expect("an exponent");
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let number = u64::from_str_radix(&format!("{whole}{fraction}"), 16).expect("digits");
    let exponent: i32 = exponent.parse().expect("an exponent");
    sign * number as f64 * 2f64.powi(exponent - 4 * fraction.len() as i32)
}

#[test]
fn hexadecimal_floats_are_read() {
    assert_eq!(hex_float("-0x1.708ba2p+1"), -2.879_261_255_264_282_2);
    assert_eq!(hex_float("0x0p+0"), 0.0);
}

/// Data and diff of a row of `math.tsv`.
fn random_blob(dtype: DType, seed: u64, count: usize) -> AnyBlob {
    let mut blob = AnyBlob::new(Shape::new([count]).expect("a shape"), dtype).expect("a blob");
    let mut random = SplitMix(seed);
    match dtype {
        DType::F32 => {
            let mut next = |x: &mut f32| *x = random.f32();
            blob.data_mut().elements::<f32>().expect("f32").iter_mut().for_each(&mut next);
            blob.diff_mut().elements::<f32>().expect("f32").iter_mut().for_each(&mut next);
        }
        _ => {
            let mut next = |x: &mut f64| *x = random.f64();
            blob.data_mut().elements::<f64>().expect("f64").iter_mut().for_each(&mut next);
            blob.diff_mut().elements::<f64>().expect("f64").iter_mut().for_each(&mut next);
        }
    }
    blob
}

/// An exactly rounded sum of up to several thousand numbers: TwoSum, which also sums the rounding errors.
fn exact_sum(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut high, mut low) = (0.0, 0.0);
    for x in terms {
        let sum: f64 = high + x;
        let part = sum - high;
        low += (high - (sum - part)) + (x - part);
        high = sum;
    }
    high + low
}

fn values(blob: &AnyBlob, part: Part) -> Vec<f64> {
    macro_rules! read {
        ($t:ty) => {
            blob.part(part).elements::<$t>().expect("the dtype").iter().map(|x| f64::from(*x)).collect()
        };
    }
    match blob.dtype() {
        DType::F32 => read!(f32),
        _ => read!(f64),
    }
}

fn near(got: f64, want: f64, tolerance: f64, what: &dyn Debug) {
    let off = (got - want).abs();
    assert!(off <= tolerance * want.abs(), "{what:?}: {got:e}, want {want:e}, off by {off:e}");
}

/// Compares sums with the exact ones, and with Caffe's within the error that was measured for Caffe's sums.
fn check_sums(blob: &AnyBlob, part: Part, caffe: [&str; 2], row: &[String]) {
    let caffe_error = if blob.dtype() == DType::F32 { 3e-7 } else { 6e-16 };
    let values = values(blob, part);
    let asum = blob_ops::asum(blob, part).expect("asum").as_f64();
    let sumsq = blob_ops::sumsq(blob, part).expect("sumsq").as_f64();
    near(asum, exact_sum(values.iter().map(|x| x.abs())), 1e-15, &row);
    // Squares of f64 are rounded; squares of f32 are exact.
    near(sumsq, exact_sum(values.iter().map(|x| x * x)), 1e-15, &row);
    near(asum, hex_float(caffe[0]), caffe_error + 1e-15, &row);
    near(sumsq, hex_float(caffe[1]), caffe_error + 1e-15, &row);
}

/// The first words after `Update`, in hexadecimal.
fn first_words(blob: &AnyBlob) -> String {
    let bytes = blob.data().bytes().expect("data");
    let words = bytes.chunks(blob.dtype().size()).take(8);
    match words
        .map(|bytes: &[u8]| bytes.iter().rev().map(|b| format!("{b:02x}")).collect::<String>())
        .collect::<Vec<_>>()
        .join(",")
    {
        none if none.is_empty() => "-".to_string(),
        words => words,
    }
}

#[test]
fn scale_and_update_are_caffes_bit_for_bit() {
    let rows = rows(&data("caffe/tables/math.tsv"));
    let mut words = 0;
    for row in &rows {
        // The name column of this table is empty.
        let row: Vec<String> = row.iter().filter(|cell| !cell.is_empty()).cloned().collect();
        let dtype: DType = row[0].parse().expect("a dtype");
        let (seed, count) = (row[1].parse().expect("a seed"), row[2].parse().expect("a count"));
        let mut blob = random_blob(dtype, seed, count);
        check_sums(&blob, Part::Data, [&row[3], &row[5]], &row);
        check_sums(&blob, Part::Diff, [&row[4], &row[6]], &row);
        let factor = SplitMix(seed ^ 0xABCDEF).f32();
        assert_eq!(f64::from(factor), hex_float(&row[7]), "{row:?}");
        let caffe_error = if dtype == DType::F32 { 1e-6 } else { 1e-15 };
        blob_ops::scale(&mut blob, factor, Part::Data).expect("scale");
        let asum = blob_ops::asum(&blob, Part::Data).expect("asum").as_f64();
        near(asum, hex_float(&row[8]), caffe_error, &row);
        blob_ops::update(&mut blob).expect("update");
        let asum = blob_ops::asum(&blob, Part::Data).expect("asum").as_f64();
        near(asum, hex_float(&row[9]), caffe_error, &row);
        assert_eq!(first_words(&blob), row[10], "{row:?}");
        words += count.min(8);
    }
    assert!(rows.len() > 100 && words > 500, "{} rows", rows.len());
    report(&format!("caffe math: {} rows, {words} words bit for bit", rows.len()));
}

/// The kinds of rows in `special.tsv`.
enum Special {
    Asum(&'static str),
    Sumsq(&'static str),
    Scaled(f32, &'static str),
}

/// The rows whose inputs are a few numbers, with our results as C++ prints them. A comment gives the reason if a row
/// differs from the table.
fn special_cases() -> Vec<(&'static str, Vec<f32>, Vec<Special>)> {
    use Special::{Asum, Scaled, Sumsq};
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    vec![
        ("nan", vec![1.0, nan, 2.0], vec![Asum("nan"), Sumsq("nan"), Scaled(2.0, "2 nan 4")]),
        ("inf", vec![1.0, inf, -inf], vec![Asum("inf"), Sumsq("inf"), Scaled(2.0, "2 inf -inf")]),
        // OpenBLAS writes 0 for alpha = 0; IEEE 754 says NaN.
        ("nan_times_0", vec![nan, inf, -inf, 1.0], vec![Asum("nan"), Sumsq("nan"), Scaled(0.0, "nan nan nan 0")]),
        ("nan64_times_0", vec![nan; 64], vec![Asum("nan"), Sumsq("nan"), Scaled(0.0, "")]),
        // Sums are computed in f64, in which these squares and sums are finite.
        (
            "denorm",
            vec![1e-40, -1e-40],
            vec![Asum("1.99999e-40"), Sumsq("1.99998e-80"), Scaled(2.0, "1.99999e-40 -1.99999e-40")],
        ),
        ("overflow", vec![3e38, 3e38], vec![Asum("6e38"), Sumsq("1.8e77"), Scaled(2.0, "inf inf")]),
        ("negzero", vec![-0.0, 0.0], vec![Asum("0"), Sumsq("0"), Scaled(-1.0, "0 -0")]),
    ]
}

/// Whether two numbers print alike: both are NaN of any sign, or they are equal to six digits, with the same sign of
/// zero.
fn alike(got: f64, text: &str) -> bool {
    let want: f64 = text.parse().expect("a number");
    let near = want.is_finite() && (got - want).abs() <= 1e-5 * want.abs();
    got.is_nan() && want.is_nan() || (got == want || near) && got.is_sign_negative() == want.is_sign_negative()
}

/// Compares the table's result for `case` with ours.
fn check_special(case: &str, theirs: &str, ours: &str, got: &[f64], apart: &mut Vec<String>) {
    let ours = if ours.is_empty() { "nan ".repeat(got.len()) } else { ours.to_string() };
    let numbers: Vec<&str> = ours.split_whitespace().collect();
    assert_eq!(numbers.len(), got.len(), "{case}");
    assert!(got.iter().zip(&numbers).all(|(x, text)| alike(*x, text)), "{case}: {got:?}");
    let same = theirs.split_whitespace().zip(got).all(|(text, x)| alike(*x, text));
    if !same {
        apart.push(case.to_string());
    }
}

#[test]
fn special_numbers_are_caffes_or_documented() {
    let mut rows = rows(&data("caffe/tables/special.tsv"));
    let count = rows.len();
    let mut take = |case: &str| {
        let at = rows.iter().position(|row| row[0] == case);
        rows.remove(at.unwrap_or_else(|| panic!("no row {case}"))).remove(1)
    };
    let mut apart = Vec::new();
    for (name, input, specials) in special_cases() {
        for special in specials {
            let mut blob = of_f32(&input);
            let (case, ours, got) = match special {
                Special::Asum(ours) => {
                    let sum = blob_ops::asum(&blob, Part::Data).expect("asum");
                    (format!("{name} asum"), ours, vec![sum.as_f64()])
                }
                Special::Sumsq(ours) => {
                    let sum = blob_ops::sumsq(&blob, Part::Data).expect("sumsq");
                    (format!("{name} sumsq"), ours, vec![sum.as_f64()])
                }
                Special::Scaled(alpha, ours) => {
                    blob_ops::scale(&mut blob, alpha, Part::Data).expect("scale");
                    (format!("{name} scaled_by_{alpha}"), ours, values(&blob, Part::Data))
                }
            };
            check_special(&case, &take(&case), ours, &got, &mut apart);
        }
    }
    let wanted =
        ["nan_times_0 scaled_by_0", "nan64_times_0 scaled_by_0", "denorm sumsq", "overflow asum", "overflow sumsq"];
    assert_eq!(apart, wanted);
    let apart = apart.len() + check_counts(&mut take);
    assert_eq!(rows.len(), 0, "{rows:?}");
    report(&format!("caffe special numbers: {count} rows, {apart} of them answered our way"));
}

/// Sums of ones, which f32 cannot represent. Returns the number of rows in which Caffe is wrong.
fn check_counts(take: &mut impl FnMut(&str) -> String) -> usize {
    let mut ones = of_f32(&vec![1.0; 40_000_000]);
    let sum = |blob: &AnyBlob| blob_ops::asum(blob, Part::Data).expect("asum");
    let squares = |blob: &AnyBlob| blob_ops::sumsq(blob, Part::Data).expect("sumsq");
    assert_eq!(take("asum_4e7_ones"), "39999996.0");
    assert_eq!(sum(&ones), Scalar::F(4e7));
    assert_eq!(take("sumsq_4e7_ones"), "40000000.0");
    assert_eq!(squares(&ones), Scalar::F(4e7));
    ones = of_f32(&vec![1.0; 1 << 20]);
    assert_eq!(take("sumsq_2^20ones"), "1048576.0");
    assert_eq!(squares(&ones), Scalar::F(1_048_576.0));
    ones.data_mut().elements::<f32>().expect("f32")[0] = 16_777_216.0;
    assert_eq!(take("asum_2^24+(2^20-1)ones (exact 17825791)"), "17825784.0");
    assert_eq!(sum(&ones), Scalar::F(17_825_791.0));
    2
}
