//! Reads bytes as onnx.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blob_fuzz::target(Some("onnx"), bytes));
