//! The cases on a GPU: names, operations, shapes, and bars. Pure; knows no GPU and no clock.
//!
//! `gpu.py` gets the same cases as lines of text. A bar is the project's own minimum ratio to the rate of a copy.

use blob_core::DType;

/// An operation on a tensor `x`. Arithmetic works on `y`, which starts as a copy of `x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Op {
    /// Concatenates equal parts of `x` along the last axis.
    Merge { parts: usize },
    /// Splits `x` into equal parts along the last axis.
    Split { parts: usize },
    /// Axis `i` of the result is axis `order[i]` of `x`.
    Permute(&'static [usize]),
    /// y += x
    Add,
    /// y += x·a
    Axpy,
    /// y *= a
    Scale,
    /// y = 1
    Fill,
    /// Σ|x|
    Asum,
    /// Σx²
    Sumsq,
    /// Converts `x` to another dtype.
    Convert(DType),
}

/// A row of the record.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) op: Op,
    pub(crate) dtype: DType,
    /// The shape of `x`, row-major.
    pub(crate) dims: Vec<usize>,
    /// The minimum ratio to the rate of [`Against`]; `None` if the case is only compared with peers.
    pub(crate) bar: Option<f64>,
}

/// The base that the rate of an operation is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Against {
    Copy,
    Memset,
    Read,
}

impl Case {
    /// The bytes of `x`.
    pub(crate) fn bytes(&self) -> usize {
        self.dims.iter().product::<usize>() * self.dtype.size()
    }

    /// The minimum number of bytes that the operation reads and writes.
    pub(crate) fn moved(&self) -> f64 {
        let bytes = self.bytes() as f64;
        match self.op {
            Op::Add | Op::Axpy => 3.0 * bytes,
            Op::Merge { .. } | Op::Split { .. } | Op::Permute(_) | Op::Scale => 2.0 * bytes,
            Op::Fill | Op::Asum | Op::Sumsq => bytes,
            Op::Convert(to) => bytes + bytes * to.size() as f64 / self.dtype.size() as f64,
        }
    }

    pub(crate) fn against(&self) -> Against {
        match self.op {
            Op::Fill => Against::Memset,
            Op::Asum | Op::Sumsq => Against::Read,
            _ => Against::Copy,
        }
    }

    /// The case for `gpu.py`: name, operation, dtype, extents, parameters of the operation.
    pub(crate) fn line(&self) -> String {
        let list = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let (op, more) = match self.op {
            Op::Merge { parts } => ("merge", parts.to_string()),
            Op::Split { parts } => ("split", parts.to_string()),
            Op::Permute(order) => ("permute", list(order)),
            Op::Add => ("add", String::new()),
            Op::Axpy => ("axpy", String::new()),
            Op::Scale => ("scale", String::new()),
            Op::Fill => ("fill", String::new()),
            Op::Asum => ("asum", String::new()),
            Op::Sumsq => ("sumsq", String::new()),
            Op::Convert(to) => ("convert", to.name().to_string()),
        };
        format!("{}\t{op}\t{}\t{}\t{more}", self.name, self.dtype.name(), list(&self.dims))
    }
}

/// The name of the small operation, whose time is the overhead of a call.
pub(crate) const SMALL: &str = "add, 64 KiB";

/// The small operation, which is only compared with the peers.
pub(crate) fn small() -> Case {
    Case { name: SMALL.to_string(), op: Op::Add, dtype: DType::F32, dims: vec![16 << 10], bar: None }
}

/// All cases, with tensors of `bytes` or a little more.
pub(crate) fn all(bytes: usize) -> Vec<Case> {
    let mut cases = rows(bytes);
    cases.extend(turned(bytes));
    cases.extend(elements(bytes));
    cases
}

fn case(name: &str, op: Op, dtype: DType, dims: Vec<usize>, bar: f64) -> Case {
    Case { name: name.to_string(), op, dtype, dims, bar: Some(bar) }
}

/// Adds an outer axis to these extents, so long that the tensor has at least `bytes`.
fn fill_up(bytes: usize, dtype: DType, inner: &[usize]) -> Vec<usize> {
    let each = inner.iter().product::<usize>() * dtype.size();
    [&[bytes.div_ceil(each)], inner].concat()
}

fn rows(bytes: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for (words, len, parts, bar) in [
        ("rows of 64 KiB", 1 << 14, 2, 0.95),
        ("rows of 512 B", 128, 4, 0.95),
        ("runs of 16 B", 4, 4, 0.70),
        ("runs of 4 B", 1, 4, 0.70),
    ] {
        let dims = fill_up(bytes, DType::F32, &[len * parts]);
        cases.push(case(&format!("merge, {words}"), Op::Merge { parts }, DType::F32, dims.clone(), bar));
        cases.push(case(&format!("split, {words}"), Op::Split { parts }, DType::F32, dims, bar));
    }
    cases
}

