//! How a job ended, as a line of JSON for standard output and for the log; the counts and the warnings of all jobs.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use blob_convert::Recipe;
use blob_convert::batch::{Claim, Ran};
use blob_convert::change::Group;
use blob_convert::report::json::{self, Document, Field, Fields, Type, field, nullable, properties};
use blob_io::Checkpoint;
use serde_json::json;

use crate::context::Context;
use crate::convert::{changes_field, listed_changes, warn};
use crate::failure::{Failure, Problem, Status};
use crate::output::Out;
use crate::output::written::Begun;
use crate::render::Render;
use crate::units;

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Written,
    /// The output stood there with the same bytes, and nothing said of which job it is.
    Unchanged,
    /// An earlier run wrote the output.
    Done,
    WouldWrite,
    Failed,
    /// An earlier run wrote the output, which was not as that run left it, or not what the job asks for now.
    Redone,
}

impl State {
    const NAMES: &'static [&'static str] = &["written", "unchanged", "done", "would-write", "failed", "redone"];

    fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// A job that ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    line: usize,
    source: PathBuf,
    output: PathBuf,
    pub(super) state: State,
    ran: Option<Ran>,
    claim: Option<Claim>,
    /// Why a job is done again, in words that follow the output's name.
    pub(super) why: Option<String>,
    failure: Option<Failure>,
}

impl Outcome {
    pub(super) fn new(line: usize, recipe: &Recipe) -> Self {
        let source = recipe.sources.first().map(|source| source.path.clone()).unwrap_or_default();
        let output = recipe.target.path.clone().unwrap_or_default();
        Self { line, source, output, state: State::Failed, ran: None, claim: None, why: None, failure: None }
    }

    pub(super) fn done(&mut self, claim: Claim) {
        (self.state, self.claim) = (State::Done, Some(claim));
    }

    pub(super) fn ran(&mut self, state: State, mut ran: Ran) {
        (self.state, self.claim) = (state, ran.claim.take());
        self.ran = Some(ran);
    }

    pub(super) fn failed(&mut self, failure: Failure) {
        (self.state, self.ran, self.claim, self.failure) = (State::Failed, None, None, Some(failure));
    }

    fn changes(&self) -> &[Group] {
        self.ran.as_ref().map_or(&[], |ran| &ran.changes)
    }
}

impl Document for Outcome {
    const SCHEMA: &'static str = "blob.batch/1";
    const COMMAND: &'static str = "blob batch --json JOBS";
    const DESCRIPTION: &'static str = "how a job ended, also in the file of --log";
    const IS_OF_FILES: bool = false;

    fn sources(&self) -> Vec<&Checkpoint> {
        Vec::new()
    }
}

impl Fields for Outcome {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("line", Type::Integer, "the line of JOBS", |o| json!(o.line)),
            field("source", Type::String, "the file that is read", |o| json!(o.source.to_string_lossy())),
            field("output", Type::String, "the file or the folder that is written", |o| {
                json!(o.output.to_string_lossy())
            }),
            field(
                "state",
                Type::Enum(State::NAMES),
                "whether the output was written, stood there with the same bytes, was done before, with -n would be written, \
                 the job failed, or the output was done before and had to be done again",
                |o| json!(o.state.name()),
            ),
            nullable("why", Type::String, "why it is done again, in words that follow the output's name", |o| {
                json!(o.why)
            }),
            nullable("to", Type::String, "the format that was written", |o| {
                json!(o.ran.as_ref().map(|ran| ran.to.name()))
            }),
            nullable("bytes_out", Type::Integer, "the size of the output", |o| {
                json!(o.ran.as_ref().map(|ran| ran.bytes_out))
            }),
            nullable(
                "blake3_out",
                Type::String,
                "the BLAKE3 of a written output that has no receipt of its own: of all its files, one behind the \
                 other, an index of shards last",
                |o| json!(o.ran.as_ref().and_then(|ran| ran.blake3_out.as_ref())),
            ),
            nullable(
                "claim",
                Type::Object(properties::<Claim>),
                "what the output was made of, where there is one",
                |o| json!(o.claim.as_ref().map(json::value)),
            ),
            changes_field(|o| listed_changes(o.changes())),
            nullable("error", Type::Object(properties::<Problem>), "why it failed", |o| {
                json!(o.failure.as_ref().map(Failure::as_json))
            }),
        ]
    }
}

