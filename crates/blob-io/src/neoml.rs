//! NeoML's archives (`CArchive`): bare blobs, arrays of blobs, and the blobs in nets, dictionaries and pickles.
//!
//! Layouts and rules are those of neoml-lib/neoml from archive version 1001 to 2000, measured against the library.
//! Leaves the parameters of layer classes out: about 160 classes have private ones, and a net's blobs can be found
//! without them.

mod archive;
mod find;
mod layer;
mod links;
pub(crate) mod net;
pub(crate) mod read;
mod record;
pub(crate) mod write;

pub use archive::Archive;
pub use links::Layer;
