//! Merge, split, transpose, permute: every width, ragged shape, instruction set, way to store and number of pieces,
//! against loops over indices; the checks before the first byte; and what undoes what.

mod interleaves;
mod many;
mod past;
mod properties;
mod refused;

use super::isas;
use crate::cpu::copy::{Rows, RowsMut};
use crate::cpu::machine::Store;
use crate::cpu::{Exec, Isa};
use crate::merge::rows;
use crate::plan::Permutation;
use crate::{
    merge, merge_objects, merge_objects_into, permute, split, split_objects, split_objects_into, transpose,
    transpose_in_place, transpose_into,
};
use blob_core::{AnyBlob, DType, Shape};

/// Every way that a move can be done here.
fn all_execs() -> Vec<Exec> {
    let mut all = Vec::new();
    for isa in isas() {
        for store in [Store::Cached, Store::Streaming] {
            all.extend([1, 2, 7].map(|pieces| Exec { isa, store, pieces }));
        }
    }
    all
}

/// Runs on a pool of as many threads as there are pieces.
fn on_pool(exec: Exec, work: impl FnOnce() + Send) {
    let builder = rayon::ThreadPoolBuilder::new().num_threads(exec.pieces);
    builder.build().unwrap().install(work);
}

/// Bytes that differ from their neighbours and from those a power of two away.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 15)) as u8 ^ (i % 251) as u8).collect()
}

/// Axis `i` of the result is axis `order[i]`: one element at a time, by its index.
fn permuted(src: &[u8], dims: &[usize], order: &[usize], size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(src.len());
    let count: usize = dims.iter().product();
    for place in 0..count {
        let (mut rest, mut index) = (place, vec![0; dims.len()]);
        for &axis in order.iter().rev() {
            index[axis] = rest % dims[axis];
            rest /= dims[axis];
        }
        let from = index.iter().zip(dims).fold(0, |at, (i, len)| at * len + i);
        out.extend_from_slice(&src[from * size..][..size]);
    }
    out
}

/// Rows of one run of each part.
fn merged(parts: &[Vec<u8>], rows: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for row in 0..rows {
        for part in parts {
            let run = part.len() / rows;
            out.extend_from_slice(&part[row * run..][..run]);
        }
    }
    out
}

fn check_permutation(execs: &[Exec], dims: &[usize], order: &[usize], size: usize) {
    let src = pattern(dims.iter().product::<usize>() * size);
    let want = permuted(&src, dims, order, size);
    let plan = Permutation::new(dims, order, size);
    for &exec in execs {
        // Past the end nothing is written, and an odd address is no trouble; from the start of a line on, lines are
        // written past the caches.
        let mut room = vec![0xA5_u8; want.len() + 192];
        let line = room.as_ptr().align_offset(64);
        for shift in [line, line + size, line + 1] {
            room.fill(0xA5);
            crate::transpose::run(exec, plan, &src, &mut room[shift..][..want.len()]);
            assert!(room[shift..][..want.len()] == want, "{dims:?} {order:?} {size} {exec:?}");
            assert!(room[..shift].iter().chain(&room[shift + want.len()..]).all(|&b| b == 0xA5));
        }
    }
}

/// Around registers, lines and tables; primes.
const SIDES: [usize; 14] = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 64, 97];

#[test]
fn two_axes_of_every_width_and_ragged_side() {
    let execs = all_execs();
    for size in [1, 2, 4, 8] {
        for a in SIDES {
            for b in SIDES {
                check_permutation(&execs, &[a, b], &[1, 0], size);
            }
        }
    }
}

/// Rows of bytes and pairs that share the sets of a cache, two strips and a half of them: they are copied first.
#[test]
fn rows_that_share_sets() {
    let execs = all_execs();
    for (rows, size) in [(131, 1), (67, 2)] {
        check_permutation(&execs, &[rows, 16, 320], &[2, 1, 0], size);
    }
}

/// Around the strips and lines that tiles are grouped in: of bytes 128 and 64 entries, of eight of them 16 and 8.
#[test]
fn sides_around_strips_and_lines() {
    let execs = all_execs();
    for size in [1, 2, 4, 8] {
        let (strip, line) = (128 / size, 64 / size);
        for a in [line - 1, line, line + 1, 2 * line + 3, 3 * line] {
            for b in [strip - 1, strip, strip + 1, 2 * strip + line + 5] {
                check_permutation(&execs, &[a, b], &[1, 0], size);
                check_permutation(&execs[..6], &[b, a], &[1, 0], size);
            }
        }
    }
}

