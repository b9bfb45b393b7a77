//! Misuses of NeoML's merge, split and transpose: each row is a typed error here, named beside the call, before a byte
//! of the output changes.

use super::{blob, long, seven};
use crate::support::blobs::shape;
use crate::support::neoml::{self, table};
use crate::support::report;
use blob_core::{AnyBlob, DType, Part};
use blob_ops::{Argument, Error, Mismatch};

/// The misuse of a row of `malformed_release.jsonl`.
type Misuse = fn(&mut AnyBlob) -> Result<(), Error>;

fn ints(n: usize) -> AnyBlob {
    neoml::blob(&shape(&seven(0, n)), DType::I32, 1)
}

/// Whether an error is the right one.
type Refusal = fn(&Error) -> bool;

fn no_axis(error: &Error) -> bool {
    matches!(error, Error::Blob { error, .. } if matches!(error, blob_core::Error::AxisOutOfRange { .. }))
}

fn conflict(error: &Error) -> bool {
    matches!(error, Error::Memory { argument: Argument::Out, .. })
}

/// Splits into `out` and another part, and checks that no byte of the other part changes.
fn split_in_two(blob: &AnyBlob, axis: usize, out: &mut AnyBlob, mut other: AnyBlob) -> Result<(), Error> {
    let before = other.data().bytes().expect("bytes").to_vec();
    let refused = blob_ops::split_into(blob, axis, &mut [out, &mut other]);
    assert_eq!(*other.data().bytes().expect("bytes"), before, "{refused:?}");
    refused
}

macro_rules! mismatch {
    ($argument:pat, $why:ident { $($field:ident: $value:pat),* }) => {
        |error| matches!(
            error,
            Error::Mismatch { argument: $argument, mismatch: Mismatch::$why { $($field: $value,)* .. }, .. }
        )
    };
}

