//! The tool `blob`: arguments in, tables and files out.
//!
//! Each command has a file; `blob FILE` means `blob info FILE`. Knows arguments, terminals and exit codes. Does **not**
//! know formats, kernels, or a conversion's changes: `blob_io` and `blob_convert` do.

#![forbid(unsafe_code)]

mod args;
mod batch;
mod broken;
mod complete;
mod completions;
mod context;
mod convert;
mod diff;
mod escape;
mod extract;
mod failure;
mod fold;
mod formats;
mod graph;
mod hash;
mod help;
mod info;
mod inputs;
mod ls;
mod man;
mod merge;
mod nearest;
mod open;
mod output;
mod plot;
mod remedy;
mod rename;
mod render;
mod report;
mod schema;
mod select;
mod show;
mod split;
mod stats;
mod transpose;
mod units;
mod usage;
mod verify;

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::OnceLock;

use args::{Args, Command, Global};
use context::Context;
use failure::{Failure, Status};
use output::Terminal;
use output::signals::{self, INTERRUPTED, Work};
use usage::{Misuse, Parsed};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if let [_, ask, line, breaks @ ..] = &words[..]
        && ask == "__complete"
    {
        let breaks = breaks.first().map(|b| b.to_string_lossy());
        // Without an answer the shell offers nothing; an error message would disturb the typing.
        let _ = complete::answer(&line.to_string_lossy(), breaks.as_deref());
        return ExitCode::SUCCESS;
    }
    signals::outlive_limits();
    match usage::parse(words) {
        Ok(Parsed { args, command }) => obey(args, command),
        Err(misuse) => refuse(*misuse),
    }
}

/// Runs a command, and reports a failure.
fn obey(args: Args, command: String) -> ExitCode {
    let context =
        Context { command, terminal: Terminal::new(&args.global), global: args.global, has_header: Cell::default() };
    if context.global.json {
        let file = args.command.inputs().file.map(open::name);
        let _ = ASKED.set((context.command.clone(), file));
        signals::end_with(say_interrupted);
    }
    let done = run(&args.command, &context);
    // A process that a signal is ending waits here for the end.
    let _work = Work::begin();
    match done {
        Ok(status) => ExitCode::from(open::salvaged(status, &context.global).code()),
        Err(failure) => {
            context.failed(args.command.inputs().file.map(open::name).as_deref(), &failure);
            ExitCode::from(match failure {
                Failure::Trouble(_) => Status::Trouble.code(),
                Failure::No(_) => Status::No.code(),
                Failure::Interrupted(_) => INTERRUPTED,
                Failure::ReaderGone => Status::Yes.code(),
            })
        }
    }
}

/// The command that is asked for JSON, and the file.
static ASKED: OnceLock<(String, Option<String>)> = OnceLock::new();

/// The line of a command that a signal ends before any answer.
fn say_interrupted() {
    let Some((command, file)) = ASKED.get() else { return };
    let global = Global { json: true, ..Global::default() };
    let terminal = Terminal::new(&global);
    let context = Context { command: command.clone(), terminal, global, has_header: Cell::default() };
    context.say(file.as_deref(), &Failure::interrupted());
}

/// Reports the fault of the command line.
fn refuse(misuse: Misuse) -> ExitCode {
    let Misuse { command, failure, json, text } = misuse;
    let global = Global { json, ..Global::default() };
    let context = Context { command, terminal: Terminal::new(&global), global, has_header: Cell::default() };
    match text {
        Some(text) => {
            // A failure to print has nowhere to go.
            let _ = text.print();
            context.failed_in_json(None, &failure);
        }
        None => context.failed(None, &failure),
    }
    ExitCode::from(Status::Trouble.code())
}

fn run(command: &Command, context: &Context) -> Result<Status, Failure> {
    command.inputs().check(&context.global)?;
    match command {
        Command::Info(args) => info::run(args, context),
        Command::Ls(args) => ls::run(args, context),
        Command::Show(args) => show::run(args, context),
        Command::Stats(args) => stats::run(args, context),
        Command::Verify(args) => verify::run(args, context),
        Command::Diff(args) => diff::run(args, context),
        Command::Graph(args) => graph::run(args, context),
        Command::Hash(args) => hash::run(args, context),
        Command::Convert(args) => convert::run(args, context),
        Command::Fold(args) => fold::run(args, context),
        Command::Extract(args) => extract::run(args, context),
        Command::Merge(args) => merge::run(args, context),
        Command::Split(args) => split::run(args, context),
        Command::Plot(args) => plot::run(args, context),
        Command::Report(args) => report::run(args, context),
        Command::Transpose(args) => transpose::run(args, context),
        Command::Rename(args) => rename::run(args, context),
        Command::Batch(args) => batch::run(args, context),
        Command::Formats => formats::run(context),
        Command::Schemas => schema::run(context),
        Command::Completions(args) => completions::run(args, context),
        Command::Man(args) => man::run(args, context),
    }
}
