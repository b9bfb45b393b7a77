//! Arithmetic on the elements of blobs, in place: the public functions, their checks and how work is cut for threads.
//!
//! A result depends on no other element, so neither the cut nor the instruction set changes a bit. The kernels are in
//! `cpu/element.rs`. Nothing here fills: `fill.rs` does.

use crate::argument::Argument;
use crate::at::{At, Operand, WITH_THE_DATA};
use crate::cpu::element::{Add, Axpy, Binary, FlushedAdd, Map, MapPairs, Number, Scale, Subtract, Unary};
use crate::cpu::lanes::with_element;
use crate::cpu::{Isa, convert};
use crate::device_op::DeviceOp;
use crate::error::Error;
use crate::scalar::Scalar;
use crate::work::{self, Work};
use crate::{place, threads};
use blob_core::{AnyBlob, BlobMut, Part};
use std::marker::PhantomData;

/// Runs the body with a name for the number type of a dtype, or returns that the dtype has no arithmetic.
macro_rules! with_number {
    ($op:expr, $dtype:expr, $number:ident => $body:expr) => {
        with_element!($dtype, $number => $body, Bool => Err(Error::NoArithmetic { op: $op, dtype: $dtype }))
    };
}

/// y += x, on one part of each.
///
/// Floats by IEEE 754, f16 and bf16 computed in f32 and rounded once more; integers wrap. Of two NaN that of `y` comes
/// out, made quiet; Inf − Inf is x86's negative quiet NaN on every machine.
///
/// # Errors
/// [`Error::Mismatch`] if `x` has another dtype or shape than `y`; [`Error::NoArithmetic`] for bools;
/// [`Error::Memory`] for a conflict, as when both share the memory, or out of memory. `y` is as it was then.
pub fn add(y: &mut dyn BlobMut, x: &AnyBlob, part: Part) -> Result<(), Error> {
    WITH_THE_DATA.add(y, x, part)
}

/// As [`add`], with subnormal floats taken as zeros of their sign, before and after the addition.
///
/// This is NeoML's `Add`, bit for bit, which runs with the processor's DAZ and FTZ switched on. The switches are not
/// touched here: the bits are selected. Integers are added as by `add`.
///
/// # Errors
/// As [`add`].
pub fn add_flush_subnormals(y: &mut dyn BlobMut, x: &AnyBlob, part: Part) -> Result<(), Error> {
    WITH_THE_DATA.add_flush_subnormals(y, x, part)
}

/// y += alpha·x, on one part of each: the product is rounded before the addition.
///
/// `alpha` is rounded to the type that computes: f32 for f16, bf16 and f32, f64 for f64. Otherwise as [`add`].
///
/// # Errors
/// As [`add`], and [`Error::Value`] if an integer dtype does not hold `alpha`, or a float dtype only as Inf.
pub fn axpy(y: &mut dyn BlobMut, alpha: impl Into<Scalar>, x: &AnyBlob, part: Part) -> Result<(), Error> {
    WITH_THE_DATA.axpy(y, alpha, x, part)
}

/// data −= diff, Caffe's `Update`, bit for bit.
///
/// A diff that was never touched is all zeros: then nothing is written, and the diff stays untouched.
///
/// ```
/// use blob_core::{Blob, Part, Shape};
/// use blob_ops::Scalar;
///
/// let mut weights = Blob::from_slice(Shape::new([2])?, &[1.0f32, -2.0])?;
/// blob_ops::fill(&mut weights, 0.5, Part::Diff)?;
/// blob_ops::update(&mut weights)?;
/// assert_eq!(*weights.data()?, [0.5, -2.5]);
/// assert_eq!(blob_ops::asum(&weights, Part::Data)?, Scalar::F(3.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::NoArithmetic`] for bools; [`Error::Memory`] for a conflict, as when data and diff are one memory, or out of
/// memory. The data are as they were then.
pub fn update(blob: &mut dyn BlobMut) -> Result<(), Error> {
    WITH_THE_DATA.update(blob)
}

/// x ·= alpha, Caffe's `scale_data` and `scale_diff`, bit for bit but for alpha = 0: NaN and Inf times 0 are NaN, as
/// IEEE 754 says, where OpenBLAS 0.3.21 writes 0.
///
/// `alpha` is rounded to the type that computes: f32 for f16, bf16 and f32, f64 for f64. Integers wrap.
///
/// # Errors
/// [`Error::NoArithmetic`] for bools; [`Error::Value`] if an integer dtype does not hold `alpha`, or a float dtype only
/// as Inf; [`Error::Memory`] for a conflict with a guard of another blob, or out of memory. The blob is as it was then.
pub fn scale(blob: &mut dyn BlobMut, alpha: impl Into<Scalar>, part: Part) -> Result<(), Error> {
    WITH_THE_DATA.scale(blob, alpha, part)
}

/// # Arithmetic
impl At {
    /// [`add`](crate::add), at this place.
    pub fn add(&self, y: &mut dyn BlobMut, x: &AnyBlob, part: Part) -> Result<(), Error> {
        check_alike("add", y, x)?;
        let work = arithmetic(work::Op::Add, y, &[]);
        with_number!("add", y.dtype(), N => pairs::<N, _>(self, "add", y, x, part, Add, work))
    }

