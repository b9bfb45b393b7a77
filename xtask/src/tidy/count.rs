//! `tidy --lines` and `--bars`: counts of the house, by crate. Judges nothing.

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

const BY_FORMAT: &str = "a decision by format, not by the format's row";

/// The files that tell formats apart, read, write and restore each, or say which programs it was tested with.
const OF_ONE_FORMAT: &[&str] = &[
    "crates/blob-io/src/format",
    "crates/blob-io/src/codec",
    "crates/blob-io/src/sniff",
    "crates/blob-io/src/caffe",
    "crates/blob-io/src/neoml",
    "crates/blob-io/src/splice",
    "crates/blob-io/src/checkpoint/bare",
    "crates/blob-convert/src/hdf5",
    "crates/blob-cli/src/formats",
];

/// Decisions that have one place, each with the code that shows another one, and the files that are the place.
const BARS: &[(&str, &[&str], &[&str])] = &[
    (BY_FORMAT, &["matches!(", "Format::"], &["crates/blob-io/src/format"]),
    (BY_FORMAT, &["== Format::"], OF_ONE_FORMAT),
    (BY_FORMAT, &["!= Format::"], OF_ONE_FORMAT),
    (BY_FORMAT, &["== Some(Format::"], OF_ONE_FORMAT),
    (BY_FORMAT, &["Format::", "=>"], OF_ONE_FORMAT),
    ("a tensor's name is taken apart", &["rsplit_once('/')"], &["crates/blob-io/src/tensor_name"]),
    ("a tensor's name is taken apart", &["strip_suffix(", ".diff"], &["crates/blob-io/src/tensor_name"]),
    ("a tensor's name is taken apart", &["strip_prefix('@')"], &["crates/blob-io/src/tensor_name"]),
    ("a tensor's name is taken apart", &["rsplit_once('@')"], &["crates/blob-io/src/tensor_name"]),
    ("a `match` on a bool", &["true =>"], &[]),
    ("a `match` on a bool", &["false =>"], &[]),
];

/// The files that change a memory's state.
const CHANGERS: &[&str] = &["crates/synced-mem/src/engine/perform", "crates/synced-mem/src/engine/step"];

/// Each line of the main flow that decides in a second place, or that may change a memory's state.
pub(super) fn bars(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (bar, words, places) in BARS {
        let sources = crates(tree).into_iter().flat_map(|(_, sources)| sources);
        for source in sources.filter(|source| !source.is_test() && !source.is_one_of(places)) {
            let texts: Vec<&str> = source.text.lines().map(str::trim_start).collect();
            let lines = source.main_flow().map(|(number, _)| (number, texts[number - 1]));
            let other = lines.filter(|(_, text)| !text.starts_with("//") && says(text, words));
            found.extend(other.map(|(number, _)| format!("{}:{number}: {bar}", source.path)));
        }
    }
    for source in tree.sources.iter().filter(|source| !source.is_one_of(CHANGERS)) {
        let lines = changes(source).into_iter();
        found.extend(lines.map(|number| format!("{}:{number}: a memory's state is changed", source.path)));
    }
    found.push(format!("{} lines decide in a second place", found.len()));
    found
}

/// The lines of the engine and of its shells at which a function may change a memory's state: the function takes it to
/// be changed, or names a field, which no question of the state hands out to be changed.
fn changes(source: &Source) -> Vec<usize> {
    const FIELDS: [&str; 4] = ["state.facts.", "state.freed.", "state.events.", "state.devices."];
    if !source.path.starts_with("crates/synced-mem/src/") {
        return Vec::new();
    }
    let mut is_method = false;
    let lines = source.main_flow().filter(|(_, line)| {
        is_method = line.starts_with("impl State {") || is_method && !line.starts_with('}');
        let is_own = is_method && source.path.contains("/engine/") && line.contains("&mut self");
        is_own || line.contains("&mut State") || FIELDS.iter().any(|field| line.contains(field))
    });
    lines.map(|(number, _)| number).collect()
}

/// Whether a line has these words in this order; a word is no end of a longer name,
/// and no path of a function.
fn says(line: &str, words: &[&str]) -> bool {
    let mut rest = line;
    words.iter().all(|word| {
        let after = rest.match_indices(word).find(|(at, word)| {
            let is_longer = rest[..*at].ends_with(char::is_alphanumeric) && word.starts_with(char::is_alphanumeric);
            let is_call = word.ends_with("::") && rest[at + word.len()..].starts_with(char::is_lowercase);
            !is_longer && !is_call
        });
        after.is_some_and(|(at, word)| {
            rest = &rest[at + word.len()..];
            true
        })
    })
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_change_of_a_memory_outside_its_performer_is_found() {
        let text = "fn f(state: &mut State) {\n    state.facts.len = 1;\n    state.facts().len();\n}\nimpl State {\n    \
                    fn g(&self) {}\n    fn h(&mut self) {}\n}\nimpl A {\n    fn i(&mut self) {}\n}\n";
        let found = |path: &str| bars(&Tree::from_texts([(path.to_owned(), text.to_owned())])).len() - 1;
        assert_eq!(found("crates/synced-mem/src/engine/serve.rs"), 3);
        // Of another type of that name.
        assert_eq!(found("crates/synced-mem/src/loopback/schedule.rs"), 2);
        for path in ["engine/perform.rs", "engine/perform/room.rs", "engine/step.rs"] {
            assert_eq!(found(&format!("crates/synced-mem/src/{path}")), 0, "{path}");
        }
        assert_eq!(found("crates/blob-io/src/npy.rs"), 0);
    }

    #[test]
    fn a_decision_by_format_is_found_in_each_form() {
        for (line, count) in [
            ("if to == Format::Npy {}", 1),
            ("if to != Format::Npy {}", 1),
            ("if to == Some(Format::Npy) {}", 1),
            ("(Format::Npy, _) => {}", 1),
            ("Format::Npy | Format::Npz => {}", 1),
            ("ExtractFormat::Npy => {}", 0),
            ("Place::Folder => Format::Npy,", 0),
            ("let to = Format::Npy;", 0),
            ("Ok(_) if Format::of_path(path).is_some() => {}", 0),
        ] {
            let at = |path: &str| Tree::from_texts([(path.to_owned(), format!("fn f() {{\n    {line}\n}}\n"))]);
            assert_eq!(bars(&at("crates/blob-convert/src/plan.rs")).len(), count + 1, "{line}");
            assert_eq!(bars(&at("crates/blob-io/src/caffe/read.rs")).len(), 1, "{line}");
        }
    }

    #[test]
    fn a_name_that_is_taken_apart_elsewhere_is_found() {
        for code in ["rsplit_once('/')", "strip_suffix(\".diff\")", "strip_prefix('@')", "rsplit_once('@')"] {
            let at = |path: &str| Tree::from_texts([(path.to_owned(), format!("fn f() {{\n    name.{code};\n}}\n"))]);
            assert_eq!(bars(&at("crates/blob-convert/src/names.rs")).len(), 2, "{code}");
            assert_eq!(bars(&at("crates/blob-io/src/tensor_name.rs")).len(), 1, "{code}");
        }
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
