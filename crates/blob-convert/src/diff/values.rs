//! How far the elements of two arrays are from each other. Pure: bytes in, figures out.

use blob_core::DType;
use half::{bf16, f16};

/// How far two elements may be apart and still count as equal.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Tolerance {
    /// Not at all: the same bits. Shapes must be the same, too.
    Exact,
    /// `|a - b| <= absolute + relative * |b|`, as `numpy.isclose` has it, where `b` is the second file's. NaN is equal
    /// to NaN, -0 to 0, an infinity to itself only.
    Close {
        /// `rtol` of NumPy.
        relative: f64,
        /// `atol` of NumPy.
        absolute: f64,
    },
    /// At most this many steps from one float to the next of the dtype; for two dtypes, of the one with fewer digits,
    /// whose steps go on beyond the largest value. Neighbouring integers are one step apart. An infinity equals itself
    /// only, however many steps are allowed, and NaN equals NaN.
    Ulp(u64),
}

impl Tolerance {
    /// Values that are equal as numbers.
    pub const NONE: Self = Self::Close { relative: 0.0, absolute: 0.0 };
}

/// How far the elements of two arrays of the same shape are apart.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Distance {
    /// The number of elements.
    pub elements: u64,
    /// The number of elements further apart than is tolerated.
    pub changed: u64,
    /// The largest `|a - b|`; infinite where only one is NaN, or not the same infinity as the other.
    pub max_abs: f64,
    /// The largest `|a - b| / |b|` of the elements; infinite where `b` alone is 0.
    pub max_rel: f64,
    /// The element that is furthest apart.
    pub worst: Option<Worst>,
    /// The sum of `(|a - b| / max_abs)²`, which neither overflows nor vanishes; without meaning once `max_abs` is
    /// infinite.
    squares: f64,
}

/// An element, with the values of both files.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Worst {
    /// The row-major index.
    pub element: u64,
    /// The first file's value.
    pub ours: f64,
    /// The second file's value.
    pub theirs: f64,
}

/// A run of elements.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) dtype: DType,
    pub(super) bytes: &'a [u8],
}

impl Distance {
    /// The root of the mean square of the differences; infinite where one of them is.
    #[must_use]
    pub fn rms(&self) -> f64 {
        if self.max_abs == 0.0 || self.max_abs.is_infinite() {
            return self.max_abs;
        }
        self.max_abs * (self.squares / self.elements as f64).sqrt()
    }

    /// Adds two runs of the same number of elements.
    pub(super) fn add(&mut self, tolerance: Tolerance, ours: Run<'_>, theirs: Run<'_>) {
        let elements = ours.bytes.len() / ours.dtype.size();
        debug_assert_eq!(elements, theirs.bytes.len() / theirs.dtype.size(), "runs of one length");
        let begin = self.elements;
        self.elements += elements as u64;
        // Equal bits are equal values, also for NaN.
        if ours.dtype == theirs.dtype && ours.bytes == theirs.bytes {
            return;
        }
        let is_exact = tolerance == Tolerance::Exact && ours.dtype == theirs.dtype;
        let step = coarser(ours.dtype, theirs.dtype);
        let width = [ours.dtype.size(), theirs.dtype.size()];
        let pairs = ours.bytes.chunks_exact(width[0]).zip(theirs.bytes.chunks_exact(width[1]));
        for (element, (a, b)) in (begin..).zip(pairs) {
            if ours.dtype == theirs.dtype && a == b {
                continue;
            }
            let (a, b) = (Scalar::read(ours.dtype, a), Scalar::read(theirs.dtype, b));
            let within = !is_exact
                && match tolerance {
                    Tolerance::Exact => a.float.to_bits() == b.float.to_bits() && a.abs_diff(b) == 0.0,
                    Tolerance::Close { relative, absolute } => a.is_close(b, relative, absolute),
                    Tolerance::Ulp(max_steps) => a.steps(b, step) <= u128::from(max_steps),
                };
            self.add_element(element, a, b, within);
        }
    }

