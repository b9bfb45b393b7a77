//! The result of a command: a status, or the failure that stopped the command, with help for the user.

mod remedy;

use std::path::Path;
use std::{fmt, fs, io};

use blob_io::{Entry, Error, Existing, Fault, Limit, Reason, Remedy};
use serde_json::{Value, json};

use crate::json::{self, Field, Fields, Type, field, nullable};
use crate::nearest::nearest;
use crate::units;

/// What helps where layers are in some phases of the net only.
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

/// A problem: text for people, and fields for programs.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) reason: Reason,
    /// The file concerned, if any.
    pub(crate) file: Option<String>,
    /// The array or layer concerned, if known: `array "conv1/0"`.
    pub(crate) subject: Option<String>,
    /// The byte offset in the file, if known.
    pub(crate) offset: Option<u64>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// The library's remedy, for which each command has its own words: see [`Failure::for_command`].
    remedy: Option<Remedy>,
    /// Whether the command's own JSON contains the problem, so that no extra line is printed.
    pub(crate) is_in_json: bool,
}

impl Problem {
    fn new(reason: Reason, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            reason,
            file: None,
            subject: None,
            offset: None,
            message: message.into(),
            help: None,
            remedy: None,
            is_in_json: false,
        })
    }

    /// A tensor that was not compared with the counterpart.
    pub(crate) fn unread(name: &str, why: &str) -> Self {
        *Self::new(Reason::Unread, format!("{name:?} was not compared: {why}"))
    }

    /// The fault of an entry of an open file.
    pub(crate) fn of_fault(file: &str, entry: &Entry, fault: &Fault) -> Self {
        let subject = format!("array {:?}", entry.name());
        Self {
            reason: fault.reason(),
            file: Some(file.to_owned()),
            offset: Some(fault.offset()),
            message: format!("{file}: {subject}: {fault}"),
            subject: Some(subject),
            help: help_of_fault(fault).map(str::to_owned),
            remedy: None,
            is_in_json: false,
        }
    }
}

/// The field `error` of an object.
impl Fields for Problem {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("reason", Type::String, "why, as a stable code", |p| json!(p.reason.as_str())),
            nullable("subject", Type::String, "the array or layer concerned, in words", |p| json!(p.subject)),
            nullable("offset", Type::Integer, "the byte where it breaks", |p| json!(p.offset)),
            field("message", Type::String, "why, in words", |p| json!(p.message)),
            nullable("help", Type::String, "what can be done about it", |p| json!(p.help)),
        ]
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
        Self::Trouble(Problem::new(Reason::Usage, message))
    }

    /// Nothing in the file matches the request.
    pub(crate) fn no(message: impl Into<String>) -> Self {
        Self::No(Problem::new(Reason::NoMatch, message))
    }

    /// A signal stopped the work.
    pub(crate) fn interrupted() -> Self {
        Self::Interrupted(Problem::new(Reason::Interrupted, "interrupted"))
    }

    pub(crate) fn help(mut self, text: impl Into<String>) -> Self {
        if let Self::Trouble(problem) | Self::No(problem) = &mut self {
            problem.help = Some(text.into());
        }
        self
    }

    /// Adds the next step for a user of this command, where the failure has no help yet.
    pub(crate) fn for_command(mut self, command: &str) -> Self {
        if let Self::Trouble(problem) | Self::No(problem) = &mut self
            && problem.help.is_none()
        {
            problem.help = problem.remedy.and_then(|remedy| remedy::help(remedy, command));
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
            _ => Self::Trouble(Box::new(Problem::from(&e))),
        }
    }
}

impl From<&Error> for Problem {
    fn from(e: &Error) -> Self {
        Self {
            reason: e.reason(),
            file: e.file().map(str::to_owned),
            subject: e.subject().map(str::to_owned),
            offset: e.offset(),
            message: match e {
                Error::Exists { target: Existing::Disk, .. } => format!("{e}; --force writes on it"),
                Error::Exists { target: Existing::Different, .. } => e.to_string(),
                Error::Exists { target: Existing::Folder, .. } => {
                    format!("{e}; --force replaces it where its arrays are as they were written")
                }
                Error::Exists { .. } => format!("{e}; --force replaces it"),
                _ => e.to_string(),
            },
            help: salvage(e).or_else(|| missing(e)).or_else(|| help(e).map(str::to_owned)),
            remedy: remedy::of_error(e),
            is_in_json: false,
        }
    }
}

/// Help for a file that breaks off behind whole arrays.
fn salvage(e: &Error) -> Option<String> {
    if matches!(e, Error::LimitExceeded { .. }) {
        return None;
    }
    let arrays = match e.intact()? {
        0 => return None,
        1 => "the array".to_owned(),
        several => format!("the {}", units::plural(several as u64, "array")),
    };
    Some(format!("--salvage takes {arrays} before it"))
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

/// Help for an error, with the tool's option if there is one.
pub(crate) fn help(e: &Error) -> Option<&'static str> {
    match e {
        Error::NotTensors { reason: Reason::Unknown, .. } => {
            Some("`blob formats` lists the formats; --from names one for a file that hides it")
        }
        Error::NotTensors { reason: Reason::Directory, .. } => {
            Some("`blob ls -r` lists the files in a folder; blob reads as one file what `blob convert -o DIR/` wrote")
        }
        Error::Several { is_stream: true, .. } => Some("name it with --member"),
        Error::Exists { target: Existing::Different, .. } => {
            Some("remove it, or put \"if_exists\": \"replace\" into the target of the recipe")
        }
        _ => e.fault().and_then(help_of_fault).or_else(|| e.help()),
    }
}

fn help_of_fault(fault: &Fault) -> Option<&'static str> {
    match fault.limit() {
        Some(Limit::Alloc) => Some("raise the limit with --max-alloc if you trust the file"),
        Some(Limit::Arrays) => Some("raise the limit with --max-arrays if you trust the file"),
        Some(Limit::Spool) => Some("raise the limit with --max-spool if the temporary folder has room for it"),
        _ => fault.help(),
    }
}

/// An error from writing to standard output.
impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => {
                let message = format!("cannot write to standard output: {e}");
                Self::Trouble(Problem::new(Reason::Io, message))
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
