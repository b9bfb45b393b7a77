//! Rules about the lines of one file: head (2, 7), size (8), margin, second names (11), switched-off tests
//! (23), paths of one machine. The sizes of functions and stub macros are clippy's.

use super::source::has_word;
use super::{Finding, Tree};

const HEAD_LINES: usize = 10;
const FILE_LINES: usize = 400;
/// As in `rustfmt.toml`.
const MARGIN: usize = 120;

/// Generated from the proto, a table of JSON fields.
const EXCEPTED: &[&str] = &[
    "crates/blob-io/src/caffe/proto",
    "crates/blob-io/src/caffe/proto_fields",
    "crates/blob-io/src/onnx/proto",
    "crates/blob-cli/src/schema/table",
];

/// Every file opens with a head of 1 to 10 lines.
pub(super) fn head(tree: &Tree) -> Vec<Finding> {
    let lengths = tree.sources.iter().map(|source| (source, head_lines(&source.text).len()));
    let findings = lengths.filter(|(_, lines)| !(1..=HEAD_LINES).contains(lines)).map(|(source, lines)| {
        let message =
            format!("opens with {lines} lines of `//!`, not 1 to {HEAD_LINES}: what it is and what it leaves out");
        Finding::new(&source.path, lines.max(1), message)
    });
    findings.collect()
}

/// A library's head names the things that the crate does not know.
pub(super) fn not_know(tree: &Tree) -> Vec<Finding> {
    let message = "the first ten lines say nothing of what the crate does not know (\"does not know …\")";
    let libraries = tree.sources.iter().filter(|source| source.path.ends_with("/src/lib.rs"));
    let know_all = libraries.filter(|source| {
        let first: Vec<&str> = source.text.lines().take(HEAD_LINES).collect();
        // Stars are emphasis, and a sentence may go over the end of a line.
        let head = head_lines(&first.join("\n")).join(" ").replace('*', "");
        !head.split_whitespace().collect::<Vec<_>>().join(" ").contains("not know")
    });
    know_all.map(|source| Finding::new(&source.path, 1, message)).collect()
}

/// The `//!` lines from the first line on, without slashes. The head ends at the first heading, code block or
/// table: an example, a state table or a recorded measurement that follows is documentation, and has no limit.
fn head_lines(text: &str) -> Vec<&str> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let text = lines.take_while(|line| !["#", "```", "|"].iter().any(|mark| line.starts_with(mark)));
    let mut head: Vec<&str> = text.collect();
    head.truncate(head.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1));
    head
}

/// No file is too long; test modules are not counted.
pub(super) fn size(tree: &Tree) -> Vec<Finding> {
    let bounded = tree.sources.iter().filter(|source| !source.is_one_of(EXCEPTED));
    let long = bounded.map(|source| (source, source.main_flow().count())).filter(|(_, lines)| *lines > FILE_LINES);
    let findings = long.map(|(source, lines)| {
        let message = format!("{lines} lines without tests; {FILE_LINES} are allowed");
        Finding::new(&source.path, FILE_LINES + 1, message)
    });
    findings.collect()
}

/// Comments end at the margin of the code, which is rustfmt's; a row of a table may be longer.
pub(super) fn margin(tree: &Tree) -> Vec<Finding> {
    let bounded = tree.sources.iter().filter(|source| !source.is_one_of(EXCEPTED));
    let lines = bounded.flat_map(|source| (1..).zip(source.text.lines()).map(|(at, line)| (&source.path, at, line)));
    let comments = lines.filter(|(_, _, line)| {
        let line = line.trim_start();
        line.starts_with("//") && !line.trim_start_matches(['/', '!', ' ']).starts_with('|')
    });
    let over = comments.filter(|(_, _, line)| line.chars().count() > MARGIN);
    over.map(|(path, at, _)| Finding::new(path, at, format!("a comment beyond column {MARGIN}"))).collect()
}

/// No glob re-exports, no type aliases beyond a module, no prelude.
pub(super) fn names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        for (index, line) in source.code.iter().enumerate().filter(|(_, line)| line.trim_start().starts_with("pub")) {
            let kind = line.trim_start().split(' ').find(|word| !word.starts_with("pub") && !word.ends_with(')'));
            // An import may go over several lines.
            let end = source.code[index..].iter().position(|line| line.ends_with(';')).unwrap_or(0);
            let message = match kind {
                Some("use") if source.code[index..=index + end].iter().any(|line| line.contains("::*")) => {
                    "a glob re-export; name what is exported"
                }
                Some("type") => "a second name for a type",
                _ if line.contains("mod prelude") => "a prelude is a second place for its names",
                _ => continue,
            };
            findings.push(Finding::new(&source.path, index + 1, message));
        }
    }
    findings
}

/// No parameter of a function is a tuple that the signature takes apart: the parts are parameters, or a struct.
pub(super) fn tuples(tree: &Tree) -> Vec<Finding> {
    let lines = tree.sources.iter().flat_map(|source| source.main_flow().map(move |line| (source, line)));
    let taken_apart = lines.filter(|(_, (_, line))| line.match_indices("): ").any(|(at, _)| is_tuple(line, at)));
    let message = "a parameter that is a tuple: give its parts names of their own, as parameters or in a struct";
    taken_apart.map(|(source, (line, _))| Finding::new(&source.path, line, message)).collect()
}

/// Whether the pattern that ends at `end` is a tuple of a function's signature: neither a closure's nor a `let`'s.
fn is_tuple(line: &str, end: usize) -> bool {
    let (pattern, kind) = (&line[..end], line[end..].trim_start_matches("): ").trim_start_matches('&'));
    let kind = kind.trim_start_matches("mut ");
    let Some((before, names)) = pattern.rsplit_once('(') else { return false };
    let before = before.trim_start();
    let is_parameter = before.is_empty() || before.ends_with('(') || before.ends_with(", ");
    is_parameter
        && names.contains(", ")
        && kind.starts_with('(')
        && !before.contains('|')
        && !before.starts_with("let ")
}

/// Attributes by which a test does not test, and words by which an example does not.
const SWITCHES: &[&str] = &["ignore", "should_panic"];

/// No test is switched off, none passes by panicking, and every example of the documentation is compiled.
pub(super) fn switches(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        for (index, (code, line)) in source.code.iter().zip(source.text.lines()).enumerate() {
            let attribute = code.split_once("#[").map(|(_, attribute)| attribute);
            let fence = line.trim_start().trim_start_matches(['/', '!', ' ']).strip_prefix("```");
            let text = attribute.or(fence.filter(|_| code.is_empty())).unwrap_or_default();
            if let Some(word) = SWITCHES.iter().find(|word| has_word(text, word)) {
                let message =
                    format!("`{word}`: the test or example tests nothing; test the error, print what was not tested");
                findings.push(Finding::new(&source.path, index + 1, message));
            }
        }
    }
    findings
}

/// The first components of paths that exist on a developer's or a runner's machine only.
const MACHINE_FOLDERS: &[&str] = &["work", "farm", "root", "home"];

/// No tracked text file names a path of one machine.
pub(super) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !path.ends_with(".lock")) {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| names_path(line, folder)) {
                findings.push(Finding::new(path, number, format!("a path of one machine: /{folder}/…")));
            }
        }
    }
    findings
}

/// Whether the line has `/folder/` where an absolute path begins, not within a URL or a longer path.
fn names_path(line: &str, folder: &str) -> bool {
    line.match_indices(&format!("/{folder}/")).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
    })
}
