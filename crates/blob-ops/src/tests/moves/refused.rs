//! What merge, split, transpose and permute refuse: typed errors before the first byte moves, outputs untouched.

use super::{blob, bytes};
use crate::tests::conflicts::conflict;
use crate::{
    Argument, Error, merge, merge_into, merge_objects, merge_objects_into, permute, permute_into, split, split_into,
    split_objects, split_objects_into, transpose_in_place, transpose_into,
};
use blob_core::{AnyBlob, DType, Part, Shape};

/// Runs a call that must fail, and looks whether the output is as it was.
#[track_caller]
fn refused(out: &mut AnyBlob, call: impl FnOnce(&mut AnyBlob) -> Result<(), Error>) -> Error {
    let before = bytes(out);
    let error = call(out).expect_err("refused");
    assert_eq!(bytes(out), before, "{error}");
    error
}

#[test]
fn what_does_not_fit_in_a_merge_is_refused() {
    let (a, b) = (blob(&[2, 3], DType::F32), blob(&[2, 4], DType::F32));
    let mut out = blob(&[2, 7], DType::F32);
    let error = merge(&[], 0).unwrap_err();
    assert_eq!(error.to_string(), "merge: there are no parts");
    let error = refused(&mut out, |out| merge_into(&[&a, &b], 0, out));
    assert_eq!(error.to_string(), "merge: part 1 has extent 4 along axis 1, wanted 3");
    let error = refused(&mut out, |out| merge_into(&[&a, &a], 1, out));
    assert_eq!(error.to_string(), "merge: the output has extent 7 along axis 1, wanted 6");
    let error = refused(&mut out, |out| merge_into(&[&a, &b], 2, out));
    assert!(error.to_string().starts_with("merge: part 0: axis 2 out of range"), "{error}");
    let error = refused(&mut out, |out| merge_into(&[&a, &blob(&[2, 4], DType::I32)], 1, out));
    assert_eq!(error.to_string(), "merge: part 1 holds i32, wanted f32");
    let error = refused(&mut out, |out| merge_into(&[&a, &blob(&[8], DType::F32)], 1, out));
    assert_eq!(error.to_string(), "merge: part 1 has 1 axes (8), wanted 2");
    let error = refused(&mut blob(&[2, 7], DType::U32), |out| merge_into(&[&a, &b], 1, out));
    assert!(matches!(error, Error::Mismatch { argument: Argument::Out, .. }));
}

#[test]
fn what_does_not_fit_in_a_split_or_an_order_is_refused() {
    let mut out = blob(&[2, 7], DType::F32);
    let whole = blob(&[2, 7], DType::F32);
    let error = split(&whole, 1, &[3, 3]).unwrap_err();
    assert_eq!(error.to_string(), "split: the parts add up to 6 along axis 1, wanted 7");
    assert!(matches!(split(&whole, 1, &[usize::MAX, 8]), Err(Error::PartsSum { got: None, .. })));
    assert!(matches!(split(&whole, 1, &[]), Err(Error::NoParts { .. })));
    let error = refused(&mut out, |out| split_into(&whole, 1, &mut [&mut blob(&[2, 1], DType::F32), out]));
    assert_eq!(error.to_string(), "split: the parts add up to 8 along axis 1, wanted 7");
    let error = refused(&mut out, |out| split_into(&whole, 0, &mut [out, &mut blob(&[1, 6], DType::F32)]));
    assert_eq!(error.to_string(), "split: part 1 has extent 6 along axis 1, wanted 7");
    let error = refused(&mut out, |out| transpose_into(&whole, 0, 1, out));
    assert_eq!(error.to_string(), "transpose: the output has extent 2 along axis 0, wanted 7");
    let error = refused(&mut out, |out| transpose_into(&whole, 0, 5, out));
    assert!(error.to_string().starts_with("transpose: the input: axis 5 out of range"), "{error}");
    let error = split(&whole, -3, &[7]).unwrap_err();
    assert!(error.to_string().starts_with("split: the input: axis -3 out of range"), "{error}");
    let error = refused(&mut out, |out| permute_into(&whole, &[0, 0], out));
    assert_eq!(error.to_string(), "permute: the order [0, 0] does not name each axis of 2×7 once");
    assert!(matches!(permute(&whole, &[0]), Err(Error::Order { .. })));
    assert!(matches!(permute(&whole, &[0, 1, 2]), Err(Error::Order { .. })));
    let error = refused(&mut out, |out| transpose_in_place(out));
    assert_eq!(error.to_string(), "transpose in place: the last two axes of 2×7 are no square matrix");
    assert!(transpose_in_place(&mut blob(&[9], DType::F32)).is_err());
}

#[test]
fn objects_that_do_not_fit_are_refused() {
    let (a, b) = (blob(&[1, 2, 1, 1, 1, 1, 3], DType::F32), blob(&[3, 1, 1, 1, 1, 1, 3], DType::F32));
    let mut out = blob(&[1, 2, 1, 1, 1, 1, 5], DType::F32);
    let error = refused(&mut out, |out| merge_objects_into(&[&a, &b], out));
    assert_eq!(error.to_string(), "merge by objects: part 1 has 3 objects, wanted 2");
    let error = refused(&mut out, |out| merge_objects_into(&[&a, &a], out));
    assert_eq!(error.to_string(), "merge by objects: the output has objects of 5 elements, wanted 6");
    let error = refused(&mut out, |out| merge_objects_into(&[&blob(&[2, 5], DType::F32)], out));
    assert_eq!(error.to_string(), "merge by objects: part 0 has 2 axes (2×5), wanted 7");
    assert!(matches!(merge_objects(&[]), Err(Error::NoParts { .. })));
    let error = split_objects(&a, &[1, 1]).unwrap_err();
    assert_eq!(error.to_string(), "split by objects: the parts add up to 2 elements an object, wanted 3");
    let error = refused(&mut out, |out| split_objects_into(&b, &mut [out]));
    assert_eq!(error.to_string(), "split by objects: part 0 has 2 objects, wanted 3");
}

/// A blob that shares the data of another.
fn sharing(other: &AnyBlob, dims: &[usize]) -> AnyBlob {
    let memory = other.memory(Part::Data).clone();
    AnyBlob::from_parts(Shape::new(dims).unwrap(), other.dtype(), memory, None).unwrap()
}

#[test]
fn outputs_that_share_memory_conflict_before_a_byte_moves() {
    let whole = blob(&[4, 4], DType::F32);
    let before = bytes(&whole);
    let mut out = sharing(&whole, &[4, 4]);
    conflict(transpose_into(&whole, 0, 1, &mut out), "transpose: the output");
    conflict(permute_into(&whole, &[1, 0], &mut out), "permute: the output");
    conflict(merge_into(&[&whole], 0, &mut out), "merge: the output");
    conflict(split_into(&whole, 0, &mut [&mut out]), "split: part 0");
    let (mut one, mut other) = (blob(&[2, 4], DType::F32), blob(&[2, 4], DType::F32));
    let mut same = sharing(&one, &[2, 4]);
    let untouched = bytes(&one);
    let error = split_into(&whole, 0, &mut [&mut one, &mut same]).unwrap_err();
    assert_eq!(error.to_string(), "split: part 1 shares the memory of part 0");
    assert_eq!(bytes(&one), untouched);
    split_into(&whole, 0, &mut [&mut one, &mut other]).unwrap();
    assert_eq!(bytes(&whole), before);
}
