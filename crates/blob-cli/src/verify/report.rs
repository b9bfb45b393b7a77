//! What `verify` says of one file: findings as they come, counted and not kept, then the verdict.
//!
//! Without --all the first ones are kept for the lines below the verdict; with --all each goes out at once.

use std::io::{self, Write};

use blob_convert::verify::{Finding, Remark};
use blob_io::{Checkpoint, Entry, Error, Fault};
use serde_json::{Value, json};

use crate::args::Verify;
use crate::context::Context;
use crate::failure::Problem;
use crate::info::kind_of;
use crate::output::Out;
use crate::output::width::paragraph;
use crate::render::json::{self, Object, Rows};
use crate::units;

/// How many findings and notes are shown before the rest is only counted.
const SHOWN: u64 = 20;

/// A finding as the user reads it.
pub(super) struct Line {
    reason: &'static str,
    tensor: Option<String>,
    /// The array or layer in words, where one is known.
    subject: Option<String>,
    offset: Option<u64>,
    message: String,
}

impl Line {
    pub(super) fn of_file(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, tensor: None, subject: None, offset: None, message: message.into() }
    }

    /// What is wrong with the file although every array can be had.
    pub(super) fn of_fault(fault: &Fault) -> Self {
        Self { offset: Some(fault.offset()), ..Self::of_file(fault.reason().as_str(), fault.message()) }
    }

    /// Why a file does not open.
    pub(super) fn of_error(e: &Error) -> Self {
        let problem = Problem::from(e);
        let message = match (e.fault(), e) {
            (Some(fault), _) => fault.message(),
            (None, Error::NotTensors { what, .. }) => format!("this is {what}"),
            _ => problem.message,
        };
        Self { subject: problem.subject, offset: problem.offset, ..Self::of_file(problem.reason, message) }
    }

    fn json(&self) -> Value {
        let place = self.offset.map(|offset| format!("at byte {offset}: "));
        json!({
            "reason": self.reason,
            "tensor": self.tensor,
            "subject": self.subject,
            "offset": self.offset,
            "message": place.unwrap_or_default() + &self.message,
        })
    }
}

impl From<Finding> for Line {
    fn from(finding: Finding) -> Self {
        // A receipt as a whole is of no tensor.
        let tensor = Some(finding.tensor()).filter(|t| !t.is_empty() || finding.reason() != "receipt");
        Self {
            reason: finding.reason(),
            tensor: tensor.map(str::to_owned),
            subject: tensor.map(|tensor| format!("array {tensor:?}")),
            offset: finding.offset(),
            message: finding.message().to_owned(),
        }
    }
}

