//! How fast statistics, histogram and the search for NaN are, next to memcpy of the same bytes in the same process.
//!
//! `BLOB_OPS_ISA=portable|avx2|avx512|neon cargo run --release -p blob-ops --example rates [-- f32 …]`; medians of 11.
//! "both" is the statistics and a histogram of 64 bins, 1 MiB after 1 MiB.

use blob_core::DType;
use blob_ops::{Histogram, Scalar, StatsAccumulator, count_nonfinite, instruction_set};
use std::hint::black_box;
use std::time::Instant;

const RUNS: usize = 11;

fn median(mut run: impl FnMut()) -> f64 {
    run();
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}

/// Harmless finite values of any float dtype, small numbers of any integer dtype.
fn tensor(dtype: DType, len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len / dtype.size())
        .flat_map(|_| {
            let x = (next() >> 40) as f32 / (1 << 23) as f32 - 1.0;
            match dtype {
                DType::F64 => f64::from(x).to_ne_bytes().to_vec(),
                DType::F32 => x.to_ne_bytes().to_vec(),
                DType::F16 => half::f16::from_f32(x).to_ne_bytes().to_vec(),
                DType::BF16 => half::bf16::from_f32(x).to_ne_bytes().to_vec(),
                other => next().to_ne_bytes()[..other.size()].to_vec(),
            }
        })
        .collect()
}

fn row(dtype: DType, data: &[u8], repeat: usize, copy: f64) {
    let rate = |seconds: f64| (data.len() * repeat) as f64 / seconds / 1e9;
    let stats = median(|| {
        for _ in 0..repeat {
            let mut stats = StatsAccumulator::new(dtype);
            stats.update(black_box(data));
            black_box(stats.finish());
        }
    });
    let mut first = StatsAccumulator::new(dtype);
    first.update(data);
    let first = first.finish();
    let end = |x: Option<Scalar>| x.map_or(0.0, Scalar::as_f64);
    let (low, high) = (end(first.min()), end(first.max()));
    let both = median(|| {
        for _ in 0..repeat {
            let mut stats = StatsAccumulator::new(dtype);
            let mut bins = Histogram::new(dtype, low, high, 64).expect("a range");
            for piece in data.chunks(1 << 20) {
                stats.update(black_box(piece));
                bins.update(black_box(piece));
            }
            black_box((stats.finish(), bins.counts()));
        }
    });
    // Integers are finite unread.
    let finite = if !dtype.is_float() {
        f64::NAN
    } else {
        median(|| {
            for _ in 0..repeat {
                black_box(count_nonfinite(dtype, black_box(data)));
            }
        })
    };
    println!(
        "{:>5} {:>6.2} {:>6.2} {:>6.2} {:>6.2}   {:>5.2} {:>5.2} {:>5.2}",
        format!("{dtype:?}"),
        rate(copy),
        rate(stats),
        rate(both),
        rate(finite),
        copy / stats,
        copy / both,
        copy / finite
    );
}

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |dtype: DType| names.is_empty() || names.iter().any(|name| name == dtype.name());
    println!(
        "{}; GB/s of payload, then ratios to memcpy",
        instruction_set()
    );
    for (name, len, repeat) in [("256 MiB", 256 << 20, 1), ("1 MiB", 1 << 20, 32)] {
        println!("{name}\ndtype memcpy  stats   both finite   stats  both finite");
        let mut target = vec![1u8; len];
        for &dtype in DType::ALL.iter().filter(|d| wanted(**d)) {
            let data = tensor(dtype, len);
            let copy = median(|| {
                for _ in 0..repeat {
                    target.copy_from_slice(black_box(&data));
                    black_box(&target);
                }
            });
            row(dtype, &data, repeat, copy);
        }
    }
}
