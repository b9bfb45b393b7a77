//! Rules 4, 5 and 14: foreign things stand behind doors. `unsafe` stands in the files that the README names, `cudarc` in two,
//! and a `cfg` at a door: on a module or an import, on test code, or in a file that is itself the door to the machine.
//! The lists below are those of the README's invariants; a new door is added there first.

use super::source::{has_word, is_cfg_test, next_item};
use super::{Finding, Tree};

/// The files that may hold `unsafe`.
const UNSAFE: &[&str] = &[
    "crates/blob-core/src/guards",
    "crates/blob-io/src/wire/source",
    "crates/blob-ops/src/cpu/aarch64",
    "crates/blob-ops/src/cpu/tiles",
    "crates/blob-ops/src/cpu/x86",
    "crates/blob-ops/src/cuda",
    "crates/synced-mem/src/conformance",
    "crates/synced-mem/src/cuda",
    "crates/synced-mem/src/device",
    "crates/synced-mem/src/engine/transfer",
    "crates/synced-mem/src/host/allocation",
    "crates/synced-mem/src/host/buffer",
    "crates/synced-mem/src/loopback",
    "crates/synced-mem/src/owned",
    "crates/synced-mem/src/shared/guards",
];

/// Declares the unsafe traits that a backend implements, and holds no unsafe block.
const DECLARES_ONLY: &[&str] = &["crates/synced-mem/src/device"];

/// The files that may name cudarc; their packages may depend on it.
const CUDARC: &[&str] = &["crates/blob-ops/src/cuda", "crates/synced-mem/src/cuda"];

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
];

/// `unsafe` stands only in its files, and every crate says so to the compiler.
/// Test and bench targets may use it: the unsafe functions are there to be called, and clippy asks for the proof.
pub(super) fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| !source.is_test()) {
        let mut push = |line, message| findings.push(Finding::new(&source.path, line, message));
        let is_root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
        let is_lint = |line: &String| ["#![forbid(unsafe_code)]", "#![deny(unsafe_code)]"].contains(&line.as_str());
        if is_root && !source.code.iter().any(is_lint) {
            push(1, "the crate has neither `#![forbid(unsafe_code)]` nor `#![deny(unsafe_code)]`");
        }
        for (index, line) in source.code.iter().enumerate().filter(|(_, line)| has_word(line, "unsafe")) {
            let declares_only = source.is_one_of(DECLARES_ONLY) && !source.in_tests[index];
            if !source.is_one_of(UNSAFE) {
                push(index + 1, "`unsafe` outside the files that the README names");
            } else if declares_only && line.contains("unsafe {") {
                push(index + 1, "an unsafe block in a file that only declares unsafe traits");
            }
        }
    }
    findings
}

/// The word stands only in its two doors, comments included; and only their packages depend on the crate.
pub(super) fn cudarc(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let code = tree.sources.iter().filter(|source| !source.path.starts_with("xtask/"));
    for source in code.filter(|source| !source.is_one_of(CUDARC)) {
        for (index, _) in source.text.lines().enumerate().filter(|(_, line)| has_word(line, "cudarc")) {
            let message = format!("`cudarc` is named outside {}", CUDARC.join(" and "));
            findings.push(Finding::new(&source.path, index + 1, message));
        }
    }
    let may = |path: &str| CUDARC.iter().any(|door| door.split("/src/").next() == path.strip_suffix("/Cargo.toml"));
    let manifests = tree.texts().filter(|(path, _)| path.ends_with("/Cargo.toml") && !may(path));
    for (path, _) in manifests.filter(|(_, text)| has_word(text, "cudarc")) {
        findings.push(Finding::new(path, 1, "a dependency on cudarc"));
    }
    // A default build has none of it.
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with("/Cargo.toml") && may(path)) {
        for (index, line) in text.lines().enumerate() {
            let is_always = line.starts_with("cudarc") && !line.contains("optional = true");
            if is_always || (line.starts_with("default") && line.contains("cuda")) {
                findings.push(Finding::new(path, index + 1, "cudarc in the default build"));
            }
        }
    }
    findings
}

