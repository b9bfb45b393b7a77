//! The tool `blob`: arguments in, tables and files out.
//!
//! One file a command. Knows arguments, terminals and exit codes. Does **not** know formats, kernels, or what a
//! conversion changes: `blob_io` and `blob_convert` do.

#![forbid(unsafe_code)]

mod anew;
mod args;
mod broken;
mod command_line;
mod complete;
mod completions;
mod context;
mod convert;
mod devices;
mod diff;
mod elements;
mod escape;
mod extract;
mod failure;
mod fold;
mod formats;
mod hash;
mod help;
mod info;
mod json;
mod ls;
mod man;
mod merge;
mod net;
mod open;
mod output;
mod plot;
mod rename;
mod render;
mod report;
mod schema;
mod select;
mod show;
mod slice;
mod source;
mod split;
mod stats;
mod transforms;
mod transpose;
mod units;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Args, Command, Global};
use context::Context;
use failure::{Failure, Status};
use output::Terminal;
use output::progress::INTERRUPTED;

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
    let matches = match command_line::complete(words) {
        Ok(words) => Args::command().get_matches_from(words),
        Err(failure) => {
            Terminal::new(&Global::default()).trouble(&failure);
            return ExitCode::from(Status::Trouble.code());
        }
    };
    let command = matches.subcommand_name().unwrap_or_default().to_owned();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let context = Context { command, terminal: Terminal::new(&args.global), global: args.global };
    match run(&args.command, &context) {
        Ok(status) => ExitCode::from(status.code()),
        Err(failure) => {
            context.failed(args.command.file().as_deref(), &failure);
            ExitCode::from(match failure {
                Failure::Trouble(_) => Status::Trouble.code(),
                Failure::No(_) => Status::No.code(),
                Failure::Interrupted => INTERRUPTED,
                Failure::ReaderGone => Status::Yes.code(),
            })
        }
    }
}

fn run(command: &Command, context: &Context) -> Result<Status, Failure> {
    open::check_member(&context.global)?;
    match command {
        Command::Info(args) => info::run(args, context),
        Command::Ls(args) => ls::run(args, context),
        Command::Show(args) => show::run(args, context),
        Command::Stats(args) => stats::run(args, context),
        Command::Verify(args) => verify::run(args, context),
        Command::Diff(args) => diff::run(args, context),
        Command::Hash(args) => hash::run(args, context),
        Command::Convert(args) => convert::run(args, context, &|_, options| Ok(options)),
        Command::Fold(args) => fold::run(args, context),
        Command::Extract(args) => extract::run(args, context),
        Command::Merge(args) => merge::run(args, context),
        Command::Split(args) => split::run(args, context),
        Command::Plot(args) => plot::run(args, context),
        Command::Report(args) => report::run(args, context),
        Command::Transpose(args) => transpose::run(args, context),
        Command::Rename(args) => rename::run(args, context),
        Command::Formats => formats::run(context),
        Command::Devices(_) => devices::run(context),
        Command::Schemas => schema::run(context),
        Command::Completions(args) => completions::run(args, context),
        Command::Man(args) => man::run(args, context),
    }
}
