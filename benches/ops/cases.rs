//! The cases that we and the peers measure: names, shapes, operations on f32, and bars. Pure.
//!
//! Our bench and `cargo xtask peers` both compile this file; `benches/peers/ops.py` has the same list in Python. A bar
//! is the project's own limit on the time of one thread, as a ratio to memcpy.

/// The shapes of the two tensors, 256 MiB of f32 each.
const A: [usize; 7] = [8, 8, 8, 16, 16, 8, 64];
const B: [usize; 7] = [4, 16, 4, 64, 64, 16, 4];

/// The pairs of axes that are transposed in both.
const PAIRS: [(usize, usize); 10] = [(5, 6), (4, 6), (3, 6), (0, 6), (1, 6), (3, 4), (0, 1), (2, 3), (0, 5), (1, 4)];

/// An operation on a tensor `x`. Element-wise operations write into `y`, which starts as a copy of `x`.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Concatenates equal parts of `x` along an axis.
    Merge { axis: usize, parts: usize },
    /// Splits `x` into equal parts along an axis.
    Split { axis: usize, parts: usize },
    /// Axis `i` of the result is axis `order[i]` of `x`.
    Permute(Vec<usize>),
    /// y += x
    Add,
    /// y *= a number
    Scale,
    /// Σ|x|
    Asum,
    /// Σx²
    Sumsq,
    /// y = 1
    Fill,
}

/// One case: a row in every table.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The name in all tables; a shape there is that at 256 MiB.
    pub(crate) name: String,
    pub(crate) op: Op,
    /// The shape of `x`, row-major.
    pub(crate) dims: Vec<usize>,
    /// The maximum ratio to memcpy for one thread, if the project has set one.
    pub(crate) bar: Option<f64>,
}

impl Case {
    fn new(name: impl Into<String>, op: Op, dims: &[usize], bar: Option<f64>) -> Self {
        let (name, dims) = (name.into(), dims.to_vec());
        Self { name, op, dims, bar }
    }
}

/// All cases by payload size in KiB: about `mib` MiB first, then the sizes that fit in the caches.
pub(crate) fn sections(mib: usize) -> Vec<(usize, Vec<Case>)> {
    let mut all = vec![(mib << 10, large(mib))];
    all.extend(CACHED.map(|kib| (kib, small(kib))));
    all
}

/// A payload size in words: in KiB if the caches hold the payload, as in the names of those cases, else in MiB.
pub(crate) fn payload(kib: usize) -> String {
    match kib {
        kib if CACHED.contains(&kib) => format!("{kib} KiB, in cache"),
        kib => format!("{} MiB", kib >> 10),
    }
}

/// All cases at about this size. Only the outermost extent is scaled.
pub(crate) fn large(mib: usize) -> Vec<Case> {
    let scale = |n: usize| (n * mib / 256).max(1);
    let scaled = |dims: &[usize; 7]| {
        let mut dims = *dims;
        dims[0] = scale(dims[0]);
        dims
    };
    let mut all = Vec::new();
    for (name, dims) in [("A", scaled(&A)), ("B", scaled(&B))] {
        all.extend(merges(name, &dims));
        all.extend(swaps(name, &dims));
    }
    let order = |name: &str, dims: &[usize], order: &[usize], bar| {
        Case::new(name, Op::Permute(order.to_vec()), dims, Some(bar))
    };
    all.extend([
        order("transpose 4096x4096", &[scale(4), 4096, 4096], &[0, 2, 1], 1.5),
        order("transpose 4000x4000", &[scale(4), 4000, 4000], &[0, 2, 1], 1.15),
        order("permute nchw-nhwc [64,3,224,224]", &[scale(64), 3, 224, 224], &[0, 2, 3, 1], 1.3),
        order("permute nhwc-nchw [64,224,224,3]", &[scale(64), 224, 224, 3], &[0, 3, 1, 2], 1.3),
        order("permute oihw-hwio [512,512,3,3]", &[512, 512, 3, 3], &[2, 3, 1, 0], 2.5),
    ]);
    all.extend(elements(&scaled(&A)));
    all
}

