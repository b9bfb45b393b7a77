//! Blobs of one dtype to another: the public functions, and how work is cut for threads.
//!
//! The kernels are in `cpu/convert.rs`. Knows no names of tensors and no files: `blob-convert` decides which tensors to
//! convert.

use crate::argument::Argument;
use crate::at::{At, Operand, WITH_THE_DATA};
use crate::cpu::{Exec, Isa, convert as kernels};
use crate::device_op::DeviceOp;
use crate::error::Error;
use crate::work::Work;
use crate::{place, threads};
use blob_core::{AnyBlob, BlobMut, DType, Part};
use std::sync::Arc;
use synced_mem::Queue;

/// A blob of the same shape in another dtype, data and diff; a part that was never touched stays so.
///
/// Everything becomes the nearest element: rounded to nearest even, once, on the way to a float, cut towards zero on
/// the way from a float to an integer. A value out of range becomes the nearest end: Inf for floats, the least or
/// greatest integer. NaN stays NaN (its sign and the upper bits of its payload too, made quiet); integers have none, so
/// there NaN becomes 0. From a bool comes 0 or 1; to a bool, everything but 0 is true, NaN too. To the same dtype,
/// bytes are copied; bools become 0 or 1 there too.
///
/// ```
/// use blob_core::{Blob, DType, Shape};
///
/// let blob = Blob::from_slice(Shape::new([3])?, &[1.5f32, -1e9, f32::NAN])?;
/// let small = blob_ops::convert(&blob, DType::I8)?;
/// assert_eq!(*small.data().elements::<i8>()?, [1, -128, 0]);
/// let error = blob_ops::convert_checked(&blob, DType::I8).unwrap_err();
/// assert_eq!(error.to_string(), "convert checked: element 0 of the data is 1.5, which i8 does not hold");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Memory`] for a conflict with a guard of another blob, or out of memory.
pub fn convert(blob: &AnyBlob, dtype: DType) -> Result<AnyBlob, Error> {
    WITH_THE_DATA.convert(blob, dtype)
}

/// As [`convert`], if every element survives: nothing is out of range and, on the way to integers and bools, nothing
/// has a fraction or is NaN. Rounding to a float is no loss, and neither are Inf and NaN between floats.
///
/// # Errors
/// As [`convert`]; [`Error::Lost`] names the first element that does not survive.
pub fn convert_checked(blob: &AnyBlob, dtype: DType) -> Result<AnyBlob, Error> {
    WITH_THE_DATA.convert_checked(blob, dtype)
}

/// As [`convert`], one part into a blob of the same shape that is there already, in that blob's dtype. Allocates
/// nothing; see [Memory](crate#memory).
///
/// # Errors
/// [`Error::Mismatch`] for another shape; [`Error::Memory`] for a conflict, as when both share the memory, or out of
/// memory. `out` is as it was then.
pub fn convert_into(blob: &AnyBlob, out: &mut dyn BlobMut, part: Part) -> Result<(), Error> {
    WITH_THE_DATA.convert_into(blob, out, part)
}

/// As [`convert_into`], if every element survives, as [`convert_checked`] says.
///
/// # Errors
/// As [`convert_into`]; [`Error::Lost`] names the first element that does not survive. `out` is as it was then.
pub fn convert_checked_into(blob: &AnyBlob, out: &mut dyn BlobMut, part: Part) -> Result<(), Error> {
    WITH_THE_DATA.convert_checked_into(blob, out, part)
}

/// # Conversion
impl At {
    /// [`convert`](crate::convert), at this place.
    pub fn convert(&self, blob: &AnyBlob, dtype: DType) -> Result<AnyBlob, Error> {
        let mut out = Argument::Out.of(CONVERT).create(blob.shape().dims(), dtype)?;
        for part in touched(blob) {
            self.convert_into(blob, &mut out, part)?;
        }
        Ok(out)
    }

    /// [`convert_checked`](crate::convert_checked), at this place.
    pub fn convert_checked(&self, blob: &AnyBlob, dtype: DType) -> Result<AnyBlob, Error> {
        let reads = touched(blob).map(|part| Operand::all(blob, part));
        if let Some(queue) = self.queue(reads, []) {
            let mut out = Argument::Out.of(CHECKED).create(blob.shape().dims(), dtype)?;
            let parts: Vec<_> = touched(blob).collect();
            return checked_on(queue, blob, &mut out, &parts).map(|()| out);
        }
        // One guard for both passes, so that nothing is written between them.
        let sources = touched(blob).map(|part| Ok((part, place::read(CHECKED, Argument::In, blob, part)?)));
        let sources = sources.collect::<Result<Vec<_>, Error>>()?;
        for (part, source) in &sources {
            check_bytes(blob.dtype(), source, dtype, *part)?;
        }
        let mut out = Argument::Out.of(CHECKED).create(blob.shape().dims(), dtype)?;
        for (part, source) in &sources {
            let mut target = place::overwrite(CHECKED, Argument::Out, &mut out, *part)?;
            elements(blob.dtype(), source, dtype, &mut target);
        }
        Ok(out)
    }

