//! Merge and split along an axis or by whole objects: the caller's request, checked before a byte moves.
//!
//! Either is rows of runs: `outer` rows, of which every part has one run. `merge/rows.rs` hands them to threads.

pub(crate) mod rows;

use crate::argument::{Argument, Mismatch};
use crate::at::{At, Operand, WITH_THE_DATA};
use crate::check::Named;
use crate::cpu::copy::{Rows, RowsMut};
use crate::device_op::DeviceOp;
use crate::error::Error;
use crate::place::{self, INLINE_GUARDS};
use crate::plan::Split;
use crate::work::Work;
use blob_core::{AnyBlob, Axis, BlobMut, DType, Dims7, MAX_AXES, Part};
use smallvec::SmallVec;

/// One blob of the parts' data, one behind the other along `axis`: `[2, 3]` and `[2, 4]` along axis 1 make `[2, 7]`.
///
/// Any number of parts, one at least. Diffs do not come along: the result has none.
///
/// # Errors
/// [`Error::NoParts`]; an axis that the blob does not have; a part of another dtype than the first, or of another shape
/// outside `axis`; [`Error::Memory`] for a conflict with a guard of another blob, or out of memory.
pub fn merge(parts: &[&AnyBlob], axis: impl Axis) -> Result<AnyBlob, Error> {
    WITH_THE_DATA.merge(parts, axis)
}

/// As [`merge`], into the data of a blob that is already there, whose diff stays. Of up to 16 parts it allocates
/// nothing, of more two lists, 64 bytes a part together; see [Memory](crate#memory).
///
/// # Errors
/// Also an `out` of another dtype or another shape than the result's, or one that shares memory with a part. Then no
/// byte of it has changed.
pub fn merge_into(parts: &[&AnyBlob], axis: impl Axis, out: &mut dyn BlobMut) -> Result<(), Error> {
    WITH_THE_DATA.merge_into(parts, axis, out)
}

/// Blobs of `blob`'s data, cut along `axis` into parts of these extents: the inverse of
/// [`merge`]. The diff does not come along: the parts have none.
///
/// # Errors
/// [`Error::NoParts`]; an axis that the blob does not have; [`Error::PartsSum`] where the extents do not add up to the
/// axis's; [`Error::Memory`] for a conflict with a guard of another blob, or out of memory.
pub fn split(blob: &AnyBlob, axis: impl Axis, extents: &[usize]) -> Result<Vec<AnyBlob>, Error> {
    WITH_THE_DATA.split(blob, axis, extents)
}

/// As [`split`], into the data of blobs that are already there, whose diffs stay. Of up to 16 parts it allocates
/// nothing, of more two lists, 64 bytes a part together; see [Memory](crate#memory).
///
/// # Errors
/// Also a part of another dtype than `blob`'s, or of another shape outside `axis`, or one that shares memory with
/// `blob` or another part. Then no byte of any part has changed, unless another thread borrows a part just then or
/// there is no memory left where the split works: then the parts before that one are unspecified on a device, and on
/// the host have lost the bytes that only a device had. For [`Error::Device`] see there.
pub fn split_into(blob: &AnyBlob, axis: impl Axis, parts: &mut [&mut AnyBlob]) -> Result<(), Error> {
    WITH_THE_DATA.split_into(blob, axis, parts)
}

/// One blob of the parts' objects, each behind the other's: object `k` of the result is object `k` of every part.
///
/// Parts have the seven axes of NeoML's blobs, the first three of which count the objects; the other four may differ
/// from part to part and become one, `[BatchLength, BatchWidth, ListSize, 1, 1, 1, sum]`. NeoML's `MergeByObject`.
///
/// # Errors
/// [`Error::NoParts`]; [`Error::Mismatch`] for a part without seven axes, of another dtype than the first or with
/// another number of objects; [`Error::Memory`] for a conflict with a guard of another blob, or out of memory.
pub fn merge_objects(parts: &[&AnyBlob]) -> Result<AnyBlob, Error> {
    WITH_THE_DATA.merge_objects(parts)
}