/// The memory traffic explains the bars: add reads twice what memcpy reads, scale writes where it has read, fill reads
/// nothing, and sums write nothing.
fn elements(dims: &[usize]) -> [Case; 5] {
    let case = |name, op, bar| Case::new(name, op, dims, Some(bar));
    [
        case("add", Op::Add, 0.95),
        case("scale", Op::Scale, 0.6),
        case("asum", Op::Asum, 0.5),
        case("sumsq", Op::Sumsq, 0.5),
        case("fill", Op::Fill, 0.5),
    ]
}

/// The payload sizes in KiB that fit in the caches: in the second level of most cores, and in the third.
pub(crate) const CACHED: [usize; 2] = [64, 4096];

/// A few cases of `kib` KiB, which fit in the caches. Without bars.
pub(crate) fn small(kib: usize) -> Vec<Case> {
    let count = kib * 256;
    let side = count.isqrt();
    let ragged = [(count / (127 * 129)).max(1), 127, 129];
    let plane = (count / 3).min(224 * 224).isqrt();
    let images = (count / (3 * plane * plane)).max(1);
    let (lines, fours) = ([count / 64, 64], [count / 4, 4]);
    let merge = |axis, parts| Op::Merge { axis, parts };
    let split = |axis, parts| Op::Split { axis, parts };
    let permute = |order: &[usize]| Op::Permute(order.to_vec());
    let case = |name: &str, op, dims: &[usize]| Case::new(format!("{name}, {kib} KiB"), op, dims, None);
    vec![
        case("merge 2 parts at axis 0", merge(0, 2), &lines),
        case("merge runs of 64 B", merge(1, 4), &lines),
        case("split runs of 64 B", split(1, 4), &lines),
        case("merge runs of 4 B", merge(1, 4), &fours),
        case("split runs of 4 B", split(1, 4), &fours),
        case(&format!("transpose {side}x{side}"), permute(&[1, 0]), &[side, side]),
        case("transpose 127x129", permute(&[0, 2, 1]), &ragged),
        case("permute nchw-nhwc", permute(&[0, 2, 3, 1]), &[images, 3, plane, plane]),
        case("add", Op::Add, &[count]),
        case("scale", Op::Scale, &[count]),
        case("asum", Op::Asum, &[count]),
        case("sumsq", Op::Sumsq, &[count]),
        case("fill", Op::Fill, &[count]),
    ]
}

fn merges(name: &str, dims: &[usize]) -> impl Iterator<Item = Case> {
    (0..7).flat_map(move |axis| {
        let parts = if dims[axis].is_multiple_of(4) { 4 } else { 2 };
        let run: usize = dims[axis..].iter().product::<usize>() / parts * 4;
        let bar = Some(if run >= 64 { 1.1 } else { 1.6 });
        let fits = dims[axis].is_multiple_of(parts);
        let case = |verb: &str, op| Case::new(format!("{verb} {name} d={axis} parts={parts}"), op, dims, bar);
        let both = [case("merge", Op::Merge { axis, parts }), case("split", Op::Split { axis, parts })];
        both.into_iter().filter(move |_| fits)
    })
}

fn swaps(name: &str, dims: &[usize]) -> impl Iterator<Item = Case> {
    PAIRS.into_iter().map(move |(one, other)| {
        let mut order: Vec<usize> = (0..7).collect();
        order.swap(one, other);
        let inner = 4 * dims[one.max(other) + 1..].iter().product::<usize>();
        let bar = match (name, one, other) {
            ("A", 0 | 1 | 3, 6) | ("B", 0, 5) => Some(2.0),
            _ if other != 6 && inner >= 256 => Some(1.15),
            _ => None,
        };
        Case::new(format!("transpose {name} ({one}, {other})"), Op::Permute(order), dims, bar)
    })
}
