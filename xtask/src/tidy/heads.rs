//! Rules 2 and 7: every file opens with `//!` and says in 1 to 10 lines what it is; a library says what it does not know.
//! The head ends at the first heading, code block or table: an example, a state table or a recorded measurement
//! that follows is documentation, and has no limit.

use super::{Finding, Tree};

const HEAD_LINES: usize = 10;

/// Every file opens with a head of 1 to 10 lines.
pub(super) fn head(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        let lines = head_lines(&source.text);
        if lines.is_empty() {
            let message = "does not open with `//!`: what it is, what it relies on, what it leaves out";
            findings.push(Finding::new(&source.path, 1, message));
        } else if lines.len() > HEAD_LINES {
            let message = format!("a head of {} lines; {HEAD_LINES} are allowed", lines.len());
            findings.push(Finding::new(&source.path, lines.len(), message));
        }
    }
    findings
}

/// A library's head says what the crate does not know.
pub(super) fn not_know(tree: &Tree) -> Vec<Finding> {
    let message = "the first ten lines say nothing of what the crate does not know (\"does not know …\")";
    let libraries = tree.sources.iter().filter(|source| source.path.ends_with("/src/lib.rs"));
    let knows_all = libraries.filter(|source| {
        let first: Vec<&str> = source.text.lines().take(HEAD_LINES).collect();
        // Stars are emphasis, and a sentence may go over the end of a line.
        let head = head_lines(&first.join("\n")).join(" ").replace('*', "");
        !head.split_whitespace().collect::<Vec<_>>().join(" ").contains("not know")
    });
    knows_all.map(|source| Finding::new(&source.path, 1, message)).collect()
}

/// The `//!` lines from the first line on, without their slashes, up to a heading, a code block or a table.
fn head_lines(text: &str) -> Vec<&str> {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let mut head: Vec<&str> =
        lines.map(str::trim).take_while(|line| !["#", "```", "|"].iter().any(|mark| line.starts_with(mark))).collect();
    while head.last().is_some_and(|line| line.is_empty()) {
        head.pop();
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{NONE, lines};

    const FILE: &str = "crates/blob-io/src/npy.rs";
    const LIBRARY: &str = "crates/blob-io/src/lib.rs";

    #[test]
    fn a_file_without_a_head_is_found() {
        assert_eq!(lines(head, FILE, "fn f() {}\n"), [1]);
        assert_eq!(lines(head, FILE, "\n//! Late.\n"), [1]);
        assert_eq!(lines(head, FILE, "// Plain.\n"), [1]);
        assert_eq!(lines(head, FILE, "//!\n//! # Only a heading\n"), [1]);
        assert_eq!(lines(head, FILE, "//! Npy.\nfn f() {}\n"), NONE);
    }

    #[test]
    fn a_head_of_eleven_lines_is_found() {
        assert_eq!(lines(head, FILE, &"//! A line.\n".repeat(11)), [11]);
        assert_eq!(lines(head, FILE, &"//! A line.\n".repeat(10)), NONE);
        let example = format!("//! Npy.\n//!\n//! ```\n{}//! ```\n", "//! f();\n".repeat(20));
        assert_eq!(lines(head, FILE, &example), NONE);
    }

    #[test]
    fn a_library_that_knows_everything_is_found() {
        assert_eq!(lines(not_know, LIBRARY, "//! Formats.\n"), [1]);
        assert_eq!(lines(not_know, LIBRARY, "//! Formats; does **not**\n//! know kernels.\n"), NONE);
        assert_eq!(lines(not_know, FILE, "//! Npy.\n"), NONE);
        let late = format!("{}//! It does not know kernels.\n", "//! A line.\n".repeat(10));
        assert_eq!(lines(not_know, LIBRARY, &late), [1]);
    }
}
