//! Reads bytes as Caffe's description of a net.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blob_fuzz::prototxt(bytes));
