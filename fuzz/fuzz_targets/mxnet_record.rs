//! Reads bytes as mxnet-record.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blob_fuzz::target(Some("mxnet-record"), bytes));
