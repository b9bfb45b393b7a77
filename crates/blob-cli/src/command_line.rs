//! `blob FILE` means `blob info FILE`: finds the first word that is no flag, and adds the command where it is missing.
//!
//! A file that is called like a command is reached with `./`.

use std::ffi::OsString;
use std::path::Path;

use clap::CommandFactory;

use crate::args::{Args, Command};
use crate::failure::Failure;
use crate::open;
use crate::select::nearest;

/// The words of the command line with the command's name among them.
///
/// # Errors
/// The first word is neither a command nor a file, and looks like a mistyped command.
pub(crate) fn complete(mut words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
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

impl Command {
    /// The file of a command that takes one.
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

/// The place of the first word that is neither a flag nor a flag's value; none where the user asks for help or version.
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

/// The global flags that take the word after them.
fn flags_with_values(command: &clap::Command) -> Vec<String> {
    let arguments = command.get_arguments();
    let valued = arguments.filter(|a| a.get_action().takes_values());
    valued.filter_map(|a| a.get_long()).map(|long| format!("--{long}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from).collect();
        match complete(words) {
            Ok(words) => Ok(words.join(" ".as_ref()).to_string_lossy().into_owned()),
            Err(failure) => Err(format!("{failure:?}")),
        }
    }

    #[test]
    fn a_file_alone_is_info() {
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