/// `out` has BatchLength 4 and no other axis. The count below names the rows that the types rule out.
const MISUSES: &[(&str, Misuse, Refusal)] = &[
    (
        "merge: other dim differs (from 2x3",
        |out| {
            let (a, b) = (blob(&[2, 3, 1, 1, 1, 1, 1]), blob(&[2, 4, 1, 1, 1, 1, 1]));
            blob_ops::merge_into(&[&a, &b], 0, out)
        },
        mismatch!(Argument::Part(1), Extent { axis: 1, wanted: 3, got: 4 }),
    ),
    (
        "merge: other dim differs along Channels",
        |out| {
            let (a, b) = (blob(&[1, 64, 1, 1, 1, 1, 1]), blob(&[1, 2, 1, 1, 1, 1, 1]));
            blob_ops::merge_into(&[&a, &b], 6, out)
        },
        mismatch!(Argument::Part(1), Extent { axis: 1, wanted: 64, got: 2 }),
    ),
    (
        "merge: sum of the parts greater",
        |out| blob_ops::merge_into(&[&long(3), &long(3)], 0, out),
        mismatch!(Argument::Out, Extent { axis: 0, wanted: 6, got: 4 }),
    ),
    (
        "merge: sum of the parts less",
        |out| blob_ops::merge_into(&[&long(1), &long(1)], 0, out),
        mismatch!(Argument::Out, Extent { axis: 0, wanted: 2, got: 4 }),
    ),
    ("merge: no parts at all", |out| blob_ops::merge_into(&[], 0, out), |error| matches!(error, Error::NoParts { .. })),
    (
        "merge: float part into int",
        |out| {
            let mut result = ints(4);
            let before = result.data().bytes().expect("bytes").to_vec();
            let refused = blob_ops::merge_into(&[&*out], 0, &mut result);
            assert_eq!(*result.data().bytes().expect("bytes"), before);
            refused
        },
        mismatch!(Argument::Out, DType { wanted: DType::F32, got: DType::I32 }),
    ),
    (
        "merge: int part into float",
        |out| blob_ops::merge_into(&[&ints(4)], 0, out),
        mismatch!(Argument::Out, DType { wanted: DType::I32, got: DType::F32 }),
    ),
    ("merge: dim 7", |out| blob_ops::merge_into(&[&long(4)], 7, out), no_axis),
    ("merge: dim -1", |out| blob_ops::merge_into(&[&long(4)], -8, out), no_axis),
    (
        "merge: the result is also a part",
        |out| {
            let memory = out.memory(Part::Data).clone();
            let same = AnyBlob::from_parts(out.shape().clone(), out.dtype(), memory, None).expect("one memory");
            blob_ops::merge_into(&[&same], 0, out)
        },
        conflict,
    ),
    (
        "split: parts add up to more",
        |out| split_in_two(&long(5), 0, out, long(2)),
        |error| matches!(error, Error::PartsSum { wanted: 5, got: Some(6), .. }),
    ),
    (
        "split: parts add up to less",
        |out| split_in_two(&long(7), 0, out, long(2)),
        |error| matches!(error, Error::PartsSum { wanted: 7, got: Some(6), .. }),
    ),
    (
        "split: a part with a smaller outer dim",
        |out| split_in_two(&blob(&[8, 1, 1, 1, 1, 1, 2]), 6, out, long(8)),
        mismatch!(Argument::Part(0), Extent { axis: 0, wanted: 8, got: 4 }),
    ),
    (
        "split: zero-sized source dim",
        |out| blob_ops::split_into(&blob(&[0, 1, 1, 1, 1, 1, 2]), 6, &mut [out]),
        mismatch!(Argument::Part(0), Extent { axis: 0, wanted: 0, got: 4 }),
    ),
    (
        "merge_object: object counts differ",
        |out| blob_ops::merge_objects_into(&[&long(2), &long(3)], out),
        mismatch!(Argument::Part(1), Objects { wanted: 2, got: 3 }),
    ),
    (
        "transpose_from: result has the right size but",
        |out| blob_ops::transpose_into(&long(4), 0, 1, out),
        mismatch!(Argument::Out, Extent { axis: 0, wanted: 1, got: 4 }),
    ),
    (
        "transpose_from: other dims differ",
        |out| blob_ops::transpose_into(&blob(&[1, 2, 2, 1, 1, 1, 1]), 0, 1, out),
        mismatch!(Argument::Out, Extent { axis: 0, wanted: 2, got: 4 }),
    ),
    (
        "transpose_from: types differ",
        |out| blob_ops::transpose_into(&ints(4), 1, 2, out),
        mismatch!(Argument::Out, DType { wanted: DType::I32, got: DType::F32 }),
    ),
    ("transpose_from: d2 = 7", |out| blob_ops::transpose_into(&long(4), 0, 7, out), no_axis),
    ("get_transposed: d2 = 7", |_| blob_ops::transpose(&long(4), 5, 7).map(|_| ()), no_axis),
    ("get_transposed: d1 = -1", |_| blob_ops::transpose(&long(4), -8, 1).map(|_| ()), no_axis),
    (
        "transpose_from: itself",
        |out| {
            let memory = out.memory(Part::Data).clone();
            let same = AnyBlob::from_parts(out.shape().clone(), out.dtype(), memory, None).expect("one memory");
            blob_ops::transpose_into(&same, 1, 2, out)
        },
        conflict,
    ),
];

/// A null part and parts of another engine have no counterpart; 33 parts are accepted here.
#[test]
fn misuse_is_an_error_before_a_byte_moves() {
    for (case, misuse, is_meant) in MISUSES {
        let mut out = long(4);
        let before = out.data().bytes().expect("bytes").to_vec();
        let error = misuse(&mut out).expect_err(case);
        assert!(is_meant(&error), "{case}: {error}");
        assert_eq!(*out.data().bytes().expect("bytes"), before, "{case}: {error}");
    }
    let many: Vec<AnyBlob> = (0..33).map(|_| long(1)).collect();
    let merged = blob_ops::merge(&many.iter().collect::<Vec<_>>(), 0).expect("33 parts");
    assert_eq!(merged.count(), 33);
    let rows = table("cpp/malformed_release.jsonl");
    let ours = ["merge", "split", "transpose_from", "get_transposed", "two engines: merge"];
    let elsewhere = ["merge: a null part", "merge: 33 parts", "two engines: merge"];
    let mut asserted = 0;
    for case in rows.iter().filter_map(|row| row["case"].as_str()) {
        if ours.iter().any(|name| case.starts_with(name)) {
            let known = MISUSES.iter().any(|(name, ..)| case.starts_with(name));
            let other = elsewhere.iter().any(|name| case.starts_with(name));
            assert!(known || other, "no test for {case:?}");
            asserted += usize::from(known);
        }
    }
    assert_eq!(asserted, MISUSES.len());
    report(&format!("neoml moves misused: {asserted} rows refused, 4 that have no counterpart"));
}
