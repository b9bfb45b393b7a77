//! A command line that lacks something: the lack, and the completed line.

use std::ffi::OsString;

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use super::positionals;
use crate::convert::quoted;
use crate::failure::Failure;

/// How many missing things are added to a line, one after the other.
const MOST: usize = 6;

/// The failure of a line that lacks something that `command` needs; `None` for any other error.
pub(super) fn missing(tool: &Command, command: &Command, words: &[OsString], error: &Error) -> Option<Failure> {
    let lacks: Vec<String> = lacking(error)?.iter().map(|one| either(&alternatives(one))).collect();
    let failure = Failure::new(format!("`blob {}` lacks {}", command.get_name(), lacks.join(" and ")));
    // Placeholders are no values, so every value is accepted.
    let lax = tool.clone().mut_subcommands(|command| {
        command.mut_args(
            |arg| if arg.get_action().takes_values() { arg.value_parser(ValueParser::os_string()) } else { arg },
        )
    });
    Some(match completed(&lax, command, words, MOST) {
        Some(line) => {
            let typed = line.iter().skip(1).map(|word| match word.to_str() {
                // A flag is no path, and a placeholder is to be replaced.
                Some(text) if text.starts_with('-') || !words.contains(word) => text.to_owned(),
                _ => quoted(word.as_ref()),
            });
            failure.help(format!("blob {}", typed.collect::<Vec<_>>().join(" ")))
        }
        None => failure,
    })
}

/// The lack of a line, as clap writes it: `--output <OUT>`, `<FILE>...`, `<--map <MAP>|--sed <S/OLD/NEW/>>`.
fn lacking(error: &Error) -> Option<&[String]> {
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(lacks))) => Some(lacks),
        _ => None,
    }
}

/// The completed line, in the first way that serves.
fn completed(lax: &Command, command: &Command, words: &[OsString], most: usize) -> Option<Vec<OsString>> {
    let error = match lax.clone().try_get_matches_from(words) {
        Ok(_) => return Some(words.to_vec()),
        Err(error) => error,
    };
    let lacks = lacking(&error).filter(|_| most > 0)?;
    let positional = lacks.iter().find(|one| one.starts_with('<') && !one.starts_with("<-"));
    let first = positional.or(lacks.last())?;
    alternatives(first).iter().find_map(|one| {
        let mut line = words.to_vec();
        let is_first = !one.starts_with('-') && positionals(lax, command, words) == 0;
        let at = line.iter().position(|word| word == command.get_name()).filter(|_| is_first);
        let at = at.map_or(line.len(), |at| at + 1);
        line.splice(at..at, one.split(' ').map(OsString::from));
        completed(lax, command, &line, most - 1)
    })
}

/// The ways to give the lacking part: `--map MAP`, `--sed S/OLD/NEW/`.
fn alternatives(lacking: &str) -> Vec<String> {
    lacking
        .split('|')
        .map(|one| match one.replace(">...", "").replace(['<', '>'], "").as_str() {
            "--output OUT" => "-o OUT".to_owned(),
            one => one.to_owned(),
        })
        .collect()
}

/// `-o OUT`; `--map MAP or --sed S/OLD/NEW/`
fn either(ways: &[String]) -> String {
    match ways {
        [ways @ .., last] if !ways.is_empty() => format!("{} or {last}", ways.join(", ")),
        _ => ways.concat(),
    }
}