#[test]
fn sides_longer_than_the_tables() {
    let execs = all_execs();
    for size in [1, 4] {
        check_permutation(&execs, &[2, 257, 300], &[0, 2, 1], size);
        check_permutation(&execs, &[515, 67], &[1, 0], size);
        check_permutation(&execs, &[300, 5, 261], &[2, 1, 0], size);
    }
    // Sides of two axes and of three, which go on where a table ends.
    check_permutation(&execs, &[64, 70, 9], &[2, 1, 0], 4);
    check_permutation(&execs, &[11, 37, 66], &[2, 0, 1], 2);
    check_permutation(&execs, &[33, 5, 7, 9], &[3, 2, 1, 0], 4);
    check_permutation(&execs, &[1500, 3], &[1, 0], 8);
    check_permutation(&execs, &[3, 6001], &[1, 0], 4);
}

/// Copied in the destination's order; longer than what is asked for ahead, as long, and shorter.
#[test]
fn runs_longer_than_the_tables_reach() {
    let execs = all_execs();
    for run in [1023, 1024, 1025, 2048, 2050, 5000] {
        check_permutation(&execs, &[3, 2, 5, run], &[2, 1, 0, 3], 1);
        check_permutation(&execs, &[2, 7, run], &[1, 0, 2], 2);
    }
}

/// Rows of the destination start at lines, and the last tile along them does not: it may not be written past the
/// caches.
#[test]
fn a_tile_between_two_lines_is_written_through_the_caches() {
    let dims = [273, 16, 257];
    let src = pattern(dims.iter().product::<usize>() * 4);
    let want = permuted(&src, &dims, &[2, 1, 0], 4);
    let plan = Permutation::new(&dims, &[2, 1, 0], 4);
    let mut room = vec![0; want.len() + 64];
    let start = room.as_ptr().align_offset(64);
    for exec in all_execs() {
        let out = &mut room[start..][..want.len()];
        out.fill(0xA5);
        crate::transpose::run(exec, plan, &src, out);
        assert!(*out == want, "{exec:?}");
    }
}

#[test]
fn axes_with_others_between_and_within() {
    let execs = all_execs();
    for size in [1, 2, 4, 8] {
        for mid in [1, 2, 5, 16] {
            for inner in [1, 2, 3, 4, 7, 16, 19, 65] {
                for (a, b) in [(3, 17), (16, 16), (8, 40), (33, 2)] {
                    check_permutation(&execs, &[2, a, mid, b, inner], &[0, 3, 2, 1, 4], size);
                }
            }
        }
    }
}

