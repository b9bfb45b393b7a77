//! Counts the memory accesses of the kernels on whole tiles: not their time, but the causes of a slow kernel.

use std::sync::Arc;

use blob_core::{AnyBlob, DType, Part, Shape};
use blob_ops::At;
use fake_cuda::control::Session;
use synced_mem::Queue;

use crate::operations::displaced;
use crate::{gpu, seed};

fn blob(dtype: DType, dims: &[usize]) -> AnyBlob {
    let shape = Shape::new(dims).unwrap();
    let bytes = vec![0; shape.count() * dtype.size()];
    AnyBlob::from_vec(shape, dtype, bytes).unwrap()
}

/// Asserts that a kernel has run and meets its goals. `width` is that of the words.
#[track_caller]
fn expect_fast(session: &Session, queue: &Arc<dyn Queue>, kernel: &str, width: usize) {
    let least = if width >= 4 { 0.95 } else { 0.90 };
    expect_at_least(session, queue, kernel, [least; 2], 4.0);
}

/// Asserts the minimum share of the loaded and stored sectors that is used, and the minimum bytes of an access.
#[track_caller]
fn expect_at_least(session: &Session, queue: &Arc<dyn Queue>, kernel: &str, [loads, stores]: [f64; 2], bytes: f64) {
    queue.synchronize().unwrap();
    let counts = session.counts(kernel);
    assert!(counts.launches > 0, "{kernel} was not launched");
    for (what, traffic, least) in [("loads", counts.loads, loads), ("stores", counts.stores, stores)] {
        if traffic.accesses > 0 {
            let efficiency = traffic.efficiency();
            assert!(efficiency >= least, "{kernel}: {what} use {efficiency} of their sectors, and {least} is possible");
            assert!(traffic.bytes_per_access() >= bytes, "{kernel}: {} bytes a {what}", traffic.bytes_per_access());
        }
    }
    assert!(counts.bank_conflict <= 2, "{kernel}: {} bank conflicts", counts.bank_conflict);
    assert_eq!(counts.long_divisions, 0, "{kernel} divides 64-bit numbers in a loop");
}

fn on(run: impl Fn(&Session, &Arc<dyn Queue>, &At)) {
    let (session, _gpu, queue) = gpu(seed(1));
    run(&session, &queue, &blob_ops::at(&queue));
}

#[test]
fn merges_and_splits() {
    on(|session, queue, gpu| {
        let (a, b) = (blob(DType::F32, &[8, 128]), blob(DType::F32, &[8, 384]));
        let merged = gpu.merge(&[&a, &b], 1).unwrap();
        gpu.split(&merged, 1, &[128, 384]).unwrap();
        expect_fast(session, queue, "rows_16", 16);
    });
}

#[test]
fn transpositions() {
    for (dtype, side, kernel) in [
        (DType::U8, 128, "packed_1"),
        (DType::F16, 128, "packed_2"),
        (DType::F32, 128, "tile_4"),
        (DType::F64, 64, "tile_8"),
        (DType::U8, 256, "wide_1"),
        (DType::F16, 256, "wide_2"),
        (DType::F32, 256, "wide_4"),
    ] {
        on(|session, queue, gpu| {
            gpu.transpose(&blob(dtype, &[2, side, side]), 1, 2).unwrap();
            expect_fast(session, queue, kernel, dtype.size());
        });
    }
    on(|session, queue, gpu| {
        gpu.transpose(&blob(DType::F32, &[64, 64, 4]), 0, 1).unwrap();
        expect_fast(session, queue, "tile_16", 16);
        gpu.transpose_in_place(&mut blob(DType::F32, &[2, 64, 64])).unwrap();
        expect_fast(session, queue, "square_4", 4);
    });
}

/// Bytes that begin between two words cannot be loaded as words: the 32 or 64 bytes of 32 lanes then extend into one
/// more sector.
#[test]
fn transpositions_of_bytes_that_are_not_aligned_to_words() {
    for (dtype, past, kernel, loads) in [(DType::U8, 1, "tile_1", 1.0 / 2.0), (DType::F16, 2, "tile_2", 2.0 / 3.0)] {
        on(|session, queue, gpu| {
            let from = displaced(queue, &blob(dtype, &[2, 128, 128]), past);
            gpu.transpose(&from, 1, 2).unwrap();
            expect_at_least(session, queue, kernel, [loads - 0.01, 0.90], dtype.size() as f64);
        });
    }
}

/// Channels first and last: words along both sides.
#[test]
fn permutations_with_a_short_side() {
    for (dtype, kernel) in
        [(DType::U8, "narrow_1"), (DType::F16, "narrow_2"), (DType::F32, "narrow_4"), (DType::F64, "narrow_8")]
    {
        for channels in [2, 3, 4, 16, 31, 32] {
            for dims in [[2, channels, 2048], [2, 2048, channels]] {
                on(|session, queue, gpu| {
                    gpu.transpose(&blob(dtype, &dims), 1, 2).unwrap();
                    expect_fast(session, queue, kernel, dtype.size());
                });
            }
        }
    }
    on(|session, queue, gpu| {
        gpu.transpose(&blob(DType::F64, &[2, 3, 1024, 2]), 1, 2).unwrap();
        expect_fast(session, queue, "narrow_16", 16);
    });
}

