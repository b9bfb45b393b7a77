//! What bash offers for a half-typed line: `blob __complete LINE BREAKS`, which the script of `blob completions` calls.
//!
//! Prints `files`, and bash completes paths itself, or `words` and a candidate a line. It never fails and never waits
//! long: a file that cannot be read within a moment has no tensors to offer.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use blob_io::{Entry, Limits, OpenOptions};
use clap::{Arg, Command, CommandFactory};

use crate::args::Args;

/// How long a file's headers may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// The most tensors of a file that is asked for its names.
const MANY: u64 = 65_536;

/// Answers, where the words of the command line ask for it.
pub(crate) fn answer(line: &str, breaks: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Some(word) = words(line, breaks).pop() else {
        return Ok(());
    };
    match candidates(&words(line, breaks)) {
        None => writeln!(out, "files"),
        Some(found) => {
            writeln!(out, "words")?;
            for candidate in found.iter().filter(|c| c.starts_with(&word.text)) {
                writeln!(out, "{}", word.rest_of(candidate))?;
            }
            Ok(())
        }
    }
}

/// A word of the line, as the shell will take it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Word {
    text: String,
    /// Where readline's own word begins in it: behind the last break or quote.
    from: usize,
    /// The quote that is still open.
    quote: Option<char>,
}

impl Word {
    /// What of a candidate takes the place of readline's word, quoted as that one is.
    fn rest_of(&self, candidate: &str) -> String {
        let special = |c: char| match self.quote {
            Some('"') => "\"\\$`".contains(c),
            Some(_) => false,
            None => c.is_ascii() && !c.is_ascii_alphanumeric() && !"_-./:@%+,=".contains(c),
        };
        let mut out = String::new();
        for c in candidate[self.from..].chars() {
            out.extend(special(c).then_some('\\'));
            out.push(c);
        }
        out
    }
}

/// The words of a line, split as the shell does; the last one is being typed, and may be empty.
fn words(line: &str, breaks: &str) -> Vec<Word> {
    let mut words = vec![Word::default()];
    let mut escaped = false;
    for c in line.chars() {
        let last = words.len() - 1;
        let word = &mut words[last];
        match (c, word.quote) {
            _ if std::mem::take(&mut escaped) => word.text.push(c),
            ('\\', None | Some('"')) => escaped = true,
            ('\'' | '"', None) => {
                word.quote = Some(c);
                word.from = word.text.len();
            }
            (c, Some(quote)) if c == quote => word.quote = None,
            (c, None) if c.is_whitespace() => words.push(Word::default()),
            (c, quote) => {
                word.text.push(c);
                if quote.is_none() && breaks.contains(c) {
                    word.from = word.text.len();
                }
            }
        }
    }
    // Two spaces hold no word.
    let last = words.len() - 1;
    let mut at = 0;
    words.retain(|word| {
        at += 1;
        at > last || !word.text.is_empty()
    });
    words
}

/// What could stand in the last word's place; none where it is a file.
fn candidates(words: &[Word]) -> Option<Vec<String>> {
    let mut tool = Args::command();
    tool.build();
    let texts: Vec<&str> = words.iter().skip(1).map(|w| w.text.as_str()).collect();
    let (current, before) = texts.split_last()?;
    let mut command = &tool;
    let mut named = false;
    let mut positionals: Vec<&str> = Vec::new();
    let mut valued: Option<&Arg> = None;
    let mut only_positionals = false;
    for word in before {
        if valued.take().is_some() {
            continue;
        }
        match *word {
            "--" => only_positionals = true,
            flag if flag.starts_with('-') && flag != "-" && !only_positionals => valued = takes_value(command, flag),
            name if !named && positionals.is_empty() => {
                named = true;
                match tool.find_subcommand(name) {
                    Some(found) => command = found,
                    None => positionals.push(name),
                }
            }
            word => positionals.push(word),
        }
    }
    if let Some(arg) = valued {
        return values(arg, "");
    }
    if let Some((flag, _)) = current.split_once('=').filter(|_| current.starts_with("--")) {
        let arg = command.get_arguments().find(|a| a.get_long() == Some(&flag[2..]))?;
        return values(arg, &format!("{flag}="));
    }
    if current.starts_with('-') && !only_positionals {
        let longs = command.get_arguments().filter_map(Arg::get_long);
        return Some(longs.map(|long| format!("--{long}")).collect());
    }
    if !named {
        let names = tool.get_subcommands().map(|c| c.get_name().to_owned());
        let names: Vec<String> = names.filter(|name| name.starts_with(current)).collect();
        return (!names.is_empty()).then_some(names);
    }
    let expected: Vec<&Arg> = command.get_positionals().collect();
    let arg = expected.get(positionals.len()).or(expected.last())?;
    match arg.get_id().as_str() {
        "patterns" | "tensor" => Some(tensors(positionals.first()?)),
        _ => values(arg, ""),
    }
}

