//! The context of a command: global flags and terminal. Reports failures there.

use std::cell::Cell;
use std::io::{self, Write};

use blob_convert::momentum;
use blob_convert::report::json::{self, Document, Field, Fields, Type, field, nullable, properties};
use blob_io::{Checkpoint, Entry};
use serde_json::json;

use crate::args::Global;
use crate::broken::Broken;
use crate::failure::{Failure, Problem, Status};
use crate::output::Terminal;
use crate::output::signals::Work;

/// A command's surroundings, besides the command's own arguments.
pub(crate) struct Context {
    /// The command's name.
    pub(crate) command: String,
    pub(crate) global: Global,
    pub(crate) terminal: Terminal,
    /// Whether the header of tab-separated lines has been printed.
    pub(crate) has_header: Cell<bool>,
}

impl Context {
    /// Prints the names of the columns before the first tab-separated line of the output.
    pub(crate) fn header(&self, out: &mut dyn Write, columns: &[&str]) -> io::Result<()> {
        if self.has_header.replace(true) {
            return Ok(());
        }
        writeln!(out, "{}", columns.join("\t"))
    }

    /// Refuses --json for commands without JSON.
    pub(crate) fn no_json(&self, command: &str) -> Result<(), Failure> {
        if self.global.json { Err(Failure::new(format!("`blob {command}` prints no JSON"))) } else { Ok(()) }
    }

    /// Says on standard error that the tensors of a file are a solver's history, not weights; JSON tells the format.
    pub(crate) fn note_solver(&self, file: &Checkpoint) {
        let words = momentum(file).filter(|_| !self.global.json);
        words.into_iter().for_each(|words| self.terminal.note(format!("note: {}", self.terminal.text(&words))));
    }

    /// Reports the broken arrays of a file on standard error.
    pub(crate) fn broken<'e>(&self, file: &str, entries: impl IntoIterator<Item = &'e Entry>) -> Status {
        Broken::new(&self.terminal, file).report_all(entries)
    }

    /// Reports a failure on standard error; with --json also as a line on standard output, so that the output has a
    /// line for each file.
    pub(crate) fn failed(&self, file: Option<&str>, failure: &Failure) {
        let _work = Work::begin();
        self.say(file, failure);
    }

    /// As [`Context::failed`], where a signal ends the process: no other line may follow.
    pub(crate) fn say(&self, file: Option<&str>, failure: &Failure) {
        let failure = failure.clone().for_command(&self.command);
        self.terminal.error(&failure);
        self.failed_in_json(file, &failure);
    }

    /// The line for a failure that has been reported on standard error, with --json.
    pub(crate) fn failed_in_json(&self, file: Option<&str>, failure: &Failure) {
        let Some(problem) = failure.problem().filter(|p| self.global.json && !p.is_in_json) else {
            return;
        };
        let line = Failed { command: &self.command, file: problem.file.as_deref().or(file), problem };
        let mut out = self.terminal.out();
        // If standard output cannot be written, that has already been reported.
        let _ = json::line(&mut out, &line).and_then(|()| out.flush());
    }
}

/// The JSON line for a file that a command failed on.
pub(crate) struct Failed<'a> {
    pub(crate) command: &'a str,
    pub(crate) file: Option<&'a str>,
    pub(crate) problem: &'a Problem,
}

impl Document for Failed<'_> {
    const SCHEMA: &'static str = "blob.error/1";
    const COMMAND: &'static str = "any command --json";
    const DESCRIPTION: &'static str = "in place of a command's own line, where it has no answer for a file";
    const IS_OF_FILES: bool = false;

    fn sources(&self) -> Vec<&Checkpoint> {
        Vec::new()
    }
}

impl Fields for Failed<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("command", Type::String, "the command's name", |f| json!(f.command)),
            nullable("file", Type::String, "the file, where it is about one", |f| json!(f.file)),
            field("error", Type::Object(properties::<Problem>), "what went wrong", |f| json::value(f.problem)),
        ]
    }
}
