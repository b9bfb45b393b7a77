//! Moves so large that no cache holds them, through the public functions and with either kind of stores: every element
//! is where its index says.

use crate::tests::{again::this_binary, in_pool};
use crate::{merge_into, permute_into, split_into, transpose_into};
use blob_core::{AnyBlob, DType, Shape};

/// Also names the tests, in other files, whose results no cache holds.
const NAMED: &str = "past";

/// Runs them again, in processes of their own: the choice of stores is made once in each.
#[test]
fn either_kind_of_stores_gives_the_same_bits() {
    const SWITCH: &str = "BLOB_OPS_STORES";
    if cfg!(miri) || std::env::var_os(SWITCH).is_some() {
        return;
    }
    for stores in ["streaming", "ordinary"] {
        let ran = this_binary().arg(NAMED).env(SWITCH, stores).output().expect("a process");
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{stores}: {said}");
        assert!(said.contains("large_conversions_and_fills_past"), "{said}");
    }
}

/// More than 32 MiB of u32 each: ragged sides, one of them short; sides of whole cache lines.
const SHAPES: [[usize; 3]; 2] = [[3, 1031, 2819], [2, 2080, 2112]];

fn empty(dims: [usize; 3]) -> AnyBlob {
    AnyBlob::new(Shape::new(dims).unwrap(), DType::U32).unwrap()
}

/// Every element is its own index.
fn numbered(dims: [usize; 3]) -> AnyBlob {
    let mut blob = empty(dims);
    let mut data = blob.data_mut().elements::<u32>().unwrap();
    (0..).zip(&mut *data).for_each(|(index, x)| *x = index);
    drop(data);
    blob
}

/// Whether element `[i, j, k]` is the index `at(i, j, k)`.
#[track_caller]
fn check(blob: &AnyBlob, what: &str, at: impl Fn(usize, usize, usize) -> usize) {
    let &[a, b, c] = blob.shape().dims() else {
        panic!("three axes");
    };
    let data = blob.data().elements::<u32>().unwrap();
    let indices = (0..a).flat_map(|i| (0..b).map(move |j| (i, j)));
    for ((i, j), row) in indices.zip(data.chunks(c)) {
        let wrong = (0..c).find(|&k| row[k] as usize != at(i, j, k));
        assert!(wrong.is_none(), "{what}: [{i}, {j}, {wrong:?}]");
    }
}

fn on_threads(test: impl Fn([usize; 3], &AnyBlob) + Sync) {
    if cfg!(miri) {
        eprintln!("blob-ops: moves past the caches skipped, too large here");
        return;
    }
    for dims in SHAPES {
        let whole = numbered(dims);
        for threads in [1, 2] {
            in_pool(threads, || test(dims, &whole));
        }
    }
}

#[test]
fn what_is_split_is_where_it_was_cut_and_merges_again() {
    on_threads(|dims @ [a, b, c], whole| {
        for axis in 0..3 {
            let ends = [0, dims[axis] / 3, dims[axis] / 2 + 1, dims[axis]];
            let mut parts: Vec<_> = ends
                .windows(2)
                .map(|ends| {
                    let mut dims = dims;
                    dims[axis] = ends[1] - ends[0];
                    empty(dims)
                })
                .collect();
            split_into(whole, axis, &mut parts.iter_mut().collect::<Vec<_>>()).unwrap();
            for (part, start) in parts.iter().zip(ends) {
                let [i0, j0, k0] = [0, 1, 2].map(|other| start * usize::from(other == axis));
                check(part, "split", |i, j, k| ((i + i0) * b + j + j0) * c + k + k0);
            }
            let mut out = empty([a, b, c]);
            merge_into(&parts.iter().collect::<Vec<_>>(), axis, &mut out).unwrap();
            check(&out, "merge", |i, j, k| (i * b + j) * c + k);
        }
    });
}

#[test]
fn what_is_turned_is_where_its_index_says() {
    on_threads(|dims, whole| {
        let [_, b, c] = dims;
        let steps = [b * c, c, 1];
        for order in [[0, 2, 1], [2, 1, 0], [1, 0, 2], [1, 2, 0], [2, 0, 1]] {
            let turned = order.map(|axis| dims[axis]);
            let [s, t, u] = order.map(|axis| steps[axis]);
            let mut out = empty(turned);
            permute_into(whole, &order, &mut out).unwrap();
            check(&out, "permute", |i, j, k| i * s + j * t + k * u);
        }
        for [one, other] in [[1, 2], [0, 2], [0, 1]] {
            let (mut turned, mut steps) = (dims, steps);
            turned.swap(one, other);
            steps.swap(one, other);
            let mut out = empty(turned);
            transpose_into(whole, one, other, &mut out).unwrap();
            check(&out, "transpose", |i, j, k| i * steps[0] + j * steps[1] + k * steps[2]);
        }
    });
}
