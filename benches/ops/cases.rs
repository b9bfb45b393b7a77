//! What is measured beside the peers: names, shapes, operations on f32, and the bars. Pure.
//!
//! Our bench and `cargo xtask peers` both compile this file; `benches/peers/ops.py` has the same list in Python. The
//! bars are the project's own, times of one thread over memcpy's.

/// The seven extents of the two tensors, 256 MiB of f32 each.
const A: [usize; 7] = [8, 8, 8, 16, 16, 8, 64];
const B: [usize; 7] = [4, 16, 4, 64, 64, 16, 4];

/// The axes that are transposed in both.
const PAIRS: [(usize, usize); 10] = [(5, 6), (4, 6), (3, 6), (0, 6), (1, 6), (3, 4), (0, 1), (2, 3), (0, 5), (1, 4)];

/// What is done to a tensor `x`. Element-wise operations write into `y`, which begins as a copy of `x`.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Equal parts of `x` along an axis, put together again.
    Merge { axis: usize, parts: usize },
    /// The reverse: `x` into equal tensors along an axis.
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

/// One line of every table.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// What all tables call it; a shape in it is that at 256 MiB.
    pub(crate) name: String,
    pub(crate) op: Op,
    /// The shape of `x`, row-major.
    pub(crate) dims: Vec<usize>,
    /// The most that one thread may take, where the project has said so.
    pub(crate) bar: Option<f64>,
}

impl Case {
    fn new(name: impl Into<String>, op: Op, dims: &[usize], bar: Option<f64>) -> Self {
        let (name, dims) = (name.into(), dims.to_vec());
        Self { name, op, dims, bar }
    }
}

/// Every case with the payload in KiB of its section: about `mib` MiB first, then the sizes in cache.
pub(crate) fn sections(mib: usize) -> Vec<(usize, Vec<Case>)> {
    let mut all = vec![(mib << 10, large(mib))];
    all.extend(CACHED.map(|kib| (kib, small(kib))));
    all
}

/// A payload in words: those that stay in the caches in KiB, as the names of the cases have it.
pub(crate) fn payload(kib: usize) -> String {
    match kib {
        kib if CACHED.contains(&kib) => format!("{kib} KiB, in cache"),
        kib => format!("{} MiB", kib >> 10),
    }
}

/// All cases at about this size: the outermost extent is scaled.
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

/// Add reads twice what memcpy reads, scale writes what it has read, fill reads nothing, sums write nothing.
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

/// The sizes in KiB that stay in the caches: the second level of most cores, and the third.
pub(crate) const CACHED: [usize; 2] = [64, 4096];

/// A few cases of `kib` KiB, which stay in the caches. No bar is set for them.
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
