//! Bytes of files to named tensors, and back: Caffe, MXNet, NeoML, ONNX, HDF5, npy, npz, safetensors.
//!
//! Opening a file reads headers only; nothing is allocated because a file says so. This crate does not know devices,
//! kernels, or the purpose of a conversion. The crate obeys no global state and no device that a file names.
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod again;
mod archive;
mod around;
pub mod caffe;
mod checkpoint;
mod codec;
mod entry;
mod error;
mod expected;
mod filenames;
mod folder;
mod format;
pub mod hdf5;
mod interleaved;
pub mod layout;
mod limits;
mod metadata;
pub mod mxnet;
mod names;
pub mod neoml;
pub mod net;
mod notes;
mod npy;
mod npz;
mod number;
pub mod onnx;
mod output;
mod parts;
mod payload;
mod repeated;
mod safetensors;
mod shards;
mod sniff;
mod spec;
mod splice;
mod tensor;
mod tensor_name;
mod text;
mod warning;
mod wire;
#[doc(hidden)]
pub mod words;
#[doc(hidden)]
pub mod work;
mod write;

pub use checkpoint::{Checkpoint, OpenOptions, Reader, StoredTensor};
pub use entry::{Entry, Kind, Segment, Sparse, SparseKind};
pub use error::{Error, Existing, Fault, Reason, Remedy};
pub use format::{Bf16, Files, Format, Holds, Keys, Names, Nets, Refill, UnknownFormat};
pub use limits::{Limit, Limits};
pub use number::Number;
pub use output::{Complete, IfExists, Output};
pub use tensor::Tensor;
pub use tensor_name::{Group, TensorName};
pub use text::{file_of, read_text};
pub use warning::Warning;
pub use wire::sink::Sink;
#[cfg(feature = "mmap")]
pub use wire::source::Mmap;
pub use wire::source::{Bytes, FileSource, Source};
pub use words::grouped;
pub use write::Writer;
