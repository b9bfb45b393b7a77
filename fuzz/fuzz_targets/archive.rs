//! Reads bytes as a tar or zip archive: its one tensor file, one that is named, and the file beside it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| blob_fuzz::archive(bytes));
