//! What `ops` measures and no peer does: in place, other dtypes, conversions, statistics. Pure; none has a bar.

use blob_core::DType;

use crate::cases::{Case, Op};

/// What is measured. A part that is not the data is said.
pub(crate) enum What {
    /// A case that the peers have too, of some dtype.
    Shared(Op),
    /// The matrices of the last two axes, where they are.
    TransposeInPlace,
    /// y += 2·x
    Axpy,
    /// data −= diff
    Update,
    /// y += x, subnormal sums as zeros
    AddFlushed,
    /// y = 0
    Clear,
    Stats,
    /// Statistics and a histogram of 64 bins, 1 MiB after 1 MiB, on one thread.
    Histogram,
    /// NaN and Inf, on one thread.
    NonFinite,
    Convert(DType),
    ConvertChecked(DType),
}

/// One line of our table.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) what: What,
    pub(crate) dims: Vec<usize>,
    pub(crate) dtype: DType,
    /// The most that one thread may take, where the project has said so.
    pub(crate) bar: Option<f64>,
}

impl From<Case> for Line {
    fn from(case: Case) -> Self {
        Self { what: What::Shared(case.op), name: case.name, dims: case.dims, dtype: DType::F32, bar: case.bar }
    }
}

/// A line without a bar.
fn line(name: String, what: What, dims: &[usize], dtype: DType) -> Line {
    let (dims, bar) = (dims.to_vec(), None);
    Line { name, what, dims, dtype, bar }
}

/// In the cache, `kib` KiB.
pub(crate) fn small(kib: usize) -> Vec<Line> {
    let side = (kib * 256).isqrt();
    let name = format!("transpose in place {side}x{side}, {kib} KiB");
    vec![line(name, What::TransposeInPlace, &[side, side], DType::F32)]
}

/// About `mib` MiB each; of two dtypes, the greater is that long.
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

/// Everything element by element on every kind of dtype, `mib` MiB each.
pub(crate) fn dtypes(mib: usize) -> Vec<Line> {
    use DType::{BF16, F16, F32, F64, I32, I64, U8};
    let mut all = Vec::new();
    for dtype in [F32, F64, F16, BF16, I32, U8] {
        let dims = [(mib << 20) / dtype.size()];
        let of = |(name, what)| line(format!("{name} {dtype}"), what, &dims, dtype);
        all.extend(elements().map(of));
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
