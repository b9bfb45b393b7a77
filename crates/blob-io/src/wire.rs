//! Bytes and their origin: sources, a checked cursor, the tokens of headers, protobuf's fields, spooled streams, gzip,
//! tar.
//!
//! The lowest floor: knows no entry, no name and no format.

pub(crate) mod cursor;
pub(crate) mod gunzip;
pub(crate) mod literal;
pub(crate) mod protobuf;
pub(crate) mod sink;
#[cfg_attr(feature = "mmap", allow(unsafe_code))]
pub(crate) mod source;
pub(crate) mod spool;
pub(crate) mod tar;
