//! Caffe's protobuf files: NetParameter of every generation, BlobProto, BlobProtoVector, SolverState, Datum.
//!
//! Field numbers and rules are those of BVLC/caffe `9b891540`, NVCaffe 0.16 and the `opencl` branch.
//! A net's description is read from a NetParameter or a prototxt. Leaves HDF5 out.

mod attributes;
mod blob;
mod decode;
mod draft;
pub(crate) mod encode;
mod generation;
mod inputs;
pub(crate) mod layer;
pub(crate) mod message;
pub(crate) mod named;
pub(crate) mod net;
mod once;
mod padding;
pub mod proto;
pub(crate) mod proto_fields;
mod prototxt;
pub(crate) mod read;
pub(crate) mod schema;
mod text;
pub(crate) mod tree;
mod types;
mod unnamed;
mod value;
mod values;

pub use decode::{decode_blob, shape_matches};
pub use encode::BlobForm;
pub use message::{Layer, Message, Pair};
pub use prototxt::prototxt;