/// As [`merge_objects`], into the data of a blob that is already there: any seven axes with that many objects of that
/// size. Allocates as [`merge_into`] does.
///
/// # Errors
/// Also an `out` of another dtype, number or size of objects, or one that shares memory with a part. Then no byte of it
/// has changed.
pub fn merge_objects_into(parts: &[&AnyBlob], out: &mut dyn BlobMut) -> Result<(), Error> {
    WITH_THE_DATA.merge_objects_into(parts, out)
}

/// Blobs of `blob`'s objects cut into these sizes, `[BatchLength, BatchWidth, ListSize, 1, 1, 1, size]` each: the
/// inverse of [`merge_objects`].
///
/// # Errors
/// [`Error::NoParts`]; [`Error::Mismatch`] for a `blob` without seven axes; [`Error::PartsSum`] where the sizes do not
/// add up to an object's; [`Error::Memory`] for a conflict with a guard of another blob, or out of memory.
pub fn split_objects(blob: &AnyBlob, sizes: &[usize]) -> Result<Vec<AnyBlob>, Error> {
    WITH_THE_DATA.split_objects(blob, sizes)
}

/// As [`split_objects`], into the data of blobs that are already there: any seven axes with as many objects. Allocates
/// as [`split_into`] does.
///
/// # Errors
/// Also a part without seven axes, of another dtype or number of objects than `blob`, or one that shares memory with
/// `blob` or another part. Then the parts are as [`split_into`] leaves them.
pub fn split_objects_into(blob: &AnyBlob, parts: &mut [&mut AnyBlob]) -> Result<(), Error> {
    WITH_THE_DATA.split_objects_into(blob, parts)
}

/// # Merge and split
impl At {
    /// [`merge`](crate::merge), at this place.
    pub fn merge(&self, parts: &[&AnyBlob], axis: impl Axis) -> Result<AnyBlob, Error> {
        let merged = Merged::of(parts, axis)?;
        let mut out = Argument::Out.of(MERGE).create(&merged.dims, merged.dtype)?;
        merge_rows(self, MERGE, parts, merged.split.outer, &mut out)?;
        Ok(out)
    }

    /// [`merge_into`](crate::merge_into), at this place.
    pub fn merge_into(&self, parts: &[&AnyBlob], axis: impl Axis, out: &mut dyn BlobMut) -> Result<(), Error> {
        let merged = Merged::of(parts, axis)?;
        Argument::Out.of(MERGE).check_dtype(merged.dtype, out)?;
        Argument::Out.of(MERGE).check_dims(&merged.dims, out)?;
        merge_rows(self, MERGE, parts, merged.split.outer, out)
    }

    /// [`split`](crate::split), at this place.
    pub fn split(&self, blob: &AnyBlob, axis: impl Axis, extents: &[usize]) -> Result<Vec<AnyBlob>, Error> {
        let axis = Argument::In.of(SPLIT).axis(blob, axis)?;
        let split = Split::new(blob.shape().dims(), axis);
        check_sum(SPLIT, Some(axis), split.len, extents.iter().copied())?;
        let mut dims = SmallVec::<[usize; MAX_AXES]>::from_slice(blob.shape().dims());
        let parts = extents.iter().enumerate().map(|(index, extent)| {
            dims[axis] = *extent;
            Argument::Part(index).of(SPLIT).create(&dims, blob.dtype())
        });
        let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
        let mut outs: Vec<_> = parts.iter_mut().collect();
        split_rows(self, SPLIT, blob, split.outer, &mut outs)?;
        Ok(parts)
    }

    /// [`split_into`](crate::split_into), at this place.
    pub fn split_into(&self, blob: &AnyBlob, axis: impl Axis, parts: &mut [&mut AnyBlob]) -> Result<(), Error> {
        let axis = Argument::In.of(SPLIT).axis(blob, axis)?;
        let split = Split::new(blob.shape().dims(), axis);
        for (index, part) in parts.iter().enumerate() {
            let argument = Argument::Part(index).of(SPLIT);
            argument.check_dtype(blob.dtype(), part)?;
            argument.check_dims_but(Some(axis), blob.shape().dims(), part)?;
        }
        let extents = parts.iter().map(|part| part.shape().dims()[axis]);
        check_sum(SPLIT, Some(axis), split.len, extents)?;
        split_rows(self, SPLIT, blob, split.outer, parts)
    }

