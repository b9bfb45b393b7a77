//! What the operations cost, as ratios to memcpy: `cargo bench -p blob-benches --bench ops -- [--mib N] [--only TEXT]`.
//!
//! A figure is the median of paired runs, the operation and a memcpy of its payload in turn, in this process, into memory
//! that is there already. The cases have the names that the peers' script gives them (shared/tools/peers/ops.py).

use std::hint::black_box;
use std::time::Instant;

use blob_core::{AnyBlob, DType, Shape};
use rayon::ThreadPool;

/// Pairs of measurements; medians are of these.
const ROUNDS: usize = 9;

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

/// What is measured.
enum Op {
    Merge { axis: usize, parts: usize },
    Split { axis: usize, parts: usize },
    Permute(Vec<usize>),
}

struct Case {
    name: String,
    op: Op,
    dims: Vec<usize>,
    /// The most that one thread may take, where the project has said so.
    bar: Option<f64>,
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let after = |name: &str| {
        args.iter()
            .position(|a| a == name)
            .and_then(|at| args.get(at + 1))
    };
    let mib: usize = after("--mib").map_or(256, |n| n.parse().expect("--mib takes a number"));
    let only = after("--only").map_or("", String::as_str);
    let pools = [1, 2].map(pool);
    println!(
        "instruction set: {}; {mib} MiB",
        blob_ops::instruction_set()
    );
    println!(
        "{:<38} {:>8} {:>8} {:>6}   (time / memcpy)",
        "case", "1 thread", "2", "bar"
    );
    for case in cases(mib).filter(|case| case.name.contains(only)) {
        let [one, two] = measure(&case, &pools);
        let bar = case.bar.map_or(String::new(), |bar| bar.to_string());
        let missed = case.bar.is_some_and(|bar| one > bar) || two > one.max(1.0) * 1.05;
        let verdict = if missed { "MISSED" } else { "" };
        println!("{:<38} {one:>8.2} {two:>8.2} {bar:>6} {verdict}", case.name);
    }
}

fn pool(threads: usize) -> ThreadPool {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
    builder.build().expect("threads can be started")
}

/// All cases at about this size: the outermost extent is scaled, as the peers' script does it.
fn cases(mib: usize) -> impl Iterator<Item = Case> {
    let scale = move |n: usize| (n * mib / 256).max(1);
    let scaled = move |dims: &[usize]| {
        let mut dims = dims.to_vec();
        dims[0] = scale(dims[0]);
        dims
    };
    let (a, b) = (scaled(&A), scaled(&B));
    let named = [("A", a), ("B", b)];
    let moves = named.into_iter().flat_map(|(name, dims)| {
        merges(name, &dims)
            .chain(swaps(name, &dims))
            .collect::<Vec<_>>()
    });
    let permutes = [
        (
            "transpose 4096x4096",
            vec![scale(4), 4096, 4096],
            vec![0, 2, 1],
            Some(1.5),
        ),
        (
            "transpose 4000x4000",
            vec![scale(4), 4000, 4000],
            vec![0, 2, 1],
            Some(1.15),
        ),
        (
            "permute nchw-nhwc [64,3,224,224]",
            vec![scale(64), 3, 224, 224],
            vec![0, 2, 3, 1],
            Some(1.3),
        ),
        (
            "permute nhwc-nchw [64,224,224,3]",
            vec![scale(64), 224, 224, 3],
            vec![0, 3, 1, 2],
            Some(1.3),
        ),
        (
            "permute oihw-hwio [512,512,3,3]",
            vec![512, 512, 3, 3],
            vec![2, 3, 1, 0],
            Some(2.5),
        ),
    ];
    moves.chain(permutes.into_iter().map(|(name, dims, order, bar)| Case {
        name: name.to_owned(),
        op: Op::Permute(order),
        dims,
        bar,
    }))
}

fn merges(name: &str, dims: &[usize]) -> impl Iterator<Item = Case> {
    (0..7).flat_map(move |axis| {
        let parts = if dims[axis] % 4 == 0 { 4 } else { 2 };
        let run: usize = dims[axis..].iter().product::<usize>() / parts * 4;
        let bar = Some(if run >= 64 { 1.1 } else { 1.6 });
        let fits = dims[axis].is_multiple_of(parts);
        let case = |verb: &str, op| Case {
            name: format!("{verb} {name} d={axis} parts={parts}"),
            op,
            dims: dims.to_vec(),
            bar,
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
        Case {
            name: format!("transpose {name} ({one}, {other})"),
            op: Op::Permute(order),
            dims: dims.to_vec(),
            bar,
        }
    })
}

/// Seconds that one run takes.
fn time(mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

/// The middle of the values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The ratio to memcpy on each pool.
fn measure(case: &Case, pools: &[ThreadPool; 2]) -> [f64; 2] {
    let whole = blob(&case.dims);
    let mut copy = vec![0u8; whole.byte_len()];
    let mut run = prepare(&case.op, &whole);
    let inner = (4 << 20) / whole.byte_len().max(1) + 1;
    let mut ratios = [(); 2].map(|()| Vec::with_capacity(ROUNDS));
    for round in 0..=ROUNDS {
        for (pool, ratios) in pools.iter().zip(&mut ratios) {
            let ours = pool.install(|| time(|| (0..inner).for_each(|_| run())));
            let bytes = whole.data_bytes().expect("nobody writes");
            let memcpy = time(|| {
                (0..inner).for_each(|_| black_box(&mut copy).copy_from_slice(black_box(&bytes)))
            });
            if round > 0 {
                ratios.push(ours / memcpy);
            }
        }
    }
    ratios.map(median)
}

fn blob(dims: &[usize]) -> AnyBlob {
    let shape = Shape::new(dims).expect("a shape");
    let mut blob = AnyBlob::new(shape, DType::F32).expect("it fits");
    let mut values = blob.data_mut::<f32>().expect("memory");
    for (i, value) in values.iter_mut().enumerate() {
        *value = i as f32;
    }
    drop(values);
    blob
}

/// One run of the operation, into blobs that are there already.
fn prepare<'a>(op: &'a Op, whole: &'a AnyBlob) -> Box<dyn FnMut() + Send + 'a> {
    let equal = |axis: usize, parts: usize| vec![whole.shape().dims()[axis] / parts; parts];
    match op {
        &Op::Merge { axis, parts } => {
            let parts = blob_ops::split(whole, axis, &equal(axis, parts)).expect("parts");
            let mut out = blob(whole.shape().dims());
            Box::new(move || {
                let parts: Vec<&AnyBlob> = parts.iter().collect();
                blob_ops::merge_into(&parts, axis, &mut out).expect("merged");
            })
        }
        &Op::Split { axis, parts } => {
            let mut parts = blob_ops::split(whole, axis, &equal(axis, parts)).expect("parts");
            Box::new(move || {
                let mut parts: Vec<&mut AnyBlob> = parts.iter_mut().collect();
                blob_ops::split_into(whole, axis, &mut parts).expect("split");
            })
        }
        Op::Permute(order) => {
            let mut out = blob_ops::permute(whole, order).expect("permuted");
            Box::new(move || blob_ops::permute_into(whole, order, &mut out).expect("permuted"))
        }
    }
}
