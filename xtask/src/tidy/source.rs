//! The rules' material: the workspace's text files, and the Rust files line by line.
//! Lines are taken as rustfmt leaves them; comments and texts in quotes are no code. Reads only; judges nothing.

use std::path::Path;

use anyhow::Result;

use crate::shell;

/// Where our own Rust code lies.
const CODE: &[&str] = &["crates/", "xtask/", "tests/", "benches/"];

/// Everything that the rules may look at.
#[derive(Default)]
pub(crate) struct Tree {
    texts: Vec<(String, String)>,
    /// Cargo's metadata of each package of the workspace.
    pub(super) packages: Vec<serde_json::Value>,
    /// Our Rust files.
    pub(super) sources: Vec<Source>,
}

/// One Rust file.
pub(super) struct Source {
    /// From the workspace's root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
    /// The lines, without comments and without the texts between quotes.
    pub(super) code: Vec<String>,
    /// Whether each line is in a test module.
    pub(super) in_tests: Vec<bool>,
}

impl Tree {
    /// Reads the tree: all files that belong to the workspace.
    pub(crate) fn read(root: &Path) -> Result<Tree> {
        // A file that is not text has nothing to check.
        let texts = shell::files(root)?.into_iter().filter_map(|path| {
            let text = std::fs::read_to_string(root.join(&path)).ok()?;
            Some((path, text))
        });
        let packages = shell::metadata()?["packages"].as_array().cloned().unwrap_or_default();
        Ok(Tree { packages, ..Tree::from_texts(texts) })
    }

    /// A tree of these files.
    pub(super) fn from_texts(texts: impl IntoIterator<Item = (String, String)>) -> Tree {
        let texts: Vec<(String, String)> = texts.into_iter().collect();
        let is_ours = |path: &str| path.ends_with(".rs") && CODE.iter().any(|folder| path.starts_with(folder));
        let sources = texts.iter().filter(|(path, _)| is_ours(path)).map(|(path, text)| Source::new(path, text));
        Tree { sources: sources.collect(), packages: Vec::new(), texts }
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts().find(|(name, _)| *name == path).map(|(_, text)| text)
    }

    /// All text files, Rust or not, with paths.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

impl Source {
    fn new(path: &str, text: &str) -> Source {
        let code: Vec<String> = text.lines().map(code).collect();
        let mut in_tests = Vec::new();
        for (index, line) in code.iter().enumerate() {
            let begins = is_cfg_test(line) && next_item(&code[index..]).is_some_and(|item| item.starts_with("mod "));
            let goes_on = in_tests.last() == Some(&true) && code[index - 1] != "}";
            in_tests.push(begins || goes_on);
        }
        Source { path: path.to_string(), text: text.to_string(), code, in_tests }
    }

    /// Whether the file is one of these, each given without `.rs`; a folder of that name counts as the file.
    pub(super) fn is_one_of(&self, files: &[&str]) -> bool {
        files.iter().any(|file| match self.path.strip_prefix(file) {
            Some(rest) => rest == ".rs" || rest.starts_with('/'),
            None => false,
        })
    }

    /// Whether the whole file is test code: part of no library and no tool.
    pub(super) fn is_test(&self) -> bool {
        let folders = ["tests", "benches", "examples"];
        self.path.ends_with("/tests.rs") || self.path.split('/').any(|component| folders.contains(&component))
    }

    /// The lines of code outside test modules, with numbers, which count from 1.
    pub(super) fn main_flow(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.code.iter().zip(&self.in_tests).enumerate();
        lines.filter(|(_, (_, in_tests))| !**in_tests).map(|(index, (line, _))| (index + 1, line.as_str()))
    }
}

/// The line without comments and without the texts between quotes.
fn code(line: &str) -> String {
    let mut code = String::new();
    let (mut rest, mut quoted) = (line, false);
    while let Some(c) = rest.chars().next() {
        if quoted && c == '\\' {
            rest = rest.get(2..).unwrap_or_default();
            continue;
        }
        if !quoted && rest.starts_with("//") {
            break;
        }
        // A quotation mark as a character opens nothing.
        quoted ^= c == '"' && !code.ends_with('\'');
        if !quoted || c == '"' {
            code.push(c);
        }
        rest = &rest[c.len_utf8()..];
    }
    code.trim_end().to_string()
}

/// Whether the line is `#[cfg(test)]`, or a `cfg` that holds only in tests: `all(test, …)`.
pub(super) fn is_cfg_test(line: &str) -> bool {
    ["#[cfg(test)]", "#[cfg(all(test,"].iter().any(|attribute| line.trim_start().starts_with(attribute))
}

/// The first of these lines that is neither an attribute nor empty.
pub(super) fn next_item(lines: &[String]) -> Option<&str> {
    let mut lines = lines.iter().map(|line| line.trim());
    while let Some(line) = lines.next() {
        // An attribute may have several lines.
        let is_attribute =
            line.starts_with("#[") && (line.ends_with(']') || lines.by_ref().any(|line| line.ends_with(")]")));
        if !is_attribute && !line.is_empty() {
            return Some(line);
        }
    }
    None
}

/// Whether the word stands in the line, not as a part of a longer one.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|each| each == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_quotes_are_no_code() {
        assert_eq!(code("    g(\"unsafe \\\" unsafe\", '\"', a); // unsafe"), "    g(\"\", '\"', a);");
        assert_eq!(code("/// unsafe"), "");
        assert!(has_word("unsafe { a }", "unsafe") && !has_word("deny(unsafe_code)", "unsafe"));
    }

    #[test]
    fn a_test_module_is_no_main_flow() {
        let lines = |text: &str| Source::new("a.rs", text).main_flow().map(|(line, _)| line).collect::<Vec<_>>();
        let text = "//! A.\nfn f() {}\n#[cfg(test)]\n#[allow(\n    a\n)]\nmod tests {\n    fn g() {}\n}\nfn h() {}\n";
        assert_eq!(lines(text), [1, 2, 10]);
        // Only `test` counts: code that is there without the tests too is no test module.
        assert_eq!(lines("#[cfg(any(test, unix))]\nmod tests {\n}\n"), [1, 2, 3]);
        assert_eq!(lines("#[cfg(test)]\nfn f() {}\n"), [1, 2]);
    }
}
