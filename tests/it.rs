//! What blob promises, one module a promise; run with `cargo test -p blob-tests`.
//!
//! Files of other people are tested when `BLOB_REAL_DATA` names their folder. What ran is counted and reported.

#![cfg(test)]

mod alloc;
mod blobproto;
mod caffe;
mod cli;
mod cli_terminal;
mod cli_values;
mod cli_write;
mod convert;
mod folder;
mod hostile;
mod limits;
mod mxnet;
mod mxnet_malformed;
mod npy;
mod npz;
mod npz_checksum;
mod npz_hostile;
mod review;
mod safetensors_header;
mod support;
mod written;
