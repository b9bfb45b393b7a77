//! Selects tensors of an open file: by name, glob, regular expression, or index.

use blob_io::{Checkpoint, Entry};
use globset::{GlobBuilder, GlobMatcher};
use regex::Regex;

use crate::failure::Failure;

/// One pattern, ready to match.
enum Selector<'a> {
    Name(&'a str),
    Index(usize),
    Glob(Box<GlobMatcher>),
    Regex(Box<Regex>),
}

impl<'a> Selector<'a> {
    /// Compiles a pattern. A tensor of exactly that name takes precedence, because names can contain `*`, `[` and `#`.
    fn new(pattern: &'a str, regex: bool, entries: &[Entry]) -> Result<Self, Failure> {
        if regex {
            let compiled = Regex::new(pattern)
                .map_err(|e| Failure::new(format!("{pattern:?} is no regular expression: {}", last_line(&e))))?;
            return Ok(Self::Regex(Box::new(compiled)));
        }
        if entries.iter().any(|e| e.name() == pattern) {
            return Ok(Self::Name(pattern));
        }
        if let Some(index) = pattern.strip_prefix('#').and_then(|n| n.parse().ok()) {
            return Ok(Self::Index(index));
        }
        if !pattern.contains(['*', '?', '[', '{', '\\']) {
            return Ok(Self::Name(pattern));
        }
        let glob = GlobBuilder::new(pattern)
            .literal_separator(false)
            .backslash_escape(true)
            .build()
            .map_err(|e| Failure::new(format!("{pattern:?} is no glob: {}", e.kind())))?;
        Ok(Self::Glob(Box::new(glob.compile_matcher())))
    }

    fn matches(&self, index: usize, name: &str) -> bool {
        match self {
            Self::Name(wanted) => name == *wanted,
            Self::Index(wanted) => index == *wanted,
            Self::Glob(glob) => glob.is_match(name),
            Self::Regex(regex) => regex.is_match(name),
        }
    }
}

/// The message of a regex error: its last line; the lines before draw the position.
fn last_line(e: &regex::Error) -> String {
    let text = e.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

/// The indices of the entries that match any of the patterns, in the file's order; without a pattern, all entries.
///
/// # Errors
/// A pattern that matches nothing: the answer is no.
pub(crate) fn select(checkpoint: &Checkpoint, patterns: &[String], regex: bool) -> Result<Vec<usize>, Failure> {
    let entries = checkpoint.entries();
    if patterns.is_empty() {
        return Ok((0..entries.len()).collect());
    }
    let mut chosen = vec![false; entries.len()];
    for pattern in patterns {
        let selector = Selector::new(pattern, regex, entries)?;
        let mut any = false;
        for (index, entry) in entries.iter().enumerate() {
            if selector.matches(index, entry.name()) {
                (chosen[index], any) = (true, true);
            }
        }
        if !any {
            return Err(no_match(checkpoint, pattern));
        }
    }
    let all = chosen.iter().enumerate();
    Ok(all.filter(|(_, c)| **c).map(|(i, _)| i).collect())
}

/// The one entry that matches the pattern; without a pattern, the file's only entry.
///
/// # Errors
/// No match, or more than one.
pub(crate) fn select_one<'c>(checkpoint: &'c Checkpoint, pattern: Option<&str>) -> Result<&'c Entry, Failure> {
    let entries = checkpoint.entries();
    let Some(pattern) = pattern else {
        return match entries {
            [one] => Ok(one),
            [] => Err(Failure::no(format!("{} holds no tensors", checkpoint.name()))),
            [first, ..] => {
                Err(Failure::new(format!("{} holds {} tensors; name one of them", checkpoint.name(), entries.len()))
                    .help(format!("for instance {:?}; `blob ls` lists them all", first.name())))
            }
        };
    };
    let found = select(checkpoint, &[pattern.to_owned()], false)?;
    match found[..] {
        [one] => Ok(&entries[one]),
        _ => {
            let some: Vec<String> = found.iter().take(3).map(|i| format!("{:?}", entries[*i].name())).collect();
            let dots = if found.len() > 3 { ", …" } else { "" };
            Err(Failure::new(format!("{pattern:?} matches {} tensors, and one is needed", found.len()))
                .help(format!("it matches {}{dots}; a name or `#3` takes one", some.join(", "))))
        }
    }
}

fn no_match(checkpoint: &Checkpoint, pattern: &str) -> Failure {
    let entries = checkpoint.entries();
    let failure = Failure::no(format!("no tensor of {} matches {pattern:?}", checkpoint.name()));
    if std::path::Path::new(pattern).is_file() {
        return failure.help(format!("{pattern:?} is a file; this command takes one file, then names of its tensors"));
    }
    match nearest(pattern, entries.iter().map(Entry::name)) {
        Some(name) => failure.help(format!("did you mean {name:?}?")),
        None => failure
            .help(format!("it holds {}; `blob ls` lists them", crate::units::plural(entries.len() as u64, "tensor"))),
    }
}

/// The name most similar to `wanted`, if one is similar enough to be a suggestion.
pub(crate) fn nearest<'n>(wanted: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // clap's threshold for its own suggestions is 0.7.
    const MIN_SIMILARITY: f64 = 0.8;
    // More names take too long to compare.
    const MAX_NAMES: usize = 10_000;
    names
        .take(MAX_NAMES)
        .filter(|name| name.len() <= 256)
        .map(|name| (strsim::jaro(wanted, name), name))
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        // Of several equally similar names, the first one.
        .min_by(|a, b| b.0.total_cmp(&a.0))
        .map(|(_, name)| name)
}
