//! Shell completion: `blob __complete LINE [BREAKS]`, called by the scripts of `blob completions`.
//!
//! The output's first line is `files` if the shell is to complete paths, `words`, or `both`. A line per candidate
//! follows. With BREAKS, readline's word breaks, a candidate is the text that bash inserts; without, a whole word, a
//! tab and the word's help. An unreadable file offers no tensors, and so does a file that takes longer than `TIMEOUT`.
//!
//! The scripts of clap_complete 4.6.11 (`CompleteEnv`) were tried with eight names behind each of three quotes. bash
//! ran 4 of the 24 as commands, since candidates are not quoted; zsh and fish offered nothing behind a quote (15 of
//! 24). A completer there sees one word only: neither the line's file nor the `--axis` of `merge`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use blob_io::{Entry, Limits, OpenOptions};
use clap::builder::StyledStr;
use clap::{Arg, Command};

use crate::args::whole;
use crate::escape::is_visible_text;

/// The time limit for reading a file's headers.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Names are offered only for files with at most this many tensors.
const MAX_TENSORS: u64 = 65_536;

/// The arguments that take names of tensors.
const TENSORS: [&str; 5] = ["patterns", "tensor", "tensors", "only", "exclude"];

/// Prints the candidates for the last word of a line.
pub(crate) fn answer(line: &str, breaks: Option<&str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let words = words(line, breaks.unwrap_or_default());
    let Some(word) = words.last() else {
        return Ok(());
    };
    let offer = offer(&words);
    writeln!(out, "{}", offer.kind())?;
    for Candidate { text, help } in offer.words.iter().filter(|c| c.text.starts_with(&word.text)) {
        match breaks {
            Some(_) => writeln!(out, "{}", word.rest_of(text))?,
            None => writeln!(out, "{text}\t{help}")?,
        }
    }
    Ok(())
}

/// The candidates for the last word.
#[derive(Debug, PartialEq, Eq)]
struct Offer {
    files: bool,
    words: Vec<Candidate>,
}

#[derive(Debug, PartialEq, Eq)]
struct Candidate {
    text: String,
    help: String,
}

impl Candidate {
    fn new(text: impl Into<String>, help: Option<&StyledStr>) -> Self {
        let help = help.map(StyledStr::to_string).unwrap_or_default();
        Self { text: text.into(), help: help.lines().next().unwrap_or_default().to_owned() }
    }
}

impl Offer {
    fn files() -> Self {
        Self { files: true, words: Vec::new() }
    }

    fn words(words: impl Iterator<Item = Candidate>) -> Self {
        Self { files: false, words: words.collect() }
    }

    fn kind(&self) -> &'static str {
        match (self.files, self.words.is_empty()) {
            (false, _) => "words",
            (true, true) => "files",
            (true, false) => "both",
        }
    }
}

/// A word of the line, unquoted as by the shell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Word {
    text: String,
    /// The index in `text` at which readline's word begins: after the last break or quote.
    from: usize,
    /// The quote that is still open.
    quote: Option<char>,
}

impl Word {
    /// The part of a candidate that replaces readline's word, quoted so that bash reads exactly the candidate, whatever
    /// characters a file has put into it. An open quote stays open.
    fn rest_of(&self, candidate: &str) -> String {
        let mut out = String::new();
        for c in candidate[self.from..].chars() {
            match (self.quote, c) {
                // Within single quotes everything but the end is literal.
                (Some('\''), '\'') => out.push_str(r"'\''"),
                (Some('\''), c) => out.push(c),
                // A backslash would not hide `!` from the history within double quotes.
                (Some(_), '!') => out.push_str("\"'!'\""),
                (Some(_), '"' | '\\' | '$' | '`') => out.extend(['\\', c]),
                (Some(_), c) => out.push(c),
                (None, c) if c.is_ascii() && !c.is_ascii_alphanumeric() && !"_-./:@%+,=".contains(c) => {
                    out.extend(['\\', c]);
                }
                (None, c) => out.push(c),
            }
        }
        // Readline takes the open quote away before a text that begins with one, and closes it but behind a text that
        // ends with one.
        if let Some(quote) = self.quote {
            if out.starts_with(quote) {
                out.insert(0, quote);
            }
            if out.ends_with(quote) {
                out.push(quote);
            }
        }
        out
    }
}

