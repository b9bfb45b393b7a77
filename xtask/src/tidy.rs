//! `cargo xtask tidy`: the rules of style and architecture that a program can check, one function each.
//! Relies on git for the list of files, on rustfmt for the look of the lines, on cargo's metadata of the packages.
//! Rules that rustc, clippy and rustfmt hold are not here: stub macros, the length of functions,
//! undocumented unsafe.

mod closures;
mod count;
mod doors;
mod layers;
mod modules;
mod source;
mod text;

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Result, bail, ensure};

use crate::{breakages, shell};
pub(crate) use source::Tree;

/// One breach of a rule.
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

/// A rule: the name in the output, and the function that looks for breaches.
type Rule = (&'static str, fn(&Tree) -> Vec<Finding>);

/// The numbers are those of the style guide.
const RULES: &[Rule] = &[
    ("layers (1)", layers::check),
    ("not-know (2)", text::not_know),
    ("cudarc (4)", doors::cudarc),
    ("cfg (5)", doors::cfg),
    ("head (7)", text::head),
    ("file-size (8)", text::size),
    ("margin", text::margin),
    ("one-name (11)", text::names),
    ("modules", modules::check),
    ("closures (12)", closures::check),
    ("tuples (12)", text::tuples),
    ("unsafe (14)", doors::unsafe_code),
    ("switched-off (23)", text::switches),
    ("mutants (23)", mutants),
    ("machine-paths", text::machine_paths),
];

/// Checks the whole tree, prints each finding, fails where there is one; or prints one of the counts.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let tree = Tree::read(&shell::root())?;
    let counts = match arguments {
        [] => return check(&tree),
        ["--lines"] => count::lines(&tree),
        ["--bars"] => count::bars(&tree),
        _ => bail!("tidy takes one of --lines and --bars, not {arguments:?}"),
    };
    counts.iter().for_each(|line| println!("{line}"));
    Ok(())
}

fn check(tree: &Tree) -> Result<()> {
    let mut count = 0;
    for (rule, check) in RULES {
        for Finding { file, line, message } in check(tree) {
            println!("{file}:{line}: {rule}: {message}");
            count += 1;
        }
    }
    println!("tidy: {} files, {} rules, {count} findings", tree.sources.len(), RULES.len());
    ensure!(count == 0, "{count} findings");
    Ok(())
}

/// The text that each deliberate breakage breaks must still be there, and the test that has to notice the breakage.
fn mutants(tree: &Tree) -> Vec<Finding> {
    let rows = breakages::rows(tree.texts());
    let tests: BTreeSet<&str> = tree.sources.iter().flat_map(|source| declared(&source.text)).collect();
    let stale = rows.iter().filter_map(|row| {
        let part = row.test.last().map_or("", |test| test.rsplit("::").next().unwrap_or_default());
        let message = breakages::stale(row, |file| tree.text(file)).or_else(|| {
            let is_there = tests.iter().any(|test| test.contains(part));
            (!is_there).then(|| format!("{:?}: there is no test {part}", row.name))
        });
        Some((row, message?))
    });
    stale.map(|(row, message)| Finding::new(&row.list, row.line, message)).collect()
}

