//! How a command ends: its status, or the failure that stopped it, with what the user can do about it.

use std::fmt;
use std::io;

/// How a command that ran to its end answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// Yes, or simply done: exit code 0.
    Yes,
    /// The answer is no: exit code 1.
    No,
    /// A file is broken or cannot be read; the user was told: exit code 2.
    Trouble,
}

impl Status {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Trouble => 2,
        }
    }
}

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit code 2.
    Trouble {
        message: String,
        help: Option<String>,
    },
    /// The answer is no: exit code 1.
    No {
        message: String,
        help: Option<String>,
    },
    /// A signal: exit code 130.
    Interrupted,
    /// Whoever read our output has gone. Nothing to say, exit code 0.
    ReaderGone,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Trouble {
            message: message.into(),
            help: None,
        }
    }

    pub(crate) fn no(message: impl Into<String>) -> Self {
        Self::No {
            message: message.into(),
            help: None,
        }
    }

    pub(crate) fn help(mut self, text: impl Into<String>) -> Self {
        if let Self::Trouble { help, .. } | Self::No { help, .. } = &mut self {
            *help = Some(text.into());
        }
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trouble { message, .. } | Self::No { message, .. } => f.write_str(message),
            Self::Interrupted => f.write_str("interrupted"),
            Self::ReaderGone => f.write_str("the reader of the output has gone"),
        }
    }
}

impl From<blob_io::Error> for Failure {
    fn from(e: blob_io::Error) -> Self {
        match &e {
            blob_io::Error::Interrupted => Self::Interrupted,
            blob_io::Error::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
                Self::ReaderGone
            }
            _ => Self::Trouble {
                message: e.to_string(),
                help: e.help().map(str::to_owned),
            },
        }
    }
}

/// What writing to standard output returns.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::new(format!("cannot write to standard output: {e}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_pipe_is_no_error() {
        let gone: Failure = io::Error::from(io::ErrorKind::BrokenPipe).into();
        assert!(matches!(gone, Failure::ReaderGone));
        let full: Failure = io::Error::from(io::ErrorKind::StorageFull).into();
        assert!(
            full.to_string()
                .starts_with("cannot write to standard output")
        );
    }

    #[test]
    fn the_worse_status_is_the_greater_one() {
        assert_eq!(
            Status::Yes.max(Status::No).max(Status::Trouble),
            Status::Trouble
        );
        let codes = [Status::Yes, Status::No, Status::Trouble].map(Status::code);
        assert_eq!(codes, [0, 1, 2]);
    }
}
