//! The tool `blob`: arguments in, tables and files out.
//!
//! One file a command. Knows arguments, terminals and exit codes. Does **not** know formats, kernels, or what a
//! conversion changes: `blob_io` and `blob_convert` do.

#![forbid(unsafe_code)]

mod args;
mod command_line;
mod completions;
mod convert;
mod elements;
mod escape;
mod extract;
mod failure;
mod formats;
mod info;
mod ls;
mod man;
mod open;
mod output;
mod picture;
mod select;
mod show;
mod slice;
mod stats;
mod tree;
mod units;
mod verify;

use std::process::ExitCode;

use blob_io::Entry;
use clap::Parser;

use args::{Args, Command, Global};
use failure::{Failure, Status};
use output::Terminal;
use output::progress::INTERRUPTED;

/// What every command is given.
struct Context {
    global: Global,
    terminal: Terminal,
}

impl Context {
    /// For the commands whose output is no data.
    fn no_json(&self, command: &str) -> Result<(), Failure> {
        match self.global.json {
            true => Err(Failure::new(format!("`blob {command}` prints no JSON"))),
            false => Ok(()),
        }
    }

    /// Tells of the arrays that are broken, on standard error.
    fn broken<'e>(&self, entries: impl IntoIterator<Item = &'e Entry>) -> Status {
        const TOLD: usize = 10;
        let mut broken = 0;
        for entry in entries {
            if let Some(fault) = entry.fault() {
                broken += 1;
                if broken <= TOLD {
                    self.terminal
                        .trouble(&Failure::new(format!("array {:?}: {fault}", entry.name())));
                }
            }
        }
        if broken > TOLD {
            self.terminal.trouble(&Failure::new(format!(
                "{} more arrays are broken",
                broken - TOLD
            )));
        }
        if broken > 0 {
            Status::Trouble
        } else {
            Status::Yes
        }
    }
}

fn main() -> ExitCode {
    let args = command_line::complete(std::env::args_os().collect());
    let args = match args {
        Ok(words) => Args::parse_from(words),
        Err(failure) => {
            Terminal::new(&Global::default()).trouble(&failure);
            return ExitCode::from(Status::Trouble.code());
        }
    };
    let context = Context {
        terminal: Terminal::new(&args.global),
        global: args.global,
    };
    match run(&args.command, &context) {
        Ok(status) => ExitCode::from(status.code()),
        Err(failure) => {
            context.terminal.trouble(&failure);
            ExitCode::from(match failure {
                Failure::Trouble { .. } => Status::Trouble.code(),
                Failure::No { .. } => Status::No.code(),
                Failure::Interrupted => INTERRUPTED,
                Failure::ReaderGone => Status::Yes.code(),
            })
        }
    }
}

fn run(command: &Command, context: &Context) -> Result<Status, Failure> {
    match command {
        Command::Info(args) => info::run(args, context),
        Command::Ls(args) => ls::run(args, context),
        Command::Show(args) => show::run(args, context),
        Command::Stats(args) => stats::run(args, context),
        Command::Verify(args) => verify::run(args, context),
        Command::Convert(args) => convert::run(args, context),
        Command::Extract(args) => extract::run(args, context),
        Command::Formats => formats::run(context),
        Command::Completions(args) => completions::run(args, context),
        Command::Man(args) => man::run(args, context),
    }
}
