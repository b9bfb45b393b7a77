//! Why a file was refused, as a code that a script can select on: one word for each kind of trouble, and it stays.
//!
//! Each is chosen where the error is made, never read out of its text. Leaves the words for people to `error`.

use std::fmt;
use std::io;

/// Why a file, an array or a request was refused.
///
/// The codes ([`Reason::as_str`]) are stable: scripts may compare them. New ones may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// `missing`: there is no such file or folder.
    Missing,
    /// `denied`: the operating system does not allow it.
    Denied,
    /// `directory`: a folder where a file is expected.
    Directory,
    /// `empty`: a file of 0 bytes.
    Empty,
    /// `html`: a web page that a server sent in place of the file.
    Html,
    /// `lfs-pointer`: a Git LFS pointer in place of the file.
    LfsPointer,
    /// `compressed`: one compressed file, which has to be unpacked first.
    Compressed,
    /// `archive`: an archive of files that are no arrays, which has to be unpacked first.
    Archive,
    /// `truncated`: the file, or a part of it, ends too early.
    Truncated,
    /// `unsupported`: a sound file or array of a kind that this crate does not read or cannot compute on.
    Unsupported,
    /// `not-tensors`: something else than tensors: text, an image, a program, a network's description.
    NotTensors,
    /// `unknown`: bytes of no format that this crate knows.
    Unknown,
    /// `malformed`: the bytes are not what their format says.
    Malformed,
    /// `checksum`: the bytes do not have the checksum that the file has of them.
    Checksum,
    /// `limit`: more than a limit allows; the limits can be raised for a file that one trusts.
    Limit,
    /// `memory`: there is not enough memory.
    Memory,
    /// `io`: the operating system failed to read or write.
    Io,
    /// `request`: what was asked does not fit the file.
    Request,
    /// `interrupted`: the caller stopped it.
    Interrupted,
}

impl Reason {
    /// Every reason.
    pub const ALL: &'static [Self] = &[
        Self::Missing,
        Self::Denied,
        Self::Directory,
        Self::Empty,
        Self::Html,
        Self::LfsPointer,
        Self::Compressed,
        Self::Archive,
        Self::Truncated,
        Self::Unsupported,
        Self::NotTensors,
        Self::Unknown,
        Self::Malformed,
        Self::Checksum,
        Self::Limit,
        Self::Memory,
        Self::Io,
        Self::Request,
        Self::Interrupted,
    ];

    /// The code: lower-case words joined by `-`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.texts().0
    }

    /// What the code means, in a few words: for tables of all codes.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.texts().1
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Missing => ("missing", "there is no such file or folder"),
            Self::Denied => ("denied", "the operating system does not allow it"),
            Self::Directory => ("directory", "a folder where a file is expected"),
            Self::Empty => ("empty", "a file of 0 bytes"),
            Self::Html => ("html", "a web page that a server sent in place of the file"),
            Self::LfsPointer => ("lfs-pointer", "a Git LFS pointer in place of the file"),
            Self::Compressed => ("compressed", "a compressed file, which has to be unpacked first"),
            Self::Archive => ("archive", "an archive of files that are no arrays, which has to be unpacked first"),
            Self::Truncated => ("truncated", "the file, or a part of it, ends too early"),
            Self::Unsupported => {
                ("unsupported", "a sound file or array of a kind that is not read, or cannot be computed on")
            }
            Self::NotTensors => ("not-tensors", "text, an image, a program, a network's description"),
            Self::Unknown => ("unknown", "bytes of no known format"),
            Self::Malformed => ("malformed", "the bytes are not what their format says"),
            Self::Checksum => ("checksum", "the bytes do not have the checksum that the file has of them"),
            Self::Limit => ("limit", "more than a limit allows"),
            Self::Memory => ("memory", "there is not enough memory"),
            Self::Io => ("io", "the operating system failed to read or write"),
            Self::Request => ("request", "what was asked does not fit the file"),
            Self::Interrupted => ("interrupted", "it was stopped before its end"),
        }
    }

    /// Why the operating system refused.
    pub(crate) fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::PermissionDenied => Self::Denied,
            io::ErrorKind::IsADirectory => Self::Directory,
            io::ErrorKind::OutOfMemory => Self::Memory,
            _ => Self::Io,
        }
    }

    /// Why a blob could not be made.
    pub(crate) fn of_blob(error: &blob_core::Error) -> Self {
        match error {
            blob_core::Error::Memory(_) | blob_core::Error::BlobTooLarge { .. } => Self::Memory,
            _ => Self::Request,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
