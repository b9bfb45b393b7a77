//! One value into all elements of a blob, or of one object in NeoML's sense.
//!
//! Relies on `cpu/convert.rs` for the value's bytes; does not read the old elements.

use crate::argument::Argument;
use crate::at::{At, Operand, WITH_THE_DATA};
use crate::cpu::element::Fill;
use crate::cpu::machine::Store;
use crate::cpu::{Exec, convert};
use crate::device_op::DeviceOp;
use crate::error::Error;
use crate::scalar::Scalar;
use crate::work::Work;
use crate::{place, threads};
use blob_core::{AnyBlob, BlobMut, Part};
use std::ops::Range;

/// Sets all elements of one part to a value. A part that was never touched stays so where the value is 0.
///
/// Float dtypes take any number, rounded to nearest even; others only values that the dtype holds, bools 0 and 1.
///
/// # Errors
/// [`Error::Value`] if the dtype does not hold the value, or a float dtype only as Inf; [`Error::Memory`] for a
/// conflict with a guard of another blob, or out of memory. The blob is as it was then.
pub fn fill(blob: &mut dyn BlobMut, value: impl Into<Scalar>, part: Part) -> Result<(), Error> {
    WITH_THE_DATA.fill(blob, value, part)
}

/// Sets all elements of one object of a blob of seven axes to a value: NeoML's `FillObject`, and with 0 its
/// `ClearObject`.
///
/// The axes are BatchLength, BatchWidth, ListSize, Height, Width, Depth, Channels. The first three count objects, in
/// row-major order; the last four are the elements of each.
///
/// # Errors
/// As [`fill`]; [`Error::Mismatch`] if there are not seven axes; [`Error::ObjectOutOfRange`].
pub fn fill_object(blob: &mut dyn BlobMut, object: usize, value: impl Into<Scalar>, part: Part) -> Result<(), Error> {
    WITH_THE_DATA.fill_object(blob, object, value, part)
}

/// # Fill
impl At {
    /// [`fill`](crate::fill), at this place.
    pub fn fill(&self, blob: &mut dyn BlobMut, value: impl Into<Scalar>, part: Part) -> Result<(), Error> {
        let op = "fill";
        let element = element(op, blob, value.into())?;
        let size = blob.dtype().size();
        if element == [0; 8] && place::is_untouched(blob, part) {
            return Ok(());
        }
        if let Some(queue) = self.queue([], [Operand::all(blob, part)]) {
            let all = 0..blob.count();
            return DeviceOp::new(op, queue, Work::Fill { element, size })?.fill(blob, part, all);
        }
        let mut bytes = place::overwrite(op, Argument::Out, blob, part)?;
        fill_bytes(&mut bytes, &element[..size]);
        Ok(())
    }

    /// [`fill_object`](crate::fill_object), at this place.
    pub fn fill_object(
        &self,
        blob: &mut dyn BlobMut,
        object: usize,
        value: impl Into<Scalar>,
        part: Part,
    ) -> Result<(), Error> {
        let op = "fill object";
        let range = object_range(op, blob, object)?;
        let element = element(op, blob, value.into())?;
        let size = blob.dtype().size();
        if let Some(queue) = self.queue([], [Operand::range(blob, part, &range)]) {
            return DeviceOp::new(op, queue, Work::Fill { element, size })?.fill(blob, part, range);
        }
        let mut bytes = place::range_overwrite(op, blob, part, range)?;
        fill_bytes(&mut bytes, &element[..size]);
        Ok(())
    }
}

fn element(op: &'static str, blob: &AnyBlob, value: Scalar) -> Result<[u8; 8], Error> {
    let dtype = blob.dtype();
    convert::single(value, dtype).ok_or(Error::Value { op, dtype, value })
}

/// The elements of an object.
fn object_range(op: &'static str, blob: &AnyBlob, object: usize) -> Result<Range<usize>, Error> {
    let dims = Argument::Out.of(op).seven(blob)?;
    let objects = dims.object_count();
    if object >= objects {
        return Err(Error::ObjectOutOfRange { op, object, objects });
    }
    let size = dims.object_size();
    Ok(object * size..(object + 1) * size)
}

/// `element` is 1, 2, 4 or 8 bytes long.
fn fill_bytes(bytes: &mut [u8], element: &[u8]) {
    let (exec, piece) = (Exec::of(bytes.len()), threads::piece_len(bytes.len()));
    threads::chunks(bytes, piece, |_, y| {
        if exec.store == Store::Cached && element.iter().all(|byte| *byte == element[0]) {
            return y.fill(element[0]);
        }
        match *element {
            [value] => fill_with(exec, y, [value]),
            [a, b] => fill_with(exec, y, [a, b]),
            [a, b, c, d] => fill_with(exec, y, [a, b, c, d]),
            [a, b, c, d, e, f, g, h] => fill_with(exec, y, [a, b, c, d, e, f, g, h]),
            _ => unreachable!("no dtype has {} bytes", element.len()),
        }
    });
}

fn fill_with<const W: usize>(exec: Exec, y: &mut [u8], value: [u8; W]) {
    exec.isa.run(Fill { y, value, store: exec.store });
}
