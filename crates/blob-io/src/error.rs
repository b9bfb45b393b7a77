//! The one error type of reading and writing files. A fault of bytes is a [`Fault`] in the error.
//! Relies on nothing; leaves the wording for terminals (`error:`, `help:`) to the tool.

mod existing;
mod fault;
mod reason;
mod remedy;

use std::fmt;
use std::io;

use crate::limits::Limit;
use crate::words::{LONGEST_NAME, and_more, shown};

pub use existing::Existing;
pub use fault::Fault;
pub(crate) use fault::{FaultKind, check_limit};
pub use reason::Reason;
pub use remedy::Remedy;

/// How many members of an archive an error's text names.
const LISTED: usize = 20;

/// Why a file could not be opened, read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system could not read or write.
    Io {
        /// The file's name, as given on opening.
        file: String,
        /// The action that failed: "read 16 bytes at byte 40", "rename over the target".
        action: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The operating system could not open the file that was asked for; for one that another file names: `Io`.
    Open {
        /// The file's name, as given.
        file: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The bytes break the format's rules.
    Malformed {
        /// The file's name, as given on opening.
        file: String,
        /// The array or layer concerned, where one is known: `array "conv1/0"`, `layer #41 "conv4_2"`.
        subject: Option<String>,
        /// The place, the expectation, the finding.
        fault: Box<Fault>,
        /// How many arrays before the fault were found whole, where the walk over the file stopped here.
        intact: Option<usize>,
    },
    /// Valid as far as the file was read, but more than a limit allows.
    LimitExceeded {
        /// The file's name, as given on opening.
        file: String,
        /// The array or layer concerned, where one is known.
        subject: Option<String>,
        /// Which limit.
        limit: Limit,
        /// The file's need; for a stream, the bytes that had been read.
        needed: u64,
        /// The place, and the quantity over the limit.
        fault: Box<Fault>,
        /// How many arrays before the fault were found whole, where the walk over the file stopped here.
        intact: Option<usize>,
    },
    /// The file is not a tensor file that this crate reads.
    NotTensors {
        /// The file's name, as given on opening.
        file: String,
        /// Which kind of other file.
        reason: Reason,
        /// The file's kind, in words: "an HTML page, not a model".
        what: String,
        /// The user's next step, where we know one.
        help: Option<&'static str>,
    },
    /// The array is valid, but of a kind that this crate cannot do this with: float8 as a blob, an encrypted member.
    Unsupported {
        /// The file's name, as given on opening.
        file: String,
        /// Which array and why, in words.
        message: String,
    },
    /// There is not enough memory.
    Memory {
        /// The file concerned.
        file: String,
        /// The purpose, in words.
        message: String,
    },
    /// The request does not fit the file: a wrong kind of entry, a format that cannot hold the tensors.
    Request {
        /// The file concerned; empty for a refusal by a layout, see [`Error::about`].
        file: String,
        /// The request, and the reason for the refusal.
        message: String,
    },
    /// An archive with several tensor files, where one is opened.
    Several {
        /// The archive's name, as given.
        file: String,
        /// Whether the archive has no path that could go on to a member: a caller of
        /// [`OpenOptions::open_stream`](crate::OpenOptions::open_stream) sets this.
        is_stream: bool,
        /// The names of the first 256 tensor files; each is opened as `FILE/NAME`.
        members: Vec<String>,
        /// How many more tensor files the archive has.
        more: u64,
    },
    /// Tensors that the output's format, or the form that was asked for, cannot hold. Nothing was written.
    Misfit {
        /// The file concerned; empty for a refusal by a layout, see [`Error::about`].
        file: String,
        /// Which tensors and why, for the first twenty such tensors.
        message: String,
        /// The remedy for the first such tensor that has one.
        remedy: Option<Remedy>,
    },
    /// The target exists, and only [`IfExists::Replace`](crate::IfExists::Replace) replaces a target.
    Exists {
        /// The target's name, as given.
        path: String,
        /// The thing that is there.
        target: Existing,
    },
    /// The caller's cancel flag was raised.
    Interrupted,
    /// A blob could not be made: shape, dtype or memory.
    Blob(blob_core::Error),
}

/// The error of something that was done to a file, such as `read`.
pub(crate) fn failed(file: &str, action: &str, source: io::Error) -> Error {
    Error::Io { file: file.to_owned(), action: action.to_owned(), source }
}

impl Error {
    /// [`Error::Misfit`] about this file.
    #[must_use]
    pub fn misfit(file: impl fmt::Display, message: impl Into<String>, remedy: impl Into<Option<Remedy>>) -> Self {
        Self::Misfit { file: file.to_string(), message: message.into(), remedy: remedy.into() }
    }

    /// Why, as a stable code.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Io { source, .. } | Self::Open { source, .. } => Reason::of_io(source),
            Self::Malformed { fault, .. } | Self::LimitExceeded { fault, .. } => fault.reason(),
            Self::NotTensors { reason, .. } => *reason,
            Self::Unsupported { .. } | Self::Misfit { remedy: Some(Remedy::SkipUnsupported), .. } => {
                Reason::Unsupported
            }
            Self::Memory { .. } => Reason::Memory,
            Self::Request { .. } | Self::Several { .. } | Self::Misfit { .. } | Self::Exists { .. } => Reason::Request,
            Self::Interrupted => Reason::Interrupted,
            Self::Blob(error) => Reason::of_blob(error),
        }
    }

    /// The name of the file concerned, as given.
    #[must_use]
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::Io { file, .. }
            | Self::Open { file, .. }
            | Self::Malformed { file, .. }
            | Self::LimitExceeded { file, .. }
            | Self::NotTensors { file, .. }
            | Self::Unsupported { file, .. }
            | Self::Memory { file, .. }
            | Self::Request { file, .. }
            | Self::Several { file, .. }
            | Self::Misfit { file, .. }
            | Self::Exists { path: file, .. } => (!file.is_empty()).then_some(file),
            Self::Interrupted | Self::Blob(_) => None,
        }
    }

    /// The array or layer concerned, where one is known: `array "conv1/0"`, `layer #41 "conv4_2"`.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        match self {
            Self::Malformed { subject, .. } | Self::LimitExceeded { subject, .. } => subject.as_deref(),
            _ => None,
        }
    }

    /// The fault of the bytes, where a fault is the reason.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::Malformed { fault, .. } | Self::LimitExceeded { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// How many arrays were found whole before the place where the walk over a file stopped.
    #[must_use]
    pub fn intact(&self) -> Option<usize> {
        match self {
            Self::Malformed { intact, .. } | Self::LimitExceeded { intact, .. } => *intact,
            _ => None,
        }
    }

    /// The byte offset at which a malformed file breaks, if this is that kind of error.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.fault().map(Fault::offset)
    }

    /// The user's next step, where we know one.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::NotTensors { help, .. } => *help,
            _ => self.fault()?.help(),
        }
    }

    /// Puts the file's name into a refusal by a [`Layout`](crate::layout::Layout), which knows only a format; other
    /// errors stay unchanged.
    #[must_use]
    pub fn about(mut self, name: &str) -> Self {
        if let Self::Request { file, .. } | Self::Misfit { file, .. } = &mut self
            && file.is_empty()
        {
            name.clone_into(file);
        }
        self
    }

    /// The error of a fault in a file's bytes.
    pub(crate) fn of_fault(file: &str, mut fault: Fault, intact: Option<usize>) -> Self {
        let (file, subject) = (file.to_owned(), fault.subject.take().map(|subject| *subject));
        match fault.kind {
            FaultKind::Limit { limit, needed, .. } => {
                Self::LimitExceeded { file, subject, limit, needed, fault: Box::new(fault), intact }
            }
            _ => Self::Malformed { file, subject, fault: Box::new(fault), intact },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { file, action, source } => write!(f, "{file}: cannot {action}: {source}"),
            Self::Open { file, source } => write!(f, "{file}: cannot open: {source}"),
            Self::Malformed { file, subject, fault, .. } | Self::LimitExceeded { file, subject, fault, .. } => {
                write!(f, "{file}: ")?;
                if let Some(subject) = subject {
                    write!(f, "{subject}: ")?;
                }
                write!(f, "{fault}")
            }
            Self::NotTensors { file, what, .. } => write!(f, "{file} is {what}"),
            Self::Request { file, message } | Self::Misfit { file, message, .. } if file.is_empty() => {
                f.write_str(message)
            }
            Self::Unsupported { file, message }
            | Self::Memory { file, message }
            | Self::Request { file, message }
            | Self::Misfit { file, message, .. } => write!(f, "{file}: {message}"),
            Self::Several { file, is_stream, members, more } => several(f, file, *is_stream, members, *more),
            Self::Exists { path, target } => write!(f, "{path}: {target}"),
            Self::Interrupted => write!(f, "interrupted"),
            Self::Blob(e) => write!(f, "{e}"),
        }
    }
}

