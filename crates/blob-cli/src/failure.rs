//! The result of a command: a status, or the failure that stopped the command, with help for the user.

use std::path::Path;
use std::{fmt, fs, io};

use blob_convert::report::json;
pub(crate) use blob_convert::report::problem::Problem;
use blob_io::{Error, Reason};
use serde_json::Value;

use crate::nearest::nearest;

/// The advice where layers are in some phases of the net only.
pub(crate) const TESTED_NET: &str = "name the net as it is used after training: --net deploy.prototxt";

/// At most this many files are looked at for one with a similar name.
const MAX_BESIDE: usize = 10_000;

/// The status of a command that finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    /// Success: exit code 0.
    Yes,
    /// The answer is no: exit code 1.
    No,
    /// A file is broken or cannot be read, which was reported: exit code 2.
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
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// Exit code 2.
    Trouble(Box<Problem>),
    /// The answer is no: exit code 1.
    No(Box<Problem>),
    /// A signal: exit code 130.
    Interrupted(Box<Problem>),
    /// The reader of a listing closed the pipe, having seen enough. Prints nothing, exit code 0.
    ReaderGone,
}

impl Failure {
    /// The request is invalid, or does not apply to this file.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Trouble(Box::new(Problem::new(Reason::Usage, message)))
    }

    /// Nothing in the file matches the request.
    pub(crate) fn no(message: impl Into<String>) -> Self {
        Self::No(Box::new(Problem::new(Reason::NoMatch, message)))
    }

    /// A signal stopped the work.
    pub(crate) fn interrupted() -> Self {
        Self::Interrupted(Box::new(Problem::new(Reason::Interrupted, "interrupted")))
    }

    pub(crate) fn help(mut self, text: impl Into<String>) -> Self {
        if let Self::Trouble(problem) | Self::No(problem) = &mut self {
            problem.help = Some(text.into());
        }
        self
    }

    /// Marks a failure that the command's own JSON contains.
    pub(crate) fn in_json(mut self) -> Self {
        if let Self::Trouble(problem) | Self::No(problem) | Self::Interrupted(problem) = &mut self {
            problem.is_in_json = true;
        }
        self
    }

    /// The problem to report; `None` if a closed pipe ended the command.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Trouble(problem) | Self::No(problem) | Self::Interrupted(problem) => Some(problem),
            Self::ReaderGone => None,
        }
    }

    /// The status of a command that goes on to the next file.
    pub(crate) fn status(&self) -> Status {
        if matches!(self, Self::No(_)) { Status::No } else { Status::Trouble }
    }

    /// Whether no other file is tried after this one.
    pub(crate) fn is_last(&self) -> bool {
        matches!(self, Self::Interrupted(_) | Self::ReaderGone)
    }

    /// The failure as the field `error` of a JSON object.
    pub(crate) fn as_json(&self) -> Value {
        self.problem().map_or(Value::Null, json::value)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trouble(problem) | Self::No(problem) | Self::Interrupted(problem) => f.write_str(&problem.message),
            Self::ReaderGone => f.write_str("the reader of the output has gone"),
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Trouble(Box::new(problem))
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        match &e {
            Error::Interrupted => Self::interrupted(),
            _ => {
                let problem = Problem::from(&e);
                let help = missing(&e).or(problem.help);
                Self::Trouble(Box::new(Problem { help, ..problem }))
            }
        }
    }
}

/// Help for a file that is not there: one beside it with a similar name, or how to find one.
fn missing(e: &Error) -> Option<String> {
    // A file that another one names, as an index the shards, is no slip.
    let Error::Open { file, .. } = e else { return None };
    let path = Path::new(file);
    let folder = match path.parent()? {
        folder if folder.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    if e.reason() != Reason::Missing || path.exists() {
        return None;
    }
    let Ok(beside) = fs::read_dir(folder) else { return Some(format!("there is no folder {}", folder.display())) };
    let names: Vec<String> =
        beside.take(MAX_BESIDE).filter_map(|file| file.ok()?.file_name().into_string().ok()).collect();
    Some(match nearest(path.file_name()?.to_str()?, names.iter().map(String::as_str)) {
        Some(name) => format!("did you mean {}?", path.with_file_name(name).display()),
        None => format!("`blob ls -r {}` lists the tensor files there", folder.display()),
    })
}

/// An error from writing to standard output.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => {
                let message = format!("cannot write to standard output: {e}");
                Self::Trouble(Box::new(Problem::new(Reason::Io, message)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worse_status_is_the_greater_one() {
        assert_eq!(Status::Yes.max(Status::No).max(Status::Trouble), Status::Trouble);
        let codes = [Status::Yes, Status::No, Status::Trouble].map(Status::code);
        assert_eq!(codes, [0, 1, 2]);
    }
}