/// The names of the functions and modules of a source.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    let words = || text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    words().zip(words().skip(1)).filter(|(word, _)| ["fn", "mod"].contains(word)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "crates/blob-io/src/npy.rs";
    const LIBRARY: &str = "crates/blob-io/src/lib.rs";
    const DEVICE: &str = "crates/synced-mem/src/device.rs";
    const CUDA: &str = "crates/synced-mem/src/cuda/queue.rs";

    /// The lines at which the rule finds something in a tree of this one file.
    fn lines(rule: &str, path: &str, text: &str) -> Vec<usize> {
        let page = ("docs/architecture.md".to_string(), include_str!("../../docs/architecture.md").to_string());
        let tree = Tree::from_texts([(path.to_string(), text.to_string()), page]);
        let (_, check) = RULES.iter().find(|(name, _)| name.starts_with(rule)).expect("a rule");
        check(&tree).iter().map(|finding| finding.line).collect()
    }

    /// A rule, a file and texts: a finding at line 1 of each, or where the name begins with `!`, none.
    type Case = (&'static str, &'static str, &'static [&'static str]);

    #[rustfmt::skip]
    const CASES: &[Case] = &[
        ("head", FILE, &["fn f() {}\n", "\n//! Late.\n", "// Plain.\n", "//!\n//! # Only a heading\n"]),
        ("!head", FILE, &["//! Npy.\nfn f() {}\n"]),
        ("not-know", LIBRARY, &["//! Formats.\n", "//! A\n//!\n//!\n//!\n//!\n//!\n//!\n//!\n//!\n//!\n//! It does not know B.\n"]),
        ("!not-know", LIBRARY, &["//! Formats; does **not**\n//! know kernels.\n"]),
        ("!not-know", FILE, &["//! Npy.\n"]),
        ("one-name", FILE, &["pub use a::*;", "pub(crate) use a::{\n    b,\n    c::*,\n};", "pub type A = B;",
            "pub(in crate::a) type A<T> = B;", "pub mod prelude;", "    pub use b::*;"]),
        ("!one-name", FILE, &["pub use a::{B, c::D as E};\nuse b::*;", "use super::*;", "type A = B;",
            "impl A for B {\n    type C = D;\n}"]),
        ("tuples", FILE, &["fn f((a, b): (A, B)) {}", "fn f(a: A, (b, c): (B, &mut C)) {}", "    (a, b): &(A, B),", "    (a, b): &mut (A, B),"]),
        ("!tuples", FILE, &["let (a, b): (A, B) = c;", "    f(|(a, b): (A, B)| a)", "    f(|a, (b, c): (B, C)| a)", "fn f(a: (A, B)) {}",
            "fn f(A { a, b }: A) {}", "fn f(g: impl Fn(A, B), c: (A, B)) {}", "#[cfg(test)]\nmod tests {\n    fn f((a, b): (A, B)) {}\n}"]),
        ("margin", FILE, &["// aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "    /// aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]),
        ("!margin", FILE, &["// aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "//! | aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\""]),
        ("switched-off", FILE, &["#[ignore]\nfn f() {}", "#[ignore = \"why\"]\nfn f() {}", "#[should_panic]\nfn f() {}",
            "#[cfg_attr(unix, ignore)]\nfn f() {}", "m! { #[should_panic] fn f() {} }",
            "/// ```ignore\n/// f();\n/// ```\nfn f() {}", "    //! ```rust,should_panic\n/// f();\n/// ```\nfn f() {}"]),
        ("!switched-off", FILE, &["fn f(ignore: u8) { g(a, ignore) }", "/// ```no_run\n/// ignore\n/// ```\nfn f() {}"]),
        ("machine-paths", "README.md", &["|root|b", "see |work|b", "\"|farm|b\"", "(|home|b)", "~|root|b"]),
        ("!machine-paths", "README.md", &["https://example.org|root|b", "..|home|b", "a_|work|b", "$HOME|work|b", "/tmp/b"]),
        ("!machine-paths", "Cargo.lock", &["|root|b"]),
        ("unsafe", FILE, &["fn f() { unsafe { g() } }", "unsafe fn f() {}", "unsafe impl A for B {}",
            "m! { unsafe { g() } }", "#[unsafe(no_mangle)]\nfn f() {}"]),
        ("!unsafe", FILE, &["//! unsafe\nfn f() { g(\"unsafe\") }\n"]),
        ("!unsafe", "crates/synced-mem/src/loopback/task.rs", &["fn f() { unsafe { g() } }"]),
        ("!unsafe", "tests/it.rs", &["fn f() { unsafe { g() } }"]),
        ("!unsafe", DEVICE, &["fn f() { unsafe { g() } }\n"]),
        ("!unsafe", DEVICE, &["unsafe trait A { unsafe fn f(); }\n"]),
        ("unsafe", LIBRARY, &["//! A.\n"]),
        ("unsafe", "crates/blob-cli/src/main.rs", &["//! A.\n"]),
        ("!unsafe", LIBRARY, &["//! A.\n#![forbid(unsafe_code)]\n", "//! A.\n#![deny(unsafe_code)]\n"]),
        ("cudarc", FILE, &["use cudarc::driver;\n", "//! Like cudarc.\n"]),
        ("!cudarc", FILE, &["//! cudarc_like\n"]),
        ("!cudarc", CUDA, &["use cudarc::driver;\n"]),
        ("cfg", FILE, &[
            "#[cfg(unix)]\nfn f() {}", "#[cfg(unix)]\nimpl A {}", "#[cfg(not(test))]\nfn f() {}",
            "#[cfg_attr(unix, inline)]\nfn f() {}", "struct A { #[cfg(unix)] a: u8 }",
            "fn f() { if cfg!(unix) { g() } }", "fn f() { match a { #[cfg(unix)] 1 => 2, _ => 3 } }",
            "fn f() { #[cfg(unix)] g(); }", "fn f() { print!(\"{}\", cfg!(unix)) }",
            "macro_rules! m { () => { #[cfg(unix)] fn f() {} } }", "mod a { #[cfg(unix)] fn f() {} }"]),
        ("!cfg", FILE, &[
            "#[cfg(unix)]\nmod a;", "#[cfg(unix)]\npub use a::B;", "#![cfg(unix)]\nfn f() {}",
            "#[cfg(test)]\nfn f() {}", "    #[cfg(test)]\n    fn f() {}", "/// cfg(unix)\nfn f() {}",
            "#[cfg(all(test, unix))]\nmod tests {\n    #[cfg(unix)]\n    fn f() {}\n}",
            "#[cfg_attr(docsrs, doc(cfg(unix)))]\nfn f() {}"]),
        ("!cfg", "crates/blob-io/src/wire/source.rs", &["#[cfg(unix)]\nfn f() {}"]),
        ("!cfg", "crates/blob-io/tests/real.rs", &["#[cfg(unix)]\nfn f() {}"]),
        ("mutants", "xtask/breakages/a.txt", &["a\nb.rs -p a\n- c\n",
            "a\ndocs/architecture.md -p a no_such_test\n- ### Inside `synced-mem`\n"]),
    ];

    #[test]
    fn clippy_holds_the_length_of_functions_and_stub_macros() {
        let text = |file: &str| std::fs::read_to_string(shell::root().join(file)).unwrap();
        assert!(text("clippy.toml").contains("\ntoo-many-lines-threshold = 70\n"));
        let (workspace, files) = (text("Cargo.toml"), shell::files(&shell::root()).unwrap());
        let holds = |lint: &&str| workspace.contains(&format!("\n{lint} = \"deny\"\n"));
        assert!(["todo", "unimplemented", "too_many_lines", "undocumented_unsafe_blocks"].iter().all(holds));
        let crates = files.iter().filter(|file| file.starts_with("crates/") && file.ends_with("Cargo.toml"));
        crates.for_each(|file| assert!(text(file).contains("\n[lints]\nworkspace = true\n"), "{file}"));
    }

    #[test]
    fn the_pages_of_docs_rs_name_the_feature_of_each_item() {
        let text = |file: &str| std::fs::read_to_string(shell::root().join(file)).unwrap_or_default();
        let files = shell::files(&shell::root()).unwrap();
        for file in files.iter().filter(|file| file.starts_with("crates/") && file.ends_with("/Cargo.toml")) {
            let (package, library) = (text(file), text(&file.replace("Cargo.toml", "src/lib.rs")));
            assert!(package.contains("\ndocumentation = \"https://docs.rs/"), "{file}");
            if package.contains("\n[features]\n") {
                assert!(package.contains("rustdoc-args = [\"--cfg\", \"docsrs\"]"), "{file}");
                assert!(library.contains("\n#![cfg_attr(docsrs, feature(doc_cfg))]\n"), "{file}");
            }
        }
    }

    #[test]
    fn each_breach_is_found_and_nothing_else() {
        for (rule, path, texts) in CASES {
            let expected: &[usize] = if rule.starts_with('!') { &[] } else { &[1] };
            for text in *texts {
                // Written with bars, or this file would name such a path.
                let text = if rule.contains("paths") { &text.replace('|', "/") } else { *text };
                assert_eq!(lines(rule.trim_start_matches('!'), path, text), expected, "{rule} {path}: {text}");
            }
        }
    }

    #[test]
    fn the_sizes_of_a_head_and_of_a_file_are_bounded() {
        let (head, long) = ("//! A line.\n".repeat(11), "// A line.\n".repeat(401));
        let tests = format!("#[cfg(test)]\nmod tests {{\n{long}}}\n");
        for (rule, path, text, found) in [
            ("head", FILE, head.as_str(), &[11][..]),
            ("head", FILE, &head[12..], &[]),
            ("head", FILE, &format!("//! Npy.\n//!\n//! ```\n{head}"), &[]),
            ("file-size", FILE, &long, &[401]),
            ("file-size", FILE, &(tests + &long[11..]), &[]),
            ("file-size", "crates/blob-io/src/caffe/proto.rs", &long, &[]),
        ] {
            assert_eq!(lines(rule, path, text), found, "{rule} {path}");
        }
    }
}