    /// [`merge_objects`](crate::merge_objects), at this place.
    pub fn merge_objects(&self, parts: &[&AnyBlob]) -> Result<AnyBlob, Error> {
        let merged = MergedObjects::of(parts)?;
        let dims = of_objects(&merged.objects, merged.size);
        let mut out = Argument::Out.of(MERGE_OBJECTS).create(&dims, parts[0].dtype())?;
        merge_rows(self, MERGE_OBJECTS, parts, merged.objects.object_count(), &mut out)?;
        Ok(out)
    }

    /// [`merge_objects_into`](crate::merge_objects_into), at this place.
    pub fn merge_objects_into(&self, parts: &[&AnyBlob], out: &mut dyn BlobMut) -> Result<(), Error> {
        let MergedObjects { objects, size } = MergedObjects::of(parts)?;
        let argument = Argument::Out.of(MERGE_OBJECTS);
        argument.check_dtype(parts[0].dtype(), out)?;
        let got = argument.seven(out)?;
        check_objects(argument, &objects, &got)?;
        if got.object_size() != size {
            return Err(argument.mismatch(Mismatch::ObjectSize { wanted: size, got: got.object_size() }));
        }
        merge_rows(self, MERGE_OBJECTS, parts, objects.object_count(), out)
    }

    /// [`split_objects`](crate::split_objects), at this place.
    pub fn split_objects(&self, blob: &AnyBlob, sizes: &[usize]) -> Result<Vec<AnyBlob>, Error> {
        let objects = Argument::In.of(SPLIT_OBJECTS).seven(blob)?;
        check_sum(SPLIT_OBJECTS, None, objects.object_size(), sizes.iter().copied())?;
        let parts = sizes.iter().enumerate().map(|(index, size)| {
            Argument::Part(index).of(SPLIT_OBJECTS).create(&of_objects(&objects, *size), blob.dtype())
        });
        let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
        let mut outs: Vec<_> = parts.iter_mut().collect();
        split_rows(self, SPLIT_OBJECTS, blob, objects.object_count(), &mut outs)?;
        Ok(parts)
    }

    /// [`split_objects_into`](crate::split_objects_into), at this place.
    pub fn split_objects_into(&self, blob: &AnyBlob, parts: &mut [&mut AnyBlob]) -> Result<(), Error> {
        let objects = Argument::In.of(SPLIT_OBJECTS).seven(blob)?;
        for (index, part) in parts.iter().enumerate() {
            let argument = Argument::Part(index).of(SPLIT_OBJECTS);
            argument.check_dtype(blob.dtype(), part)?;
            check_objects(argument, &objects, &argument.seven(part)?)?;
        }
        // Each has seven axes.
        let sizes = parts.iter().map(|part| part.shape().dims()[3..].iter().product());
        check_sum(SPLIT_OBJECTS, None, objects.object_size(), sizes)?;
        split_rows(self, SPLIT_OBJECTS, blob, objects.object_count(), parts)
    }
}

/// The part that is moved.
const DATA: Part = Part::Data;

const MERGE: &str = "merge";
const SPLIT: &str = "split";
const MERGE_OBJECTS: &str = "merge by objects";
const SPLIT_OBJECTS: &str = "split by objects";

/// The result of a merge along an axis.
struct Merged {
    dims: SmallVec<[usize; MAX_AXES]>,
    dtype: DType,
    split: Split,
}

impl Merged {
    fn of(parts: &[&AnyBlob], axis: impl Axis) -> Result<Self, Error> {
        let [first, ..] = parts else {
            return Err(Error::NoParts { op: MERGE });
        };
        let axis = Argument::Part(0).of(MERGE).axis(first, axis)?;
        let mut dims = SmallVec::<[usize; MAX_AXES]>::from_slice(first.shape().dims());
        for (index, part) in parts.iter().enumerate().skip(1) {
            let argument = Argument::Part(index).of(MERGE);
            argument.check_dtype(first.dtype(), part)?;
            argument.check_dims_but(Some(axis), first.shape().dims(), part)?;
            // A sum that does not fit is more than the new shape's count can be, and an error there.
            dims[axis] = dims[axis].saturating_add(part.shape().dims()[axis]);
        }
        let (split, dtype) = (Split::new(first.shape().dims(), axis), first.dtype());
        Ok(Merged { dims, dtype, split })
    }
}