/// The flag that a word names, if the next word is its value.
fn takes_value<'c>(command: &'c Command, flag: &str) -> Option<&'c Arg> {
    let mut valued = command.get_arguments().filter(|a| !a.is_positional() && a.get_action().takes_values());
    valued.find(|arg| {
        let long = arg.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long));
        long || arg.get_short().is_some_and(|short| flag == format!("-{short}"))
    })
}

/// The words that an argument takes; none where it takes a path.
fn values(arg: &Arg, prefix: &str) -> Option<Vec<String>> {
    match arg.get_value_hint() {
        clap::ValueHint::AnyPath | clap::ValueHint::FilePath => None,
        _ => {
            let known = arg.get_possible_values();
            Some(known.iter().map(|value| format!("{prefix}{}", value.get_name())).collect())
        }
    }
}

/// The names of a file's tensors, those that can be typed.
fn tensors(file: &str) -> Vec<String> {
    let path = match (file.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(file),
    };
    // A pipe would be waited for.
    if !path.is_file() {
        return Vec::new();
    }
    let (send, receive) = mpsc::channel();
    let reader = thread::Builder::new().spawn(move || {
        let limits = Limits::default().max_arrays(MANY).max_alloc(16 << 20);
        let names = OpenOptions::new().limits(limits).open(&path).map(|checkpoint| {
            let names = checkpoint.entries().iter().map(Entry::name);
            names.filter(|n| !n.is_empty() && !n.contains(char::is_control)).map(str::to_owned).collect()
        });
        send.send(names.unwrap_or_default())
    });
    match reader {
        Ok(_) => receive.recv_timeout(PATIENCE).unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKS: &str = " \t\n\"'@><=;|&(:";

    fn offered(line: &str) -> Option<Vec<String>> {
        let words = words(line, BREAKS);
        let last = words.last().unwrap().clone();
        let fits = |found: Vec<String>| found.into_iter().filter(|c| c.starts_with(&last.text)).collect();
        candidates(&words).map(fits)
    }

    #[test]
    fn files_are_left_to_the_shell() {
        for line in [
            "blob ls ",
            "blob ls len",
            "blob verify a b",
            "blob show ",
            "blob convert a -o ",
            "blob verify a --against x",
            "blob len",
            "blob --json a.params ",
            "blob --from params ls ",
            "blob ls -- -",
        ] {
            assert_eq!(offered(line), None, "{line}");
        }
    }

    #[test]
    fn commands_flags_and_values_are_words() {
        for (line, expected) in [
            ("blob ver", &["verify"][..]),
            ("blob ls --tr", &["--tree"]),
            ("blob --from saf", &["safetensors"]),
            ("blob ls --color=al", &["--color=always"]),
            ("blob ls a --sort s", &["size"]),
            ("blob completions z", &["zsh"]),
            ("blob show a --slice ", &[]),
            ("blob ls nosuch.params con", &[]),
        ] {
            assert_eq!(offered(line).unwrap(), expected, "{line}");
        }
        assert!(offered("blob ls -").unwrap().contains(&"--long".to_owned()));
    }

    #[test]
    fn words_are_the_shells_and_candidates_fit_them() {
        let last = |line: &str| words(line, BREAKS).pop().unwrap();
        assert_eq!(words("blob  ls a\\ b 'c d' ", BREAKS).len(), 5);
        for (line, candidate, inserted) in [
            ("blob ls f con", "conv1/0", "conv1/0"),
            ("blob ls f arg:f", "arg:fc w", "fc\\ w"),
            ("blob ls f arg:", "arg:fc", "fc"),
            ("blob ls f a\\:b", "a:b c", "a:b\\ c"),
            ("blob ls f 'arg:f", "arg:fc w", "arg:fc w"),
            ("blob ls f \"a", "a$b", "a\\$b"),
            ("blob ls f conv@", "conv@7/0", "7/0"),
            ("blob ls f ", "a(1)", "a\\(1\\)"),
            ("blob ls f ", "名#", "名\\#"),
        ] {
            assert_eq!(last(line).rest_of(candidate), inserted, "{line}");
        }
    }
}
