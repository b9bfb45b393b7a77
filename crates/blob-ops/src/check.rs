//! Checks of one argument, each an error that names the operation, the argument, the needed and the found.

use crate::argument::{Argument, Mismatch};
use crate::error::Error;
use blob_core::{AnyBlob, Axis, DType, Dims7, Shape};

/// An argument of a named operation.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    op: &'static str,
    argument: Argument,
}

impl Argument {
    pub(crate) fn of(self, op: &'static str) -> Named {
        Named { op, argument: self }
    }
}

impl Named {
    /// The blob itself, new: data of these extents.
    pub(crate) fn create(self, dims: &[usize], dtype: DType) -> Result<AnyBlob, Error> {
        let blob = Shape::new(dims).and_then(|shape| AnyBlob::new(shape, dtype));
        blob.map_err(|error| self.error(error))
    }

    /// An axis of the blob, counted from the left.
    pub(crate) fn axis(self, blob: &AnyBlob, axis: impl Axis) -> Result<usize, Error> {
        blob.shape().axis(axis).map_err(|error| self.error(error))
    }

    /// The extents of a blob that must have NeoML's seven axes.
    pub(crate) fn seven(self, blob: &AnyBlob) -> Result<Dims7, Error> {
        Dims7::try_from(blob.shape())
            .map_err(|_| self.mismatch(Mismatch::Rank { wanted: 7, got: blob.shape().clone() }))
    }

    /// Whether the blob holds elements of this dtype.
    pub(crate) fn check_dtype(self, wanted: DType, blob: &AnyBlob) -> Result<(), Error> {
        let got = blob.dtype();
        if got == wanted { Ok(()) } else { Err(self.mismatch(Mismatch::DType { wanted, got })) }
    }

    /// Whether the blob has these extents.
    pub(crate) fn check_dims(self, wanted: &[usize], blob: &AnyBlob) -> Result<(), Error> {
        self.check_dims_but(None, wanted, blob)
    }

    /// Whether the blob has these extents; along that one axis any.
    pub(crate) fn check_dims_but(self, free: Option<usize>, wanted: &[usize], blob: &AnyBlob) -> Result<(), Error> {
        let got = blob.shape().dims();
        if got.len() != wanted.len() {
            return Err(self.mismatch(Mismatch::Rank { wanted: wanted.len(), got: blob.shape().clone() }));
        }
        match (0..got.len()).find(|&axis| got[axis] != wanted[axis] && free != Some(axis)) {
            None => Ok(()),
            Some(axis) => Err(self.mismatch(Mismatch::Extent { axis, wanted: wanted[axis], got: got[axis] })),
        }
    }

    pub(crate) fn mismatch(self, mismatch: Mismatch) -> Error {
        Error::Mismatch { op: self.op, argument: self.argument, mismatch }
    }

    fn error(self, error: blob_core::Error) -> Error {
        Error::Blob { op: self.op, argument: self.argument, error }
    }
}
