//! `BlobMut`: a blob to write into, whether or not the compiler knows the dtype. Relies on blobs alone, and has no way
//! to put another blob in the place of one: a `Blob<T>` keeps its dtype.

use std::ops::Deref;

use crate::blob::AnyBlob;
use crate::part::Part;
use crate::typed::Blob;
use crate::view::ViewMut;

/// An [`AnyBlob`] or a [`Blob`], to write into. Sealed.
///
/// The operations of `blob-ops` take `&mut dyn BlobMut`: a `&mut` of either blob becomes one by itself. Nobody can swap
/// the blob behind one for a blob of another dtype.
pub trait BlobMut: sealed::Sealed {
    /// The blob, for reading.
    fn any(&self) -> &AnyBlob;

    /// The data or the diff, for writing.
    fn part_mut(&mut self, part: Part) -> ViewMut<'_>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::AnyBlob {}
    impl<T> Sealed for super::Blob<T> {}
}

/// For reading.
impl<'a> Deref for dyn BlobMut + 'a {
    type Target = AnyBlob;

    fn deref(&self) -> &AnyBlob {
        self.any()
    }
}

impl BlobMut for AnyBlob {
    fn any(&self) -> &AnyBlob {
        self
    }

    fn part_mut(&mut self, part: Part) -> ViewMut<'_> {
        self.part_mut(part)
    }
}

impl<T> BlobMut for Blob<T> {
    fn any(&self) -> &AnyBlob {
        self
    }

    fn part_mut(&mut self, part: Part) -> ViewMut<'_> {
        self.part_mut(part)
    }
}
