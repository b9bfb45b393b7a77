//! `blob verify`: is a file whole, are its values finite, is it the same as another?
//!
//! The checks are `blob_convert::verify`'s; here they become lines, JSON, and an exit code.

use std::io::Write;
use std::path::Path;

use blob_convert::verify::{self, Finding};
use blob_io::{Checkpoint, Entry, Error};
use serde_json::json;

use crate::Context;
use crate::args::{Global, Verify};
use crate::failure::{Failure, Status};
use crate::info::{kind_of, warnings};
use crate::open::open;
use crate::output::json::{self, Object};
use crate::output::progress::Progress;
use crate::units;

pub(crate) fn run(args: &Verify, context: &Context) -> Result<Status, Failure> {
    if args.files.len() > 1 && (args.against.is_some() || args.sha256.is_some()) {
        return Err(Failure::new("--against and --sha256 check one file"));
    }
    let other = match &args.against {
        // --from says what the checked file is; the other one speaks for itself.
        Some(path) => Some(open(
            path,
            &Global {
                from: None,
                ..context.global.clone()
            },
        )?),
        None => None,
    };
    let mut out = context.terminal.out();
    let mut status = Status::Yes;
    for path in &args.files {
        match check(path, args, other.as_ref(), context) {
            Ok(report) => {
                report.print(context, &mut out)?;
                status = status.max(if report.is_ok() {
                    Status::Yes
                } else {
                    Status::No
                });
            }
            Err(Failure::Trouble { message, help }) => {
                out.flush()?;
                context
                    .terminal
                    .trouble(&Failure::Trouble { message, help });
                status = Status::Trouble;
            }
            Err(e) => return Err(e),
        }
        out.flush()?;
    }
    Ok(status)
}

/// What was found in one file.
struct Report {
    file: String,
    bytes: Option<u64>,
    format: Option<(&'static str, String)>,
    tensors: usize,
    parameters: u64,
    findings: Vec<Line>,
    notes: Vec<String>,
    /// What was checked beyond the structure and held, in words.
    held: Vec<String>,
    /// What the user can do.
    help: Option<&'static str>,
}

/// A finding as the user reads it.
struct Line {
    tensor: Option<String>,
    offset: Option<u64>,
    message: String,
}

impl Line {
    fn of_file(message: impl Into<String>) -> Self {
        Self {
            tensor: None,
            offset: None,
            message: message.into(),
        }
    }
}

impl From<&Finding> for Line {
    fn from(finding: &Finding) -> Self {
        Self {
            tensor: Some(finding.tensor().to_owned()),
            offset: finding.offset(),
            message: finding.message().to_owned(),
        }
    }
}

/// Checks one file.
///
/// # Errors
/// Only what keeps the file from being checked: it cannot be read, or a signal came.
fn check(
    path: &Path,
    args: &Verify,
    other: Option<&Checkpoint>,
    context: &Context,
) -> Result<Report, Failure> {
    let checkpoint = match open(path, &context.global) {
        Ok(checkpoint) => checkpoint,
        Err(e) => return broken(path, e),
    };
    let mut report = Report::of(&checkpoint);
    let progress = Progress::begin(&context.terminal, work(&checkpoint, args, other));
    report.add(&verify::arrays(&checkpoint, &progress)?);
    if args.strict {
        report
            .findings
            .extend(warnings(&checkpoint).into_iter().map(Line::of_file));
    } else {
        report.notes.extend(warnings(&checkpoint));
    }
    if args.finite {
        let found = verify::finite(&checkpoint, &progress)?;
        if found.is_empty() {
            report.held.push("all values finite".to_owned());
        }
        report.add(&found);
    }
    if let Some(expected) = &args.sha256 {
        let found = verify::sha256(&checkpoint, &progress)?;
        match found == *expected {
            true => report.held.push("SHA-256 as expected".to_owned()),
            false => report.findings.push(Line::of_file(format!(
                "SHA-256 is {found}, expected {expected}"
            ))),
        }
    }
    if let Some(other) = other {
        let comparison = verify::against(&checkpoint, other, &progress)?;
        report.notes.extend(comparison.notes().iter().cloned());
        if comparison.findings().is_empty() {
            let equal = units::plural(comparison.equal(), "tensor");
            report
                .held
                .push(format!("{equal} bit for bit as in {}", other.name()));
        }
        report.add(comparison.findings());
    }
    Ok(report)
}

/// The bytes that the checks will read.
fn work(checkpoint: &Checkpoint, args: &Verify, other: Option<&Checkpoint>) -> u64 {
    let payload = |c: &Checkpoint| c.entries().iter().map(Entry::byte_len).sum::<u64>();
    let entries = checkpoint.entries().iter();
    let mut work = entries.filter_map(Entry::checked_len).sum();
    if args.finite {
        work += payload(checkpoint);
    }
    if args.sha256.is_some() {
        work += checkpoint.file_len();
    }
    if let Some(other) = other {
        work += payload(checkpoint) + payload(other);
    }
    work
}

/// A file that does not open: broken is a finding, unreadable is trouble.
fn broken(path: &Path, e: Error) -> Result<Report, Failure> {
    let mut report = Report {
        file: path.display().to_string(),
        bytes: std::fs::metadata(path).ok().map(|m| m.len()),
        format: None,
        tensors: 0,
        parameters: 0,
        findings: Vec::new(),
        notes: Vec::new(),
        held: Vec::new(),
        help: None,
    };
    let help = e.help();
    match e {
        Error::Malformed {
            subject,
            fault,
            intact,
            ..
        } => {
            report.findings.push(Line {
                tensor: subject,
                offset: Some(fault.offset()),
                message: fault.to_string(),
            });
            if let Some(n) = intact.filter(|n| *n > 0) {
                report.notes.push(format!(
                    "{} before it {} whole",
                    units::plural(n as u64, "array"),
                    if n == 1 { "is" } else { "are" }
                ));
            }
        }
        Error::NotTensors { what, .. } => {
            report
                .findings
                .push(Line::of_file(format!("this is {what}")));
        }
        other => return Err(other.into()),
    }
    report.help = help;
    Ok(report)
}

impl Report {
    fn of(checkpoint: &Checkpoint) -> Self {
        let entries = checkpoint.entries();
        Self {
            file: checkpoint.name().to_owned(),
            bytes: Some(checkpoint.file_len()),
            format: Some((checkpoint.format().name(), kind_of(checkpoint))),
            tensors: entries.len(),
            parameters: entries
                .iter()
                .filter(|e| e.byte_len() > 0)
                .map(|e| e.shape().count() as u64)
                .sum(),
            findings: Vec::new(),
            notes: Vec::new(),
            held: Vec::new(),
            help: None,
        }
    }

