//! `blob.verify/1`: the verdict on a file, and the findings.

use blob_io::words::{Listed, plural};
use blob_io::{Checkpoint, Error, Fault, Reason};
use serde_json::{Value, json};

use crate::finding::{Finding, Redone};
use crate::report::json::{self, Document, FILE, Field, Fields, STRINGS, Type, field, nullable, properties, streamed};
use crate::report::problem::{Problem, help, takes_whole_arrays};

/// At most this many findings and notes are shown; the others are counted.
pub const SHOWN: usize = 20;

/// A finding as printed.
#[derive(Debug)]
pub struct Line {
    /// The reason, as a stable code.
    pub reason: Reason,
    /// The tensor's name, where the finding is about one.
    pub tensor: Option<String>,
    /// The array or layer in words, if known.
    pub subject: Option<String>,
    /// The byte where the file breaks.
    pub offset: Option<u64>,
    /// The text.
    pub message: String,
}

impl Line {
    /// A finding about the whole file.
    pub fn of_file(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, tensor: None, subject: None, offset: None, message: message.into() }
    }

    /// A fault of the file that affects no array.
    pub fn of_fault(fault: &Fault) -> Self {
        Self { offset: Some(fault.offset()), ..Self::of_file(fault.reason(), fault.message()) }
    }

    /// Why a file does not open.
    pub fn of_error(e: &Error) -> Self {
        let problem = Problem::from(e);
        let message = match (e.fault(), e) {
            (Some(fault), _) => fault.message(),
            (None, Error::NotTensors { what, .. }) => format!("this is {what}"),
            _ => problem.message,
        };
        Self { subject: problem.subject, offset: problem.offset, ..Self::of_file(problem.reason, message) }
    }
}

impl Fields for Line {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("reason", Type::String, "what is wrong, as a stable code", |l| json!(l.reason.as_str())),
            nullable("tensor", Type::String, "the tensor's name, where it is about one", |l| json!(l.tensor)),
            nullable("subject", Type::String, "the array or layer concerned, in words", |l| json!(l.subject)),
            nullable("offset", Type::Integer, "the byte where it breaks", |l| json!(l.offset)),
            field("message", Type::String, "what is wrong, in words", |l| {
                let place = l.offset.map(|offset| format!("at byte {offset}: "));
                json!(place.unwrap_or_default() + &l.message)
            }),
        ]
    }
}

impl From<Finding> for Line {
    fn from(finding: Finding) -> Self {
        // A finding about the whole receipt names no tensor.
        let tensor = Some(finding.tensor).filter(|t| !t.is_empty() || finding.reason != Reason::Receipt);
        Self {
            reason: finding.reason,
            subject: tensor.as_ref().map(|tensor| format!("array {tensor:?}")),
            tensor,
            offset: finding.offset,
            message: finding.message,
        }
    }
}

/// The final result for one file.
#[derive(Debug, Default)]
pub struct Verdict<'a> {
    /// The file as it was named.
    pub file: String,
    /// The file's size.
    pub bytes: Option<u64>,
    /// The format's name, where the file opens.
    pub format: Option<&'static str>,
    /// How many tensors the file lists.
    pub tensors: usize,
    /// How many values they have.
    pub parameters: u64,
    /// How many findings there are.
    pub findings: u64,
    /// The first notes.
    pub notes: Listed<String, SHOWN>,
    /// The transforms that were repeated and change values.
    pub redone: Vec<Redone>,
    /// The checks beyond the structure that passed, in words.
    pub passed: Vec<String>,
    /// The help for the user.
    pub help: Option<&'static str>,
    /// The error that stopped the check, as JSON.
    pub error: Value,
    /// Whether the user asks for the whole arrays of files that break off.
    pub is_salvaging: bool,
    /// The files of the comparison.
    pub others: &'a [Checkpoint],
}

impl Verdict<'_> {
    /// Copies the format and the counts from an open file.
    pub fn describe(&mut self, checkpoint: &Checkpoint) {
        self.format = Some(checkpoint.format().name());
        self.tensors = checkpoint.entries().len();
        self.parameters = checkpoint.parameters();
    }

    /// Describes a file that does not open; gives the finding.
    pub fn broken(&mut self, e: &Error) -> Line {
        self.help = help(e);
        if let Some(n) = e.intact().filter(|n| *n > 0) {
            let (verb, them) = if n == 1 { ("is", "it") } else { ("are", "them") };
            let taken = if self.is_salvaging {
                "; `verify` checks whole files, and --salvage takes the arrays of others, as for --against".to_owned()
            } else if takes_whole_arrays(e) {
                format!(": --salvage takes {them}")
            } else {
                String::new()
            };
            self.notes.push(|| format!("{} before it {verb} whole{taken}", plural(n as u64, "array")));
        }
        Line::of_error(e)
    }
}

impl Document for Verdict<'_> {
    const SCHEMA: &'static str = "blob.verify/1";
    const COMMAND: &'static str = "blob verify --json FILE...";
    const DESCRIPTION: &'static str = "whether a file is whole. A file that is not read is a line of `blob.error/1`";

    /// The file itself is never salvaged: that it breaks off is a finding.
    fn sources(&self) -> Vec<&Checkpoint> {
        self.others.iter().collect()
    }
}

impl Fields for Verdict<'_> {
    fn fields() -> Vec<Field<Self>> {
        const FORMAT: &str = "the format's short name; `null` where the file does not open";
        const REDONE: &str =
            "with --against: the transforms of the receipt that give other values than the other file has";
        const FINDINGS: &str = "what is wrong: the first 20, with --all all of them";
        vec![
            field("file", Type::String, FILE, |v| json!(v.file)),
            nullable("format", Type::String, FORMAT, |v| json!(v.format)),
            nullable("file_bytes", Type::Integer, "the file's size", |v| json!(v.bytes)),
            field("tensors", Type::Integer, "how many tensors it lists", |v| json!(v.tensors)),
            field("parameters", Type::Integer, "their values, without diffs and indices", |v| json!(v.parameters)),
            streamed("findings", Type::Array(&Type::Object(properties::<Line>)), FINDINGS),
            field("finding_count", Type::Integer, "how many there are", |v| json!(v.findings)),
            field("ok", Type::Boolean, "whether there are none and all was checked", |v| {
                json!(v.findings == 0 && v.error.is_null())
            }),
            field("held", STRINGS, "each check beyond the structure that passed", |v| json!(v.passed)),
            field("notes", STRINGS, "what is odd and not wrong, the first 20", |v| json!(v.notes.first)),
            field("redone", Type::Array(&Type::Object(properties::<Redone>)), REDONE, |v| {
                v.redone.iter().map(json::value).collect()
            }),
            field("note_count", Type::Integer, "how many there are", |v| json!(v.notes.count)),
            nullable("help", Type::String, "what can be done about it", |v| json!(v.help)),
            nullable("error", Type::Object(properties::<Problem>), "what kept the check from its end", |v| {
                v.error.clone()
            }),
        ]
    }
}
