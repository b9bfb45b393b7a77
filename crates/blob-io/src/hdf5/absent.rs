//! Replaces the reader in builds without the feature `hdf5`: refuses every HDF5 file.

use crate::error::{ReadError, Reason};
use crate::hdf5::Form;
use crate::names::NameTable;
use crate::wire::source::Input;

/// Refuses the file.
pub(crate) fn read(_: &Input, _: &mut NameTable) -> Result<Form, ReadError> {
    let what = "an HDF5 file, which this build does not read".to_owned();
    let help = "build blob-io with its feature hdf5";
    Err(ReadError::Other(Reason::Unsupported, what, Some(help)))
}