/// The result of a merge by objects.
struct MergedObjects {
    /// The first three axes count the objects; the others are the first part's.
    objects: Dims7,
    /// Elements of a merged object.
    size: usize,
}

impl MergedObjects {
    fn of(parts: &[&AnyBlob]) -> Result<Self, Error> {
        let [first, ..] = parts else {
            return Err(Error::NoParts { op: MERGE_OBJECTS });
        };
        let objects = Argument::Part(0).of(MERGE_OBJECTS).seven(first)?;
        let mut size = 0usize;
        for (index, part) in parts.iter().enumerate() {
            let argument = Argument::Part(index).of(MERGE_OBJECTS);
            argument.check_dtype(first.dtype(), part)?;
            let dims = argument.seven(part)?;
            check_objects(argument, &objects, &dims)?;
            size = size.saturating_add(dims.object_size());
        }
        Ok(MergedObjects { objects, size })
    }
}

/// As many objects as these, of `size` elements each.
fn of_objects(objects: &Dims7, size: usize) -> [usize; 7] {
    let &[length, width, list, ..] = objects.dims();
    [length, width, list, 1, 1, 1, size]
}

fn check_objects(argument: Named, wanted: &Dims7, got: &Dims7) -> Result<(), Error> {
    let (wanted, got) = (wanted.object_count(), got.object_count());
    if got == wanted { Ok(()) } else { Err(argument.mismatch(Mismatch::Objects { wanted, got })) }
}

fn check_sum(
    op: &'static str,
    axis: Option<usize>,
    wanted: usize,
    mut parts: impl ExactSizeIterator<Item = usize>,
) -> Result<(), Error> {
    if parts.len() == 0 {
        return Err(Error::NoParts { op });
    }
    let got = parts.try_fold(0usize, usize::checked_add);
    if got == Some(wanted) { Ok(()) } else { Err(Error::PartsSum { op, axis, wanted, got }) }
}

/// Takes all guards before the first byte moves.
fn merge_rows(at: &At, op: &'static str, parts: &[&AnyBlob], rows: usize, out: &mut dyn BlobMut) -> Result<(), Error> {
    let reads = parts.iter().map(|part| Operand::all(part, DATA));
    if let Some(queue) = at.queue(reads, [Operand::all(out, DATA)]) {
        return DeviceOp::new(op, queue, Work::Rows { rows, split: false })?.merge(parts, out);
    }
    let guards = place::read_all(op, parts, DATA)?;
    let mut dst = place::overwrite(op, Argument::Out, out, DATA)?;
    if dst.is_empty() {
        return Ok(());
    }
    let mut parts: SmallVec<[Rows<'_>; INLINE_GUARDS]> = SmallVec::with_capacity(guards.len());
    parts.extend(guards.iter().map(|guard| Rows::new(guard, rows)));
    rows::merge(at.exec(dst.len()), &parts, &mut dst);
    Ok(())
}

/// As [`merge_rows`].
fn split_rows(at: &At, op: &'static str, blob: &AnyBlob, rows: usize, parts: &mut [&mut AnyBlob]) -> Result<(), Error> {
    let writes = parts.iter().map(|part| Operand::all(part, DATA));
    if let Some(queue) = at.queue([Operand::all(blob, DATA)], writes) {
        return DeviceOp::new(op, queue, Work::Rows { rows, split: true })?.split(blob, parts);
    }
    let src = place::read(op, Argument::In, blob, DATA)?;
    let mut guards = place::overwrite_all(op, parts, DATA)?;
    if src.is_empty() {
        return Ok(());
    }
    let mut parts: SmallVec<[RowsMut<'_>; INLINE_GUARDS]> = SmallVec::with_capacity(guards.len());
    parts.extend(guards.iter_mut().map(|guard| RowsMut::new(guard, rows)));
    rows::split(at.exec(src.len()), &src, &mut parts);
    Ok(())
}
