//! HDF5 files as outputs: new ones of tensors alone, and existing ones whose datasets are overwritten in place.

use std::path::Path;

use blob_io::hdf5::Form;
use blob_io::layout::Layout;
use blob_io::{Checkpoint, Entry, Error};

use crate::base::refilled;
use crate::caffe::{Misfit, check_fits};
use crate::options::refuse;
use crate::planned::Planned;
use crate::receipt::receipt_text;

/// Whether a copy of an HDF5 file would not have the form that the output's name promises.
pub(crate) fn is_of_other_form(checkpoint: &Checkpoint, path: Option<&Path>) -> bool {
    path.and_then(Form::of_name).is_some_and(|wanted| checkpoint.hdf5_form() != Some(wanted))
}

/// The layout of the file `base`, where each tensor replaces the values of the dataset of the same name; everything
/// else stays.
pub(crate) fn into(checkpoint: &Checkpoint, base: &Checkpoint, tensors: &mut [Planned]) -> Result<Layout, Error> {
    base.whole()?;
    if receipt_text(base).is_some() {
        let message =
            "has a receipt, which would say of other values that they were written; convert the tensors to a new file";
        return Err(refuse(base, message.to_owned()));
    }
    check_fits(checkpoint, base, tensors, |tensor, entry| {
        Ok(match entry.dtype() {
            _ if *entry.shape() != tensor.spec.shape => Some(Misfit::of_shape(tensor, entry)),
            Some(there) if there != tensor.spec.dtype => Some(Misfit::of_dtype(tensor, there)),
            Some(_) if is_one_run(entry) => None,
            Some(_) => Some(Misfit::new("is in chunks, compact or big-endian there")),
            None => Some(Misfit::new("is no array there")),
        })
    })?;
    refilled(base, tensors)
}

/// Whether the array is stored as one plain run of bytes, or has none.
fn is_one_run(entry: &Entry) -> bool {
    entry.is_plain() && entry.segments().len() <= 1
}