fn turned(bytes: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for (dtype, bar) in [(DType::F64, 0.95), (DType::F32, 0.95), (DType::F16, 0.95), (DType::U8, 0.92)] {
        let side = side(bytes / dtype.size());
        let name = format!("transpose, {} B", dtype.size());
        cases.push(case(&name, Op::Permute(&[1, 0]), dtype, vec![side, side], bar));
    }
    let side = side(bytes / 16);
    cases.push(case("transpose, 16 B", Op::Permute(&[1, 0, 2]), DType::F32, vec![side, side, 4], 0.95));
    // Planes as large as in networks; in a tiny run, a few tiles.
    let plane = |side: usize| if bytes < 1 << 24 { 16 } else { side };
    let (f32, to_last, to_first) = (DType::F32, Op::Permute(&[0, 2, 3, 1]), Op::Permute(&[0, 3, 1, 2]));
    for (channels, side, bar) in [(64, plane(56), 0.90), (16, plane(112), 0.90), (3, plane(224), 0.85)] {
        let [first, last] = [[channels, side, side], [side, side, channels]].map(|inner| fill_up(bytes, f32, &inner));
        cases.push(case(&format!("NCHW to NHWC, C = {channels}"), to_last, f32, first, bar));
        cases.push(case(&format!("NHWC to NCHW, C = {channels}"), to_first, f32, last, bar));
    }
    // Images: u8 as read from files, f16 as fed to networks.
    for (words, dtype) in [("1 B", DType::U8), ("2 B", DType::F16)] {
        let side = plane(224);
        let [first, last] = [[3, side, side], [side, side, 3]].map(|inner| fill_up(bytes, dtype, &inner));
        cases.push(case(&format!("NCHW to NHWC, C = 3, {words}"), to_last, dtype, first, 0.85));
        cases.push(case(&format!("NHWC to NCHW, C = 3, {words}"), to_first, dtype, last, 0.85));
    }
    let extent = (1..).find(|extent: &usize| extent.pow(6) >= bytes / 4).unwrap_or(1);
    cases.push(case("6 axes reversed", Op::Permute(&[5, 4, 3, 2, 1, 0]), f32, vec![extent; 6], 0.60));
    cases
}

/// The side of a square of at least this many elements, in whole tiles of any dtype.
fn side(entries: usize) -> usize {
    let root = entries.isqrt();
    (root + usize::from(root * root < entries)).next_multiple_of(256)
}

fn elements(bytes: usize) -> Vec<Case> {
    let of = |name: &str, op, dtype: DType, bar| case(name, op, dtype, vec![bytes / dtype.size()], bar);
    let (f32, f16, bf16, u8, f64) = (DType::F32, DType::F16, DType::BF16, DType::U8, DType::F64);
    vec![
        of("add, f32", Op::Add, f32, 0.95),
        of("add, f16", Op::Add, f16, 0.95),
        of("axpy, f32", Op::Axpy, f32, 0.95),
        of("scale, f32", Op::Scale, f32, 0.95),
        of("convert, f32 to f16", Op::Convert(f16), f32, 0.95),
        of("convert, f16 to f32", Op::Convert(f32), f16, 0.95),
        of("convert, f32 to bf16", Op::Convert(bf16), f32, 0.95),
        of("convert, u8 to f32", Op::Convert(f32), u8, 0.95),
        of("convert, f64 to f32", Op::Convert(f32), f64, 0.95),
        of("fill, f32", Op::Fill, f32, 0.95),
        of("asum, f32", Op::Asum, f32, 0.90),
        of("asum, f16", Op::Asum, f16, 0.90),
        of("sumsq, f32", Op::Sumsq, f32, 0.90),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_case_has_the_requested_size_and_a_unique_name() {
        for bytes in [1 << 16, 1 << 30] {
            let cases = all(bytes);
            let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
            assert_eq!(names.len(), cases.len());
            for case in &cases {
                assert!(case.bytes() >= bytes, "{case:?}");
                assert!(bytes < 1 << 30 || case.bytes() < bytes / 4 * 5, "{case:?}");
                assert_eq!(case.line().split('\t').count(), 5, "{case:?}");
            }
        }
    }

    #[test]
    fn the_bytes_that_an_operation_moves() {
        let of = |op| Case { name: String::new(), op, dtype: DType::F32, dims: vec![10], bar: None }.moved();
        assert_eq!([of(Op::Scale), of(Op::Add), of(Op::Fill), of(Op::Asum)], [80.0, 120.0, 40.0, 40.0]);
        assert_eq!([of(Op::Convert(DType::F16)), of(Op::Convert(DType::F64))], [60.0, 120.0]);
    }
}