/// What was found in one file so far.
pub(super) struct Report<'a> {
    context: &'a Context,
    args: &'a Verify,
    out: &'a mut Out,
    file: String,
    bytes: Option<u64>,
    /// The format's name and, in words, its dialect.
    format: Option<(&'static str, String)>,
    tensors: usize,
    parameters: u64,
    findings: u64,
    /// The first findings, for people who did not ask for all.
    shown: Vec<Line>,
    notes: u64,
    first_notes: Vec<String>,
    /// What was checked beyond the structure and held, in words.
    pub(super) held: Vec<String>,
    /// What the user can do.
    pub(super) help: Option<&'static str>,
    rows: Option<Rows>,
    /// Why standard output could not be written: told at the end.
    failed: Option<io::Error>,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        file: String,
        bytes: Option<u64>,
        args: &'a Verify,
        context: &'a Context,
        out: &'a mut Out,
    ) -> Self {
        Self {
            context,
            args,
            out,
            file,
            bytes,
            format: None,
            tensors: 0,
            parameters: 0,
            findings: 0,
            shown: Vec::new(),
            notes: 0,
            first_notes: Vec::new(),
            held: Vec::new(),
            help: None,
            rows: None,
            failed: None,
        }
    }

    /// Takes over what an open file says of itself.
    pub(super) fn describe(&mut self, checkpoint: &Checkpoint) {
        let entries = checkpoint.entries();
        let values = |e: &Entry| match e.byte_len() {
            0 => 0,
            _ => e.shape().count() as u64,
        };
        self.format = Some((checkpoint.format().name(), kind_of(checkpoint)));
        self.tensors = entries.len();
        self.parameters = entries.iter().map(values).sum();
    }

    pub(super) fn is_ok(&self) -> bool {
        self.findings == 0
    }

    pub(super) fn count(&self) -> u64 {
        self.findings
    }

    pub(super) fn remark(&mut self, remark: Remark) {
        match remark {
            Remark::Finding(finding) => self.finding(finding.into()),
            Remark::Note(note) => self.note(note),
            _ => {}
        }
    }

    pub(super) fn finding(&mut self, line: Line) {
        self.findings += 1;
        let is_shown = self.args.all || self.findings <= SHOWN;
        if self.failed.is_some() || !is_shown {
            return;
        }
        let written = match (self.context.global.json, self.args.all) {
            (true, _) => self.row(&line),
            (false, true) => {
                let terminal = &self.context.terminal;
                let (file, text) = (terminal.name(&self.file), self.text(&line));
                self.line(&format!("{file}: {}", terminal.text(&text)), 2)
            }
            (false, false) => {
                self.shown.push(line);
                Ok(())
            }
        };
        self.failed = written.err();
    }

    pub(super) fn note(&mut self, note: String) {
        self.notes += 1;
        if self.notes <= SHOWN {
            self.first_notes.push(note);
        }
    }

    /// Writes what is left; `problem` is what kept the check from its end.
    pub(super) fn finish(mut self, problem: Option<&Problem>) -> io::Result<()> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        if self.is_ok() && problem.is_none() && self.args.failed_only {
            return Ok(());
        }
        match (self.context.global.json, problem) {
            (true, Some(problem)) if self.rows.is_none() => {
                let line = json::failed(self.context.command, Some(&self.file), problem);
                json::line(self.out, &line)
            }
            (true, _) => self.end_json(problem),
            (false, None) => self.verdict(),
            (false, Some(_)) => self.lines(),
        }
    }

    fn verdict(&mut self) -> io::Result<()> {
        let terminal = &self.context.terminal;
        let word = terminal.verdict(self.is_ok(), if self.is_ok() { "OK" } else { "FAIL" });
        let mut line = format!("{}: {word}", terminal.name(&self.file));
        if let Some((_, kind)) = &self.format {
            let tensors = units::plural(self.tensors as u64, "tensor");
            let s = if self.parameters == 1 { "" } else { "s" };
            let values = units::count(self.parameters);
            line += &format!("   {kind}: {tensors}, {values} value{s}");
        }
        for held in &self.held {
            line += &format!(", {}", terminal.text(held));
        }
        if self.args.all && !self.is_ok() {
            line += &format!(", {}", units::plural(self.findings, "finding"));
        }
        self.line(&line, 2)?;
        self.lines()
    }

    /// What stands below the verdict.
    fn lines(&mut self) -> io::Result<()> {
        let terminal = &self.context.terminal;
        for line in std::mem::take(&mut self.shown) {
            let text = self.text(&line);
            self.line(&format!("  {}", terminal.text(&text)), 4)?;
        }
        if self.findings > SHOWN && !self.args.all {
            let more = units::grouped(self.findings - SHOWN);
            self.line(&format!("  and {more} more; --all prints them"), 4)?;
        }
        for note in std::mem::take(&mut self.first_notes) {
            let note = terminal.dim(format!("note: {}", terminal.text(&note)));
            self.line(&format!("  {note}"), 4)?;
        }
        if self.notes > SHOWN {
            let more = units::plural(self.notes - SHOWN, "more note");
            self.line(&format!("  {}", terminal.dim(format!("and {more}"))), 4)?;
        }
        if let Some(help) = self.help {
            self.line(&format!("  help: {help}"), 4)?;
        }
        Ok(())
    }

    /// A line within the terminal's width; what does not fit hangs below it.
    fn line(&mut self, text: &str, hang: usize) -> io::Result<()> {
        writeln!(self.out, "{}", paragraph(text, self.context.terminal.width, hang))
    }

    /// `at byte 7327617 of 10666211 in layer #41 "conv4_2": …`
    fn text(&self, line: &Line) -> String {
        let Some(offset) = line.offset else {
            let tensor = line.tensor.as_deref().map(|t| format!("{t:?} "));
            return format!("{}{}", tensor.unwrap_or_default(), line.message);
        };
        let of = self.bytes.map(|n| format!(" of {n}"));
        let subject = line.subject.as_deref();
        let subject = subject.map(|s| format!(" in {s}"));
        format!("at byte {}{}{}: {}", offset, of.unwrap_or_default(), subject.unwrap_or_default(), line.message)
    }

    fn row(&mut self, line: &Line) -> io::Result<()> {
        let rows = self.open_rows()?;
        self.rows.insert(rows).push(self.out, &line.json())
    }

    /// The array of findings, opened with the first of them.
    fn open_rows(&mut self) -> io::Result<Rows> {
        match self.rows.take() {
            Some(rows) => Ok(rows),
            None => {
                let head = self.head();
                Rows::begin(self.out, &head, "findings")
            }
        }
    }

    fn head(&self) -> Object {
        Object::of("blob.verify/1")
            .with("file", self.file.as_str())
            .with("format", self.format.as_ref().map(|(name, _)| *name))
            .with("file_bytes", self.bytes)
            .with("tensors", self.tensors)
            .with("parameters", self.parameters)
    }

    fn end_json(mut self, problem: Option<&Problem>) -> io::Result<()> {
        let rows = self.open_rows()?;
        let tail = Object::new()
            .with("finding_count", self.findings)
            .with("ok", self.is_ok() && problem.is_none())
            .with("held", self.held)
            .with("notes", self.first_notes)
            .with("note_count", self.notes)
            .with("help", self.help)
            .with("error", problem.map(json::error));
        rows.end(self.out, &tail)
    }
}
