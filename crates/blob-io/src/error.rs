//! What can go wrong while a file is read or written: one error type. What is wrong with bytes is a [`Fault`] in it.
//!
//! Relies on nothing; leaves the wording for terminals (`error:`, `help:`) to the tool.

mod fault;
mod reason;

use std::fmt;
use std::io;

pub use fault::Fault;
pub(crate) use fault::What;
pub use reason::Reason;

/// Why a file could not be opened, read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read or write.
    Io {
        /// The file, as it was named when it was opened.
        file: String,
        /// What was being done: "open", "read 16 bytes at byte 40", "rename over the target".
        action: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// The bytes are not what the format says.
    Malformed {
        /// The file, as it was named when it was opened.
        file: String,
        /// The array or layer concerned, where one is known: `array "conv1/0"`, `layer #41 "conv4_2"`.
        subject: Option<String>,
        /// Where, what was expected, what was found.
        fault: Box<Fault>,
        /// How many arrays before it were found whole, where the walk over the file stopped here.
        intact: Option<usize>,
    },
    /// The file is something else than a tensor file that this crate reads.
    NotTensors {
        /// The file, as it was named when it was opened.
        file: String,
        /// Which kind of other file.
        reason: Reason,
        /// What the file is, in words: "an HTML page, not a model".
        what: String,
        /// What the user can do about it, where we know.
        help: Option<&'static str>,
    },
    /// The array is sound and of a kind that this crate cannot do this with: float8 as a blob, an encrypted member.
    Unsupported {
        /// The file, as it was named when it was opened.
        file: String,
        /// Which array and why, in words.
        message: String,
    },
    /// There is not enough memory.
    Memory {
        /// The file concerned.
        file: String,
        /// For what, in words.
        message: String,
    },
    /// The request does not fit the file: a wrong kind of entry, a format that cannot hold the tensors.
    Request {
        /// The file concerned.
        file: String,
        /// What was asked and why it cannot be done.
        message: String,
    },
    /// The caller's cancel flag was raised.
    Interrupted,
    /// A blob could not be made: shape, dtype or memory.
    Blob(blob_core::Error),
}

impl Error {
    /// Why, as a stable code.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Io { source, .. } => Reason::of_io(source),
            Self::Malformed { fault, .. } => fault.reason(),
            Self::NotTensors { reason, .. } => *reason,
            Self::Unsupported { .. } => Reason::Unsupported,
            Self::Memory { .. } => Reason::Memory,
            Self::Request { .. } => Reason::Request,
            Self::Interrupted => Reason::Interrupted,
            Self::Blob(error) => Reason::of_blob(error),
        }
    }

    /// The byte offset at which a malformed file breaks, if this is that kind of error.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        match self {
            Self::Malformed { fault, .. } => Some(fault.offset),
            _ => None,
        }
    }

    /// What the user can do about it, where we know.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::NotTensors { help, .. } => *help,
            Self::Malformed { fault, .. } => fault.help(),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { file, action, source } => write!(f, "{file}: cannot {action}: {source}"),
            Self::Malformed { file, subject, fault, .. } => {
                write!(f, "{file}: ")?;
                if let Some(subject) = subject {
                    write!(f, "{subject}: ")?;
                }
                write!(f, "{fault}")
            }
            Self::NotTensors { file, what, .. } => write!(f, "{file} is {what}"),
            Self::Unsupported { file, message } | Self::Memory { file, message } | Self::Request { file, message } => {
                write!(f, "{file}: {message}")
            }
            Self::Interrupted => write!(f, "interrupted"),
            Self::Blob(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Blob(e) => Some(e),
            _ => None,
        }
    }
}

impl From<blob_core::Error> for Error {
    fn from(e: blob_core::Error) -> Self {
        Self::Blob(e)
    }
}

/// Why a walk over a source stopped: the operating system, or the bytes. The file's name is added at the top.
#[derive(Debug)]
pub(crate) enum Stop {
    Io { offset: u64, source: io::Error },
    Fault(Fault),
}

impl Stop {
    pub(crate) fn fault(offset: u64, what: What) -> Self {
        Self::Fault(Fault::new(offset, what))
    }

    pub(crate) fn into_error(self, file: &str, subject: Option<String>) -> Error {
        match self {
            Self::Io { offset, source } => {
                Error::Io { file: file.to_owned(), action: format!("read at byte {offset}"), source }
            }
            Self::Fault(fault) => {
                Error::Malformed { file: file.to_owned(), subject, fault: Box::new(fault), intact: None }
            }
        }
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Why a file was not read: broken (with the layer concerned), or something else (with what to do).
#[derive(Debug)]
pub(crate) enum Refusal {
    Stop(Stop, Option<String>),
    Other(Reason, String, Option<&'static str>),
}

impl Refusal {
    pub(crate) fn into_error(self, file: &str) -> Error {
        match self {
            Self::Stop(stop, subject) => stop.into_error(file, subject),
            Self::Other(reason, what, help) => Error::NotTensors { file: file.to_owned(), reason, what, help },
        }
    }
}

impl From<Stop> for Refusal {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop, None)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Stop(fault.into(), None)
    }
}