    /// [`convert_into`](crate::convert_into), at this place.
    pub fn convert_into(&self, blob: &AnyBlob, out: &mut dyn BlobMut, part: Part) -> Result<(), Error> {
        Argument::In.of(CONVERT).check_dims(out.shape().dims(), blob)?;
        if place::is_untouched(blob, part) {
            return self.fill(out, 0, part);
        }
        let (from, to) = (blob.dtype(), out.dtype());
        if let Some(queue) = self.queue([Operand::all(blob, part)], [Operand::all(out, part)]) {
            return DeviceOp::new(CONVERT, queue, work(from, to))?.map(blob, out, part);
        }
        let source = place::read(CONVERT, Argument::In, blob, part)?;
        let mut target = place::overwrite(CONVERT, Argument::Out, out, part)?;
        elements(from, &source, to, &mut target);
        Ok(())
    }

    /// [`convert_checked_into`](crate::convert_checked_into), at this place.
    pub fn convert_checked_into(&self, blob: &AnyBlob, out: &mut dyn BlobMut, part: Part) -> Result<(), Error> {
        Argument::In.of(CHECKED).check_dims(out.shape().dims(), blob)?;
        let (from, to) = (blob.dtype(), out.dtype());
        if let Some(queue) = self.queue([Operand::all(blob, part)], [Operand::all(out, part)]) {
            return checked_on(queue, blob, out, &[part]);
        }
        // One guard for both passes, so that nothing is written between them.
        let source = place::read(CHECKED, Argument::In, blob, part)?;
        check_bytes(from, &source, to, part)?;
        let mut target = place::overwrite(CHECKED, Argument::Out, out, part)?;
        elements(from, &source, to, &mut target);
        Ok(())
    }
}

/// As [`convert`], bytes of native-endian elements: `target` holds as many of the other dtype then, and nothing else.
///
/// `source` holds whole elements at any alignment; a cut last element is not looked at.
pub fn convert_bytes(from: DType, source: &[u8], to: DType, target: &mut Vec<u8>) {
    let count = source.len() / from.size();
    target.resize(count * to.size(), 0);
    elements(from, &source[..count * from.size()], to, target);
}

const CONVERT: &str = "convert";
const CHECKED: &str = "convert checked";

fn touched(blob: &AnyBlob) -> impl Iterator<Item = Part> {
    Part::BOTH.into_iter().filter(|&part| !place::is_untouched(blob, part))
}

/// A conversion as a device does it; to the same dtype a copy, but for bools.
fn work(source: DType, target: DType) -> Work {
    if source == target && source != DType::Bool {
        Work::Rows { rows: 1, split: false }
    } else {
        Work::Convert { source, target }
    }
}

/// Checks and converts these parts on a device.
fn checked_on(queue: Arc<dyn Queue>, blob: &AnyBlob, out: &mut dyn BlobMut, parts: &[Part]) -> Result<(), Error> {
    let (from, to) = (blob.dtype(), out.dtype());
    let on_device = DeviceOp::new(CHECKED, queue, work(from, to))?;
    let Some((part, index)) = on_device.convert_checked(blob, out, parts, kernels::bounds(from, to))? else {
        return Ok(());
    };
    let lost = blob.part(part).range(index..index + 1).and_then(|element| element.bytes());
    let lost = lost.map_err(|error| place::memory_error(CHECKED, Argument::In, error))?;
    check_bytes(from, &lost, to, part).map_err(|error| error.at(index))
}

/// Whole elements to as many.
fn elements(from: DType, source: &[u8], to: DType, target: &mut [u8]) {
    let piece = piece_count(source.len().max(target.len()), source.len() / from.size());
    let Exec { isa, store, .. } = Exec::of(target.len());
    threads::chunks(target, piece * to.size(), |index, target| {
        let count = target.len() / to.size();
        let source = &source[index * piece * from.size()..][..count * from.size()];
        kernels::convert(isa, store, from, source, to, target);
    });
}

/// Whether every element survives.
pub(crate) fn check_bytes(from: DType, source: &[u8], to: DType, part: Part) -> Result<(), Error> {
    let piece = piece_count(source.len(), source.len() / from.size());
    let (isa, len) = (Isa::detect(), piece * from.size());
    let count = source.len().div_ceil(len);
    let lost = threads::fold(
        count,
        |index: usize| {
            let source = &source[index * len..];
            let found = kernels::first_lost(isa, from, &source[..len.min(source.len())], to);
            found.map(|(at, value)| (index * piece + at, value))
        },
        Option::or,
    );
    match lost.flatten() {
        None => Ok(()),
        Some((index, value)) => Err(Error::Lost { part, index, value, dtype: to }),
    }
}

/// Elements in a piece of `bytes` bytes that hold `count` elements.
fn piece_count(bytes: usize, count: usize) -> usize {
    count.div_ceil(threads::pieces(bytes)).next_multiple_of(4096).max(4096)
}