    fn add(&mut self, findings: &[Finding]) {
        self.findings.extend(findings.iter().map(Line::from));
    }

    fn is_ok(&self) -> bool {
        self.findings.is_empty()
    }

    fn print(&self, context: &Context, out: &mut dyn Write) -> Result<(), Failure> {
        if context.global.json {
            return Ok(json::line(out, &self.json())?);
        }
        let terminal = &context.terminal;
        let word = terminal.verdict(self.is_ok(), if self.is_ok() { "OK" } else { "FAIL" });
        write!(out, "{}: {word}", terminal.name(&self.file))?;
        if let Some((_, kind)) = &self.format {
            let tensors = units::plural(self.tensors as u64, "tensor");
            write!(
                out,
                "   {kind}: {tensors}, {} value{}",
                units::count(self.parameters),
                if self.parameters == 1 { "" } else { "s" }
            )?;
        }
        for held in &self.held {
            write!(out, ", {}", terminal.text(held))?;
        }
        writeln!(out)?;
        for finding in &self.findings {
            writeln!(out, "  {}", terminal.text(&self.line(finding)))?;
        }
        for note in &self.notes {
            writeln!(
                out,
                "  {}",
                terminal.dim(format!("note: {}", terminal.text(note)))
            )?;
        }
        if let Some(help) = self.help {
            writeln!(out, "  help: {help}")?;
        }
        Ok(())
    }

    /// `at byte 7,327,617 of 10,666,211 in layer #41 "conv4_2": …`
    fn line(&self, finding: &Line) -> String {
        let Some(offset) = finding.offset else {
            let tensor = finding.tensor.as_deref().map(|t| format!("{t:?} "));
            return format!("{}{}", tensor.unwrap_or_default(), finding.message);
        };
        // The message of a fault begins with its place; here the place stands in front of the array.
        let plain = format!("at byte {offset}: ");
        let message = finding
            .message
            .strip_prefix(&plain)
            .unwrap_or(&finding.message);
        let of = self.bytes.map(|n| format!(" of {}", units::grouped(n)));
        let tensor = finding.tensor.as_deref().map(|t| match self.format {
            Some(_) => format!(" in array {t:?}"),
            None => format!(" in {t}"),
        });
        format!(
            "at byte {}{}{}: {}",
            units::grouped(offset),
            of.unwrap_or_default(),
            tensor.unwrap_or_default(),
            message
        )
    }

    fn json(&self) -> Object {
        let findings = self
            .findings
            .iter()
            .map(|f| json!({"tensor": f.tensor, "offset": f.offset, "message": f.message}));
        Object::of("blob.verify/1")
            .with("file", self.file.as_str())
            .with("ok", self.is_ok())
            .with("format", self.format.as_ref().map(|(name, _)| *name))
            .with("file_bytes", self.bytes)
            .with("tensors", self.tensors)
            .with("findings", findings.collect::<Vec<_>>())
            .with("held", self.held.clone())
            .with("notes", self.notes.clone())
            .with("help", self.help)
    }
}
