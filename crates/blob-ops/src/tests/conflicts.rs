//! A guard that is in the way: every operation names itself and the argument that it could not have, and changes
//! nothing.

use super::blob;
use crate::{Argument, Error, Scalar};
use blob_core::{AnyBlob, DType, Part, Shape};
use std::error::Error as _;
use synced_mem::Device;
use synced_mem::loopback::{Loopback, Mode};

/// NeoML's seven axes: of two objects of 2×2.
const DIMS: [usize; 7] = [2, 1, 1, 1, 1, 2, 2];

/// Whether it is the memory's refusal, named so: `merge: part 3`.
#[track_caller]
pub(super) fn conflict<T>(result: Result<T, Error>, name: &str) {
    let error = result.err().expect(name);
    assert!(matches!(error, Error::Memory { .. }), "{name}: {error:?}");
    let message = error.to_string();
    let rest = message.strip_prefix(name).expect(&message);
    assert!(rest.starts_with(": cannot "), "{name}: {message}");
}

/// What is called: writes `y`, reads `x`.
type Operation = fn(&mut AnyBlob, &AnyBlob) -> Result<(), Error>;

/// Each with its name, the name of the argument that `y` is, and of the one that `x` is, where it is one.
const OPERATIONS: &[(&str, &str, &str, Operation)] = &[
    ("add", "the output", "the input", |y, x| crate::add(y, x, Part::Data)),
    ("add flushing subnormals", "the output", "the input", |y, x| crate::add_flush_subnormals(y, x, Part::Data)),
    ("axpy", "the output", "the input", |y, x| crate::axpy(y, 2, x, Part::Data)),
    ("update", "the output", "", |y, _| crate::update(y)),
    ("scale", "the output", "", |y, _| crate::scale(y, 3, Part::Data)),
    ("fill", "the output", "", |y, _| crate::fill(y, 3, Part::Data)),
    ("fill object", "the output", "", |y, _| crate::fill_object(y, 0, 3, Part::Data)),
    ("asum", "", "the input", |_, x| crate::asum(x, Part::Data).map(drop)),
    ("sumsq", "", "the input", |_, x| crate::sumsq(x, Part::Data).map(drop)),
    ("stats", "", "the input", |_, x| crate::stats(x, Part::Data).map(drop)),
    ("convert", "", "the input", |_, x| crate::convert(x, DType::F64).map(drop)),
    ("convert", "the output", "the input", |y, x| crate::convert_into(x, y, Part::Data)),
    ("convert checked", "", "the input", |_, x| crate::convert_checked(x, DType::F64).map(drop)),
    ("convert checked", "the output", "the input", |y, x| crate::convert_checked_into(x, y, Part::Data)),
    ("merge", "", "part 2", |_, x| {
        let other = seven(1.0);
        crate::merge(&[&other, &other, x], 0).map(drop)
    }),
    ("merge", "the output", "part 0", |y, x| crate::merge_into(&[x], 0, y)),
    ("split", "", "the input", |_, x| crate::split(x, 0, &[1, 1]).map(drop)),
    ("split", "part 1", "the input", |y, x| crate::split_into(x, 0, &mut [&mut none(), y])),
    ("merge by objects", "", "part 1", |_, x| crate::merge_objects(&[&seven(1.0), x]).map(drop)),
    ("merge by objects", "the output", "part 0", |y, x| crate::merge_objects_into(&[x], y)),
    ("split by objects", "", "the input", |_, x| crate::split_objects(x, &[1, 3]).map(drop)),
    ("split by objects", "part 0", "the input", |y, x| crate::split_objects_into(x, &mut [y])),
    ("transpose", "", "the input", |_, x| crate::transpose(x, 0, 6).map(drop)),
    ("transpose", "the output", "the input", |y, x| crate::transpose_into(x, 0, 6, y)),
    ("permute", "", "the input", |_, x| crate::permute(x, &[6, 5, 4, 3, 2, 1, 0]).map(drop)),
    ("permute", "the output", "the input", |y, x| crate::permute_into(x, &[0, 1, 2, 3, 4, 6, 5], y)),
    ("transpose in place", "the output", "", |y, _| crate::transpose_in_place(y)),
];

fn seven(first: f32) -> AnyBlob {
    let bytes = (0..8).flat_map(|i| (first + i as f32).to_ne_bytes());
    AnyBlob::from_vec(Shape::new(DIMS).unwrap(), DType::F32, bytes.collect()).unwrap()
}