fn orders(axes: usize) -> Vec<Vec<usize>> {
    if axes == 0 {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for order in orders(axes - 1) {
        for at in 0..axes {
            let mut order = order.clone();
            order.insert(at, axes - 1);
            all.push(order);
        }
    }
    all
}

#[test]
fn every_order_of_up_to_six_axes() {
    let execs = all_execs();
    for dims in [&[][..], &[5], &[5, 3], &[17, 2, 5], &[3, 4, 2, 18]] {
        for order in orders(dims.len()) {
            check_permutation(&execs, dims, &order, 4);
        }
    }
    for dims in [[3, 2, 5, 1, 4], [2, 16, 1, 16, 3]] {
        for order in orders(5) {
            check_permutation(&execs[execs.len() - 6..], &dims, &order, 2);
        }
    }
    let few: Vec<Exec> = execs.into_iter().step_by(4).collect();
    for order in orders(6) {
        check_permutation(&few, &[2, 3, 2, 4, 3, 2], &order, 1);
    }
}

fn check_rows(execs: &[Exec], runs: &[usize], rows: usize) {
    let parts: Vec<Vec<u8>> = runs.iter().enumerate().map(|(k, run)| pattern(run * rows + k)[k..].to_vec()).collect();
    let want = merged(&parts, rows);
    if want.is_empty() {
        return;
    }
    for &exec in execs {
        let mut got = vec![0xA5; want.len()];
        let slices: Vec<_> = parts.iter().map(|part| Rows::new(part, rows)).collect();
        rows::merge(exec, &slices, &mut got);
        assert!(got == want, "{runs:?} × {rows} {exec:?}");
        let mut back: Vec<_> = parts.iter().map(|part| vec![0x5A; part.len()]).collect();
        let slices = back.iter_mut().map(|part| RowsMut::new(part, rows));
        rows::split(exec, &want, &mut slices.collect::<Vec<_>>());
        assert!(back == parts, "{runs:?} × {rows} {exec:?}");
    }
}

#[test]
fn rows_of_runs_of_every_length() {
    let execs = all_execs();
    for rows in [1, 2, 3, 16, 97] {
        for run in (0..=70).chain([96, 127, 128, 1023, 1024, 4099]) {
            check_rows(&execs, &[run], rows);
            check_rows(&execs, &[run, 5, run + 1], rows);
        }
    }
    for rows in [1, 7, 1030] {
        for run in [1, 2, 4, 8, 16, 32, 64, 128] {
            for parts in 1..=5 {
                check_rows(&execs, &vec![run; parts], rows);
            }
        }
    }
    check_rows(&execs, &[0, 3, 0, 64, 17_000], 5);
    check_rows(&execs, &[20_000, 1], 3);
    check_rows(&execs, &[9; 100], 40);
}

#[test]
fn large_moves_are_the_same_on_any_pool() {
    let dims = [3, 130, 7, 515];
    let src = pattern(dims.iter().product::<usize>() * 4);
    let want = permuted(&src, &dims, &[3, 0, 2, 1], 4);
    let parts: Vec<Vec<u8>> = [1usize, 3, 4].map(|run| pattern(run * 300_000)).into();
    let row = merged(&parts, 300_000);
    for threads in [1, 2, 7] {
        let exec = Exec { isa: Isa::detect(), store: Store::Streaming, pieces: threads };
        on_pool(exec, || {
            let plan = Permutation::new(&dims, &[3, 0, 2, 1], 4);
            let mut out = vec![0; src.len()];
            let exec = Exec::of(src.len());
            assert_eq!(exec.pieces > 1, threads > 1);
            crate::transpose::run(exec, plan, &src, &mut out);
            assert!(out == want, "{threads} threads");
            let mut out = vec![0; row.len()];
            let slices: Vec<_> = parts.iter().map(|part| Rows::new(part, 300_000)).collect();
            rows::merge(Exec::of(row.len()), &slices, &mut out);
            assert!(out == row, "{threads} threads");
            let mut back: Vec<_> = parts.iter().map(|part| vec![0; part.len()]).collect();
            let slices = back.iter_mut().map(|part| RowsMut::new(part, 300_000));
            rows::split(Exec::of(row.len()), &row, &mut slices.collect::<Vec<_>>());
            assert!(back == parts, "{threads} threads");
            // Many more pieces than threads, also within a run.
            for rows_of_parts in [300_000, 1] {
                let want = merged(&parts, rows_of_parts);
                let exec = Exec { pieces: 37, ..Exec::of_new(want.len()) };
                let mut out = vec![0; want.len()];
                let slices: Vec<_> = parts.iter().map(|part| Rows::new(part, rows_of_parts)).collect();
                rows::merge(exec, &slices, &mut out);
                assert!(out == want, "{threads} threads");
                let mut back: Vec<_> = parts.iter().map(|part| vec![0; part.len()]).collect();
                let slices = back.iter_mut().map(|part| RowsMut::new(part, rows_of_parts));
                rows::split(exec, &want, &mut slices.collect::<Vec<_>>());
                assert!(back == parts, "{threads} threads");
            }
        });
    }
}

#[test]
fn squares_in_place() {
    for size in [1, 2, 4, 8] {
        for side in [1, 2, 3, 8, 15, 16, 17, 63, 64, 65, 130] {
            let src = pattern(3 * side * side * size);
            let want = permuted(&src, &[3, side, side], &[0, 2, 1], size);
            for exec in all_execs() {
                let mut bytes = src.clone();
                crate::transpose::squares(exec, &mut bytes, side, size);
                assert!(bytes == want, "{side} {size} {exec:?}");
            }
        }
    }
}

fn blob(dims: &[usize], dtype: DType) -> AnyBlob {
    let shape = Shape::new(dims).unwrap();
    let mut bytes = pattern(shape.count() * dtype.size());
    if dtype == DType::Bool {
        bytes.iter_mut().for_each(|byte| *byte &= 1);
    }
    AnyBlob::from_vec(shape, dtype, bytes).unwrap()
}

fn bytes(blob: &AnyBlob) -> Vec<u8> {
    blob.data().bytes().unwrap().to_vec()
}

#[test]
fn blobs_of_every_dtype() {
    for &dtype in DType::ALL {
        let size = dtype.size();
        let (a, b) = (blob(&[2, 3, 5], dtype), blob(&[2, 4, 5], dtype));
        let both = merge(&[&a, &b], -2).unwrap();
        assert_eq!((both.shape().dims(), both.dtype()), (&[2, 7, 5][..], dtype));
        assert_eq!(bytes(&both), merged(&[bytes(&a), bytes(&b)], 2));
        let back = split(&both, 1usize, &[3, 0, 4]).unwrap();
        assert_eq!(back[1].shape().dims(), [2, 0, 5]);
        assert_eq!((bytes(&back[0]), bytes(&back[2])), (bytes(&a), bytes(&b)));
        let turned = transpose(&a, 0, -1).unwrap();
        assert_eq!(turned.shape().dims(), [5, 3, 2]);
        assert_eq!(bytes(&turned), permuted(&bytes(&a), &[2, 3, 5], &[2, 1, 0], size));
        assert_eq!(bytes(&transpose(&a, 1, 1).unwrap()), bytes(&a));
        let moved = permute(&a, &[1, 2, 0]).unwrap();
        assert_eq!(moved.shape().dims(), [3, 5, 2]);
        assert_eq!(bytes(&moved), permuted(&bytes(&a), &[2, 3, 5], &[1, 2, 0], size));
        let mut square = blob(&[2, 5, 5], dtype);
        let want = bytes(&transpose(&square, 1, 2).unwrap());
        transpose_in_place(&mut square).unwrap();
        assert_eq!(bytes(&square), want);
    }
}

#[test]
fn objects_are_merged_whole() {
    let a = blob(&[2, 1, 3, 1, 2, 1, 2], DType::I32);
    let b = blob(&[2, 1, 3, 3, 1, 1, 1], DType::I32);
    let both = merge_objects(&[&a, &b]).unwrap();
    assert_eq!(both.shape().dims(), [2, 1, 3, 1, 1, 1, 7]);
    assert_eq!(bytes(&both), merged(&[bytes(&a), bytes(&b)], 6));
    let back = split_objects(&both, &[4, 3]).unwrap();
    assert_eq!(back[1].shape().dims(), [2, 1, 3, 1, 1, 1, 3]);
    assert_eq!((bytes(&back[0]), bytes(&back[1])), (bytes(&a), bytes(&b)));
    let mut out = AnyBlob::new(Shape::new([1, 6, 1, 7, 1, 1, 1]).unwrap(), DType::I32).unwrap();
    merge_objects_into(&[&a, &b], &mut out).unwrap();
    assert_eq!(bytes(&out), bytes(&both));
    let (mut c, mut d) = (blob(&[2, 1, 3, 4, 1, 1, 1], DType::I32), blob(&[6, 1, 1, 1, 1, 1, 3], DType::I32));
    split_objects_into(&both, &mut [&mut c, &mut d]).unwrap();
    assert_eq!((bytes(&c), bytes(&d)), (bytes(&a), bytes(&b)));
}

#[test]
fn tensors_without_elements() {
    let (none, two) = (blob(&[3, 0], DType::F32), blob(&[3, 2], DType::F32));
    assert_eq!(bytes(&merge(&[&none, &two], 1).unwrap()), bytes(&two));
    assert_eq!(merge(&[&none, &none], 0).unwrap().shape().dims(), [6, 0]);
    assert_eq!(split(&none, 0, &[1, 2]).unwrap()[1].shape().dims(), [2, 0]);
    assert_eq!(split(&blob(&[0, 2], DType::U8), 0, &[0]).unwrap()[0].shape().dims(), [0, 2]);
    assert_eq!(transpose(&none, 0, 1).unwrap().shape().dims(), [0, 3]);
    assert_eq!(permute(&none, &[1, 0]).unwrap().shape().dims(), [0, 3]);
    transpose_in_place(&mut blob(&[0, 3, 3], DType::F32)).unwrap();
    transpose_in_place(&mut blob(&[4, 0, 0], DType::F32)).unwrap();
    assert_eq!(permute(&blob(&[], DType::F32), &[]).unwrap().count(), 1);
}

#[test]
fn the_diff_is_left_alone() {
    let mut a = blob(&[3, 4], DType::F32);
    a.diff_mut().elements::<f32>().unwrap().fill(7.0);
    assert!(!transpose(&a, 0, 1).unwrap().has_diff());
    let mut out = blob(&[4, 3], DType::F32);
    out.diff_mut().elements::<f32>().unwrap().fill(2.0);
    transpose_into(&a, 0, 1, &mut out).unwrap();
    assert_eq!(*out.diff().elements::<f32>().unwrap(), [2.0; 12]);
}
