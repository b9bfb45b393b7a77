//! Where an operation works, decided once per call: the one place where its bytes are borrowed.
//!
//! Here there is only the host. Inputs whose newest copy is on a device are brought here by their memory, which counts
//! the transfer in its statistics and keeps the device's copy valid; the bytes of an output are written over and not
//! moved. Relies on the memory's guards: what cannot be borrowed is an error before a byte changes.

use crate::Part;
use blob_core::{AnyBlob, Error, Ref, RefMut};
use std::ops::{Deref, DerefMut, Range};

impl Part {
    /// To read. A part that was never touched is made: all zeros.
    pub(crate) fn bytes(self, blob: &AnyBlob) -> Result<Ref<'_, [u8]>, Error> {
        match self {
            Part::Data => blob.data_bytes(),
            Part::Diff => blob.diff_bytes(),
        }
    }

    /// To read and write: from here on the host's copy is the only one.
    pub(crate) fn bytes_mut(self, blob: &mut AnyBlob) -> Result<RefMut<'_, [u8]>, Error> {
        match self {
            Part::Data => blob.data_bytes_mut(),
            Part::Diff => blob.diff_bytes_mut(),
        }
    }

    /// To write every byte: nothing is brought here.
    pub(crate) fn bytes_overwrite(self, blob: &mut AnyBlob) -> Result<RefMut<'_, [u8]>, Error> {
        match self {
            Part::Data => blob.data_bytes_overwrite(),
            Part::Diff => blob.diff_bytes_overwrite(),
        }
    }

    /// To write every byte of a range: nothing of it is brought here, and the others stay where they are.
    pub(crate) fn range_overwrite(
        self,
        blob: &mut AnyBlob,
        range: Range<usize>,
    ) -> Result<impl DerefMut<Target = [u8]> + use<>, Error> {
        let memory = match self {
            Part::Data => blob.data_memory(),
            Part::Diff => blob.diff_memory(),
        };
        memory.host_overwrite(range).map_err(Error::from)
    }

    /// Whether it was never touched: all zeros, and no memory taken.
    pub(crate) fn is_untouched(self, blob: &AnyBlob) -> bool {
        let memory = match self {
            Part::Data => blob.data_memory(),
            Part::Diff => blob.diff_memory(),
        };
        !memory.is_initialized()
    }
}

/// The data to read and write, and the diff to read, which a borrow of the blob as a whole would not give at once.
pub(crate) fn data_mut_and_diff(
    blob: &mut AnyBlob,
) -> Result<(RefMut<'_, [u8]>, impl Deref<Target = [u8]> + use<>), Error> {
    let memory = blob.diff_memory();
    let diff = memory.host(0..memory.len())?;
    Ok((blob.data_bytes_mut()?, diff))
}
