//! What blob promises, one module a promise; run with `cargo test -p blob-tests`. The lists below are the map.
//!
//! Files of other people are tested when `BLOB_REAL_DATA` names their folder. What ran is counted and reported.

#![cfg(test)]

// What the tests share: the tool, folders, builders of files, allocations that are counted.
mod support;

// What stands before every format: names, limits, reasons, files of other kinds.
mod hostile; // every golden cut, changed byte by byte, with extreme lengths: no panic, bounded memory
mod kinds; // files of other programs are named; arrays of other dtypes are listed
mod limits; // nets that Caffe takes and should not; models of many pieces, within their bounds
mod reader; // the pull reader gives what `load` gives, however it is asked
mod reasons; // each kind of trouble has its code, which never changes
#[cfg(unix)]
mod salvage; // what stands before a break is listed, and never taken for whole

// Formats read, each golden against what its own framework says of it.
mod archives; // a member of a tar or zip is read as if it lay alone
mod blobproto; // BlobProtos of every writer; ShapeEquals
mod caffe; // nets, vectors, datums: shapes and checksums that Caffe computed
mod caffe_oracle; // generated nets, against prost
mod gzip; // a gzip file is what it unpacks to; bombs, cuts, streams without end
mod hdf5; // Caffe's HDF5 against its protobuf files; every layout of h5py
mod hdf5_compact; // values within a header
mod mxnet; // records of every version against NumPy; every malformed file has its outcome
mod neoml_malformed; // files that the real NeoML was tried with
mod neoml_read; // blobs and nets against the tables of the real NeoML
mod npy; // npy of NumPy, MXNet 2 and `npyz`; odd and broken headers
mod npz; // npz of NumPy, SciPy, MXNet 2 and the `zip` crate
mod npz_checksum; // one wrong bit anywhere in a member is found
mod npz_corrupt; // and every way to its bytes reports it
mod npz_hostile; // archives that lie, and beyond 32 bits
mod safetensors_header; // headers that are odd, broken, or that the reference reader passes over
mod shards; // shards with an index are one file
mod symbol; // the variables that MXNet finds in a symbol; parameters against it
mod topology; // the layers of a prototxt, of weights, of a symbol

// Formats written, each byte against what its own framework wrote.
mod caffe_convert; // conversions to Caffe's files; sources that change, work that breaks off
mod caffe_splice; // a net with other values, layers, names; every other byte stays
mod caffe_write; // messages as Caffe and prost write them
mod hdf5_convert; // Caffe's HDF5 in every conversion and command, against its protobuf file
mod hdf5_write; // what is read again, what is refused
mod mxnet_write; // every version as its MXNet wrote it
mod neoml_write; // as NeoML stores it, also around other values
mod numpy; // npz files read by NumPy itself
mod shards_write; // as Hugging Face shards
mod writer; // `Writer` over tensors of every kind, also such as do not keep their word
mod written; // safetensors and npy, against other people's readers and writers

// Conversions.
mod convert; // every golden to safetensors and npz, by other readers too; receipts; hostile names
mod damaged; // a converted file that was damaged is never called sound
mod fold_net; // the folded layers leave the net's description
mod fold_refused; // what stays, with its reason
mod folder; // folders: many writers, what is not ours, what lies outside
mod folds; // a fold changes no output; what is told
mod folds_mxnet; // every BatchNorm of MXNet's
mod forward; // what a converted or folded net computes, against OpenCV and MXNet
mod identity; // the same bytes within one format, unless something is asked for
mod matrix; // every golden to every format, verified; one digest of the tensors
mod names; // PyTorch's names, and maps of names
mod npz_frames; // frames of crafted npz files
mod pieces; // and so do values in pieces
mod receipt; // the receipt proves a file without its source
mod regroup; // merge and split, against NumPy
mod replay; // the transforms of a receipt, done again
mod there_and_back; // a file comes back byte for byte by the frame in its receipt
mod transform; // rounding as NumPy rounds; a transform of a user's own
mod transform_order; // layouts, RGB, fully connected weights, shapes from before 2015

// The tool from outside.
mod cli; // hostile names on a terminal; every golden listed and verified
mod cli_help; // help, manual pages, completion in real shells
mod cli_json; // JSON that is whole whatever happens
mod cli_terminal; // colours, broken pipes, signals
mod cli_values; // the values of `show`, `stats`, `extract`
mod cli_width; // tables keep to the terminal and to bounded memory
#[cfg(target_os = "linux")]
mod devices; // `blob devices` on drivers of every kind
mod diff; // `blob diff` against NumPy
mod examples; // every example of the help and the README runs
mod hash; // digests against b3sum, sha256sum and Python
mod plot; // pictures against NumPy
mod report; // pages: nothing in them is markup of a file's
mod scarce; // where no threads start, the same bits
mod schemas; // its JSON against the schemas that it prints
#[cfg(unix)]
mod sessions; // commands and all that they print: `tests/sessions/*.txt`
mod snapshots; // what it looks like on terminals: `tests/snapshots/*.txt`

// Memory, blobs and operations, against tables of the real Caffe and NeoML.
mod axes; // shapes, axes, counts, offsets
mod blobs; // reshaping, sharing, copying; odd blobs
mod conformance; // the conformance suite finds each wrong backend
mod element; // element-wise operations and sums of Caffe
mod element_neoml; // and of NeoML
mod moved; // exactly which bytes the usual sequences move
mod moves; // merge, split, transpose of NeoML
mod neoml_misuse; // what NeoML does when it is misused, and what happens here
mod synced; // every transition of `SyncedMemory`, and what it costs
mod synced_blobs; // blobs on a device, and what they cost
mod windows; // windows: upstream's tests, a table, a model
