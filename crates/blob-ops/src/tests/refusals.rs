//! Values, objects and blobs that fit, and those that must be refused before a byte changes.

use super::{Random, blob, isas};
use crate::cpu::forced::with_isa;
use crate::{Argument, Error, Scalar, add, add_flush_subnormals, axpy, fill, fill_object, scale, update};
use blob_core::{AnyBlob, DType, Part, Shape};
use half::f16;

/// Every dtype that does not hold it, and no byte changed.
#[test]
fn values_that_do_not_fit_are_refused() {
    let nan = Scalar::F(f64::NAN);
    let cases: [(DType, Scalar, bool); 16] = [
        (DType::U8, Scalar::I(-1), false),
        (DType::U8, Scalar::U(255), true),
        (DType::U8, Scalar::U(256), false),
        (DType::I8, Scalar::F(-128.0), true),
        (DType::I8, Scalar::F(0.5), false),
        (DType::I32, nan, false),
        (DType::I64, Scalar::F(9_223_372_036_854_775_808.0), false),
        (DType::U64, Scalar::F(9_223_372_036_854_775_808.0), true),
        (DType::U64, Scalar::U(u64::MAX), true),
        (DType::I64, Scalar::U(u64::MAX), false),
        (DType::F32, nan, true),
        (DType::F32, Scalar::F(1e39), false),
        (DType::F32, Scalar::F(f64::INFINITY), true),
        (DType::F16, Scalar::U(65_520), false),
        (DType::F16, Scalar::U(65_519), true),
        (DType::Bool, Scalar::U(2), false),
    ];
    for (dtype, value, fits) in cases {
        let mut y = blob(dtype, &[1; 64]);
        let result = fill(&mut y, value, Part::Data);
        if fits {
            result.unwrap();
            assert_ne!(*y.data().bytes().unwrap(), [1; 64], "{dtype:?} {value}");
            continue;
        }
        let expect = |result: Result<(), Error>| match result {
            Err(Error::Value { dtype: d, value: v, .. }) => {
                assert_eq!((d, v.to_string()), (dtype, value.to_string()));
            }
            other => panic!("{dtype:?} {value}: {other:?}"),
        };
        expect(result);
        if dtype != DType::Bool && dtype != DType::F16 {
            expect(scale(&mut y, value, Part::Data));
            let x = blob(dtype, &[1; 64]);
            expect(axpy(&mut y, value, &x, Part::Data));
        }
        assert_eq!(*y.data().bytes().unwrap(), [1; 64]);
    }
    let mut bools = blob(DType::Bool, &[0; 3]);
    fill(&mut bools, true, Part::Data).unwrap();
    assert_eq!(*bools.data().elements::<bool>().unwrap(), [true; 3]);
}

#[test]
fn factors_are_rounded_to_the_type_that_computes() {
    let mut y = blob(DType::F32, &1.0f32.to_ne_bytes());
    scale(&mut y, 0.1, Part::Data).unwrap();
    assert_eq!(*y.data().elements::<f32>().unwrap(), [0.1f32]);
    let mut y = blob(DType::F16, &f16::from_f32(0.5).to_ne_bytes());
    scale(&mut y, 70_000, Part::Data).unwrap();
    assert_eq!(y.data().elements::<f16>().unwrap()[0].to_f32(), 35_008.0);
    let mut y = blob(DType::I64, &1i64.to_ne_bytes());
    scale(&mut y, i64::MAX, Part::Data).unwrap();
    assert_eq!(*y.data().elements::<i64>().unwrap(), [i64::MAX]);
}

fn objects(dims: [usize; 7], dtype: DType) -> AnyBlob {
    let mut random = Random(11);
    let len = dims.iter().product::<usize>() * dtype.size();
    let bytes = (0..len).map(|_| random.next() as u8).collect();
    AnyBlob::from_vec(Shape::new(dims).unwrap(), dtype, bytes).unwrap()
}

