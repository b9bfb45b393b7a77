//! Reads bytes of no stated format.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blob_fuzz::target(None, bytes));