/// A line for programs, and in a dry run one for people.
impl Render for &Outcome {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        Ok(json::line(out, self)?)
    }

    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        if self.state != State::WouldWrite {
            return Ok(());
        }
        let [source, output] = [&self.source, &self.output].map(|path| path.to_string_lossy());
        let arrow = context.terminal.marks().1;
        let why = self.why.as_ref().map(|why| format!("   redone: {}", context.terminal.text(why)));
        let (source, output) = (context.terminal.name(&source), context.terminal.name(&output));
        Ok(writeln!(out, "{source} {arrow} {output}{}", why.unwrap_or_default())?)
    }
}

/// All jobs that ended.
#[derive(Default)]
pub(super) struct Tally {
    written: u64,
    unchanged: u64,
    redone: u64,
    done: u64,
    would_write: u64,
    failed: u64,
    bytes_out: u64,
    /// Each warning, with the first of its outputs and their number.
    warnings: BTreeMap<String, (PathBuf, u64)>,
}

impl Tally {
    /// Prints a job that ended.
    pub(super) fn take(&mut self, mut outcome: Outcome, context: &Context) -> Result<(), Failure> {
        if let Some(failure) = outcome.failure.take_if(|failure| failure.is_last()) {
            return Err(failure);
        }
        let count = match outcome.state {
            State::Written => &mut self.written,
            State::Unchanged => &mut self.unchanged,
            State::Redone => &mut self.redone,
            State::Done => &mut self.done,
            State::WouldWrite => &mut self.would_write,
            State::Failed => &mut self.failed,
        };
        *count += 1;
        self.bytes_out += outcome.ran.as_ref().map_or(0, |ran| ran.bytes_out);
        for group in outcome.changes().iter().filter(|group| group.change.is_warned()) {
            self.warnings.entry(group.to_string()).or_insert_with(|| (outcome.output.clone(), 0)).1 += 1;
        }
        context.print(&outcome)?;
        if let (State::Redone, Some(why)) = (outcome.state, &outcome.why) {
            let output = outcome.output.to_string_lossy();
            context.terminal.note(format!(
                "{}: redone: {}",
                context.terminal.name(&output),
                context.terminal.text(why)
            ));
        }
        if let Some(failure) = &outcome.failure {
            context.terminal.error(failure);
        }
        Ok(())
    }

    /// Prints the counts and the warnings of all jobs.
    pub(super) fn end(&self, begun: Begun, jobs: usize, context: &Context) {
        let lines = self.warnings.iter().map(|(warning, (output, count))| match count - 1 {
            0 => format!("{}: {warning}", output.display()),
            more => format!("{} and {}: {warning}", output.display(), units::plural(more, "other output")),
        });
        warn(lines.collect(), "--json prints them all", context);
        let ended = self.written + self.unchanged + self.redone + self.done + self.would_write + self.failed;
        let counts = [
            (self.written, "written"),
            (self.unchanged, "unchanged"),
            (self.redone, "redone"),
            (self.would_write, "to write"),
            (self.done, "done before"),
            (self.failed, "failed"),
            (jobs as u64 - ended, "not tried"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, what)| format!("{} {what}", units::grouped(*count))).collect();
        let mark = if self.failed > 0 || ended < jobs as u64 { "" } else { context.terminal.marks().0 };
        let of_run = |took: std::time::Duration| {
            format!("; {}, in {}", units::bytes(self.bytes_out), units::seconds(took.as_secs_f64()))
        };
        let of_run = begun.took().map(of_run).unwrap_or_default();
        let counts = if counts.is_empty() { "no jobs".to_owned() } else { counts.join(", ") };
        let line = format!("{mark} {counts}{of_run}");
        context.terminal.note(line.trim_start());
    }

    /// The answer is no if a job failed.
    pub(super) fn status(&self) -> Status {
        if self.failed > 0 { Status::No } else { Status::Yes }
    }
}
