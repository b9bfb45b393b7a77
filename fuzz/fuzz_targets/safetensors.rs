//! Reads bytes as safetensors.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blob_fuzz::target(Some("safetensors"), bytes));
