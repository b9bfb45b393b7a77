//! Transpose and permute: the caller's request, checked before a byte moves, and the pieces for the threads.
//!
//! The geometry is in `plan.rs`, the moving in `cpu/permute.rs`.

use crate::argument::Argument;
use crate::at::{At, Operand, WITH_THE_DATA};
use crate::cpu::permute::Permute;
use crate::cpu::transpose::Square;
use crate::cpu::{Exec, fetch};
use crate::device_op::DeviceOp;
use crate::error::Error;
use crate::plan::{Permutation, Piece, Swap};
use crate::work::Work;
use crate::{place, threads};
use blob_core::{AnyBlob, Axis, BlobMut, MAX_AXES, Part, Shape};
use smallvec::SmallVec;

/// A blob of `blob`'s data with two axes exchanged: `[2, 3, 5]` with axes 0 and 2 is `[5, 3, 2]`.
///
/// The diff does not come along: the result has none.
///
/// # Errors
/// An axis that `blob` does not have; [`Error::Memory`] for a conflict with a guard of another blob, or out of memory.
pub fn transpose(blob: &AnyBlob, one: impl Axis, other: impl Axis) -> Result<AnyBlob, Error> {
    WITH_THE_DATA.transpose(blob, one, other)
}

/// As [`transpose`], into the data of a blob that is already there, whose diff stays. Allocates nothing; see
/// [Memory](crate#memory).
///
/// # Errors
/// Also an `out` of another dtype or another shape than the result's, or one that shares memory with `blob`. Then no
/// byte of it has changed.
pub fn transpose_into(blob: &AnyBlob, one: impl Axis, other: impl Axis, out: &mut dyn BlobMut) -> Result<(), Error> {
    WITH_THE_DATA.transpose_into(blob, one, other, out)
}

/// A blob of `blob`'s data with the axes in another order: axis `i` of the result is axis `order[i]` of `blob`.
///
/// `[0, 2, 3, 1]` makes channels-last of Caffe's `N×C×H×W`. The diff does not come along: the result
/// has none. Threads share the outermost axes of the result; where its first axis is the source's last, and short, one
/// thread does all, as threads would fetch each other's lines.
///
/// # Errors
/// [`Error::Order`] where `order` does not name each axis once; [`Error::Memory`] for a conflict with a guard of
/// another blob, or out of memory.
pub fn permute(blob: &AnyBlob, order: &[usize]) -> Result<AnyBlob, Error> {
    WITH_THE_DATA.permute(blob, order)
}

/// As [`permute`], into the data of a blob that is already there, whose diff stays. Allocates nothing; see
/// [Memory](crate#memory).
///
/// # Errors
/// Also an `out` of another dtype or another shape than the result's, or one that shares memory with `blob`. Then no
/// byte of it has changed.
pub fn permute_into(blob: &AnyBlob, order: &[usize], out: &mut dyn BlobMut) -> Result<(), Error> {
    WITH_THE_DATA.permute_into(blob, order, out)
}

/// Transposes the matrices of the last two axes of `blob`'s data in place. Each is square.
///
/// Allocates nothing; the diff is not turned. Several matrices are shared among threads, one is not.
///
/// # Errors
/// [`Error::NotSquare`]; [`Error::Memory`] for a conflict with a guard of another blob, or out of memory.
pub fn transpose_in_place(blob: &mut dyn BlobMut) -> Result<(), Error> {
    WITH_THE_DATA.transpose_in_place(blob)
}

/// # Transpose and permute
impl At {
    /// [`transpose`](crate::transpose), at this place.
    pub fn transpose(&self, blob: &AnyBlob, one: impl Axis, other: impl Axis) -> Result<AnyBlob, Error> {
        let input = Argument::In.of(TRANSPOSE);
        let (one, other) = (input.axis(blob, one)?, input.axis(blob, other)?);
        let dims = swapped(blob.shape().dims(), one, other);
        let mut out = Argument::Out.of(TRANSPOSE).create(&dims, blob.dtype())?;
        move_into(self, TRANSPOSE, swap(blob, one, other), blob, &mut out)?;
        Ok(out)
    }

    /// [`transpose_into`](crate::transpose_into), at this place.
    pub fn transpose_into(
        &self,
        blob: &AnyBlob,
        one: impl Axis,
        other: impl Axis,
        out: &mut dyn BlobMut,
    ) -> Result<(), Error> {
        let input = Argument::In.of(TRANSPOSE);
        let (one, other) = (input.axis(blob, one)?, input.axis(blob, other)?);
        let wanted = swapped(blob.shape().dims(), one, other);
        check_out(TRANSPOSE, blob, &wanted, out)?;
        move_into(self, TRANSPOSE, swap(blob, one, other), blob, out)
    }

    /// [`permute`](crate::permute), at this place.
    pub fn permute(&self, blob: &AnyBlob, order: &[usize]) -> Result<AnyBlob, Error> {
        let dims = permuted(blob.shape(), order)?;
        let mut out = Argument::Out.of(PERMUTE).create(&dims, blob.dtype())?;
        move_into(self, PERMUTE, permutation(blob, order), blob, &mut out)?;
        Ok(out)
    }

