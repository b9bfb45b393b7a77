//! The report of `verify` on one file: the findings, then the verdict.
//!
//! Without --all the first findings are printed below the verdict; with --all each is printed at once.

use std::io::{self, Write};

use blob_convert::report::json;
use blob_convert::report::verdict::SHOWN;
pub(crate) use blob_convert::report::verdict::{Line, Verdict};
use blob_convert::verify::{Redone, Remark};
use blob_io::words::more_line;
use blob_io::{Checkpoint, Error};
use serde_json::Value;

use crate::args::Verify;
use crate::context::{Context, Failed};
use crate::failure::Problem;
use crate::info::kind_of;
use crate::output::Out;
use crate::output::width::paragraph;
use crate::units;

/// The report on one file in progress.
pub(super) struct Report<'a> {
    context: &'a Context,
    args: &'a Verify,
    out: &'a mut Out,
    verdict: Verdict<'a>,
    /// The format in words, where the file opens.
    kind: Option<String>,
    /// The length of the file that findings tell a byte of: not that of the values of an ONNX model beside it.
    first_len: Option<u64>,
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
        Self { context, args, out, verdict, kind: None, first_len: bytes, shown: Vec::new(), line: None, failed: None }
    }

    /// Adds a check beyond the structure that passed, in words.
    pub(super) fn passed(&mut self, check: String) {
        self.verdict.passed.push(check);
    }

    /// Adds the fault of a file that does not open.
    pub(super) fn broken(&mut self, e: &Error) {
        self.verdict.is_salvaging = self.context.global.salvage.is_some();
        let line = self.verdict.broken(e);
        self.finding(line);
    }

    /// Sets the files to compare with.
    pub(super) fn compare_with(&mut self, others: &'a [Checkpoint]) {
        self.verdict.others = others;
    }

    /// Copies the format and the counts from an open file.
    pub(super) fn describe(&mut self, checkpoint: &Checkpoint) {
        self.first_len = Some(checkpoint.first_len());
        self.kind = Some(kind_of(checkpoint));
        self.verdict.describe(checkpoint);
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
        if let Some(kind) = &self.kind {
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
        let more = self.verdict.findings.saturating_sub(SHOWN as u64);
        if let Some(more) = more_line(more).filter(|_| !self.args.all) {
            self.line(&format!("  {more}; --all prints them"), 4)?;
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
        let of = self.first_len.map(|n| format!(" of {n}"));
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
