//! Why something failed: text for people, and fields for programs. Relies on the readers' errors, and adds the tool's
//! option that helps, where there is one. Knows no command.

use blob_io::{Entry, Error, Existing, Fault, Limit, Reason, Remedy, grouped};
use serde_json::json;

use crate::report::json::{Field, Fields, Type, field, nullable};

/// A problem: text for people, and fields for programs.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The reason, as a stable code.
    pub reason: Reason,
    /// The file concerned, if any.
    pub file: Option<String>,
    /// The array or layer concerned, if known: `array "conv1/0"`.
    pub subject: Option<String>,
    /// The byte offset in the file, if known.
    pub offset: Option<u64>,
    /// The text.
    pub message: String,
    /// What you can do about it.
    pub help: Option<String>,
    /// The library's remedy, for which each command of the tool has its own words.
    pub remedy: Option<Remedy>,
    /// Whether the command's own JSON contains the problem, so that no extra line is printed.
    pub is_in_json: bool,
}

impl Problem {
    /// A problem of no file.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            file: None,
            subject: None,
            offset: None,
            message: message.into(),
            help: None,
            remedy: None,
            is_in_json: false,
        }
    }

    /// A tensor that was not compared with the counterpart.
    pub fn unread(name: &str, why: &str) -> Self {
        Self::new(Reason::Unread, format!("{name:?} was not compared: {why}"))
    }

    /// The fault of an entry of an open file.
    pub fn of_fault(file: &str, entry: &Entry, fault: &Fault) -> Self {
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
            help: salvage(e).or_else(|| help(e).map(str::to_owned)),
            remedy: remedy(e),
            is_in_json: false,
        }
    }
}

/// Help for a file that breaks off behind whole arrays.
fn salvage(e: &Error) -> Option<String> {
    if !takes_whole_arrays(e) {
        return None;
    }
    let arrays = match e.intact()? {
        0 => return None,
        1 => "the array".to_owned(),
        several => format!("the {} arrays", grouped(several as u64)),
    };
    Some(format!("--salvage takes {arrays} before it"))
}

/// Whether --salvage takes the arrays before the fault: a limit holds with it, too.
pub(crate) fn takes_whole_arrays(e: &Error) -> bool {
    !matches!(e, Error::LimitExceeded { .. })
}

/// Help for an error, with the tool's option if there is one.
#[must_use]
pub fn help(e: &Error) -> Option<&'static str> {
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

/// The library's remedy for an error.
fn remedy(error: &Error) -> Option<Remedy> {
    match error {
        Error::Misfit { remedy, .. } => *remedy,
        Error::Unsupported { .. } => Some(Remedy::SkipUnsupported),
        // An array of a kind that is not read; the walk over the file went on behind the array.
        Error::Malformed { subject: Some(_), fault, intact: None, .. } => {
            (fault.reason() == Reason::Unsupported).then_some(Remedy::SkipUnsupported)
        }
        _ => None,
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
