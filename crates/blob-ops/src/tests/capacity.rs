//! Memories that are longer than their blobs: no operation borrows, reads or writes what lies behind.
//!
//! Someone else writes the bytes behind meanwhile, so a borrow of one too many is a conflict.

use crate::{Error, Scalar};
use blob_core::{AnyBlob, DType, Part, Shape};
use synced_mem::SharedMem;

const DIMS: [usize; 7] = [2, 1, 1, 1, 1, 2, 2];

/// What lies behind, and is no whole number of elements.
const BEHIND: usize = 13;

fn values(first: f32) -> Vec<u8> {
    let count = DIMS.iter().product::<usize>();
    (0..count).flat_map(|i| (first + i as f32).to_ne_bytes()).collect()
}

fn blob(data: Vec<u8>, diff: Vec<u8>) -> AnyBlob {
    let [data, diff] = [data, diff].map(SharedMem::from);
    AnyBlob::from_parts(Shape::new(DIMS).unwrap(), DType::F32, data, Some(diff)).unwrap()
}

fn tight(first: f32) -> AnyBlob {
    blob(values(first), values(first + 20.0))
}

fn roomy(first: f32) -> AnyBlob {
    let behind = |mut bytes: Vec<u8>| {
        bytes.extend([0xA5; BEHIND]);
        bytes
    };
    blob(behind(values(first)), behind(values(first + 20.0)))
}

/// What an operation gives back besides what it has written.
type Made = Result<Vec<AnyBlob>, Error>;

/// Writes over `y`, reads `x`.
type Operation = (&'static str, fn(&mut AnyBlob, &AnyBlob) -> Made);

fn nothing(result: Result<(), Error>) -> Made {
    result.map(|()| Vec::new())
}

/// A number as a blob.
fn scalar(x: Result<Scalar, Error>) -> Made {
    let mut blob = AnyBlob::new(Shape::new([1]).unwrap(), DType::F64).unwrap();
    crate::fill(&mut blob, x?, Part::Data)?;
    Ok(vec![blob])
}

const OPERATIONS: &[Operation] = &[
    ("add", |y, x| nothing(crate::add(y, x, Part::Diff))),
    ("add_flush_subnormals", |y, x| nothing(crate::add_flush_subnormals(y, x, Part::Data))),
    ("axpy", |y, x| nothing(crate::axpy(y, 2, x, Part::Data))),
    ("update", |y, _| nothing(crate::update(y))),
    ("scale", |y, _| nothing(crate::scale(y, 3, Part::Diff))),
    ("fill", |y, _| nothing(crate::fill(y, 3, Part::Data))),
    ("fill_object", |y, _| nothing(crate::fill_object(y, 1, 3, Part::Data))),
    ("fill with 0", |y, _| nothing(crate::fill(y, 0, Part::Diff))),
    ("asum", |_, x| scalar(crate::asum(x, Part::Data))),
    ("sumsq", |_, x| scalar(crate::sumsq(x, Part::Diff))),
    ("stats", |_, x| {
        let stats = crate::stats(x, Part::Data)?;
        scalar(Ok(Scalar::F(stats.l1)))
    }),
    ("convert", |_, x| Ok(vec![crate::convert(x, DType::F64)?])),
    ("convert_checked", |_, x| Ok(vec![crate::convert_checked(x, DType::I32)?])),
    ("convert_into", |y, x| nothing(crate::convert_into(x, y, Part::Data))),
    ("convert_checked_into", |y, x| nothing(crate::convert_checked_into(x, y, Part::Diff))),
    ("merge", |y, x| Ok(vec![crate::merge(&[x, y], 6)?])),
    ("merge_into", |y, x| nothing(crate::merge_into(&[x], 5, y))),
    ("split", |_, x| crate::split(x, 5, &[1, 1])),
    ("split_into", |y, x| nothing(crate::split_into(x, 0, &mut [y]))),
    ("merge_objects", |y, x| Ok(vec![crate::merge_objects(&[y, x])?])),
    ("merge_objects_into", |y, x| nothing(crate::merge_objects_into(&[x], y))),
    ("split_objects", |_, x| crate::split_objects(x, &[1, 3])),
    ("split_objects_into", |y, x| nothing(crate::split_objects_into(x, &mut [y]))),
    ("transpose", |_, x| Ok(vec![crate::transpose(x, 0, 6)?])),
    ("transpose_into", |y, x| nothing(crate::transpose_into(x, 0, 6, y))),
    ("permute", |_, x| Ok(vec![crate::permute(x, &[5, 1, 2, 3, 4, 6, 0])?])),
    ("permute_into", |y, x| nothing(crate::permute_into(x, &[5, 1, 2, 3, 4, 6, 0], y))),
    ("transpose_in_place", |y, _| nothing(crate::transpose_in_place(y))),
];

fn bytes(blob: &AnyBlob) -> [Vec<u8>; 2] {
    [blob.data().bytes(), blob.diff().bytes()].map(|bytes| bytes.unwrap().to_vec())
}

#[test]
fn what_lies_behind_a_blob_is_not_borrowed() {
    for (name, operation) in OPERATIONS {
        let (mut y, x) = (tight(1.0), tight(50.0));
        let made = operation(&mut y, &x).expect(name);
        let want: Vec<_> = made.iter().chain([&y, &x]).map(bytes).collect();

        let (mut y, x) = (roomy(1.0), roomy(50.0));
        let behind = y.byte_len()..y.byte_len() + BEHIND;
        let memories = [&y, &x].map(|blob| [blob.memory(Part::Data), blob.memory(Part::Diff)]);
        let writers = memories.as_flattened().iter();
        let writers: Vec<_> = writers.map(|memory| memory.host_mut(behind.clone()).unwrap()).collect();
        let made = operation(&mut y, &x).expect(name);
        let got: Vec<_> = made.iter().chain([&y, &x]).map(bytes).collect();
        assert_eq!(got, want, "{name}");
        assert!(writers.iter().all(|bytes| **bytes == [0xA5; BEHIND]), "{name}");
    }
}