#[test]
fn one_object_is_filled_and_no_other() {
    for dtype in DType::ALL.iter().copied().filter(|d| *d != DType::Bool) {
        let dims = [2, 3, 2, 3, 1, 2, 5];
        for object in 0..12 {
            for isa in isas() {
                let mut y = objects(dims, dtype);
                let mut want = y.data().bytes().unwrap().to_vec();
                let size = 30 * dtype.size();
                let mut threes = blob(dtype, &want[..size]);
                fill(&mut threes, 3, Part::Data).unwrap();
                want[object * size..][..size].copy_from_slice(&threes.data().bytes().unwrap());
                with_isa(isa, || fill_object(&mut y, object, 3, Part::Data)).unwrap();
                assert_eq!(*y.data().bytes().unwrap(), want, "{dtype:?} {object}");
                want[object * size..][..size].fill(0);
                with_isa(isa, || fill_object(&mut y, object, 0, Part::Data)).unwrap();
                assert_eq!(*y.data().bytes().unwrap(), want, "{dtype:?} {object}");
            }
        }
    }
}

#[test]
fn objects_that_are_not_there_are_refused() {
    for (dims, objects_wanted) in [([2, 3, 1, 1, 2, 1, 2], 6), ([2, 0, 1, 1, 2, 1, 2], 0)] {
        let mut y = objects(dims, DType::U8);
        let before = y.data().bytes().unwrap().to_vec();
        for wrong in [objects_wanted, objects_wanted + 1, usize::MAX] {
            match fill_object(&mut y, wrong, 1, Part::Data) {
                Err(Error::ObjectOutOfRange { object, objects, .. }) => {
                    assert_eq!((object, objects), (wrong, objects_wanted));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(*y.data().bytes().unwrap(), before);
    }
    let mut flat = blob(DType::F32, &[0; 24]);
    match fill_object(&mut flat, 0, 0, Part::Data) {
        Err(error) => assert_eq!(error.to_string(), "fill object: the output has 1 axes (6), wanted 7"),
        Ok(()) => panic!("filled"),
    }
}

#[test]
fn unlike_blobs_are_refused() {
    let mut y = blob(DType::F32, &[1; 24]);
    let before = y.data().bytes().unwrap().to_vec();
    let x = AnyBlob::new(Shape::new([2, 3]).unwrap(), DType::F32).unwrap();
    let refused = add(&mut y, &x, Part::Data).unwrap_err();
    assert_eq!(refused.to_string(), "add: the input has 2 axes (2×3), wanted 1");
    let refused = add_flush_subnormals(&mut y, &blob(DType::F32, &[0; 20]), Part::Data).unwrap_err();
    assert_eq!(refused.to_string(), "add flushing subnormals: the input has extent 5 along axis 0, wanted 6");
    let refused = axpy(&mut y, 1, &blob(DType::I32, &[0; 24]), Part::Data).unwrap_err();
    assert_eq!(refused.to_string(), "axpy: the input holds i32, wanted f32");
    assert_eq!(*y.data().bytes().unwrap(), before);
    let mut bools = blob(DType::Bool, &[1; 4]);
    fill(&mut bools, 1, Part::Diff).unwrap();
    for result in
        [add(&mut bools, &blob(DType::Bool, &[1; 4]), Part::Data), scale(&mut bools, 1, Part::Data), update(&mut bools)]
    {
        assert!(matches!(result, Err(Error::NoArithmetic { dtype, .. }) if dtype == DType::Bool));
    }
}

#[test]
fn messages_name_the_argument_and_its_value() {
    let (op, part, dtype, value) = ("sumsq", Part::Diff, DType::U8, Scalar::I(-1));
    let axis = Shape::new([2, 3]).unwrap().axis(2).unwrap_err();
    let cases = [
        (Error::NoArithmetic { op, dtype: DType::Bool }, "sumsq: there is no arithmetic on bool"),
        (Error::Value { op, dtype, value }, "sumsq: u8 does not hold -1"),
        (
            Error::Lost { part, index: 7, value, dtype },
            "convert checked: element 7 of the diff is -1, which u8 does not hold",
        ),
        (Error::Overflow { op, dtype }, "sumsq: the sum of these elements of u8 is beyond 64 bits"),
        (Error::ObjectOutOfRange { op, object: 3, objects: 2 }, "sumsq: object 3 of a blob that has 2"),
        (
            Error::Blob { op, argument: Argument::Out, error: axis },
            "sumsq: the output: axis 2 out of range for 2-D Blob with shape 2 3 (6); wanted -2 to 1",
        ),
    ];
    for (error, message) in cases {
        assert_eq!(error.to_string(), message);
    }
}
