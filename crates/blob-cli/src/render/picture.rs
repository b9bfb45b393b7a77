//! Prints a tensor's values as NumPy prints an array: brackets for axes, aligned numbers, `...` for elided values.
//!
//! Pure: turns bytes and a shape into text. Which elements are shown is decided by `slice::head_and_tail`, when they
//! are fetched.

use std::io::{self, Write};

use blob_convert::report::elements::Value;
use blob_convert::report::slice::head_and_tail;
use blob_core::DType;

/// The maximum width of a line: NumPy's `linewidth`.
const LINE: usize = 75;

/// The values to print, and the format.
pub(crate) struct Picture<'a> {
    dtype: DType,
    bytes: &'a [u8],
    dims: &'a [usize],
    edge: Option<usize>,
    style: Style,
    line: usize,
}

/// The number format that all values of a picture share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Style {
    precision: usize,
    is_scientific: bool,
    /// The widest text before the decimal point (or the whole text if there is none), and from the point on.
    left: usize,
    right: usize,
}

impl<'a> Picture<'a> {
    /// `bytes` are the shown elements of a tensor of shape `dims`, in row-major order. With `edge`, these are the first
    /// and last `edge` indices of each axis.
    pub(crate) fn new(dtype: DType, bytes: &'a [u8], dims: &'a [usize], edge: Option<usize>, precision: usize) -> Self {
        let values = || bytes.chunks_exact(dtype.size()).map(|b| Value::read(dtype, b));
        let mut style = Style { precision, is_scientific: is_scientific(values()), ..Style::default() };
        let mut widest = 0;
        for value in values() {
            let (left, right) = style.halves(value);
            if right.is_empty() {
                widest = widest.max(left.len());
            } else {
                style.left = style.left.max(left.len());
                style.right = style.right.max(right.len());
            }
        }
        // `nan` and integers have no point, and may reach into the columns right of it.
        style.left = style.left.max(widest.saturating_sub(style.right));
        Self { dtype, bytes, dims, edge, style, line: LINE }
    }

    /// The picture with lines that fit this width.
    pub(crate) fn fitted(self, width: Option<usize>) -> Self {
        Self { line: width.map_or(LINE, |w| w.min(LINE)), ..self }
    }

    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut values = self.bytes.chunks_exact(self.dtype.size()).map(|b| Value::read(self.dtype, b));
        if self.dims.is_empty() {
            let text = values.next().map(|v| self.style.text(v)).unwrap_or_default();
            return writeln!(out, "{}", text.trim());
        }
        if self.dims.contains(&0) {
            return writeln!(out, "[]");
        }
        self.axis(0, &mut values, out)?;
        writeln!(out)
    }

    fn axis(&self, axis: usize, values: &mut dyn Iterator<Item = Value>, out: &mut dyn Write) -> io::Result<()> {
        let (head, tail) = head_and_tail(self.dims[axis], self.edge);
        if axis + 1 == self.dims.len() {
            return self.row(axis, head.len(), tail.len(), values, out);
        }
        let newlines = "\n".repeat(self.dims.len() - axis - 1);
        let between = format!("{newlines}{:width$}", "", width = axis + 1);
        write!(out, "[")?;
        for i in 0..head.len() {
            if i > 0 {
                write!(out, "{between}")?;
            }
            self.axis(axis + 1, values, out)?;
        }
        if !tail.is_empty() {
            write!(out, "{between}...")?;
        }
        for _ in tail {
            write!(out, "{between}")?;
            self.axis(axis + 1, values, out)?;
        }
        write!(out, "]")
    }

    fn row(
        &self,
        axis: usize,
        head: usize,
        tail: usize,
        values: &mut dyn Iterator<Item = Value>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let indent = axis + 1;
        let mut column = indent;
        write!(out, "[")?;
        let total = head + tail + usize::from(tail > 0);
        for i in 0..total {
            let word = if tail > 0 && i == head {
                "...".to_owned()
            } else {
                values.next().map(|v| self.style.text(v)).unwrap_or_default()
            };
            if i > 0 && column + 1 + word.len() > self.line {
                write!(out, "\n{:indent$}", "")?;
                column = indent;
            } else if i > 0 {
                write!(out, " ")?;
                column += 1;
            }
            column += word.len();
            write!(out, "{word}")?;
        }
        write!(out, "]")
    }
}