/// Splits a line into words as the shell does; the last word is being typed and may be empty.
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
    // Drops the empty words between repeated spaces.
    let last = words.len() - 1;
    let mut at = 0;
    words.retain(|word| {
        at += 1;
        at > last || !word.text.is_empty()
    });
    words
}

/// The candidates for the last of the words.
fn offer(words: &[Word]) -> Offer {
    let tool = whole();
    let texts: Vec<&str> = words.iter().skip(1).map(|w| w.text.as_str()).collect();
    let Some((current, before)) = texts.split_last() else {
        return Offer::files();
    };
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
            "help" if !named && positionals.is_empty() => return commands(&tool, current),
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
    let file = positionals.first().copied();
    if let Some(arg) = valued {
        return values(arg, "", file);
    }
    if let Some((flag, _)) = current.split_once('=').filter(|_| current.starts_with("--")) {
        let arg = command.get_arguments().find(|a| a.get_long() == Some(&flag[2..]));
        return arg.map_or_else(Offer::files, |arg| values(arg, &format!("{flag}="), file));
    }
    if current.starts_with('-') && !only_positionals {
        let longs = command.get_arguments().filter_map(|a| Some((a.get_long()?, a.get_help())));
        return Offer::words(longs.map(|(long, help)| Candidate::new(format!("--{long}"), help)));
    }
    if !named {
        // `blob FILE` works too, but before a letter is typed only the commands are offered: a folder can be long.
        return Offer { files: !current.is_empty(), ..commands(&tool, current) };
    }
    let expected: Vec<&Arg> = command.get_positionals().collect();
    let arg = expected.get(positionals.len()).or(expected.last());
    match (arg.map(|arg| arg.get_id().as_str()), file) {
        // `merge` takes files; with --axis one file and tensors.
        (Some("inputs"), Some(file)) if before.iter().any(|word| word.starts_with("--axis")) => tensors_of(file, ""),
        _ => arg.map_or_else(Offer::files, |arg| values(arg, "", file)),
    }
}

/// The commands that begin like this.
fn commands(tool: &Command, typed: &str) -> Offer {
    let shown = tool.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name().starts_with(typed));
    Offer::words(shown.map(|c| Candidate::new(c.get_name(), c.get_about())))
}

fn tensors_of(file: &str, prefix: &str) -> Offer {
    Offer::words(tensors(file).into_iter().map(|name| Candidate::new(format!("{prefix}{name}"), None)))
}

/// The flag with this name, if the next word is the flag's value.
fn takes_value<'c>(command: &'c Command, flag: &str) -> Option<&'c Arg> {
    let mut valued = command.get_arguments().filter(|a| !a.is_positional() && a.get_action().takes_values());
    valued.find(|arg| {
        let long = arg.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long));
        long || arg.get_short().is_some_and(|short| flag == format!("-{short}"))
    })
}

/// The values that an argument takes: tensors of the line's first file, known words, or files for a path.
fn values(arg: &Arg, prefix: &str, file: Option<&str>) -> Offer {
    if let (true, Some(file)) = (TENSORS.contains(&arg.get_id().as_str()), file) {
        return tensors_of(file, prefix);
    }
    if arg.get_id() == "names" {
        let words = ["raw", "torch"].map(|word| Candidate::new(format!("{prefix}{word}"), None));
        return Offer { files: true, ..Offer::words(words.into_iter()) };
    }
    match arg.get_value_hint() {
        clap::ValueHint::AnyPath | clap::ValueHint::FilePath => Offer::files(),
        _ => {
            let known = arg.get_possible_values();
            Offer::words(known.iter().map(|v| Candidate::new(format!("{prefix}{}", v.get_name()), v.get_help())))
        }
    }
}

