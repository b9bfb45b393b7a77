//! Bytes and their origin: sources, a checked cursor, the tokens of headers, spooled streams, gzip, tar.
//!
//! The lowest floor: knows no entry, no name and no format.

pub(crate) mod cursor;
pub(crate) mod gunzip;
pub(crate) mod literal;
#[cfg_attr(feature = "mmap", allow(unsafe_code))]
pub(crate) mod source;
pub(crate) mod spool;
pub(crate) mod tar;
