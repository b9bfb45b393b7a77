//! How fast element-wise operations, sums and conversions are, next to memcpy of the same tensor in the same process.
//!
//! `BLOB_OPS_ISA=portable|avx2|avx512|neon cargo run --release -p blob-ops --example elementwise [-- THREADS [MIB]]`: the
//! time of each operation over that of memcpy, runs in turn, medians of 15; for integers and halves less is moved.

use blob_core::{AnyBlob, DType, Shape};
use blob_ops::{Part, instruction_set};
use std::hint::black_box;
use std::time::Instant;

const RUNS: usize = 15;

fn time(run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Small whole numbers, which every dtype holds.
fn blob(dtype: DType, bytes: usize) -> AnyBlob {
    let count = bytes / dtype.size();
    let shape = Shape::new([count]).expect("a shape");
    let mut small = AnyBlob::new(shape, DType::U8).expect("a blob");
    let mut data = small.data_bytes_mut().expect("memory");
    for (i, byte) in data.iter_mut().enumerate() {
        *byte = (i % 113) as u8;
    }
    drop(data);
    blob_ops::convert(&small, dtype).expect("a blob")
}

/// Runs the operation and memcpy of `bytes` in turn and prints both.
fn case(name: &str, bytes: usize, repeat: usize, op: &mut dyn FnMut()) {
    let (source, mut target) = (vec![1u8; bytes], vec![2u8; bytes]);
    let mut copy = || {
        for _ in 0..repeat {
            target.copy_from_slice(black_box(&source));
            black_box(&mut target);
        }
    };
    let mut op = || (0..repeat).for_each(|_| op());
    time(&mut copy);
    time(&mut op);
    let pairs: Vec<_> = (0..RUNS)
        .map(|_| (time(&mut copy), time(&mut op)))
        .collect();
    let ratio = median(pairs.iter().map(|(copy, op)| op / copy).collect());
    let rate = |times: Vec<f64>| (bytes * repeat) as f64 / median(times) / 1e9;
    println!(
        "{name:<24} {ratio:>6.2}   {:>6.2} GB/s, memcpy {:>6.2}",
        rate(pairs.iter().map(|p| p.1).collect()),
        rate(pairs.iter().map(|p| p.0).collect())
    );
}

fn arithmetic(dtype: DType, bytes: usize, repeat: usize) {
    let (mut y, x) = (blob(dtype, bytes), blob(dtype, bytes));
    let mut run = |name: &str, op: &mut dyn FnMut(&mut AnyBlob)| {
        case(&format!("{name} {dtype}"), bytes, repeat, &mut || {
            op(black_box(&mut y))
        });
    };
    run("fill 3", &mut |y| {
        blob_ops::fill(y, 3, Part::Data).expect("fill")
    });
    run("clear", &mut |y| {
        blob_ops::clear(y, Part::Data).expect("clear")
    });
    run("add", &mut |y| {
        blob_ops::add(y, &x, Part::Data).expect("add")
    });
    run("add flushed", &mut |y| {
        blob_ops::add_flush_subnormals(y, &x, Part::Data).expect("add");
    });
    run("axpy", &mut |y| {
        blob_ops::axpy(y, 2, &x, Part::Data).expect("axpy")
    });
    run("scale", &mut |y| {
        blob_ops::scale(y, 1, Part::Data).expect("scale")
    });
    run("asum", &mut |y| {
        black_box(blob_ops::asum(y, Part::Data).expect("asum"));
    });
    run("sumsq", &mut |y| {
        black_box(blob_ops::sumsq(y, Part::Data).expect("sumsq"));
    });
    run("stats", &mut |y| {
        black_box(blob_ops::stats(y, Part::Data).expect("stats"));
    });
}

fn conversion(from: DType, to: DType, bytes: usize, repeat: usize) {
    let x = blob(from, bytes);
    let mut y = AnyBlob::new(x.shape().clone(), to).expect("a blob");
    case(&format!("{from} to {to}"), bytes, repeat, &mut || {
        blob_ops::convert_into(&x, black_box(&mut y), Part::Data).expect("convert");
    });
    case(
        &format!("{from} to {to} checked"),
        bytes,
        repeat,
        &mut || {
            blob_ops::convert_checked_into(&x, black_box(&mut y), Part::Data).expect("convert");
        },
    );
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|a| a.parse().expect("a number"));
    let threads = arguments.next().unwrap_or(1);
    let bytes = arguments.next().unwrap_or(256) << 20;
    let repeat = ((256 << 20) / bytes).clamp(1, 64);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build().expect("a pool").install(|| {
        println!(
            "{}, {threads} threads, {} MiB",
            instruction_set(),
            bytes >> 20
        );
        arithmetic(DType::F32, bytes, repeat);
        for dtype in [DType::F64, DType::F16, DType::BF16, DType::I32, DType::U8] {
            arithmetic(dtype, bytes / 4, repeat);
        }
        for (from, to) in [
            (DType::F32, DType::F16),
            (DType::F16, DType::F32),
            (DType::F32, DType::BF16),
            (DType::BF16, DType::F32),
            (DType::F64, DType::F32),
            (DType::F64, DType::F16),
            (DType::F32, DType::I32),
            (DType::F32, DType::U8),
            (DType::I64, DType::I32),
            (DType::U8, DType::F32),
        ] {
            conversion(from, to, bytes / 4, repeat);
        }
    });
}