    /// [`permute_into`](crate::permute_into), at this place.
    pub fn permute_into(&self, blob: &AnyBlob, order: &[usize], out: &mut dyn BlobMut) -> Result<(), Error> {
        let wanted = permuted(blob.shape(), order)?;
        check_out(PERMUTE, blob, &wanted, out)?;
        move_into(self, PERMUTE, permutation(blob, order), blob, out)
    }

    /// [`transpose_in_place`](crate::transpose_in_place), at this place.
    pub fn transpose_in_place(&self, blob: &mut dyn BlobMut) -> Result<(), Error> {
        let &[.., rows, columns] = blob.shape().dims() else {
            return Err(not_square(blob));
        };
        if rows != columns {
            return Err(not_square(blob));
        }
        if blob.byte_len() == 0 || rows == 1 {
            return Ok(());
        }
        let width = blob.dtype().size();
        let operand = Operand::all(blob, Part::Data);
        if let Some(queue) = self.queue([operand.clone()], [operand]) {
            return DeviceOp::new(IN_PLACE, queue, Work::Squares { side: rows, width })?.update(blob, None, Part::Data);
        }
        let mut bytes = place::write(IN_PLACE, blob, Part::Data)?;
        squares(Exec::of(bytes.len()), &mut bytes, rows, width);
        Ok(())
    }
}

const TRANSPOSE: &str = "transpose";
const PERMUTE: &str = "permute";
const IN_PLACE: &str = "transpose in place";

fn not_square(blob: &AnyBlob) -> Error {
    let shape = blob.shape().clone();
    Error::NotSquare { shape }
}

fn swapped(dims: &[usize], one: usize, other: usize) -> SmallVec<[usize; MAX_AXES]> {
    let mut dims = SmallVec::from_slice(dims);
    dims.swap(one, other);
    dims
}

/// The extents of the result; an error where `order` is no permutation.
fn permuted(shape: &Shape, order: &[usize]) -> Result<SmallVec<[usize; MAX_AXES]>, Error> {
    let axes = shape.num_axes();
    let each_once = order.len() == axes && (0..axes).all(|axis| order.contains(&axis));
    if !each_once {
        return Err(Error::Order { order: order.to_vec(), shape: shape.clone() });
    }
    Ok(order.iter().map(|&axis| shape.dims()[axis]).collect())
}

fn check_out(op: &'static str, blob: &AnyBlob, wanted: &[usize], out: &AnyBlob) -> Result<(), Error> {
    Argument::Out.of(op).check_dtype(blob.dtype(), out)?;
    Argument::Out.of(op).check_dims(wanted, out)
}

/// `None` for a blob without elements: there is nothing to move.
fn swap(blob: &AnyBlob, one: usize, other: usize) -> Option<Permutation> {
    let (dims, size) = (blob.shape().dims(), blob.dtype().size());
    (blob.count() > 0).then(|| match Swap::new(dims, one, other) {
        Some(swap) => swap.permutation(size),
        None => Permutation::new(&[blob.count()], &[0], size),
    })
}

/// As [`swap`].
fn permutation(blob: &AnyBlob, order: &[usize]) -> Option<Permutation> {
    let (dims, size) = (blob.shape().dims(), blob.dtype().size());
    (blob.count() > 0).then(|| Permutation::new(dims, order, size))
}

/// Takes both guards before the first byte moves.
fn move_into(
    at: &At,
    op: &'static str,
    plan: Option<Permutation>,
    blob: &AnyBlob,
    out: &mut dyn BlobMut,
) -> Result<(), Error> {
    if let Some(queue) = at.queue([Operand::all(blob, Part::Data)], [Operand::all(out, Part::Data)]) {
        // Of no elements, no rows.
        let work = plan.map_or(Work::Rows { rows: 0, split: false }, Work::Permute);
        return DeviceOp::new(op, queue, work)?.map(blob, out, Part::Data);
    }
    let src = place::read(op, Argument::In, blob, Part::Data)?;
    let mut dst = place::overwrite(op, Argument::Out, out, Part::Data)?;
    if let Some(plan) = plan {
        run(Exec::of(dst.len()), plan, &src, &mut dst);
    }
    Ok(())
}

/// The whole of a plan, cut into pieces for the current pool.
pub(crate) fn run(exec: Exec, plan: Permutation, src: &[u8], dst: &mut [u8]) {
    let Exec { isa, store, pieces } = exec;
    let dst = &mut dst[..plan.bytes()];
    let pieces = plan.pieces(pieces);
    threads::slices(
        dst,
        pieces.len(),
        |piece| pieces.start(piece),
        |piece, dst| {
            let Piece { from, plan } = pieces.get(piece);
            Permute { plan: &plan, src: &src[from..], dst, store }.run(isa);
        },
    );
}

/// Matrices one behind the other, each transposed in place.
pub(crate) fn squares(exec: Exec, bytes: &mut [u8], side: usize, width: usize) {
    let matrix = side * side * width;
    let each = (bytes.len() / matrix).div_ceil(exec.pieces);
    threads::chunks(bytes, matrix * each, |_, bytes| {
        let fetch = fetch(bytes.len());
        exec.isa.run(Square { bytes, side, width, fetch });
    });
}
