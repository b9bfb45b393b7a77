//! HDF5: Caffe's weights (`.caffemodel.h5`), solver states and data files; any other file's datasets by their paths.
//!
//! The door of the feature `hdf5`, which reading needs: `hdf5-reader` finds the groups, headers and chunks, in
//! `structure` alone. Values are read by `payload`, as those of every format. Files are written without it, with any
//! features.

#[cfg(feature = "hdf5")]
mod attributes;
#[cfg(feature = "hdf5")]
mod chunks;
#[cfg(feature = "hdf5")]
mod compact;
#[cfg(feature = "hdf5")]
mod dataset;
#[cfg(feature = "hdf5")]
mod datatype;
mod form;
#[cfg(feature = "hdf5")]
pub(crate) mod read;
#[cfg(feature = "hdf5")]
mod structure;
pub(crate) mod write;

#[cfg(not(feature = "hdf5"))]
#[path = "hdf5/absent.rs"]
pub(crate) mod read;

pub use form::Form;
