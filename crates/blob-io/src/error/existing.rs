//! The thing that stands where a file is to be written.

use std::fmt;

/// The thing that exists where a file is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Existing {
    /// A file.
    File,
    /// A folder that an earlier conversion wrote.
    Folder,
    /// A disk: all contents would be lost.
    Disk,
    /// A file that may stay only if it has the bytes of the new one, and has others.
    Different,
}

impl fmt::Display for Existing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File | Self::Folder => "exists",
            Self::Disk => "is a disk",
            Self::Different => "exists with other bytes",
        })
    }
}
