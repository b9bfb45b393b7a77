//! What blob promises, one module a promise; run with `cargo test -p blob-tests`.
//!
//! Files of other people are tested when `BLOB_REAL_DATA` names their folder. What ran is counted and reported.

#![cfg(test)]

mod alloc;
mod archives;
mod axes;
mod blobproto;
mod blobs;
mod caffe;
mod caffe_convert;
mod caffe_oracle;
mod caffe_splice;
mod caffe_write;
mod cli;
mod cli_help;
mod cli_json;
mod cli_terminal;
mod cli_values;
mod cli_width;
mod cli_write;
mod conformance;
mod convert;
mod damaged;
#[cfg(target_os = "linux")]
mod devices;
mod diff;
mod element;
mod element_neoml;
mod examples;
mod fold_net;
mod fold_refused;
mod folder;
mod folds;
mod folds_mxnet;
mod forward;
mod gzip;
mod hash;
mod hdf5;
mod hdf5_compact;
mod hdf5_convert;
mod hdf5_write;
mod hostile;
mod identity;
mod kinds;
mod limits;
mod matrix;
mod moved;
mod moves;
mod mxnet;
mod mxnet_malformed;
mod mxnet_write;
mod names;
mod neoml;
mod neoml_malformed;
mod neoml_misuse;
mod neoml_read;
mod neoml_write;
mod npy;
mod npz;
mod npz_checksum;
mod npz_corrupt;
mod npz_frames;
mod npz_hostile;
mod numpy;
mod pieces;
mod plot;
mod reader;
mod reasons;
mod receipt;
mod regroup;
mod rename;
mod replay;
mod report;
mod safetensors_header;
#[cfg(unix)]
mod salvage;
mod scarce;
mod schemas;
#[cfg(unix)]
mod sessions;
mod shards;
mod shards_write;
mod snapshots;
mod support;
mod symbol;
mod synced;
mod synced_blobs;
mod there_and_back;
mod topology;
mod transform;
mod transform_order;
mod windows;
mod writer;
mod written;
