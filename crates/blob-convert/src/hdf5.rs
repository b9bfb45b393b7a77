//! HDF5 files as outputs: the form that the output's name promises, and whether a copy has it.

use std::path::Path;

use blob_io::hdf5::Form;
use blob_io::{Checkpoint, Format};

/// The form of a new file at this path; `None` for other formats.
pub(crate) fn form(to: Format, path: Option<&Path>) -> Option<Form> {
    (to == Format::Hdf5).then(|| path.and_then(Form::of_name).unwrap_or(Form::Datasets))
}

/// Whether an output of HDF5 is made of a file of HDF5.
pub(crate) fn is_hdf5_again(checkpoint: &Checkpoint, to: Format) -> bool {
    checkpoint.hdf5_form().is_some() && to == checkpoint.format()
}

/// Whether a copy of an HDF5 file would not have the form that the output's name promises.
pub(crate) fn is_of_other_form(checkpoint: &Checkpoint, to: Format, path: Option<&Path>) -> bool {
    let wanted = path.and_then(Form::of_name);
    is_hdf5_again(checkpoint, to) && wanted.is_some() && checkpoint.hdf5_form() != wanted
}
