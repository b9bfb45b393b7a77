//! The verdict on a file: the checks of `blob verify` that need no other file.

use std::io;

use blob_convert::report::facts::file_warnings;
use blob_convert::report::json;
use blob_convert::report::problem::Problem;
use blob_convert::report::verdict::{Line, Verdict};
use blob_convert::transform::{Registry, ignored};
use blob_convert::verify::{self, Remark};
use blob_convert::{Watch, momentum};
use blob_io::words::plural;
use blob_io::{Checkpoint, Error};

/// A verdict in the making.
#[derive(Default)]
struct Sheet {
    verdict: Verdict<'static>,
    findings: Vec<Line>,
}

/// The line of JSON on a file, and on one that does not open because it is broken.
///
/// # Errors
/// The error of a file that is not one of tensors.
pub(crate) fn of(opened: Result<Checkpoint, Error>, name: &str, len: u64, watch: &dyn Watch) -> Result<String, Error> {
    let verdict = Verdict { file: name.to_owned(), bytes: Some(len), ..Verdict::default() };
    let mut sheet = Sheet { verdict, findings: Vec::new() };
    match opened {
        Ok(checkpoint) => {
            checkpoint.name().clone_into(&mut sheet.verdict.file);
            sheet.verdict.bytes = Some(checkpoint.file_len());
            sheet.verdict.describe(&checkpoint);
            if let Err(e) = sheet.checks(&checkpoint, watch) {
                sheet.verdict.error = json::value(&Problem::from(&e));
            }
        }
        Err(e) if e.reason().is_broken() => {
            let line = sheet.verdict.broken(&e);
            sheet.finding(line);
        }
        Err(e) => return Err(e),
    }
    sheet.line().map_err(|source| Error::Io {
        file: name.to_owned(),
        action: "write the verdict on".to_owned(),
        source,
    })
}

impl Sheet {
    fn line(&self) -> io::Result<String> {
        let mut text = Vec::new();
        let mut line = json::Line::begin(&mut text, &self.verdict)?;
        self.findings.iter().try_for_each(|finding| line.push(&mut text, &json::Ordered(finding)))?;
        line.advance(&mut text, &self.verdict)?;
        String::from_utf8(text).map_err(io::Error::other)
    }

    fn finding(&mut self, line: Line) {
        self.verdict.findings += 1;
        self.findings.push(line);
    }

    fn note(&mut self, note: String) {
        self.verdict.notes.push(|| note);
    }

    fn remark(&mut self, remark: Remark) {
        match remark {
            Remark::Finding(finding) => self.finding(finding.into()),
            Remark::Note(note) => self.note(note),
            Remark::Unproven(finding) => self.note(finding.message),
            Remark::Unread(finding) => self.note(format!("{:?} {}", finding.tensor, finding.message)),
            Remark::Redone(redone) => self.verdict.redone.push(redone),
            _ => {}
        }
    }

    fn checks(&mut self, checkpoint: &Checkpoint, watch: &dyn Watch) -> Result<(), Error> {
        verify::arrays(checkpoint, watch, &mut |remark| self.remark(remark))?;
        checkpoint.faults().iter().for_each(|fault| self.finding(Line::of_fault(fault)));
        file_warnings(checkpoint).for_each(|warning| self.note(warning));
        ignored(checkpoint, None).iter().for_each(|ignored| self.note(ignored.to_string()));
        momentum(checkpoint).into_iter().for_each(|words| self.note(words));
        verify::claims(checkpoint, &mut |remark| self.remark(remark));
        if let Some(equal) = verify::receipt(checkpoint, watch, &mut |finding| self.finding(finding.into()))? {
            self.verdict.passed.push(format!("{} as in the receipt", plural(equal, "digest")));
            let before = self.verdict.findings;
            let steps = verify::replay(checkpoint, &Registry::default(), &mut |remark| self.remark(remark));
            if self.verdict.findings == before {
                self.verdict.passed.push(format!("{} in the receipt", plural(steps as u64, "transform")));
            }
        }
        let before = self.verdict.findings;
        verify::finite(checkpoint, watch, &mut |remark| self.remark(remark))?;
        if self.verdict.findings == before {
            self.verdict.passed.push("all values finite".to_owned());
        }
        Ok(())
    }
}
