//! Reads bytes as a net of Caffe's or MXNet's, and makes the ONNX models of it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blob_fuzz::graph(bytes));
