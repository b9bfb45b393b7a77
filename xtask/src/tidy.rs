//! `cargo xtask tidy`: the rules of style and architecture that a program can check, one function each.
//! It relies on git for the list of files, on rustfmt for the look of the lines, on cargo for the edges between packages.
//! What rustc, clippy and rustfmt hold themselves is left to them: stub macros, the length of functions, undocumented unsafe.

mod doors;
mod heads;
mod layers;
mod source;
mod text;

use std::fmt;

use anyhow::{Result, ensure};

use crate::{breakages, shell};
pub(crate) use layers::LAYERS;
pub(crate) use source::Tree;

/// One breach of a rule.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    file: String,
    line: usize,
    message: String,
}

impl Finding {
    /// A finding in a file, at a line that counts from 1.
    pub(crate) fn new(file: &str, line: usize, message: impl fmt::Display) -> Finding {
        Finding { file: file.to_string(), line, message: message.to_string() }
    }
}

/// A rule: its name in the output, and the function that looks for breaches.
struct Rule {
    name: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

/// The numbers are those of the style guide.
const RULES: &[Rule] = &[
    Rule { name: "layers (1)", check: layers::check },
    Rule { name: "not-know (2)", check: heads::not_know },
    Rule { name: "cudarc (4)", check: doors::cudarc },
    Rule { name: "cfg (5)", check: doors::cfg },
    Rule { name: "head (7)", check: heads::head },
    Rule { name: "file-size (8)", check: text::size },
    Rule { name: "one-name (11)", check: text::names },
    Rule { name: "unsafe (14)", check: doors::unsafe_code },
    Rule { name: "switched-off (23)", check: text::switches },
    Rule { name: "mutants (23)", check: mutants },
    Rule { name: "machine-paths", check: text::machine_paths },
];

/// Checks the whole tree, prints each finding, fails where there is one.
pub(crate) fn run(_: &[&str]) -> Result<()> {
    let tree = Tree::read(&shell::root())?;
    let mut count = 0;
    for rule in RULES {
        for Finding { file, line, message } in (rule.check)(&tree) {
            println!("{file}:{line}: {}: {message}", rule.name);
            count += 1;
        }
    }
    println!("tidy: {} files, {} rules, {count} findings", tree.sources.len(), RULES.len());
    ensure!(count == 0, "{count} findings");
    Ok(())
}

/// Each deliberate breakage must still find the text that it breaks.
fn mutants(tree: &Tree) -> Vec<Finding> {
    let rows = breakages::rows(tree.texts());
    let finding = |row: &breakages::Mutant| {
        let message = breakages::stale(row, |file| tree.text(file))?;
        Some(Finding::new(&row.list, row.line, message))
    };
    rows.iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    /// A tree in which every rule is broken at least once.
    fn bad_tree() -> Tree {
        let long = "    let _ = 1;\n".repeat(401);
        let files = [
            ("crates/blob-io/src/lib.rs", format!("pub use a::*;\nfn long() {{\n{long}}}\n")),
            ("crates/blob-io/src/npy.rs", "//! Npy.\n#[ignore]\nfn f() { unsafe { g() } }".to_string()),
            ("crates/blob-io/src/mxnet.rs", "//! cudarc\n#[cfg(unix)]\nfn f() {}".to_string()),
            ("crates/blob-io/Cargo.toml", "name = \"blob-io\"\nblob-ops.workspace = true\n".to_string()),
            ("README.md", format!("see /{}/blob", "root")),
            ("xtask/breakages/a.txt", "a\nb.rs -p a\n- c\n".to_string()),
        ];
        Tree::from_texts(files.map(|(path, text)| (path.to_string(), text)))
    }

    #[test]
    fn every_rule_can_fail() {
        let tree = bad_tree();
        for rule in RULES {
            assert!(!(rule.check)(&tree).is_empty(), "{} found nothing", rule.name);
        }
    }

    #[test]
    fn a_clean_tree_has_no_findings() {
        let text = "//! Formats; it does not know kernels.\n\n#![deny(unsafe_code)]\n";
        let tree = Tree::from_texts([("crates/blob-io/src/lib.rs".to_string(), text.to_string())]);
        for rule in RULES {
            assert_eq!((rule.check)(&tree), [], "{}", rule.name);
        }
    }

    /// Whether clippy, as the workspace sets it up, refuses the text for this lint.
    fn clippy_refuses(lint: &str, text: &str) -> bool {
        let manifest = std::fs::read_to_string(shell::root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("\n{lint} = \"deny\"\n")), "{lint}");
        let mut driver = Command::new("clippy-driver");
        driver.args(["-", "--crate-type=lib", "--emit=metadata=-", "-D", &format!("clippy::{lint}")]);
        driver.env("CLIPPY_CONF_DIR", shell::root()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = driver.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        !child.wait().unwrap().success()
    }

    #[test]
    fn a_function_of_71_lines_is_clippys_to_find() {
        let long = format!("pub fn f() {{\n{}}}\nfn g() {{}}\n", "    g();\n".repeat(71));
        assert!(clippy_refuses("too_many_lines", &long));
        assert!(!clippy_refuses("too_many_lines", &long.replacen("    g();\n", "", 1)));
    }

    #[test]
    fn stub_macros_are_clippys_to_find() {
        for stub in ["todo", "unimplemented"] {
            assert!(clippy_refuses(stub, &format!("pub fn f() {{ {stub}!() }}")));
            assert!(!clippy_refuses(stub, "pub fn f() {}"));
        }
    }

    /// What [`lines`] gives for a file that a rule has nothing against.
    pub(super) const NONE: [usize; 0] = [];

    /// The findings of one rule in one file, by line.
    pub(super) fn lines(check: fn(&Tree) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::from_texts([(path.to_string(), text.to_string())]);
        check(&tree).iter().map(|finding| finding.line).collect()
    }
}