/// The names of a file's tensors that can be typed.
fn tensors(file: &str) -> Vec<String> {
    let path = match (file.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(file),
    };
    // Opening a pipe would wait for a writer.
    if !path.is_file() {
        return Vec::new();
    }
    let (send, receive) = mpsc::channel();
    let reader = thread::Builder::new().spawn(move || {
        let limits = Limits { max_arrays: MAX_TENSORS, max_alloc: 16 << 20, ..Limits::default() };
        let names = OpenOptions::new().limits(limits).open(&path).map(|checkpoint| {
            let names = checkpoint.entries().iter().map(Entry::name);
            names.filter(|name| !name.is_empty() && is_visible_text(name)).map(str::to_owned).collect()
        });
        send.send(names.unwrap_or_default())
    });
    match reader {
        Ok(_) => receive.recv_timeout(TIMEOUT).unwrap_or_default(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKS: &str = " \t\n\"'@><=;|&(:";

    fn offered(line: &str) -> (&'static str, Vec<String>) {
        let words = words(line, BREAKS);
        let last = words.last().unwrap().clone();
        let offer = offer(&words);
        let kind = offer.kind();
        (kind, offer.words.into_iter().map(|c| c.text).filter(|c| c.starts_with(&last.text)).collect())
    }

    #[test]
    fn files_are_left_to_the_shell() {
        for line in [
            "blob ls ", "blob ls len", "blob verify a b", "blob show ", "blob convert a -o ", "blob merge a b",
            "blob verify a --against x", "blob len", "blob --json a.params ", "blob --from params ls ", "blob ls -- -",
        ] {
            assert_eq!(offered(line), ("files", Vec::new()), "{line}");
        }
    }

    #[test]
    fn commands_flags_and_values_are_words() {
        for (line, expected) in [
            ("blob ls --tr", &["--tree"][..]),
            ("blob --from saf", &["safetensors"]),
            ("blob ls --color=al", &["--color=always"]),
            ("blob ls a --sort s", &["size"]),
            ("blob completions z", &["zsh"]),
            ("blob help me", &["merge"]),
            ("blob --json help comp", &["completions"]),
            ("blob show a --slice ", &[]),
            ("blob ls nosuch.params con", &[]),
            ("blob split nosuch.params con", &[]),
            ("blob merge --axis 0 nosuch.params con", &[]),
        ] {
            let expected = expected.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(offered(line), ("words", expected), "{line}");
        }
        assert!(offered("blob ls -").1.contains(&"--long".to_owned()));
        for (line, word) in [("blob convert a --names t", "torch"), ("blob convert a --names=t", "--names=torch")] {
            assert_eq!(offered(line), ("both", vec![word.to_owned()]), "{line}");
        }
        assert_eq!(offered("blob ver"), ("both", vec!["verify".to_owned()]), "a file's name may begin like this too");
        let (kind, all) = offered("blob ");
        let tool = whole();
        let shown: Vec<&str> = tool.get_subcommands().filter(|c| !c.is_hide_set()).map(Command::get_name).collect();
        assert_eq!(kind, "words");
        assert_eq!(all, shown);
    }

    #[test]
    fn a_line_is_split_as_by_the_shell_and_candidates_are_quoted() {
        let last = |line: &str| words(line, BREAKS).pop().unwrap();
        assert_eq!(words("blob  ls a\\ b 'c d' ", BREAKS).len(), 5);
        for (line, candidate, inserted) in [
            ("blob ls f con", "conv1/0", "conv1/0"),
            ("blob ls f arg:f", "arg:fc w", "fc\\ w"),
            ("blob ls f arg:", "arg:fc", "fc"),
            ("blob ls f a\\:b", "a:b c", "a:b\\ c"),
            ("blob ls f 'arg:f", "arg:fc w", "arg:fc w"),
            ("blob ls f \"a", "a$b", "a\\$b"),
            ("blob ls f \"a", "a!b`\"\\", "a\"'!'\"b\\`\\\"\\\\"),
            ("blob ls f 'a", "a'; rm x; echo 'b", r"a'\''; rm x; echo '\''b"),
            ("blob ls f 'a", "a'", r"a'\'''"),
            ("blob ls f \"a", "a!", "a\"'!'\"\""),
            ("blob ls f '", "'b", r"''\''b"),
            ("blob ls f \"a", "a\"", "a\\\"\""),
            ("blob ls f 'a'\\'';", "a'; rm x", "; rm x"),
            ("blob ls f a", "a'; !x\"$(y)`z`", "a\\'\\;\\ \\!x\\\"\\$\\(y\\)\\`z\\`"),
            ("blob ls f conv@", "conv@7/0", "7/0"),
            ("blob ls f ", "a(1)", "a\\(1\\)"),
            ("blob ls f ", "名#", "名\\#"),
        ] {
            assert_eq!(last(line).rest_of(candidate), inserted, "{line}");
        }
    }
}