/// NumPy's rule for scientific notation: values are very large, very small, or differ by more than a factor of 1000.
fn is_scientific(values: impl Iterator<Item = Value>) -> bool {
    let sizes = values.filter_map(Value::as_float).map(f64::abs);
    let sizes = sizes.filter(|x| x.is_finite() && *x > 0.0);
    let (least, most) = sizes.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), x| (least.min(x), most.max(x)));
    most > 0.0 && (most >= 1e8 || least < 1e-4 || most / least > 1000.0)
}

impl Style {
    /// A value's text before the decimal point, and from the point on.
    fn halves(&self, value: Value) -> (String, String) {
        let Some(x) = value.as_float().filter(|x| x.is_finite()) else {
            let mut text = String::new();
            value.write(&mut text, "");
            return (text, String::new());
        };
        let precision = self.precision;
        if self.is_scientific {
            let text = format!("{x:.precision$e}");
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            let (left, right) = digits.split_once('.').unwrap_or((digits, ""));
            return (left.to_owned(), format!(".{right}e{sign}{exponent:0>2}"));
        }
        let text = format!("{x:.precision$}");
        let (left, right) = text.split_once('.').unwrap_or((&text, ""));
        (left.to_owned(), format!(".{}", right.trim_end_matches('0')))
    }

    /// A value, padded so that all decimal points line up.
    fn text(&self, value: Value) -> String {
        let (left, right) = self.halves(value);
        let (to_left, to_right) = (self.left, self.right);
        if right.is_empty() {
            format!("{left:>width$}", width = to_left + to_right)
        } else {
            format!("{left:>to_left$}{right:<to_right$}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32], dims: &[usize], edge: Option<usize>) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut out = Vec::new();
        Picture::new(DType::F32, &bytes, dims, edge, 4).print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Each text was compared with NumPy's output after `numpy.set_printoptions(precision=4)`.
    #[test]
    fn arrays_look_as_numpy_prints_them() {
        assert_eq!(floats(&[1.0, 2.5, -3.25], &[3], None), "[ 1.    2.5  -3.25]\n");
        assert_eq!(floats(&[1.0, 2.0, 3.0, 4.0], &[2, 2], None), "[[1. 2.]\n [3. 4.]]\n");
        assert_eq!(floats(&[0.0, f32::NAN, f32::INFINITY], &[3], None), "[ 0. nan inf]\n");
        assert_eq!(floats(&[1e-5, 1.0], &[2], None), "[1.0000e-05 1.0000e+00]\n");
        assert_eq!(floats(&[7.5], &[], None), "7.5\n");
        assert_eq!(floats(&[], &[2, 0], None), "[]\n");
        assert_eq!(floats(&[1.0, 2.0], &[2, 1, 1], None), "[[[1.]]\n\n [[2.]]]\n");
    }

    #[test]
    fn elided_values_are_dots() {
        let corners = [0.0, 1.0, 2.0, 7.0, 8.0, 9.0];
        assert_eq!(floats(&corners, &[10], Some(3)), "[0. 1. 2. ... 7. 8. 9.]\n");
        let column: Vec<f32> = corners.to_vec();
        let expected = "[[0.]\n [1.]\n [2.]\n ...\n [7.]\n [8.]\n [9.]]\n";
        assert_eq!(floats(&column, &[10, 1], Some(3)), expected);
    }

    #[test]
    fn long_rows_are_wrapped_and_integers_are_aligned() {
        let bytes: Vec<u8> = (0..40).flat_map(|i: i32| (i - 5).to_le_bytes()).collect();
        let mut out = Vec::new();
        Picture::new(DType::I32, &bytes, &[40], None, 4).print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("[-5 -4 -3"));
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|line| line.len() <= LINE + 1), "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with(' '));
    }
}
