//! Rule 23 in part: nothing unfinished and nothing switched off. No stub macros, no ignored tests, no tests that pass by panicking,
//! no documentation example that is not compiled for such a reason. It reads tokens, so it sees into macros as well.
//! Clippy denies the two stub macros too, but only where it is run.

use super::{Finding, Source, Tree};

/// Macros that stand for code which is not there.
const STUBS: &[&str] = &["todo", "unimplemented"];

/// Attributes by which a test does not test.
const SWITCHES: &[&str] = &["ignore", "should_panic"];

/// No stubs and no switched-off tests.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.sources.iter().flat_map(check_source).collect()
}

fn check_source(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut push = |line: usize, message: String| findings.push(Finding::new(&source.path, line, message));
    for name in STUBS {
        for line in source.find(&[name, "!"]) {
            push(line, format!("`{name}!` stands for code that is not there"));
        }
    }
    for name in SWITCHES {
        let pattern = ["#", "[", name];
        for line in source.find(&pattern).chain(conditional(source, name)) {
            push(line, format!("`#[{name}]` on a test; test the error, print what was not tested"));
        }
        for (index, line) in source.text.lines().enumerate() {
            if is_fence(line, name) {
                push(index + 1, format!("an example marked `{name}` tests nothing"));
            }
        }
    }
    findings
}

/// The lines of `#[cfg_attr(…, name)]`.
fn conditional(source: &Source, name: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    for (at, window) in source.tokens.windows(3).enumerate() {
        if window.iter().map(|token| token.text.as_str()).eq(["#", "[", "cfg_attr"]) {
            let attribute = source.tokens[at..].iter().take_while(|token| token.text != "]");
            lines.extend(attribute.filter(|token| token.text == name).map(|token| token.line));
        }
    }
    lines
}

/// Whether the line opens a code block of a doc comment with this word.
fn is_fence(line: &str, word: &str) -> bool {
    let line = line.trim_start();
    let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    let fence = comment.and_then(|text| text.trim_start().strip_prefix("```"));
    fence.is_some_and(|words| words.split(',').any(|each| each.trim() == word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{NONE, lines};

    const FILE: &str = "crates/blob-io/src/npy.rs";

    #[test]
    fn a_stub_is_found() {
        for name in STUBS {
            for text in [
                format!("fn f() {{ {name}!() }}"),
                format!("fn f() {{ std::{name}!(\"later\") }}"),
                format!("fn f() {{ print(vec![{name}!()]) }}"),
            ] {
                assert_eq!(lines(check, FILE, &text), [1], "{text}");
            }
            assert_eq!(lines(check, FILE, &format!("/// {name}!()\nfn {name}() {{}}")), NONE);
        }
    }

    #[test]
    fn a_test_that_is_switched_off_is_found() {
        for name in SWITCHES {
            for text in [
                format!("#[{name}]\nfn f() {{}}"),
                format!("#[{name} = \"why\"]\nfn f() {{}}"),
                format!("#[cfg_attr(unix, {name})]\nfn f() {{}}"),
                format!("m! {{ #[{name}] fn f() {{}} }}"),
                format!("/// ```{name}\n/// f();\n/// ```\nfn f() {{}}"),
                format!("/// ```rust,{name}\n/// f();\n/// ```\nfn f() {{}}"),
            ] {
                assert_eq!(lines(check, FILE, &text), [1], "{text}");
            }
            assert_eq!(lines(check, FILE, &format!("fn f({name}: u8) {{ g(a, {name}) }}")), NONE);
            assert_eq!(lines(check, FILE, &format!("/// ```no_run\n/// {name}\n/// ```\nfn f() {{}}")), NONE);
        }
    }
}
