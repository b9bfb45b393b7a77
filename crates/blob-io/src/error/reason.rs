//! Why a file was refused or differs, as a code that a script can select on: one stable word for each kind of problem.
//!
//! The one table of all crates and the tool: JSON, docs and exit codes come from here. Each is chosen where the problem
//! is found, never parsed from a text. Leaves the texts for people to `error`.

use std::fmt;
use std::io;

/// The one table: each reason with code and meaning.
macro_rules! reasons {
    ($($reason:ident, $code:literal, $meaning:literal;)*) => {
        /// Why a file, an array or a request was refused, or is not as another file says.
        ///
        /// The codes ([`Reason::as_str`]) are stable: your scripts may compare codes. New ones may come.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $(#[doc = concat!("`", $code, "`: ", $meaning, ".")] $reason,)*
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$reason,)*];

            fn texts(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$reason => ($code, $meaning),)*
                }
            }
        }
    };
}

reasons! {
    Missing, "missing", "there is no such file or folder";
    Denied, "denied", "the operating system does not allow it";
    Directory, "directory", "a folder where a file is expected";
    Empty, "empty", "a file of 0 bytes";
    Html, "html", "a web page or a message that a server sent in place of the file";
    LfsPointer, "lfs-pointer", "a Git LFS pointer in place of the file";
    Compressed, "compressed", "a compressed file, which has to be unpacked first";
    Archive, "archive", "an archive of files that are no arrays, which has to be unpacked first";
    Truncated, "truncated", "the file, or a part of it, ends too early";
    Unsupported, "unsupported", "a sound file or array of a kind that is not read, or cannot be computed on";
    NotTensors, "not-tensors", "text, an image, a program, a network's description";
    Unknown, "unknown", "bytes of no known format";
    Malformed, "malformed", "the bytes are not what their format says";
    Checksum, "checksum", "the bytes do not have the checksum that the file has of them";
    Limit, "limit", "more than a limit allows";
    Memory, "memory", "there is not enough memory";
    Io, "io", "the operating system failed to read or write";
    Request, "request", "what was asked does not fit the file";
    Interrupted, "interrupted", "it was stopped before its end";
    Usage, "usage", "the request makes no sense, or not for this file";
    NoMatch, "no-match", "no tensor is what was asked for";
    Warning, "warning", "with --strict: something is odd";
    Sha256, "sha256", "the file has another SHA-256 than the one of --sha256";
    Unread, "unreadable", "a tensor was not compared, because it cannot be read";
    NotFinite, "not-finite", "NaN or Inf among the values";
    NotBool, "not-bool", "a byte of a bool tensor is neither 0 nor 1";
    Absent, "absent", "the tensor is missing from one of the two files";
    Kind, "kind", "the tensor is an auxiliary state in one of the two files, and none in the other";
    Shape, "shape", "the tensor has another shape in the other file";
    DType, "dtype", "the tensor has another dtype in the other file";
    Differs, "differs", "the tensor has another value in the other file";
    Receipt, "receipt", "the tensor is not what the receipt says was written";
}

impl Reason {
    /// The code: lower-case words joined by `-`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.texts().0
    }

    /// The meaning of the code, in a few words: for tables of all codes.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.texts().1
    }

    /// Whether the file is broken for certain, whoever reads the file. Otherwise the file may be sound: not supported,
    /// too large for a limit, not to be read by this user.
    #[must_use]
    pub fn is_broken(self) -> bool {
        use Reason::{Checksum, Empty, Html, LfsPointer, Malformed, Truncated};
        matches!(self, Empty | Html | LfsPointer | Truncated | Malformed | Checksum)
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