/// A part of no elements.
fn none() -> AnyBlob {
    let shape = Shape::new([0, 1, 1, 1, 1, 2, 2]).unwrap();
    AnyBlob::new(shape, DType::F32).unwrap()
}

/// With a diff that is not zero, so that an update reads it.
fn pair() -> [AnyBlob; 2] {
    let (mut y, x) = (seven(1.0), seven(50.0));
    crate::fill(&mut y, 1, Part::Diff).unwrap();
    [y, x]
}

#[test]
fn a_guard_in_the_way_names_the_operation_and_the_argument() {
    for &(op, of_y, of_x, run) in OPERATIONS {
        let [mut y, x] = pair();
        run(&mut y, &x).expect(op);
        if !of_y.is_empty() {
            let [mut y, x] = pair();
            let before = y.data().bytes().unwrap().to_vec();
            let memory = y.memory(Part::Data).clone();
            let reader = memory.host(0..4).unwrap();
            conflict(run(&mut y, &x), &format!("{op}: {of_y}"));
            drop(reader);
            assert_eq!(*y.data().bytes().unwrap(), before, "{op}");
        }
        if !of_x.is_empty() {
            let [mut y, x] = pair();
            let before = y.data().bytes().unwrap().to_vec();
            let writer = x.memory(Part::Data).host_mut(0..4).unwrap();
            conflict(run(&mut y, &x), &format!("{op}: {of_x}"));
            drop(writer);
            assert_eq!(*y.data().bytes().unwrap(), before, "{op}");
        }
    }
}

#[test]
fn a_diff_in_use_is_named() {
    let [mut y, _] = pair();
    let diff = y.memory(Part::Diff).clone();
    let _writer = diff.host_mut(0..4).unwrap();
    let error = crate::update(&mut y).unwrap_err();
    assert_eq!(error.to_string(), "update: the diff: cannot read bytes 0..32: bytes 0..4 are borrowed to write");
}

/// Shared memory is refused, and nothing has changed.
#[test]
fn shared_memory_is_a_conflict() {
    let mut y = blob(DType::F32, &[1; 24]);
    let mut x = blob(DType::F32, &[0; 24]);
    x.replace_memory(y.memory(Part::Data).clone(), Part::Data).unwrap();
    conflict(crate::add(&mut y, &x, Part::Data), "add: the output");
    conflict(crate::axpy(&mut y, 2, &x, Part::Data), "axpy: the output");
    y.replace_memory(x.memory(Part::Data).clone(), Part::Diff).unwrap();
    conflict(crate::update(&mut y), "update: the output");
    assert_eq!(*y.data().bytes().unwrap(), [1; 24]);
    let guard = x.data().bytes().unwrap();
    conflict(crate::scale(&mut y, 2, Part::Data), "scale: the output");
    conflict(crate::fill(&mut y, 2, Part::Data), "fill: the output");
    assert_eq!(*guard, [1; 24]);
}

/// Our message has the memory's in it; what the memory's came from is behind it.
#[test]
fn what_lies_behind_the_memory_stays_the_source() {
    let device = Loopback::new(Mode::Immediate).id();
    let device = synced_mem::Error::device(device, "copy", "the wire");
    let error = Error::Memory { op: "merge", argument: Argument::Part(3), error: blob_core::Error::from(device) };
    assert!(error.to_string().starts_with("merge: part 3: "));
    assert_eq!(error.source().unwrap().to_string(), "the wire");
}

/// Whatever needs NeoML's seven axes says so in one way.
#[test]
fn blobs_without_seven_axes_are_named_alike() {
    let mut flat = blob(DType::F32, &[0; 24]);
    let mut good = seven(0.0);
    let cases: [(&str, Result<(), Error>); 6] = [
        ("split by objects: the input", crate::split_objects(&flat, &[6]).map(drop)),
        ("split by objects: the input", crate::split_objects_into(&flat, &mut [&mut good])),
        ("split by objects: part 0", crate::split_objects_into(&good, &mut [&mut flat])),
        ("merge by objects: part 1", crate::merge_objects(&[&good, &flat]).map(drop)),
        ("merge by objects: the output", crate::merge_objects_into(&[&good], &mut flat)),
        ("fill object: the output", crate::fill_object(&mut flat, 0, Scalar::U(1), Part::Data)),
    ];
    for (name, result) in cases {
        let message = format!("{name} has 1 axes (6), wanted 7");
        assert_eq!(result.unwrap_err().to_string(), message);
    }
}
