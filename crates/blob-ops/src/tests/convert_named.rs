//! Conversions: the cases that have a name.

use super::convert::run;
use super::{blob, isas};
use crate::cpu::Isa;
use crate::{Error, Scalar, convert, convert_checked, convert_checked_into, convert_into, fill};
use blob_core::{AnyBlob, DType, Part, Shape};
use half::{bf16, f16};

/// Rounded to f32 on the way, these would be ties, and go to the even side.
#[test]
fn nothing_is_rounded_twice() {
    let x = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
    let y = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
    let tiny = 2f64.powi(-25) + 2f64.powi(-60);
    let large = (1i64 << 62) + (1 << 54) + 1;
    for isa in isas() {
        assert_eq!(run(isa, DType::F64, &x.to_ne_bytes(), DType::F16), 0x3C01u16.to_ne_bytes());
        assert_eq!(run(isa, DType::F64, &y.to_ne_bytes(), DType::BF16), 0x3F81u16.to_ne_bytes());
        assert_eq!(run(isa, DType::F64, &tiny.to_ne_bytes(), DType::F16), 1u16.to_ne_bytes());
        let got = run(isa, DType::I64, &large.to_ne_bytes(), DType::BF16);
        assert_eq!(got, bf16::from_f32(2f32.powi(62) * 1.0078125).to_ne_bytes());
        let got = run(isa, DType::I64, &(-large).to_ne_bytes(), DType::BF16);
        assert_eq!(got, bf16::from_f32(2f32.powi(62) * -1.0078125).to_ne_bytes());
    }
}

/// Every 1021st f32 against the half crate.
#[test]
fn f32_to_halves_as_others_do() {
    let bytes: Vec<u8> = (0..=u32::MAX).step_by(1021).flat_map(u32::to_ne_bytes).collect();
    let halves = run(Isa::detect(), DType::F32, &bytes, DType::F16);
    let brains = run(Isa::detect(), DType::F32, &bytes, DType::BF16);
    let found = halves.chunks(2).zip(brains.chunks(2));
    for (x, (half, brain)) in bytes.chunks(4).zip(found) {
        let x = f32::from_ne_bytes(x.try_into().unwrap());
        assert_eq!(half, f16::from_f32(x).to_ne_bytes(), "{:#x}", x.to_bits());
        assert_eq!(brain, bf16::from_f32(x).to_ne_bytes(), "{:#x}", x.to_bits());
    }
}

/// The sign and the upper bits of its payload, and quiet.
#[test]
fn nan_stays_nan() {
    let nan = f32::from_bits(0xFFA1_4001).to_ne_bytes();
    for isa in isas() {
        assert_eq!(run(isa, DType::F32, &nan, DType::F16), 0xFF0Au16.to_ne_bytes());
        assert_eq!(run(isa, DType::F32, &nan, DType::BF16), 0xFFE1u16.to_ne_bytes());
        assert_eq!(run(isa, DType::F32, &nan, DType::F32), nan, "bytes are copied");
        assert_eq!(run(isa, DType::F32, &nan, DType::I32), [0; 4]);
        assert_eq!(run(isa, DType::F32, &nan, DType::Bool), [1]);
        assert_eq!(run(isa, DType::F16, &0x7C01u16.to_ne_bytes(), DType::F16), 0x7C01u16.to_ne_bytes());
        let wide = run(isa, DType::F16, &0xFE01u16.to_ne_bytes(), DType::F32);
        assert_eq!(wide, 0xFFC0_2000u32.to_ne_bytes());
    }
}

#[test]
fn both_parts_are_converted_and_untouched_ones_are_not() {
    let mut x = blob(DType::F32, bytemuck::cast_slice(&[1.5f32, -2.5]));
    let y = convert(&x, DType::I8).unwrap();
    assert_eq!((&*y.data().elements::<i8>().unwrap(), y.has_diff()), (&[1, -2][..], false));
    assert_eq!((y.shape(), y.dtype()), (x.shape(), DType::I8));
    fill(&mut x, 300, Part::Diff).unwrap();
    let y = convert(&x, DType::I8).unwrap();
    assert_eq!(*y.diff().elements::<i8>().unwrap(), [127, 127]);
    let mut whole = blob(DType::F32, bytemuck::cast_slice(&[1.0f32]));
    assert_eq!(*convert_checked(&whole, DType::I8).unwrap().data().elements::<i8>().unwrap(), [1]);
    fill(&mut whole, 300, Part::Diff).unwrap();
    match convert_checked(&whole, DType::I8) {
        Err(Error::Lost { part, index, value, .. }) => {
            assert_eq!((part, index, value), (Part::Diff, 0, Scalar::F(300.0)));
        }
        other => panic!("{other:?}"),
    }
    let new = AnyBlob::new(Shape::new([3]).unwrap(), DType::F32).unwrap();
    let y = convert(&new, DType::F64).unwrap();
    assert!(!y.memory(Part::Data).is_initialized() && !new.memory(Part::Data).is_initialized());
}

#[test]
fn refusals_leave_the_output() {
    let x = blob(DType::F32, bytemuck::cast_slice(&[1.0f32, 1e9]));
    let mut out = blob(DType::U8, &[9, 9]);
    match convert_checked_into(&x, &mut out, Part::Data) {
        Err(Error::Lost { index, dtype, .. }) => assert_eq!((index, dtype), (1, DType::U8)),
        other => panic!("{other:?}"),
    }
    let short = blob(DType::F32, &[0; 4]);
    for result in [convert_into(&short, &mut out, Part::Data), convert_checked_into(&short, &mut out, Part::Data)] {
        match result {
            Err(error) => assert!(error.to_string().ends_with(": the input has extent 1 along axis 0, wanted 2")),
            other => panic!("{other:?}"),
        }
    }
    let shared = AnyBlob::from_parts(out.shape().clone(), DType::I8, out.memory(Part::Data).clone(), None);
    let refused = convert_into(&shared.unwrap(), &mut out, Part::Data);
    assert_eq!(
        refused.unwrap_err().to_string(),
        "convert: the output: cannot write bytes 0..2: bytes 0..2 are borrowed to read"
    );
    assert_eq!(*out.data().bytes().unwrap(), [9, 9]);
    convert_into(&x, &mut out, Part::Data).unwrap();
    assert_eq!(*out.data().bytes().unwrap(), [1, 255]);
}