    fn add_element(&mut self, element: u64, a: Scalar, b: Scalar, within: bool) {
        let abs_diff = a.abs_diff(b);
        self.changed += u64::from(!within);
        self.add_square(abs_diff);
        if abs_diff > self.max_abs || self.worst.is_none() && !within {
            self.max_abs = self.max_abs.max(abs_diff);
            self.worst = Some(Worst { element, ours: a.float, theirs: b.float });
        }
        if abs_diff > 0.0 {
            self.max_rel = self.max_rel.max(if abs_diff.is_finite() { abs_diff / b.float.abs() } else { abs_diff });
        }
    }

    /// Adds the square of a difference to the sum, in units of the larger one of the difference and `max_abs`.
    fn add_square(&mut self, abs_diff: f64) {
        if abs_diff > self.max_abs {
            self.squares = self.squares * (self.max_abs / abs_diff).powi(2) + 1.0;
        } else if abs_diff > 0.0 {
            self.squares += (abs_diff / self.max_abs).powi(2);
        }
    }
}

/// An element as a number.
#[derive(Clone, Copy)]
struct Scalar {
    float: f64,
    /// The exact value of an integer dtype: `float` is exact up to 2^53 only.
    integer: Option<i128>,
}

impl Scalar {
    fn read(dtype: DType, bytes: &[u8]) -> Self {
        macro_rules! le {
            ($type:ty) => {
                <$type>::from_le_bytes(bytes.try_into().expect("an element's bytes"))
            };
        }
        let float = |float: f64| Self { float, integer: None };
        let integer = |integer: i128| Self { float: integer as f64, integer: Some(integer) };
        match dtype {
            DType::F16 => float(f16::from_bits(le!(u16)).to_f64()),
            DType::BF16 => float(bf16::from_bits(le!(u16)).to_f64()),
            DType::F32 => float(le!(f32).into()),
            DType::F64 => float(le!(f64)),
            DType::I8 => integer(le!(i8).into()),
            DType::I16 => integer(le!(i16).into()),
            DType::I32 => integer(le!(i32).into()),
            DType::I64 => integer(le!(i64).into()),
            DType::U16 => integer(le!(u16).into()),
            DType::U32 => integer(le!(u32).into()),
            DType::U64 => integer(le!(u64).into()),
            // A bool's byte is compared as a number; `verify` finds bytes other than 0 and 1.
            _ => integer(bytes[0].into()),
        }
    }

    /// The number, if it is an integer of less than 127 bits.
    fn as_integer(self) -> Option<i128> {
        let is_integral = self.float.fract() == 0.0 && self.float.abs() < 1e38;
        self.integer.or_else(|| is_integral.then_some(self.float as i128))
    }

    /// `|a - b|`.
    fn abs_diff(self, other: Self) -> f64 {
        // A float that is integral is compared with an integer as one: f64 has no 2^53 + 1.
        if self.integer.or(other.integer).is_some()
            && let (Some(a), Some(b)) = (self.as_integer(), other.as_integer())
        {
            return (a - b).unsigned_abs() as f64;
        }
        let (a, b) = (self.float, other.float);
        if a == b || a.is_nan() && b.is_nan() {
            0.0
        } else if a.is_nan() || b.is_nan() {
            f64::INFINITY
        } else {
            (a - b).abs()
        }
    }

    fn is_close(self, other: Self, relative: f64, absolute: f64) -> bool {
        let abs_diff = self.abs_diff(other);
        let is_finite = self.float.is_finite() && other.float.is_finite();
        abs_diff == 0.0 || is_finite && abs_diff <= absolute + relative * other.float.abs()
    }

    /// How many steps of a dtype lie between two values.
    fn steps(self, other: Self, dtype: DType) -> u128 {
        if let (Some(a), Some(b)) = (self.integer, other.integer) {
            return (a - b).unsigned_abs();
        }
        if !(self.float.is_finite() && other.float.is_finite()) {
            return if self.abs_diff(other) == 0.0 { 0 } else { u128::MAX };
        }
        let steps = (ordinal(dtype, self.float) - ordinal(dtype, other.float)).unsigned_abs();
        let is_mixed = self.integer.is_some() != other.integer.is_some();
        // An integer and a float may differ and round to the same float.
        if is_mixed && steps == 0 && self.abs_diff(other) > 0.0 { 1 } else { steps }
    }
}

