//! HDF5: Caffe's weights (`.caffemodel.h5`), solver states and data files; any other file's datasets by path.
//!
//! Reading needs the feature `hdf5`: the crate `hdf5-reader`, called only through `structure`, parses messages, heaps
//! and indices. `payload` reads the values, as those of every format. Writing needs no feature.

#[cfg(feature = "hdf5")]
mod attributes;
#[cfg(feature = "hdf5")]
mod chunks;
#[cfg(feature = "hdf5")]
mod dataset;
#[cfg(feature = "hdf5")]
mod datatype;
mod form;
#[cfg(feature = "hdf5")]
mod header;
#[cfg(feature = "hdf5")]
mod links;
mod nodes;
#[cfg(feature = "hdf5")]
pub(crate) mod read;
#[cfg(feature = "hdf5")]
mod shared;
#[cfg(feature = "hdf5")]
#[cfg(feature = "hdf5")]
mod structure;
#[cfg(feature = "hdf5")]
mod tree;
pub(crate) mod write;

#[cfg(not(feature = "hdf5"))]
#[path = "hdf5/absent.rs"]
pub(crate) mod read;

pub use form::Form;