    /// [`add_flush_subnormals`](crate::add_flush_subnormals), at this place.
    pub fn add_flush_subnormals(&self, y: &mut dyn BlobMut, x: &AnyBlob, part: Part) -> Result<(), Error> {
        check_alike(ADD_FLUSHING, y, x)?;
        let work = arithmetic(work::Op::FlushedAdd, y, &[]);
        with_number!(ADD_FLUSHING, y.dtype(), N => pairs::<N, _>(self, ADD_FLUSHING, y, x, part, FlushedAdd, work))
    }

    /// [`axpy`](crate::axpy), at this place.
    pub fn axpy(&self, y: &mut dyn BlobMut, alpha: impl Into<Scalar>, x: &AnyBlob, part: Part) -> Result<(), Error> {
        check_alike("axpy", y, x)?;
        with_number!("axpy", y.dtype(), N => {
            let alpha = factor::<N>("axpy", alpha.into())?;
            let work = arithmetic(work::Op::Axpy, y, bytemuck::bytes_of(&alpha));
            pairs::<N, _>(self, "axpy", y, x, part, Axpy(alpha), work)
        })
    }

    /// [`update`](crate::update), at this place.
    pub fn update(&self, blob: &mut dyn BlobMut) -> Result<(), Error> {
        with_number!("update", blob.dtype(), N => {
            if !blob.has_diff() {
                return Ok(());
            }
            let [data, diff] = Part::BOTH.map(|part| Operand::all(blob, part));
            if let Some(queue) = self.queue([data.clone(), diff], [data]) {
                let work = arithmetic(work::Op::Subtract, blob, &[]);
                return DeviceOp::new("update", queue, work)?.update_by_diff(blob);
            }
            let (mut y, x) = place::data_mut_and_diff("update", blob)?;
            map_pairs::<N, _>(&mut y, &x, Subtract);
            Ok(())
        })
    }

    /// [`scale`](crate::scale), at this place.
    pub fn scale(&self, blob: &mut dyn BlobMut, alpha: impl Into<Scalar>, part: Part) -> Result<(), Error> {
        with_number!("scale", blob.dtype(), N => {
            let alpha = factor::<N>("scale", alpha.into())?;
            let operand = Operand::all(blob, part);
            if let Some(queue) = self.queue([operand.clone()], [operand]) {
                let work = arithmetic(work::Op::Scale, blob, bytemuck::bytes_of(&alpha));
                return DeviceOp::new("scale", queue, work)?.update(blob, None, part);
            }
            map::<N, _>(&mut place::write("scale", blob, part)?, Scale(alpha));
            Ok(())
        })
    }
}

const ADD_FLUSHING: &str = "add flushing subnormals";

fn check_alike(op: &'static str, y: &AnyBlob, x: &AnyBlob) -> Result<(), Error> {
    Argument::In.of(op).check_dtype(y.dtype(), x)?;
    Argument::In.of(op).check_dims(y.shape().dims(), x)
}

fn factor<N: Number>(op: &'static str, value: Scalar) -> Result<N::Value, Error> {
    let dtype = N::COMPUTED;
    let bytes = convert::single(value, dtype).ok_or(Error::Value { op, dtype, value })?;
    Ok(bytemuck::pod_read_unaligned(&bytes[..dtype.size()]))
}

/// The same for a device; `alpha` are the bytes of a number that the dtype is computed in, or of none.
fn arithmetic(op: work::Op, y: &AnyBlob, alpha: &[u8]) -> Work {
    let bits = alpha.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    Work::Arithmetic { op, dtype: y.dtype(), alpha: bits }
}

/// Borrows `x` first, so that a conflict is seen before `y` is made writable.
fn pairs<N: Number, O: Binary<N>>(
    at: &At,
    name: &'static str,
    y: &mut dyn BlobMut,
    x: &AnyBlob,
    part: Part,
    op: O,
    work: Work,
) -> Result<(), Error> {
    let (reads, write) = ([Operand::all(y, part), Operand::all(x, part)], Operand::all(y, part));
    if let Some(queue) = at.queue(reads, [write]) {
        return DeviceOp::new(name, queue, work)?.update(y, Some(x), part);
    }
    let x = place::read(name, Argument::In, x, part)?;
    let mut y = place::write(name, y, part)?;
    map_pairs::<N, O>(&mut y, &x, op);
    Ok(())
}

fn map_pairs<N: Number, O: Binary<N>>(y: &mut [u8], x: &[u8], op: O) {
    debug_assert_eq!(y.len(), x.len());
    let (isa, piece) = (Isa::detect(), threads::piece_len(y.len()));
    threads::chunks(y, piece, |index, y| {
        let x = &x[index * piece..][..y.len()];
        isa.run(MapPairs::<N, O> { y, x, op, number: PhantomData });
    });
}

fn map<N: Number, O: Unary<N>>(y: &mut [u8], op: O) {
    let (isa, piece) = (Isa::detect(), threads::piece_len(y.len()));
    threads::chunks(y, piece, |_, y| {
        isa.run(Map::<N, O> { y, op, number: PhantomData });
    });
}