/// Rounds a finite number to the dtype, and returns the position among the dtype's values; both zeros are at 0. A
/// number that rounds to infinity has the position that would follow if the dtype's exponents went on.
fn ordinal(dtype: DType, value: f64) -> i128 {
    let magnitude = value.abs();
    let (bits, infinity, digits): (fn(f64) -> i128, i128, u32) = match dtype {
        DType::F16 => (|x| f16::from_f64(x).to_bits().into(), f16::INFINITY.to_bits().into(), f16::MANTISSA_DIGITS),
        DType::BF16 => (|x| bf16::from_f64(x).to_bits().into(), bf16::INFINITY.to_bits().into(), bf16::MANTISSA_DIGITS),
        DType::F32 => (|x| (x as f32).to_bits().into(), f32::INFINITY.to_bits().into(), f32::MANTISSA_DIGITS),
        _ => (|x| x.to_bits().into(), f64::INFINITY.to_bits().into(), f64::MANTISSA_DIGITS),
    };
    let mut position = bits(magnitude);
    if position >= infinity {
        // The same digits at exponent 0, and the steps of all exponents from there to the number's own.
        let exponent = (magnitude.to_bits() >> 52) as i32 - 1023;
        position = bits(magnitude * 2f64.powi(-exponent)) + (i128::from(exponent) << (digits - 1));
    }
    if value.is_sign_negative() { -position } else { position }
}

