//! Tests of blob's promises, one module each; run with `cargo test -p blob-tests`. The lists below are an overview.
//!
//! Real models are tested if `BLOB_REAL_DATA` names their folder. The tests count and report the files they ran.

#![cfg(test)]

// Shared helpers: runs of the tool, folders, builders of files, counted allocations.
mod support;

// All formats: names, limits, reasons, files of other kinds.
mod attacks; // attacks that once got through, by name: each is held off
mod claimless_receipt; // a receipt that claims nothing is not believed
mod edited_receipt; // each edited field that claims something is noticed
mod every_edit; // each field of many receipts, edited in each way
mod failing_reads; // sources whose reads fail once: no error is lost
mod hostile; // every golden truncated, changed byte by byte, with extreme lengths: no panic, bounded memory
mod hostile_random; // goldens with random changes, as many as a campaign asks for
mod hostile_receipt; // receipts that lie: frames, transforms
mod kept_bits; // bf16 that is stored as u16 is bf16 for every command
mod kinds; // files of other programs are named; arrays of other dtypes are listed
mod lazy; // a lazy blob is what `load` gives, and the bytes are read that are asked for
mod limits; // nets that Caffe accepts and should not; models of many pieces, within their limits
mod proved; // receipts against files: earlier sources, names that come back, a solver's history, unread arrays
mod random_receipt; // random transforms on odd shapes, receipts of random bytes
mod random_transform; // random transforms on random nets and on changed goldens
mod reader; // the pull reader gives what `load` gives, whatever the sizes of the reads
mod reasons; // each kind of error has its code, which never changes
mod remade_receipt; // a receipt is the one that the conversion gives when it is planned again
#[cfg(unix)]
mod salvage; // of a truncated file the complete tensors are listed, and it never passes as whole
mod told_apart; // files that begin like something else; the caller's format wins
mod work; // the work and the memory of every reader grow linearly with its hostile files

// Formats read: each golden file is compared with the reading of its own framework.
mod archives; // a member of a tar or zip is read like a file of its own
mod blobproto; // BlobProtos of every writer; ShapeEquals
mod caffe; // nets, vectors, datums: shapes and checksums that Caffe computed
mod caffe_oracle; // generated nets, against prost
mod gzip; // a gzip file is read as what it unpacks to; bombs, truncated and endless streams
mod hdf5; // Caffe's HDF5 against its protobuf files; every layout of h5py
mod hdf5_compact; // values within a header
mod hdf5_links; // every name of a dataset is listed; links of each kind; shared lists and heaps are read once
mod mxnet; // records of every version against NumPy; every malformed file has its outcome
mod neoml_malformed; // files on which the real NeoML was tried
mod neoml_read; // blobs and nets against the tables of the real NeoML
mod npy; // npy of NumPy, MXNet 2 and `npyz`; odd and broken headers
mod npz; // npz of NumPy, SciPy, MXNet 2 and the `zip` crate
mod npz_checksum; // one wrong bit anywhere in a member is detected
mod npz_corrupt; // and every way to read its bytes reports it
mod npz_hostile; // archives with false sizes and offsets, and beyond 32 bits
mod onnx; // models of onnx and PyTorch; typed and external values; values put into a model
mod safetensors_header; // headers that are odd, broken, or accepted by the reference reader
mod shards; // shards with an index are read as one file
mod symbol; // the variables that MXNet finds in a symbol; parameters against it
mod topology; // the layers of a prototxt, of weights, of a symbol

// Formats written: each byte is compared with a file of its own framework.
mod caffe_convert; // conversions to Caffe's files; sources that change, conversions that are interrupted
mod caffe_splice; // a net gets other values, layers, names; every other byte stays
mod caffe_write; // messages as Caffe and prost write them
mod hdf5_convert; // Caffe's HDF5 in every conversion and command, against its protobuf file
mod hdf5_write; // written files are read back; tensors that HDF5 cannot hold are refused
mod mxnet_write; // every version as its MXNet wrote it
mod neoml_write; // as NeoML stores it, also around other values
mod numpy; // npz files read by NumPy itself
mod shards_write; // as Hugging Face shards
mod writer; // `Writer` over tensors of every kind, also ones that give other bytes than they promise
mod written; // safetensors and npy, against other people's readers and writers