/// If one side is too short for tiles and the other for stretches, a warp runs along the short side. Its 32 words are
/// in as many rows of the longer side as the short side has elements, so each row's share can be less than a sector, or
/// end within one.
#[test]
fn permutations_without_tiles() {
    const ALL: f64 = 0.95;
    for (dtype, entries, kernel, share) in [
        // Rows of 128 bytes, 64 and 16; 3 rows of 42 or 43 bytes, of 21 or 22, of 10 or 11.
        (DType::F64, 2, "strided_8", ALL),
        (DType::F64, 4, "strided_8", ALL),
        (DType::F32, 8, "strided_4", 16.0 / 32.0),
        (DType::F32, 3, "strided_4", 42.7 / 64.0),
        (DType::F16, 3, "strided_2", 21.3 / 42.7),
        (DType::U8, 3, "strided_1", 10.7 / 32.0),
    ] {
        let bytes = dtype.size() as f64;
        on(|session, queue, gpu| {
            gpu.transpose(&blob(dtype, &[16, 1023 / entries / 32 * 32, entries]), 1, 2).unwrap();
            expect_at_least(session, queue, kernel, [ALL, share - 0.01], bytes);
        });
        on(|session, queue, gpu| {
            gpu.transpose(&blob(dtype, &[16, entries, 1023 / entries / 32 * 32]), 1, 2).unwrap();
            expect_at_least(session, queue, kernel, [share - 0.01, ALL], bytes);
        });
    }
}

/// A warp writes in order, and reads runs that can begin and end within a sector. The next warp uses the rest of that
/// sector.
#[test]
fn permutations_of_runs() {
    for (dtype, run, kernel, loads) in [
        // Whole sectors; runs of 24, 12 and 132 bytes; runs of 6 and 3 bytes, most of which are in separate sectors.
        (DType::F32, 8, "strided_16", 0.95),
        (DType::F32, 6, "strided_8", 0.48),
        (DType::F32, 3, "strided_4", 0.28),
        (DType::F32, 33, "strided_4", 0.70),
        (DType::F16, 3, "strided_2", 0.15),
        (DType::U8, 3, "strided_1", 0.08),
    ] {
        on(|session, queue, gpu| {
            gpu.transpose(&blob(dtype, &[64, 64, run]), 0, 1).unwrap();
            let bytes = dtype.size() as f64;
            expect_at_least(session, queue, kernel, [loads, 0.95], bytes);
        });
    }
}

#[test]
fn checks_of_conversions() {
    for (from, to, kernel) in [
        (DType::U16, DType::U8, "check_i32"),
        (DType::I32, DType::U8, "check_i32"),
        (DType::U32, DType::U8, "check_u32"),
        (DType::I64, DType::U8, "check_i64"),
        (DType::U64, DType::U8, "check_u64"),
        (DType::F16, DType::U8, "check_f32"),
        (DType::F32, DType::U8, "check_f32"),
        (DType::F64, DType::F32, "check_f64"),
    ] {
        on(|session, queue, gpu| {
            gpu.convert_checked(&blob(from, &[8192]), to).unwrap();
            expect_fast(session, queue, kernel, from.size());
        });
    }
}

#[test]
fn arithmetic_fills_and_sums() {
    let names = [
        (DType::U8, "w8"),
        (DType::I16, "w16"),
        (DType::I32, "w32"),
        (DType::U64, "w64"),
        (DType::F16, "f16"),
        (DType::BF16, "bf16"),
        (DType::F32, "f32"),
        (DType::F64, "f64"),
    ];
    for (dtype, name) in names {
        on(|session, queue, gpu| {
            let (mut y, x) = (blob(dtype, &[8192]), blob(dtype, &[8192]));
            gpu.add(&mut y, &x, Part::Data).unwrap();
            gpu.scale(&mut y, 3, Part::Data).unwrap();
            expect_fast(session, queue, &format!("arithmetic_{name}"), dtype.size());
            gpu.fill(&mut y, 3, Part::Data).unwrap();
            expect_fast(session, queue, "fill", 16);
            gpu.asum(&x, Part::Data).unwrap();
            let counts = session.counts(&format!("sums_{name}"));
            assert!(counts.loads.efficiency() >= 0.95 && counts.loads.bytes_per_access() >= 4.0, "{name}: {counts:?}");
            assert!(counts.bank_conflict <= 2 && counts.long_divisions == 0, "{name}: {counts:?}");
        });
    }
}

#[test]
fn conversions() {
    for (from, to, kernel) in [
        (DType::F32, DType::F16, "convert_f32"),
        (DType::BF16, DType::F32, "convert_f32"),
        (DType::U8, DType::F32, "convert_i32"),
        (DType::F64, DType::F32, "convert_f64"),
        (DType::I32, DType::I64, "convert_i32"),
        (DType::U32, DType::F64, "convert_u32"),
    ] {
        on(|session, queue, gpu| {
            gpu.convert(&blob(from, &[8192]), to).unwrap();
            expect_fast(session, queue, kernel, from.size().min(to.size()).max(4));
        });
    }
}
