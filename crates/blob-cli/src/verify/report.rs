//! The report of `verify` on one file: the findings, then the verdict.
//!
//! Without --all the first findings are printed below the verdict; with --all each is printed at once.

use std::io::{self, Write};

use blob_convert::report::json::{
    self, Document, FILE, Field, Fields, STRINGS, Type, field, nullable, properties, streamed,
};
use blob_convert::verify::{Finding, Redone, Remark};
use blob_io::words::Listed;
use blob_io::{Checkpoint, Error, Fault, Reason};
use serde_json::{Value, json};

use crate::args::Verify;
use crate::context::{Context, Failed};
use crate::failure::Problem;
use crate::info::kind_of;
use crate::output::Out;
use crate::output::width::paragraph;
use crate::units;

/// At most this many findings and notes are shown; the others are counted.
const SHOWN: usize = 20;

/// A finding as printed.
pub(super) struct Line {
    reason: Reason,
    tensor: Option<String>,
    /// The array or layer in words, if known.
    subject: Option<String>,
    offset: Option<u64>,
    message: String,
}

impl Line {
    pub(super) fn of_file(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, tensor: None, subject: None, offset: None, message: message.into() }
    }

    /// A fault of the file that affects no array.
    pub(super) fn of_fault(fault: &Fault) -> Self {
        Self { offset: Some(fault.offset()), ..Self::of_file(fault.reason(), fault.message()) }
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
#[derive(Default)]
pub(crate) struct Verdict<'a> {
    file: String,
    bytes: Option<u64>,
    /// The format's name and, in words, the dialect.
    format: Option<(&'static str, String)>,
    tensors: usize,
    parameters: u64,
    findings: u64,
    notes: Listed<String, SHOWN>,
    /// The transforms that were repeated and change values.
    redone: Vec<Redone>,
    /// The checks beyond the structure that passed, in words.
    passed: Vec<String>,
    help: Option<&'static str>,
    /// The error that stopped the check, as JSON.
    error: Value,
    /// The files of the comparison.
    others: &'a [Checkpoint],
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
            nullable("format", Type::String, FORMAT, |v| json!(v.format.as_ref().map(|(name, _)| *name))),
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

/// The report on one file in progress.
pub(super) struct Report<'a> {
    context: &'a Context,
    args: &'a Verify,
    out: &'a mut Out,
    verdict: Verdict<'a>,
    /// The first findings, without --all.
    shown: Vec<Line>,
    /// The line of JSON, begun at the first finding.
    line: Option<json::Line<Verdict<'a>>>,
    /// The error of writing to standard output, returned at the end.
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
        let verdict = Verdict { file, bytes, ..Verdict::default() };
        Self { context, args, out, verdict, shown: Vec::new(), line: None, failed: None }
    }

    /// Adds a check beyond the structure that passed, in words.
    pub(super) fn passed(&mut self, check: String) {
        self.verdict.passed.push(check);
    }

    /// Sets the help for the user.
    pub(super) fn help(&mut self, help: Option<&'static str>) {
        self.verdict.help = help;
    }

    /// Sets the files to compare with.
    pub(super) fn compare_with(&mut self, others: &'a [Checkpoint]) {
        self.verdict.others = others;
    }

    /// Copies the format and the counts from an open file.
    pub(super) fn describe(&mut self, checkpoint: &Checkpoint) {
        let entries = checkpoint.entries();
        self.verdict.format = Some((checkpoint.format().name(), kind_of(checkpoint)));
        self.verdict.tensors = entries.len();
        self.verdict.parameters = checkpoint.parameters();
    }

    pub(super) fn is_ok(&self) -> bool {
        self.verdict.findings == 0
    }

    pub(super) fn count(&self) -> u64 {
        self.verdict.findings
    }

    pub(super) fn remark(&mut self, remark: Remark) {
        match remark {
            Remark::Finding(finding) => self.finding(finding.into()),
            Remark::Note(note) => self.note(note),
            Remark::Unread(finding) | Remark::Unproven(finding) if self.args.strict => self.finding(finding.into()),
            Remark::Unproven(finding) => self.note(finding.message),
            Remark::Unread(finding) => self.note(format!("{:?} {}", finding.tensor, finding.message)),
            Remark::Redone(redone) => self.verdict.redone.push(redone),
            _ => {}
        }
    }

    pub(super) fn finding(&mut self, line: Line) {
        self.verdict.findings += 1;
        let is_shown = self.args.all || self.verdict.findings <= SHOWN as u64;
        if self.failed.is_some() || !is_shown {
            return;
        }
        let written = match (self.context.global.json, self.args.all) {
            (true, _) => self.open_line().and_then(|mut open| {
                open.push(self.out, &json::value(&line))?;
                self.line = Some(open);
                Ok(())
            }),
            (false, true) => {
                let terminal = &self.context.terminal;
                let (file, text) = (terminal.name(&self.verdict.file), self.text(&line));
                self.line(&format!("{file}: {}", terminal.text(&text)), 2)
            }
            (false, false) => {
                self.shown.push(line);
                Ok(())
            }
        };
        self.failed = written.err();
    }

    /// Whether findings alone are printed.
    fn is_quiet(&self) -> bool {
        self.context.global.quiet && !self.context.global.json
    }

    pub(super) fn note(&mut self, note: String) {
        if !self.is_quiet() {
            self.verdict.notes.push(|| note);
        }
    }

    /// Writes the rest of the report; `problem` is the error that stopped the check, if one did.
    pub(super) fn finish(mut self, problem: Option<&Problem>) -> io::Result<()> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        if self.is_ok() && problem.is_none() && (self.args.failed_only || self.is_quiet()) {
            return Ok(());
        }
        match (self.context.global.json, problem) {
            (true, Some(problem)) if self.line.is_none() => json::line(
                self.out,
                &Failed { command: &self.context.command, file: Some(&self.verdict.file), problem },
            ),
            (true, _) => {
                let line = self.open_line()?;
                self.verdict.error = problem.map_or(Value::Null, json::value);
                line.advance(self.out, &self.verdict).map(drop)
            }
            (false, None) => self.verdict(),
            (false, Some(_)) => self.lines(),
        }
    }

    fn verdict(&mut self) -> io::Result<()> {
        let terminal = &self.context.terminal;
        let word = terminal.verdict(self.is_ok(), if self.is_ok() { "OK" } else { "FAIL" });
        let mut line = format!("{}: {word}", terminal.name(&self.verdict.file));
        if let Some((_, kind)) = &self.verdict.format {
            let tensors = units::plural(self.verdict.tensors as u64, "tensor");
            let s = if self.verdict.parameters == 1 { "" } else { "s" };
            let values = units::count(self.verdict.parameters);
            line += &format!("   {kind}: {tensors}, {values} value{s}");
        }
        for check in &self.verdict.passed {
            line += &format!(", {}", terminal.text(check));
        }
        if self.args.all && !self.is_ok() {
            line += &format!(", {}", units::plural(self.verdict.findings, "finding"));
        }
        self.line(&line, 2)?;
        self.lines()
    }

    /// Writes the lines below the verdict.
    fn lines(&mut self) -> io::Result<()> {
        let terminal = &self.context.terminal;
        for line in std::mem::take(&mut self.shown) {
            let text = self.text(&line);
            self.line(&format!("  {}", terminal.text(&text)), 4)?;
        }
        if self.verdict.findings > SHOWN as u64 && !self.args.all {
            let more = units::grouped(self.verdict.findings - SHOWN as u64);
            self.line(&format!("  and {more} more; --all prints them"), 4)?;
        }
        for redone in std::mem::take(&mut self.verdict.redone) {
            self.line(&format!("  {}", terminal.text(&redone_line(&redone))), 4)?;
        }
        let notes = std::mem::take(&mut self.verdict.notes);
        for note in &notes.first {
            let note = terminal.dim(format!("note: {}", terminal.text(note)));
            self.line(&format!("  {note}"), 4)?;
        }
        if notes.more() > 0 {
            let more = units::plural(notes.more(), "more note");
            self.line(&format!("  {}", terminal.dim(format!("and {more}"))), 4)?;
        }
        if let Some(help) = self.verdict.help {
            self.line(&format!("  help: {help}"), 4)?;
        }
        Ok(())
    }

    /// Writes a line, wrapped to the terminal's width with a hanging indent.
    fn line(&mut self, text: &str, hang: usize) -> io::Result<()> {
        writeln!(self.out, "{}", paragraph(text, self.context.terminal.width, hang))
    }

    /// `at byte 7327617 of 10666211 in layer #41 "conv4_2": …`
    fn text(&self, line: &Line) -> String {
        let Some(offset) = line.offset else {
            let tensor = line.tensor.as_deref().map(|t| format!("{t:?} "));
            return format!("{}{}", tensor.unwrap_or_default(), line.message);
        };
        let of = self.verdict.bytes.map(|n| format!(" of {n}"));
        let subject = line.subject.as_deref();
        let subject = subject.map(|s| format!(" in {s}"));
        format!("at byte {}{}{}: {}", offset, of.unwrap_or_default(), subject.unwrap_or_default(), line.message)
    }

    /// The line of JSON, written up to the findings.
    fn open_line(&mut self) -> io::Result<json::Line<Verdict<'a>>> {
        match self.line.take() {
            Some(line) => Ok(line),
            None => json::Line::begin(self.out, &self.verdict),
        }
    }
}

/// `fix-gamma gives 1 tensor other values, as the receipt alone says: "bn0_gamma"`
fn redone_line(redone: &Redone) -> String {
    let named: Vec<String> = redone.named.iter().map(|name| format!("{name:?}")).collect();
    let more = if redone.tensors > named.len() { ", …" } else { "" };
    let (transform, tensors) = (&redone.transform, units::plural(redone.tensors as u64, "tensor"));
    format!("{transform} gives {tensors} other values, as {}: {}{more}", redone.said_by, named.join(", "))
}
