//! Reads bytes as neoml.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blob_fuzz::target(Some("neoml"), bytes));
