//! Rules 4, 5 and 14: foreign things stand behind doors. `unsafe` stands in the files that docs/architecture.md names,
//! `cudarc` in two, and a `cfg` at a door: on a module or an import, on test code, or in a file that is itself the door
//! to the machine. The page is read; a new door of `unsafe` is added there.

use super::source::{Source, has_word, is_cfg_test, next_item};
use super::{Finding, Tree};

/// The page whose last invariant names the files that may hold `unsafe`.
const PAGE: &str = "docs/architecture.md";
const INVARIANT: &str = "Unsafe code stands in these files alone";

/// The files that may name cudarc: the two doors, and the tests beside its own types. Which packages may depend on it
/// stands in `layers`.
const CUDARC: &[&str] = &["crates/blob-ops/src/cuda", "crates/synced-mem/src/cuda", "tests/beside", "xtask"];

/// The files that are doors to the machine: GPU, instruction sets, threads under test, file system, terminal.
const CFG: &[&str] = &[
    "crates/blob-cli/src/output",
    "crates/blob-io/src/output",
    "crates/blob-io/src/wire/source",
    "crates/blob-ops/src/cpu",
    "crates/blob-ops/src/cuda",
    "crates/synced-mem/src/cuda",
    "crates/synced-mem/src/host/allocation",
    "crates/synced-mem/src/sync",
    "python/src/mapping",
];

/// `unsafe` stands only in the page's files, and every crate says so to the compiler.
/// Test and bench targets may hold `unsafe`: the unsafe functions are there to be called, and clippy asks for proofs.
pub(super) fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let doors = doors(tree.text(PAGE).unwrap_or_default());
    let doors: Vec<&str> = doors.iter().map(String::as_str).collect();
    for source in tree.sources.iter().filter(|source| !source.is_test()) {
        let mut push = |line, message| findings.push(Finding::new(&source.path, line, message));
        let is_root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
        let lints = ["#![forbid(unsafe_code)]", "#![deny(unsafe_code)]"];
        if is_root && !source.code.iter().any(|line| lints.contains(&line.as_str())) {
            push(1, "the crate has neither `#![forbid(unsafe_code)]` nor `#![deny(unsafe_code)]`");
        }
        for (index, _) in source.code.iter().enumerate().filter(|(_, line)| has_word(line, "unsafe")) {
            if !source.is_one_of(&doors) {
                push(index + 1, "`unsafe` outside the files that docs/architecture.md names");
            }
        }
    }
    findings
}

/// The files of the invariant: a crate's name before a colon, then files of the crate: `host/{allocation, buffer}`. A
/// name with a slash is the crate's folder.
fn doors(page: &str) -> Vec<String> {
    let invariant = page.split_once(INVARIANT).map_or("", |(_, rest)| rest);
    let (mut name, mut doors) = (String::new(), Vec::new());
    let mut parts = invariant.split('`');
    parts.next();
    while let (Some(quoted), Some(behind)) = (parts.next(), parts.next()) {
        let (before, rest) = quoted.split_once('{').unwrap_or((quoted, ""));
        if behind.starts_with(':') {
            let folder = if quoted.contains('/') { quoted } else { &format!("crates/{quoted}") };
            name = format!("{}/src", folder.trim_end_matches('/'));
        } else if rest.is_empty() {
            doors.push(format!("{name}/{}", before.trim_end_matches('/')));
        } else {
            let files = rest.trim_end_matches('}').split(", ");
            doors.extend(files.map(|file| format!("{name}/{before}{file}")));
        }
    }
    doors
}

/// The word `cudarc` stands only behind the doors, comments included.
pub(super) fn cudarc(tree: &Tree) -> Vec<Finding> {
    let outside = tree.sources.iter().filter(|source| !source.is_one_of(CUDARC));
    let named =
        outside.flat_map(|source| (1..).zip(source.text.lines()).map(move |(number, line)| (source, number, line)));
    let named = named.filter(|(_, _, line)| has_word(line, "cudarc"));
    named.map(|(source, number, _)| Finding::new(&source.path, number, "`cudarc` is named outside its doors")).collect()
}

/// No `cfg` in the main flow. Allowed are: an attribute of a module, an import or a whole file; everything that is
/// compiled only for tests; `cfg_attr(docsrs, …)`; and the doors. A function, a field, an arm or an expression is main
/// flow.
pub(super) fn cfg(tree: &Tree) -> Vec<Finding> {
    let message = "a `cfg` in the main flow; put it on a module or an import, or move the code behind a door";
    let inside = tree.sources.iter().filter(|source| !source.is_test() && !source.is_one_of(CFG));
    let lines = inside.flat_map(|source| source.main_flow().map(move |(number, line)| (source, number, line)));
    let flow = lines.filter(|(source, number, line)| is_main_flow(source, *number, line));
    flow.map(|(source, number, _)| Finding::new(&source.path, number, message)).collect()
}

fn is_main_flow(source: &Source, number: usize, line: &str) -> bool {
    let attribute = line.trim_start();
    if is_cfg_test(line) || attribute.starts_with("#[cfg_attr(docsrs") {
        return false;
    }
    if !attribute.starts_with("#[cfg(") && !attribute.starts_with("#[cfg_attr(") {
        return ["cfg!(", "cfg_if!", "#[cfg(", "#[cfg_attr("].iter().any(|cfg| line.contains(cfg));
    }
    // The item behind the attribute, or below.
    let item = next_item(&source.code[number - 1..]).unwrap_or_default();
    !item.split(' ').take(2).any(|word| ["mod", "use", "extern"].contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_doors_are_those_of_the_page() {
        let page = format!(
            "1. `a`: `b`.\n8. {INVARIANT}, `cargo xtask tidy` holds it. `one`: `c/{{d, e}}`,\n   `f/` (and `g`). `two`: `h`. `three/`: `k`.\n"
        );
        let [one, two] = ["crates/one/src", "crates/two/src"];
        let expected =
            [format!("{one}/c/d"), format!("{one}/c/e"), format!("{one}/f"), format!("{one}/g"), format!("{two}/h")];
        assert_eq!(doors(&page)[1..], [&expected[..], &["three/src/k".to_owned()]].concat());
        assert!(doors("").is_empty());
    }
}
