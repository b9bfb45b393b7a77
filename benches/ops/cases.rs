//! What `ops` measures: cases with the names that the peers' script gives them (benches/peers/ops.py), and their bars.
//!
//! Pure: shapes and names. The bars are the project's own, times of one thread over memcpy's.

/// The seven extents of the two tensors, 256 MiB of f32 each.
const A: [usize; 7] = [8, 8, 8, 16, 16, 8, 64];
const B: [usize; 7] = [4, 16, 4, 64, 64, 16, 4];

/// The axes that are transposed in both.
const PAIRS: [(usize, usize); 10] = [
    (5, 6),
    (4, 6),
    (3, 6),
    (0, 6),
    (1, 6),
    (3, 4),
    (0, 1),
    (2, 3),
    (0, 5),
    (1, 4),
];

/// What is measured. Parts are equal, the operands of what is computed are alike.
pub(crate) enum Op {
    Merge { axis: usize, parts: usize },
    Split { axis: usize, parts: usize },
    Permute(Vec<usize>),
    Add,
    Scale,
    Asum,
    Sumsq,
    Fill,
}

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) op: Op,
    pub(crate) dims: Vec<usize>,
    /// The most that one thread may take, where the project has said so.
    pub(crate) bar: Option<f64>,
}

impl Case {
    fn new(name: impl Into<String>, op: Op, dims: &[usize], bar: Option<f64>) -> Self {
        let (name, dims) = (name.into(), dims.to_vec());
        Self {
            name,
            op,
            dims,
            bar,
        }
    }
}

/// All cases at about this size: the outermost extent is scaled, as the peers' script does it.
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
        order(
            "transpose 4096x4096",
            &[scale(4), 4096, 4096],
            &[0, 2, 1],
            1.5,
        ),
        order(
            "transpose 4000x4000",
            &[scale(4), 4000, 4000],
            &[0, 2, 1],
            1.15,
        ),
        order(
            "permute nchw-nhwc [64,3,224,224]",
            &[scale(64), 3, 224, 224],
            &[0, 2, 3, 1],
            1.3,
        ),
        order(
            "permute nhwc-nchw [64,224,224,3]",
            &[scale(64), 224, 224, 3],
            &[0, 3, 1, 2],
            1.3,
        ),
        order(
            "permute oihw-hwio [512,512,3,3]",
            &[512, 512, 3, 3],
            &[2, 3, 1, 0],
            2.5,
        ),
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

/// A few cases of `kib` KiB, which stay in the caches. No bar is set for them.
pub(crate) fn small(kib: usize) -> Vec<Case> {
    let count = kib * 256;
    let side = count.isqrt();
    let plane = (count / 3).min(224 * 224).isqrt();
    let images = (count / (3 * plane * plane)).max(1);
    let (lines, fours) = ([count / 64, 64], [count / 4, 4]);
    let (axis, parts) = (1, 4);
    let case =
        |name: &str, op, dims: &[usize]| Case::new(format!("{name}, {kib} KiB"), op, dims, None);
    vec![
        case("merge runs of 64 B", Op::Merge { axis, parts }, &lines),
        case("split runs of 64 B", Op::Split { axis, parts }, &lines),
        case("merge runs of 4 B", Op::Merge { axis, parts }, &fours),
        case("split runs of 4 B", Op::Split { axis, parts }, &fours),
        case(
            &format!("transpose {side}x{side}"),
            Op::Permute(vec![1, 0]),
            &[side, side],
        ),
        case(
            "permute nchw-nhwc",
            Op::Permute(vec![0, 2, 3, 1]),
            &[images, 3, plane, plane],
        ),
        case("add", Op::Add, &[count]),
        case("asum", Op::Asum, &[count]),
    ]
}

fn merges(name: &str, dims: &[usize]) -> impl Iterator<Item = Case> {
    (0..7).flat_map(move |axis| {
        let parts = if dims[axis].is_multiple_of(4) { 4 } else { 2 };
        let run: usize = dims[axis..].iter().product::<usize>() / parts * 4;
        let bar = Some(if run >= 64 { 1.1 } else { 1.6 });
        let fits = dims[axis].is_multiple_of(parts);
        let case = |verb: &str, op| {
            Case::new(
                format!("{verb} {name} d={axis} parts={parts}"),
                op,
                dims,
                bar,
            )
        };
        let both = [
            case("merge", Op::Merge { axis, parts }),
            case("split", Op::Split { axis, parts }),
        ];
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
        Case::new(
            format!("transpose {name} ({one}, {other})"),
            Op::Permute(order),
            dims,
            bar,
        )
    })
}
