//! Caffe's protobuf files: NetParameter of every generation, BlobProto, BlobProtoVector, SolverState, Datum.
//!
//! Field numbers and rules are those of BVLC/caffe `9b891540`, NVCaffe 0.16 and the `opencl` branch.
//! Leaves prototxt and HDF5 out.

mod blob;
pub(crate) mod classify;
mod decode;
pub(crate) mod encode;
pub(crate) mod evidence;
mod layer;
pub(crate) mod message;
pub(crate) mod named;
pub mod proto;
pub(crate) mod protobuf;
pub(crate) mod read;
pub(crate) mod tree;
mod types;
mod values;

pub use decode::{decode_blob, shape_matches};
pub use encode::Form;
pub use message::Message;
