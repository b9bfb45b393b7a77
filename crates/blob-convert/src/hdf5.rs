//! HDF5 files as outputs: whether a copy has the form that the output's name promises.

use std::path::Path;

use blob_io::Checkpoint;
use blob_io::hdf5::Form;

/// Whether a copy of an HDF5 file would not have the form that the output's name promises.
pub(crate) fn is_of_other_form(checkpoint: &Checkpoint, path: Option<&Path>) -> bool {
    path.and_then(Form::of_name).is_some_and(|wanted| checkpoint.hdf5_form() != Some(wanted))
}
