//! The cases of `ops` that no peer has: in-place operations, other dtypes, conversions, statistics. Pure. They have no
//! bars.

use blob_core::DType;

use crate::cases::{Case, Op};

/// An operation; on the data, unless it names the diff.
pub(crate) enum What {
    /// An operation that the peers measure too, on any dtype.
    Shared(Op),
    /// Transposes the matrices of the last two axes in place.
    TransposeInPlace,
    /// y += 2·x
    Axpy,
    /// data −= diff
    Update,
    /// y += x, with subnormal sums flushed to zero
    AddFlushed,
    /// y = 0
    Clear,
    Stats,
    /// Statistics and a histogram of 64 bins, in pieces of 1 MiB, on one thread.
    Histogram,
    /// Counts NaN and Inf, on one thread.
    NonFinite,
    Convert(DType),
    ConvertChecked(DType),
}

/// One row of our table.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) what: What,
    pub(crate) dims: Vec<usize>,
    pub(crate) dtype: DType,
    /// The maximum ratio to memcpy for one thread, if the project has set one.
    pub(crate) bar: Option<f64>,
}

impl From<Case> for Line {
    fn from(case: Case) -> Self {
        Self { what: What::Shared(case.op), name: case.name, dims: case.dims, dtype: DType::F32, bar: case.bar }
    }
}

/// A row without a bar.
fn line(name: String, what: What, dims: &[usize], dtype: DType) -> Line {
    let (dims, bar) = (dims.to_vec(), None);
    Line { name, what, dims, dtype, bar }
}

/// The cases of `kib` KiB, which fit in the caches.
pub(crate) fn small(kib: usize) -> Vec<Line> {
    let side = (kib * 256).isqrt();
    let name = format!("transpose in place {side}x{side}, {kib} KiB");
    vec![line(name, What::TransposeInPlace, &[side, side], DType::F32)]
}

/// The cases of about `mib` MiB each; in a conversion, the wider dtype has that size.
pub(crate) fn large(mib: usize) -> Vec<Line> {
    let squares = |side: usize, dtype: DType| {
        let count = (mib << 20) / (4096 * 4096 * dtype.size());
        [count.max(1), side, side]
    };
    let (f32, dims) = (DType::F32, [mib << 18]);
    let halves = [DType::F16, DType::BF16];
    let mut all: Vec<Line> = [4096, 4000]
        .map(|side| {
            let name = format!("transpose in place {side}x{side}");
            line(name, What::TransposeInPlace, &squares(side, f32), f32)
        })
        .into();
    all.extend([DType::U8, DType::F16, DType::F64].map(|dtype| {
        let name = format!("transpose 4096x4096 {dtype}");
        let what = What::Shared(Op::Permute(vec![0, 2, 1]));
        line(name, what, &squares(4096, dtype), dtype)
    }));
    all.push(line("axpy".to_owned(), What::Axpy, &dims, f32));
    all.push(line("update".to_owned(), What::Update, &dims, f32));
    all.push(line("stats".to_owned(), What::Stats, &dims, f32));
    all.extend(halves.map(|half| convert(f32, half, &dims)));
    all.extend(halves.map(|half| convert(half, f32, &dims)));
    all
}

fn convert(from: DType, to: DType, dims: &[usize]) -> Line {
    line(format!("convert {from} to {to}"), What::Convert(to), dims, from)
}

fn convert_checked(from: DType, to: DType, dims: &[usize]) -> Line {
    let name = format!("convert {from} to {to} checked");
    line(name, What::ConvertChecked(to), dims, from)
}

/// All element-wise operations on every kind of dtype, `mib` MiB each.
pub(crate) fn dtypes(mib: usize) -> Vec<Line> {
    use DType::{BF16, F16, F32, F64, I32, I64, U8};
    let mut all = Vec::new();
    for dtype in [F32, F64, F16, BF16, I32, U8] {
        let dims = [(mib << 20) / dtype.size()];
        all.extend(elements().map(|(name, what)| line(format!("{name} {dtype}"), what, &dims, dtype)));
    }
    for (from, to) in [
        (F32, F16),
        (F16, F32),
        (F32, BF16),
        (BF16, F32),
        (F64, F32),
        (F64, F16),
        (F32, I32),
        (F32, U8),
        (I64, I32),
        (U8, F32),
    ] {
        let dims = [(mib << 20) / from.size()];
        all.extend([convert(from, to, &dims), convert_checked(from, to, &dims)]);
    }
    all
}

fn elements() -> [(&'static str, What); 11] {
    [
        ("fill", What::Shared(Op::Fill)),
        ("clear", What::Clear),
        ("add", What::Shared(Op::Add)),
        ("add flushed", What::AddFlushed),
        ("axpy", What::Axpy),
        ("scale", What::Shared(Op::Scale)),
        ("asum", What::Shared(Op::Asum)),
        ("sumsq", What::Shared(Op::Sumsq)),
        ("stats", What::Stats),
        ("stats and histogram", What::Histogram),
        ("count NaN and Inf", What::NonFinite),
    ]
}
