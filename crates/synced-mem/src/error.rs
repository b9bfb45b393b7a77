//! Everything that can go wrong with memory, as one enum.
//! An error carries the numbers that a message needs; it knows no element type, no file.

use std::fmt;
use std::ops::Range;

/// What a borrow of a byte range may do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// The bytes are only read; any number of readers may overlap.
    Read,
    /// The bytes may be written; nobody else may overlap.
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
        })
    }
}

/// A failed memory operation. Whatever failed, the memory is as it was before.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The allocator had no block of this size, or no block can be this large.
    #[non_exhaustive]
    OutOfMemory {
        /// The length asked for, in bytes.
        bytes: usize,
    },
    /// A range does not lie within the memory, or ends before it starts.
    #[non_exhaustive]
    OutOfBounds {
        /// The byte range asked for.
        range: Range<usize>,
        /// The length of the memory, in bytes.
        len: usize,
    },
    /// Two borrows overlap and at least one of them writes.
    #[non_exhaustive]
    Conflict {
        /// What was asked for.
        wanted: Access,
        /// The byte range asked for.
        wanted_range: Range<usize>,
        /// What the borrow in the way does.
        held: Access,
        /// The byte range of the borrow in the way.
        held_range: Range<usize>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::OutOfMemory { bytes } => {
                write!(f, "out of memory: no host block of {bytes} bytes")
            }
            Error::OutOfBounds { range, len } => write!(
                f,
                "byte range {}..{} does not lie within a memory of {len} bytes",
                range.start, range.end
            ),
            Error::Conflict {
                wanted,
                wanted_range,
                held,
                held_range,
            } => write!(
                f,
                "cannot {wanted} bytes {}..{}: bytes {}..{} are borrowed to {held}",
                wanted_range.start, wanted_range.end, held_range.start, held_range.end
            ),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_numbers() {
        let conflict = Error::Conflict {
            wanted: Access::Write,
            wanted_range: 4..12,
            held: Access::Read,
            held_range: 0..8,
        };
        assert_eq!(
            conflict.to_string(),
            "cannot write bytes 4..12: bytes 0..8 are borrowed to read"
        );
        let bounds = Error::OutOfBounds {
            range: 3..9,
            len: 8,
        };
        assert_eq!(
            bounds.to_string(),
            "byte range 3..9 does not lie within a memory of 8 bytes"
        );
        let memory = Error::OutOfMemory { bytes: 77 };
        assert_eq!(
            memory.to_string(),
            "out of memory: no host block of 77 bytes"
        );
    }
}
