//! `tidy --lines`, `--closures` and `--bars`: counts of the house, by crate. Judges nothing.

use super::Tree;
use super::source::Source;

/// Lines of one kind each.
#[derive(Default)]
struct Lines {
    code: usize,
    doc: usize,
    comment: usize,
    blank: usize,
    in_tests: usize,
}

impl Lines {
    fn add(&mut self, source: &Source) {
        for ((text, code), in_tests) in source.text.lines().map(str::trim).zip(&source.code).zip(&source.in_tests) {
            let kind = match text {
                _ if *in_tests || source.is_test() => &mut self.in_tests,
                "" => &mut self.blank,
                doc if doc.starts_with("///") || doc.starts_with("//!") => &mut self.doc,
                comment if comment.starts_with("//") && code.is_empty() => &mut self.comment,
                _ => &mut self.code,
            };
            *kind += 1;
        }
    }
}

/// A table of the lines under each crate's `src`, generated files left out; test modules, and files of tests alone,
/// have a column of their own.
pub(super) fn lines(tree: &Tree) -> Vec<String> {
    let mut table = vec!["crate           code    doc  comment  blank     sum  in-file tests".to_owned()];
    let mut sum = 0;
    for (name, sources) in crates(tree) {
        let mut lines = Lines::default();
        sources.iter().filter(|source| !source.is_generated()).for_each(|source| lines.add(source));
        let Lines { code, doc, comment, blank, in_tests } = lines;
        sum += code;
        let all = code + doc + comment + blank;
        table.push(format!("{name:13}{code:>7}{doc:>7}{comment:>9}{blank:>7}{all:>8}{in_tests:>15}"));
    }
    table.push(format!("{:13}{sum:>7}", "crates"));
    table
}

/// Each closure that is bound to a name and used once, outside tests, and how many there are.
pub(super) fn closures(tree: &Tree) -> Vec<String> {
    let sources = crates(tree).into_iter().flat_map(|(_, sources)| sources);
    let mut found = Vec::new();
    for source in sources.filter(|source| !source.is_test()) {
        let lines: Vec<(usize, &str)> = source.main_flow().collect();
        for (place, (number, line)) in lines.iter().enumerate() {
            let next = lines.get(place + 1).map_or("", |(_, next)| next.trim_start());
            let Some(name) = closure(line, next) else { continue };
            let depth = indent(line);
            let block = lines[place + 1..].iter().take_while(|(_, line)| line.is_empty() || indent(line) >= depth);
            let uses: usize = block.map(|(_, line)| count(line, name)).sum();
            if uses == 1 {
                found.push(format!("{}:{number}: {name}", source.path));
            }
        }
    }
    found.push(format!("{} closures are bound to a name and used once", found.len()));
    found
}

/// Decisions that have one place, each with the code that shows another one, and the files that are the place.
const BARS: &[(&str, &[&str], &[&str])] = &[
    ("a decision by format, not by the format's row", &["matches!(", "Format::"], &["crates/blob-io/src/format"]),
    ("a tensor's name is taken apart", &["rsplit_once('/')"], &["crates/blob-io/src/tensor_name"]),
    ("a tensor's name is taken apart", &["strip_suffix(", ".diff"], &["crates/blob-io/src/tensor_name"]),
    ("a `match` on a bool", &["true =>"], &[]),
    ("a `match` on a bool", &["false =>"], &[]),
];

/// Each line of the main flow that decides in a second place.
pub(super) fn bars(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (bar, words, places) in BARS {
        let sources = crates(tree).into_iter().flat_map(|(_, sources)| sources);
        for source in sources.filter(|source| !source.is_test() && !source.is_one_of(places)) {
            let texts: Vec<&str> = source.text.lines().map(str::trim_start).collect();
            let lines = source.main_flow().map(|(number, _)| (number, texts[number - 1]));
            let other =
                lines.filter(|(_, text)| !text.starts_with("//") && words.iter().all(|word| text.contains(word)));
            found.extend(other.map(|(number, _)| format!("{}:{number}: {bar}", source.path)));
        }
    }
    found.push(format!("{} lines decide in a second place", found.len()));
    found
}

/// The crates that have code, by name, with the files of each.
fn crates(tree: &Tree) -> Vec<(&str, Vec<&Source>)> {
    let mut crates: Vec<(&str, Vec<&Source>)> = Vec::new();
    for source in &tree.sources {
        let Some((name, rest)) = source.path.strip_prefix("crates/").and_then(|path| path.split_once('/')) else {
            continue;
        };
        if !rest.starts_with("src/") {
            continue;
        }
        match crates.iter_mut().find(|(own, _)| *own == name) {
            Some((_, sources)) => sources.push(source),
            None => crates.push((name, vec![source])),
        }
    }
    crates
}

/// The name that a line binds a closure to, which may begin in the next line.
fn closure<'a>(line: &'a str, next: &'a str) -> Option<&'a str> {
    let bound = line.trim_start().strip_prefix("let ")?;
    let (name, value) = bound.split_once('=')?;
    let value = if value.is_empty() { next } else { value.trim_start() };
    let is_closure = value.starts_with('|') || value.starts_with("move |");
    let name = name.trim().trim_start_matches("mut ");
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (is_closure && is_name).then_some(name)
}

/// How often a word stands in a line.
fn count(line: &str, word: &str) -> usize {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|each| *each == word).count()
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closures_of_one_use_are_found_by_name() {
        let file = "fn f() {\n    let once = |a| a;\n    let twice = |a| a;\n    let late =\n        move |a| a;\n    \
                    once(twice(twice(late(1))));\n}\nfn g() {\n    once(2);\n}\n";
        let tree = Tree::from_texts([("crates/a/src/b.rs".to_owned(), file.to_owned())]);
        let last = "2 closures are bound to a name and used once";
        assert_eq!(closures(&tree), ["crates/a/src/b.rs:2: once", "crates/a/src/b.rs:4: late", last]);
    }

    #[test]
    fn a_second_place_of_a_decision_is_found() {
        let text = "// matches!(a, Format::Npy)\nfn f() {\n    matches!(a, Format::Npy);\n    matches!(a, b);\n}\n";
        let tree = |path: &str| Tree::from_texts([(path.to_owned(), text.to_owned())]);
        let found = bars(&tree("crates/a/src/b.rs"));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/b.rs:3: a decision by format"), "{found:?}");
        assert_eq!(bars(&tree("crates/blob-io/src/format.rs")), ["0 lines decide in a second place"]);
    }

    #[test]
    fn each_line_is_of_one_kind() {
        let file = "//! A.\n\n// B.\nfn f() {} // C.\n#[cfg(test)]\nmod tests {\n}\n";
        let tree = Tree::from_texts([("crates/a/src/b.rs".to_owned(), file.to_owned())]);
        let row = |words: &str| words.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(row(&lines(&tree)[1]), ["a", "1", "1", "1", "1", "4", "3"]);
        let generated = "//! A table. Generated by `cargo xtask codegen`: do not edit.\n\nfn f() {}\n";
        let tree = Tree::from_texts([("crates/a/src/b.rs".to_owned(), generated.to_owned())]);
        assert_eq!(row(&lines(&tree)[1]), ["a", "0", "0", "0", "0", "0", "0"]);
    }
}