/// Lists the files of an archive that can be opened.
fn several(f: &mut fmt::Formatter<'_>, file: &str, is_stream: bool, members: &[String], more: u64) -> fmt::Result {
    let listed: Vec<String> = members.iter().take(LISTED).map(|member| shown(member)).collect();
    let count = members.len() as u64 + more;
    let more = and_more(members.len() - listed.len() + more as usize);
    write!(f, "{file}: holds {count} tensor files: {}{more}", listed.join(", "))?;
    if is_stream {
        return write!(f, "; choose one by its name");
    }
    write!(f, "; choose one by its path")?;
    match members.first().filter(|first| first.len() <= LONGEST_NAME) {
        Some(first) => write!(f, ": {file}/{first}"),
        None => write!(f, ", {file}/ before its name"),
    }
}

/// An error's text includes the text of the immediate cause, so the chain of sources goes on after that cause.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::Open { source, .. } => source.source(),
            Self::Blob(e) => e.source(),
            _ => None,
        }
    }
}

impl From<blob_core::Error> for Error {
    fn from(e: blob_core::Error) -> Self {
        Self::Blob(e)
    }
}

/// Why reading stopped: the operating system, the bytes, or a file of another kind. Callers add the file's name.
#[derive(Debug)]
pub(crate) enum ReadError {
    Io {
        offset: u64,
        source: io::Error,
    },
    Fault(Fault),
    /// The file's kind, and the user's next step.
    Other(Reason, String, Option<&'static str>),
}

impl ReadError {
    pub(crate) fn fault(offset: u64, kind: FaultKind) -> Self {
        Self::Fault(Fault::new(offset, kind))
    }

    /// Adds the array or layer concerned.
    pub(crate) fn within(mut self, subject: String) -> Self {
        if let Self::Fault(fault) = &mut self {
            fault.subject = Some(Box::new(subject));
        }
        self
    }

    pub(crate) fn into_error(self, file: &str) -> Error {
        match self {
            Self::Io { offset, source } => failed(file, &format!("read at byte {offset}"), source),
            Self::Fault(fault) => Error::of_fault(file, fault, None),
            Self::Other(reason, what, help) => Error::NotTensors { file: file.to_owned(), reason, what, help },
        }
    }
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