// Conversions.
#[cfg(unix)]
mod batch; // many conversions, killed and run again; a line each
#[cfg(unix)]
mod batch_done; // when a job of a batch is done, and why it is done again
mod changes; // what a conversion changes is said, and nothing else
mod channels_last; // values with the channels last, of NHWC nets and for TensorFlow, against naive layers
mod convert; // receipts, pipes, interruptions, hostile names
mod damaged; // a converted file that was damaged never passes `verify`
mod diffs; // diffs keep with their data
mod divided; // several files of one conversion, each proved alone
mod fc_sizes; // a dense layer reads what the net says
mod fold_net; // the folded layers are removed from the net's description
mod folder; // folders: many writers, foreign files
mod folds; // a fold changes no output; layers that are not folded, with the reason
mod folds_mxnet; // every BatchNorm of MXNet's
mod following; // what nets compute with images as RGB, or flattened with the channels last
mod forward; // what a converted or folded net computes, against OpenCV and MXNet
mod histories; // conversions one after the other are proved from the first file
mod identity; // options that change the bytes of a conversion within one format
#[cfg(target_os = "linux")]
mod killed_files; // a conversion that is killed leaves the folder as it was
#[cfg(unix)]
mod killed_pairs; // two files of one net stay of one net when the tool is killed
mod later_steps; // what a receipt says was done counts in every later step
mod matrix; // every golden to every format, verified; one digest of the tensors
mod merged; // merge: metadata, counters, receipts that lie, names that clash
mod names; // PyTorch's names, and maps of names
mod nets; // which net a conversion follows, and what it then computes, against OpenCV and MXNet
mod nets_odd; // layers of nets that share, lack or hide their tensors
mod npz_frames; // frames of crafted npz files
mod onnx_graph; // nets as ONNX, run by a naive interpreter, against Caffe
mod onnx_outside; // values in a file beside the model, by protobuf's own rules
mod onnx_receipt; // an edited graph, and a receipt that lies about one, never pass
mod own_values; // values of a net's own, learnt, constant or computed, are none of its inputs
mod pieces; // values stored in pieces, as protobuf allows, are restored where they were
mod positions; // channels and positions that reach weights by many operators: the same result, or what stays
mod prototxts; // texts of nets that Caffe upgrades or refuses
mod readers; // tensors that several parts of a net read
mod receipt; // the receipt proves a file without its source; other readers find the same bytes
mod recipe; // a conversion as data, in and out of JSON; what is no recipe
mod regroup; // merge and split, against NumPy
mod replay; // the transforms of a receipt are repeated
mod steps; // small files and nets: what each step changes, tells, leaves out or refuses
mod there_and_back; // every file within its format, and to others and back, byte for byte
mod transform; // rounding as NumPy rounds; a transform of a user's own
mod transform_order; // layouts, RGB, fully connected weights, shapes from before 2015
mod weight_axes; // the axes of convolutions' weights are those that MXNet infers

// The tool from outside.
mod cli; // hostile names on a terminal; every golden listed and verified
mod cli_help; // help, manual pages, completion in real shells
mod cli_json; // JSON is complete even after an error
mod cli_rules; // rules of all commands: errors as JSON, dry runs, terminals
mod cli_terminal; // colours, broken pipes, signals
mod cli_values; // the values of `show`, `stats`, `extract`
mod cli_width; // tables keep to the terminal and to bounded memory
mod completion; // completion of hostile names in interactive shells
mod diff; // `blob diff` against NumPy
mod examples; // every example of the help and the README runs
mod hash; // digests against b3sum, sha256sum and Python
mod lookalikes; // stored names that look like those that blob gives, in every command
#[cfg(unix)]
mod next_steps; // each command that a help line names is one that the tool takes
mod plot; // pictures against NumPy
mod report; // HTML pages: no text of a file becomes markup
mod scarce; // if no threads can be started, the results have the same bits
mod schemas; // its JSON against the schemas that it prints
#[cfg(unix)]
mod sessions; // commands and their complete output: `tests/sessions/*.txt`

// Memory, blobs and operations, against tables of the real Caffe and NeoML.
mod axes; // shapes, axes, counts, offsets
mod blobs; // reshaping, sharing, copying; odd blobs
mod conformance; // the conformance suite finds each wrong backend
mod element; // element-wise operations and sums of Caffe
mod element_neoml; // and of NeoML
mod moved; // exactly which bytes common sequences of accesses transfer
mod moves; // merge, split, transpose of NeoML
mod neoml_misuse; // what NeoML does when misused, and what blob does
mod synced; // every transition of `SyncedMemory`, and what it costs
mod synced_blobs; // blobs on a device, and what they cost
mod windows; // windows: upstream's tests, a table, a model
