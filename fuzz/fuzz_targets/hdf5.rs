//! Reads bytes as hdf5.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blob_fuzz::target(Some("hdf5"), bytes));