/// No `cfg` in the main flow. Allowed are: an attribute of a module, an import or a whole file; everything that is compiled
/// only for tests; `cfg_attr(docsrs, …)`; and the doors. A function, a field, an arm or an expression is main flow.
pub(super) fn cfg(tree: &Tree) -> Vec<Finding> {
    let message = "a `cfg` in the main flow; put it on a module or an import, or move the code behind a door";
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| !source.is_test() && !source.is_one_of(CFG)) {
        for (number, line) in source.main_flow() {
            let attribute = line.trim_start();
            let is_attribute = attribute.starts_with("#[cfg(") || attribute.starts_with("#[cfg_attr(");
            let is_main_flow = match is_attribute {
                true if is_cfg_test(line) || attribute.starts_with("#[cfg_attr(docsrs") => false,
                // What stands behind the attribute, or below it.
                true => !next_item(&source.code[number - 1..]).is_some_and(|item| {
                    ["mod", "use", "extern"].iter().any(|word| item.split(' ').take(2).any(|each| each == *word))
                }),
                false => ["cfg!(", "cfg_if!", "#[cfg(", "#[cfg_attr("].iter().any(|cfg| line.contains(cfg)),
            };
            if is_main_flow {
                findings.push(Finding::new(&source.path, number, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{NONE, lines};

    const FILE: &str = "crates/blob-io/src/npy.rs";

    #[test]
    fn unsafe_outside_its_files_is_found() {
        let text = "//! A.\nfn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(lines(unsafe_code, FILE, text), [3]);
        assert_eq!(lines(unsafe_code, "crates/synced-mem/src/loopback.rs", text), NONE);
        assert_eq!(lines(unsafe_code, "crates/synced-mem/src/loopback/task.rs", text), NONE);
        assert_eq!(lines(unsafe_code, "tests/it.rs", text), NONE);
        for hidden in
            ["unsafe fn f() {}", "unsafe impl A for B {}", "m! { unsafe { g() } }", "#[unsafe(no_mangle)]\nfn f() {}"]
        {
            assert_eq!(lines(unsafe_code, FILE, hidden), [1], "{hidden}");
        }
        assert_eq!(lines(unsafe_code, FILE, "//! unsafe\nfn f() { g(\"unsafe\") }\n"), NONE);
    }

    #[test]
    fn an_unsafe_block_in_the_traits_is_found() {
        let device = "crates/synced-mem/src/device.rs";
        assert_eq!(lines(unsafe_code, device, "unsafe trait A { unsafe fn f(); }\n"), NONE);
        assert_eq!(lines(unsafe_code, device, "fn f() { unsafe { g() } }\n"), [1]);
    }

    #[test]
    fn a_crate_without_the_lint_is_found() {
        let root = "crates/blob-io/src/lib.rs";
        assert_eq!(lines(unsafe_code, root, "//! A.\n"), [1]);
        assert_eq!(lines(unsafe_code, root, "//! A.\n#![forbid(unsafe_code)]\n"), NONE);
        assert_eq!(lines(unsafe_code, root, "//! A.\n#![deny(unsafe_code)]\n"), NONE);
        assert_eq!(lines(unsafe_code, "crates/blob-cli/src/main.rs", "//! A.\n"), [1]);
    }

    #[test]
    fn cudarc_outside_its_doors_is_found() {
        assert_eq!(lines(cudarc, FILE, "//! A.\nuse cudarc::driver;\n"), [2]);
        assert_eq!(lines(cudarc, FILE, "//! Like cudarc.\n"), [1]);
        assert_eq!(lines(cudarc, FILE, "//! cudarc_like\n"), NONE);
        assert_eq!(lines(cudarc, "crates/synced-mem/src/cuda/queue.rs", "use cudarc::driver;\n"), NONE);
        assert_eq!(
            lines(cudarc, "crates/synced-mem/Cargo.toml", "cudarc = { version = \"0.19\", optional = true }\n"),
            NONE
        );
        assert_eq!(lines(cudarc, "crates/synced-mem/Cargo.toml", "\ncudarc = \"0.17\"\n"), [2]);
        assert_eq!(lines(cudarc, "crates/blob-ops/Cargo.toml", "[features]\ndefault = [\"cuda\"]\n"), [2]);
        assert_eq!(lines(cudarc, "crates/blob-io/Cargo.toml", "cudarc = \"0.17\"\n"), [1]);
    }

    #[test]
    fn a_cfg_in_the_main_flow_is_found() {
        #[rustfmt::skip]
        let flows = [
            "#[cfg(unix)]\nfn f() {}", "#[cfg(unix)]\nimpl A {}", "#[cfg(not(test))]\nfn f() {}",
            "#[cfg_attr(unix, inline)]\nfn f() {}", "struct A { #[cfg(unix)] a: u8 }",
            "fn f() { if cfg!(unix) { g() } }", "fn f() { match a { #[cfg(unix)] 1 => 2, _ => 3 } }",
            "fn f() { #[cfg(unix)] g(); }", "fn f() { print!(\"{}\", cfg!(unix)) }",
            "macro_rules! m { () => { #[cfg(unix)] fn f() {} } }", "mod a { #[cfg(unix)] fn f() {} }",
            "impl A { #[cfg(unix)] fn f() {} }", "enum A { #[cfg(unix)] B }",
        ];
        for flow in flows {
            assert_eq!(lines(cfg, FILE, flow), [1], "{flow}");
        }
    }

    #[test]
    fn a_cfg_at_a_door_is_not_found() {
        #[rustfmt::skip]
        let doors = [
            "#[cfg(unix)]\nmod a;", "#[cfg(unix)]\npub use a::B;", "#![cfg(unix)]\nfn f() {}",
            "#[cfg(test)]\nfn f() {}", "    #[cfg(test)]\n    fn f() {}",
            "#[cfg(all(test, unix))]\nmod tests {\n    #[cfg(unix)]\n    fn f() {}\n}",
            "#[cfg_attr(docsrs, doc(cfg(unix)))]\nfn f() {}", "/// cfg(unix)\nfn f() {}",
        ];
        for door in doors {
            assert_eq!(lines(cfg, FILE, door), NONE, "{door}");
        }
        let flow = "#[cfg(unix)]\nfn f() {}";
        assert_eq!(lines(cfg, "crates/blob-io/src/wire/source.rs", flow), NONE);
        assert_eq!(lines(cfg, "crates/blob-io/tests/real.rs", flow), NONE);
    }
}
