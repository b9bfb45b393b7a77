//! What the kernels cost in accesses, counted on whole tiles: not time, but what would spoil it.

use std::sync::Arc;

use blob_core::{AnyBlob, DType, Part, Shape};
use fake_cuda::control::Session;
use synced_mem::Queue;

use crate::{gpu, seed};

fn blob(dtype: DType, dims: &[usize]) -> AnyBlob {
    let shape = Shape::new(dims).unwrap();
    let bytes = vec![0; shape.count() * dtype.size()];
    AnyBlob::from_vec(shape, dtype, bytes).unwrap()
}

/// The goals for one kernel, which must have run: `width` is that of its words.
#[track_caller]
fn expect_fast(session: &Session, queue: &Arc<dyn Queue>, kernel: &str, width: usize) {
    queue.synchronize().unwrap();
    let counts = session.counts(kernel);
    assert!(counts.launches > 0, "{kernel} was not launched");
    let least = if width >= 4 { 0.95 } else { 0.90 };
    for (what, traffic) in [("loads", counts.loads), ("stores", counts.stores)] {
        if traffic.accesses > 0 {
            assert!(traffic.efficiency() >= least, "{kernel}: {what} use {} of their sectors", traffic.efficiency());
            assert!(traffic.bytes_per_access() >= 4.0, "{kernel}: {} bytes a {what}", traffic.bytes_per_access());
        }
    }
    assert!(counts.bank_conflict <= 2, "{kernel}: {} bank conflicts", counts.bank_conflict);
    assert_eq!(counts.long_divisions, 0, "{kernel} divides 64-bit numbers in a loop");
}

fn on(run: impl Fn(&Session, &Arc<dyn Queue>)) {
    let (session, _gpu, queue) = gpu(seed(1));
    blob_ops::on(&queue, || run(&session, &queue));
}

#[test]
fn merges_and_splits() {
    on(|session, queue| {
        let (a, b) = (blob(DType::F32, &[8, 128]), blob(DType::F32, &[8, 384]));
        let merged = blob_ops::merge(&[&a, &b], 1).unwrap();
        blob_ops::split(&merged, 1, &[128, 384]).unwrap();
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
    ] {
        on(|session, queue| {
            blob_ops::transpose(&blob(dtype, &[2, side, side]), 1, 2).unwrap();
            expect_fast(session, queue, kernel, dtype.size());
        });
    }
    on(|session, queue| {
        blob_ops::transpose(&blob(DType::F32, &[64, 64, 4]), 0, 1).unwrap();
        expect_fast(session, queue, "tile_16", 16);
        blob_ops::transpose_in_place(&mut blob(DType::F32, &[2, 64, 64])).unwrap();
        expect_fast(session, queue, "square_4", 4);
    });
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
        on(|session, queue| {
            let (mut y, x) = (blob(dtype, &[8192]), blob(dtype, &[8192]));
            blob_ops::add(&mut y, &x, Part::Data).unwrap();
            blob_ops::scale(&mut y, 3, Part::Data).unwrap();
            expect_fast(session, queue, &format!("arithmetic_{name}"), dtype.size());
            blob_ops::fill(&mut y, 3, Part::Data).unwrap();
            expect_fast(session, queue, "fill", 16);
            blob_ops::asum(&x, Part::Data).unwrap();
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
        on(|session, queue| {
            blob_ops::convert(&blob(from, &[8192]), to).unwrap();
            expect_fast(session, queue, kernel, from.size().min(to.size()).max(4));
        });
    }
}
