//! Reads bytes as npy.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blob_fuzz::target(Some("npy"), bytes));
