//! The tool `blob`: arguments in, tables and files out.
//!
//! Each command has a file; `blob FILE` means `blob info FILE`. Knows arguments, terminals and exit codes. Does **not**
//! know formats, kernels, or what a conversion changes: `blob_io` and `blob_convert` do.

#![forbid(unsafe_code)]

mod args;
mod broken;
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
mod regroup;
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

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Args, Command, Global};
use context::Context;
use failure::{Failure, Status};
use output::Terminal;
use output::progress::INTERRUPTED;
use select::nearest;

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
    let matches = match with_command(words) {
        Ok(words) => Args::command().get_matches_from(words),
        Err(failure) => {
            Terminal::new(&Global::default()).error(&failure);
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

/// The words of the command line, with the command inserted if it was missing.
///
/// # Errors
/// The first word is neither a command nor a file, and looks like a mistyped command.
fn with_command(mut words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let command = Args::command();
    let named = |command: &clap::Command| {
        command.get_name_and_visible_aliases().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let names: Vec<String> = command.get_subcommands().flat_map(named).collect();
    let Some(at) = first_positional(&words, &flags_with_values(&command)) else {
        return Ok(words);
    };
    let first = words[at].to_string_lossy().into_owned();
    if words[at] != "--" && names.contains(&first) {
        return Ok(words);
    }
    if first == "help" && !Path::new("help").exists() {
        // `blob help ls` is `blob ls --help`.
        words.remove(at);
        words.push("--help".into());
        return Ok(words);
    }
    let is_bare = !first.contains(['.', '/', '\\', '-']);
    if is_bare && !Path::new(&first).exists() {
        let failure = Failure::new(format!("there is no file and no command {first:?}"));
        return Err(match nearest(&first, names.iter().map(String::as_str)) {
            Some(name) => failure.help(format!("did you mean `blob {name}`?")),
            None => failure.help("`blob --help` lists the commands"),
        });
    }
    words.insert(at, "info".into());
    Ok(words)
}

/// The index of the first word that is neither a flag nor a flag's value; `None` if the user asks for help or the
/// version.
fn first_positional(words: &[OsString], with_value: &[String]) -> Option<usize> {
    let mut at = 1;
    while at < words.len() {
        let word = words[at].to_string_lossy();
        match &*word {
            "-" | "--" => return Some(at),
            "-h" | "--help" | "-V" | "--version" => return None,
            flag if with_value.iter().any(|f| f == flag) => at += 2,
            flag if flag.starts_with('-') => at += 1,
            _ => return Some(at),
        }
    }
    None
}

/// The global flags that take a value.
fn flags_with_values(command: &clap::Command) -> Vec<String> {
    let arguments = command.get_arguments();
    let valued = arguments.filter(|a| a.get_action().takes_values());
    valued.filter_map(|a| a.get_long()).map(|long| format!("--{long}")).collect()
}

impl Command {
    /// The file argument of a command that takes one.
    pub(crate) fn file(&self) -> Option<String> {
        let path = match self {
            Self::Ls(args) => &args.selection.file,
            Self::Show(args) => &args.file,
            Self::Stats(args) => &args.selection.file,
            Self::Convert(args) => &args.input,
            Self::Extract(args) => &args.file,
            Self::Diff(args) => &args.file,
            Self::Split(args) => &args.file,
            Self::Plot(args) => &args.file,
            Self::Report(args) => &args.file,
            Self::Transpose(args) => &args.file,
            Self::Rename(args) => &args.file,
            _ => return None,
        };
        Some(open::name(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from).collect();
        match with_command(words) {
            Ok(words) => Ok(words.join(" ".as_ref()).to_string_lossy().into_owned()),
            Err(failure) => Err(format!("{failure:?}")),
        }
    }

    #[test]
    fn a_file_without_a_command_means_info() {
        for (line, expected) in [
            ("blob a.params", "blob info a.params"),
            ("blob --json a.params b.params", "blob --json info a.params b.params"),
            ("blob --from params x.bin", "blob --from params info x.bin"),
            ("blob --from=params x.bin", "blob --from=params info x.bin"),
            ("blob -", "blob info -"),
            ("blob ./ls", "blob info ./ls"),
            ("blob -- ls", "blob info -- ls"),
            ("blob ls a.params", "blob ls a.params"),
            ("blob --max-alloc 1G ls a.params", "blob --max-alloc 1G ls a.params"),
            ("blob --help", "blob --help"),
            ("blob -V", "blob -V"),
            ("blob", "blob"),
            ("blob help", "blob --help"),
            ("blob help ls", "blob ls --help"),
        ] {
            assert_eq!(completed(line).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_mistyped_command_gets_a_suggestion() {
        let error = completed("blob vrify a.params").unwrap_err();
        assert!(error.contains("did you mean `blob verify`?"), "{error}");
        assert!(completed("blob qqqq").unwrap_err().contains("--help"));
    }
}
