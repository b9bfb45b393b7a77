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

#[cfg(test)]
mod tests {
    use blob_io::Bytes;

    use super::*;

    /// A V2 net with these layers, each with one blob of one float.
    fn net(layers: &[&str]) -> Checkpoint {
        let mut file = Vec::new();
        for name in layers {
            let blob = b"\x2A\x04\x00\x00\x80\x3F\x3A\x03\x0A\x01\x01";
            let mut layer = vec![0x0A, name.len() as u8];
            layer.extend_from_slice(name.as_bytes());
            layer.extend_from_slice(&[0x12, 1, b'X', 0x3A, blob.len() as u8]);
            layer.extend_from_slice(blob);
            file.extend_from_slice(&[0xA2, 0x06, layer.len() as u8]);
            file.extend_from_slice(&layer);
        }
        Checkpoint::from_source("net.caffemodel", Box::new(Bytes(file))).unwrap()
    }

    fn found(net: &Checkpoint, patterns: &[&str], regex: bool) -> Vec<usize> {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        select(net, &patterns, regex).unwrap_or_default()
    }

    #[test]
    fn patterns_are_names_indices_globs_or_expressions() {
        let net = net(&["conv1", "conv2", "block/conv", "a*", "ab", "#0"]);
        assert_eq!(net.entries()[2].name(), "block/conv/0");
        for (patterns, regex, expected) in [
            (&[][..], false, &[0, 1, 2, 3, 4, 5][..]),
            (&["conv1/0"], false, &[0]),
            (&["conv*"], false, &[0, 1]),
            (&["*conv*"], false, &[0, 1, 2]),
            (&["block*0"], false, &[2]),
            (&["conv[12]/?"], false, &[0, 1]),
            (&["{ab,conv2}/0"], false, &[1, 4]),
            // A name takes precedence over a glob and an index.
            (&["a*/0"], false, &[3]),
            (&["#0/0"], false, &[5]),
            (&["#4"], false, &[4]),
            (&["#1", "conv1/0", "conv*"], false, &[0, 1]),
            (&["^conv.*0$"], true, &[0, 1]),
            (&["B"], true, &[]),
        ] {
            assert_eq!(found(&net, patterns, regex), expected, "{patterns:?}");
        }
    }

    #[test]
    fn nothing_found_is_a_no_with_a_suggestion() {
        let net = net(&["conv1", "conv2"]);
        let failure = select(&net, &["conv1/1".to_owned()], false).unwrap_err();
        let Failure::No(problem) = failure else {
            panic!("{failure:?}");
        };
        assert_eq!(problem.help.as_deref(), Some("did you mean \"conv1/0\"?"));
        assert!(select(&net, &["#2".to_owned()], false).is_err());
        assert!(matches!(select(&net, &["(".to_owned()], true), Err(Failure::Trouble(_))));
        assert!(matches!(select(&net, &["[".to_owned()], false), Err(Failure::Trouble(_))));
    }

    #[test]
    fn one_tensor_is_selected_if_it_is_the_only_match() {
        let two = net(&["conv1", "conv2"]);
        assert!(select_one(&two, None).is_err());
        assert!(select_one(&two, Some("conv*")).is_err());
        assert_eq!(select_one(&two, Some("*2/0")).unwrap().name(), "conv2/0");
        assert_eq!(select_one(&net(&["only"]), None).unwrap().name(), "only/0");
    }
}