/// The float dtype with fewer digits of the two; f64 where neither is a float.
fn coarser(a: DType, b: DType) -> DType {
    let order = [DType::BF16, DType::F16, DType::F32];
    order.into_iter().find(|dtype| [a, b].contains(dtype)).unwrap_or(DType::F64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn distance(tolerance: Tolerance, a: &[f32], b: &[f32]) -> Distance {
        let (a, b) = (floats(a), floats(b));
        let mut distance = Distance::default();
        distance.add(tolerance, Run { dtype: DType::F32, bytes: &a }, Run { dtype: DType::F32, bytes: &b });
        distance
    }

    #[test]
    fn tolerances_are_those_of_numpy() {
        let close = |relative, absolute| Tolerance::Close { relative, absolute };
        let (a, b) = ([1.0, 2.0, -3.0, 0.0], [1.0, 2.5, -3.0, -0.0]);
        let found = distance(Tolerance::NONE, &a, &b);
        assert_eq!((found.elements, found.changed, found.max_abs, found.max_rel), (4, 1, 0.5, 0.2));
        assert_eq!(found.worst, Some(Worst { element: 1, ours: 2.0, theirs: 2.5 }));
        assert_eq!(found.rms(), 0.25);
        assert_eq!(distance(Tolerance::Exact, &a, &b).changed, 2, "-0 has other bits");
        // Over a value of 0: the limit of values ever nearer to 0.
        assert_eq!(distance(Tolerance::NONE, &[5.0], &[0.0]).max_rel, f64::INFINITY);
        assert_eq!(distance(Tolerance::NONE, &[0.0], &[5.0]).max_rel, 1.0);
        // 0.5 = 0.2 * |2.5|: the second file's value is the measure.
        assert_eq!(distance(close(0.2, 0.0), &a, &b).changed, 0);
        assert_eq!(distance(close(0.2, 0.0), &b, &a).changed, 1);
        assert_eq!(distance(close(0.0, 0.5), &b, &a).changed, 0);
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let odd = distance(close(1.0, 1e30), &[nan, nan, inf, inf, -inf], &[nan, 1.0, inf, 1.0, inf]);
        assert_eq!((odd.changed, odd.max_abs, odd.rms()), (3, f64::INFINITY, f64::INFINITY));
        assert_eq!(distance(close(1.0, 1e30), &[nan], &[1.0]).max_abs, f64::INFINITY);
    }

    #[test]
    fn elements_are_counted_through_all_runs() {
        let mut found = Distance::default();
        for (a, b) in [([1.0, 2.0], [1.0, 2.5]), ([3.0, 4.0], [3.0, 9.0])] {
            let (a, b) = (floats(&a), floats(&b));
            found.add(Tolerance::NONE, Run { dtype: DType::F32, bytes: &a }, Run { dtype: DType::F32, bytes: &b });
        }
        assert_eq!((found.elements, found.changed), (4, 2));
        assert_eq!(found.worst, Some(Worst { element: 3, ours: 4.0, theirs: 9.0 }));
    }

    #[test]
    fn steps_are_counted_over_zero_and_in_the_coarser_dtype() {
        let next = f32::from_bits(1.0f32.to_bits() + 3);
        assert_eq!(distance(Tolerance::Ulp(3), &[1.0], &[next]).changed, 0);
        assert_eq!(distance(Tolerance::Ulp(2), &[1.0], &[next]).changed, 1);
        let tiny = f32::from_bits(1);
        assert_eq!(distance(Tolerance::Ulp(2), &[tiny], &[-tiny]).changed, 0);
        assert_eq!(distance(Tolerance::Ulp(1), &[tiny], &[-tiny]).changed, 1);
        let (third, half) = (floats(&[1.0 / 3.0]), f16::from_f32(1.0 / 3.0).to_le_bytes());
        let mut mixed = Distance::default();
        let (a, b) = (Run { dtype: DType::F32, bytes: &third }, Run { dtype: DType::F16, bytes: &half });
        mixed.add(Tolerance::Ulp(0), a, b);
        assert_eq!(mixed.changed, 0, "rounded to f16 they are one");
        mixed.add(Tolerance::NONE, a, b);
        assert_eq!((mixed.elements, mixed.changed), (2, 1));
    }

    /// Each float of a dtype as f64, smallest first, both zeros as one: the steps between two are those in the list.
    fn line(value: fn(u16) -> f64) -> Vec<f64> {
        let mut line: Vec<f64> = (0..=u16::MAX).map(value).filter(|value| value.is_finite()).collect();
        line.sort_by(f64::total_cmp);
        line.dedup_by(|a, b| a == b);
        line
    }

    /// The place in the list of the float nearest to a number within the list's range.
    fn place(line: &[f64], value: f64) -> usize {
        let after = line.partition_point(|x| *x < value);
        let near = [after.saturating_sub(1), after.min(line.len() - 1)];
        // Only numbers that are no tie are asked for.
        near.into_iter().min_by(|a, b| (line[*a] - value).abs().total_cmp(&(line[*b] - value).abs())).unwrap()
    }

    #[test]
    fn steps_are_those_of_a_list_of_all_floats() {
        type Half = (DType, fn(u16) -> f64, u16);
        let halves: [Half; 2] = [
            (DType::F16, |bits| f16::from_bits(bits).to_f64(), f16::INFINITY.to_bits()),
            (DType::BF16, |bits| bf16::from_bits(bits).to_f64(), bf16::INFINITY.to_bits()),
        ];
        for (dtype, value, infinity) in halves {
            let line = line(value);
            let largest = infinity - 1;
            let sign = 1 << 15;
            let bits = [0, 1, 2, 0x03FF, 0x0400, 0x3C00, 0x3C01, largest - 1, largest, infinity, infinity + 1];
            let bits: Vec<u16> = bits.iter().flat_map(|bits| [*bits, bits | sign]).collect();
            for (a, b) in bits.iter().flat_map(|a| bits.iter().map(move |b| (*a, *b))) {
                let (x, y) = (value(a), value(b));
                let apart = if x.is_finite() && y.is_finite() {
                    place(&line, x).abs_diff(place(&line, y)) as u64
                } else if x == y || x.is_nan() && y.is_nan() {
                    0
                } else {
                    u64::MAX
                };
                let [half, other] = [a.to_le_bytes(), b.to_le_bytes()];
                // The other one as f32 and as f64, which hold the same number: both directions, both orders.
                let (single, double) = ((y as f32).to_le_bytes(), y.to_le_bytes());
                for (theirs, bytes) in [(dtype, &other[..]), (DType::F32, &single), (DType::F64, &double)] {
                    let (ours, theirs) = (Run { dtype, bytes: &half }, Run { dtype: theirs, bytes });
                    for (ours, theirs) in [(ours, theirs), (theirs, ours)] {
                        let is_within = |steps: u64| {
                            let mut found = Distance::default();
                            found.add(Tolerance::Ulp(steps), ours, theirs);
                            found.changed == 0
                        };
                        let told = format!("{dtype:?} {x} and {:?} {y}", theirs.dtype);
                        // Infinitely far is further than any number of steps.
                        let at_infinity = apart == u64::MAX;
                        assert_eq!(is_within(apart), !at_infinity, "{told}: {apart} steps");
                        assert!(apart == 0 || !is_within(apart - 1), "{told}: {apart} steps");
                    }
                }
            }
        }
    }

    /// Numbers that f16 rounds to infinity, beside it: a variance of 7e4 that a conversion to f16 ruined.
    #[test]
    fn a_finite_number_never_equals_an_infinity() {
        let inf = f16::INFINITY.to_le_bytes();
        for value in [65520.0f32, 7e4, 1e30, f32::MAX] {
            let value = value.to_le_bytes();
            let (a, b) = (Run { dtype: DType::F32, bytes: &value }, Run { dtype: DType::F16, bytes: &inf });
            for (a, b) in [(a, b), (b, a)] {
                for steps in [0, 1, u64::MAX] {
                    let mut found = Distance::default();
                    found.add(Tolerance::Ulp(steps), a, b);
                    assert_eq!((found.changed, found.rms()), (1, f64::INFINITY), "{steps}");
                }
            }
        }
        assert_eq!(distance(Tolerance::Ulp(1), &[f32::MAX], &[f32::INFINITY]).changed, 1);
    }

    /// Beyond 65504 f16's next values would be 65536, 65600, …, 131072, 131200, …, if its exponents went on.
    #[test]
    fn steps_go_on_beyond_the_largest_value() {
        let largest = f16::MAX.to_le_bytes();
        for (value, steps) in [(65536.0f32, 1), (65600.0, 2), (131_072.0, 1025), (131_200.0, 1026)] {
            let value = value.to_le_bytes();
            for (allowed, changed) in [(steps, 0), (steps - 1, 1)] {
                let mut found = Distance::default();
                let ours = Run { dtype: DType::F32, bytes: &value };
                found.add(Tolerance::Ulp(allowed), ours, Run { dtype: DType::F16, bytes: &largest });
                assert_eq!(found.changed, changed, "{steps}");
            }
        }
    }

    #[test]
    fn squares_neither_overflow_nor_vanish() {
        for scale in [1.0, 1e200, 1e-200] {
            let (a, b) = ([3.0 * scale, 0.0, 4.0 * scale, 1.0].map(f64::to_le_bytes), [0.0, 0.0, 0.0, 1.0f64]);
            let (a, b) = (a.concat(), b.map(f64::to_le_bytes).concat());
            let mut found = Distance::default();
            found.add(Tolerance::NONE, Run { dtype: DType::F64, bytes: &a }, Run { dtype: DType::F64, bytes: &b });
            assert!((found.rms() / scale - 2.5).abs() < 1e-15, "{scale}: {}", found.rms());
        }
    }

    #[test]
    fn whole_numbers_beyond_floats_differ_by_one() {
        let (a, b) = (i64::MAX.to_le_bytes(), (i64::MAX - 1).to_le_bytes());
        let mut found = Distance::default();
        found.add(Tolerance::NONE, Run { dtype: DType::I64, bytes: &a }, Run { dtype: DType::I64, bytes: &b });
        assert_eq!((found.changed, found.max_abs), (1, 1.0));
        // 2^53 + 1 beside 2^53: the former would round to the latter in f64.
        for tolerance in [Tolerance::NONE, Tolerance::Ulp(0), Tolerance::Exact] {
            let (a, b) = (((1i64 << 53) + 1).to_le_bytes(), 2f64.powi(53).to_le_bytes());
            let mut mixed = Distance::default();
            mixed.add(tolerance, Run { dtype: DType::I64, bytes: &a }, Run { dtype: DType::F64, bytes: &b });
            assert_eq!((mixed.changed, mixed.max_abs), (1, 1.0), "{tolerance:?}");
        }
        let mut other = Distance::default();
        let (a, b) = (u64::MAX.to_le_bytes(), (-1i64).to_le_bytes());
        other.add(Tolerance::Ulp(1 << 60), Run { dtype: DType::U64, bytes: &a }, Run { dtype: DType::I64, bytes: &b });
        assert_eq!((other.changed, other.max_abs), (1, 2f64.powi(64)));
    }
}
