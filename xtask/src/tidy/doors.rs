//! Rules 4, 5 and 14: foreign things stand behind doors. `unsafe` stands in the files that the README names, `cudarc` in two,
//! and a `cfg` at a door: on a module or an import, on test code, or in a file that is itself the door to the machine.
//! The lists below are those of the README's invariants; a new door is added there first.

use syn::visit::{self, Visit};
use syn::{Attribute, Item};

use super::source::{Token, find, flatten, is_cfg_test};
use super::{Finding, Source, Tree};

/// The files that may hold `unsafe`.
const UNSAFE: &[&str] = &[
    "crates/blob-core/src/typed",
    "crates/blob-io/src/wire/source",
    "crates/blob-ops/src/cpu/aarch64",
    "crates/blob-ops/src/cpu/tiles",
    "crates/blob-ops/src/cpu/x86",
    "crates/blob-ops/src/cuda",
    "crates/synced-mem/src/conformance",
    "crates/synced-mem/src/cuda",
    "crates/synced-mem/src/device",
    "crates/synced-mem/src/host",
    "crates/synced-mem/src/loopback",
    "crates/synced-mem/src/memory",
    "crates/synced-mem/src/shared",
    "crates/synced-mem/src/transfer",
];

/// Declares the unsafe traits that a backend implements, and holds no unsafe block.
const DECLARES_ONLY: &[&str] = &["crates/synced-mem/src/device"];

/// The files that may name cudarc, and the packages that may depend on it.
const CUDARC: &[&str] = &["crates/blob-ops/src/cuda", "crates/synced-mem/src/cuda"];
const CUDARC_PACKAGES: &[&str] = &["blob-ops", "synced-mem"];

/// The files that are doors to the machine: GPU, instruction sets, threads under test, file system, terminal.
const CFG: &[&str] = &[
    "crates/blob-cli/src/output",
    "crates/blob-io/src/output",
    "crates/blob-io/src/wire/source",
    "crates/blob-ops/src/cpu",
    "crates/blob-ops/src/cuda",
    "crates/synced-mem/src/cuda",
    "crates/synced-mem/src/host",
    "crates/synced-mem/src/sync",
];

/// `unsafe` stands only in its files, and every crate says so to the compiler.
/// Test and bench targets may use it: the unsafe functions are there to be called, and clippy asks for the proof.
pub(super) fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources.iter().filter(|source| !source.is_test()) {
        if source.is_crate_root() && !declares_unsafe_lint(source) {
            let message = "the crate has neither `#![forbid(unsafe_code)]` nor `#![deny(unsafe_code)]`";
            findings.push(Finding::new(&source.path, 1, message));
        }
        if !source.is_one_of(UNSAFE) {
            let message = "`unsafe` outside the files that the README names";
            findings.extend(source.find(&["unsafe"]).map(|line| Finding::new(&source.path, line, message)));
        } else if source.is_one_of(DECLARES_ONLY) {
            let blocks = source.find(&["unsafe", "{"]).filter(|line| !source.tests_hold(*line));
            let message = "an unsafe block in a file that only declares unsafe traits";
            findings.extend(blocks.map(|line| Finding::new(&source.path, line, message)));
        }
    }
    findings
}

fn declares_unsafe_lint(source: &Source) -> bool {
    ["forbid", "deny"].iter().any(|level| source.find(&["#", "!", "[", level, "(", "unsafe_code"]).next().is_some())
}

/// The word stands only in its two doors, comments included; and only their packages depend on the crate.
pub(super) fn cudarc(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let code = tree.sources.iter().filter(|source| !source.path.starts_with("xtask/"));
    for source in code.filter(|source| !source.is_one_of(CUDARC)) {
        for (index, line) in source.text.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if words.any(|word| word == "cudarc") {
                let message = format!("`cudarc` is named outside {}", CUDARC.join(" and "));
                findings.push(Finding::new(&source.path, index + 1, message));
            }
        }
    }
    for package in &tree.packages {
        let foreign = !CUDARC_PACKAGES.contains(&package.name.as_str());
        if foreign && package.dependencies.iter().any(|name| name == "cudarc") {
            let message = format!("{} depends on cudarc; {} may", package.name, CUDARC_PACKAGES.join(" and "));
            findings.push(Finding::new(&package.manifest, 1, message));
        }
    }
    findings
}

/// No `cfg` in the main flow. Allowed are: an attribute of a module, an import or a whole file; everything that is compiled
/// only for tests; `cfg_attr(docsrs, …)`; and the doors. A function, a field, an arm or an expression is main flow.
pub(super) fn cfg(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        if !source.is_test() && !source.is_one_of(CFG) {
            let mut visitor = MainFlow { path: &source.path, findings: &mut findings };
            // The attributes of the file itself stand where its module's would.
            source.syntax.items.iter().for_each(|item| visitor.visit_item(item));
        }
    }
    findings
}

struct MainFlow<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl MainFlow<'_> {
    fn push(&mut self, line: usize) {
        let message = "a `cfg` in the main flow; put it on a module or an import, or move the code behind a door";
        self.findings.push(Finding::new(self.path, line, message));
    }

    fn scan(&mut self, tokens: &[Token]) {
        let patterns: [&[&str]; 4] = [&["cfg", "!"], &["cfg_if", "!"], &["#", "[", "cfg"], &["#", "[", "cfg_attr"]];
        for pattern in patterns {
            find(tokens, pattern).for_each(|line| self.push(line));
        }
    }
}

impl<'ast> Visit<'ast> for MainFlow<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(is_cfg_test) {
            return;
        }
        match item {
            Item::Mod(module) => {
                let items = module.content.iter().flat_map(|(_, items)| items);
                items.for_each(|item| self.visit_item(item));
            }
            Item::Use(_) | Item::ExternCrate(_) => {}
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !function.attrs.iter().any(is_cfg_test) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let is_documentation =
            attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string().starts_with("docsrs"));
        let path = attribute.path();
        if path.is_ident("cfg") || path.is_ident("cfg_attr") && !is_documentation {
            self.push(attribute.pound_token.spans[0].start().line);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if let Some(name) = call.path.get_ident().filter(|name| *name == "cfg" || *name == "cfg_if") {
            self.push(name.span().start().line);
        }
        let mut tokens = Vec::new();
        flatten(call.tokens.clone(), &mut tokens);
        self.scan(&tokens);
    }
}

/// The attributes of an item; syn has no accessor for them.
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::Package;
    use crate::tidy::tests::{NONE, lines};

    const FILE: &str = "crates/blob-io/src/npy.rs";

    #[test]
    fn unsafe_outside_its_files_is_found() {
        let text = "//! A.\nfn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(lines(unsafe_code, FILE, text), [3]);
        assert_eq!(lines(unsafe_code, "crates/synced-mem/src/host.rs", text), NONE);
        assert_eq!(lines(unsafe_code, "crates/synced-mem/src/host/pool.rs", text), NONE);
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
        let mut tree = Tree::from_texts([]);
        tree.packages = vec![Package::sample("synced-mem", &["cudarc"])];
        assert_eq!(cudarc(&tree), []);
        tree.packages = vec![Package::sample("blob-io", &["cudarc"])];
        assert_eq!(cudarc(&tree).len(), 1);
    }

    #[test]
    fn a_cfg_in_the_main_flow_is_found() {
        for flow in [
            "#[cfg(unix)]\nfn f() {}",
            "#[cfg(unix)]\nimpl A {}",
            "#[cfg(not(test))]\nfn f() {}",
            "#[cfg_attr(unix, inline)]\nfn f() {}",
            "struct A { #[cfg(unix)] a: u8 }",
            "fn f() { if cfg!(unix) { g() } }",
            "fn f() { match a { #[cfg(unix)] 1 => 2, _ => 3 } }",
            "fn f() { #[cfg(unix)] g(); }",
            "fn f() { print!(\"{}\", cfg!(unix)) }",
            "macro_rules! m { () => { #[cfg(unix)] fn f() {} } }",
            "mod a { #[cfg(unix)] fn f() {} }",
            "impl A { #[cfg(unix)] fn f() {} }",
            "enum A { #[cfg(unix)] B }",
        ] {
            assert_eq!(lines(cfg, FILE, flow), [1], "{flow}");
        }
    }

    #[test]
    fn a_cfg_at_a_door_is_not_found() {
        for door in [
            "#[cfg(unix)]\nmod a;",
            "#[cfg(unix)]\npub use a::B;",
            "#![cfg(unix)]\nfn f() {}",
            "#[cfg(test)]\nfn f() {}",
            "impl A { #[cfg(test)] fn f() {} }",
            "#[cfg(all(test, unix))]\nmod tests { #[cfg(unix)] fn f() {} }",
            "#[cfg_attr(docsrs, doc(cfg(unix)))]\nfn f() {}",
            "/// cfg(unix)\nfn f() {}",
        ] {
            assert_eq!(lines(cfg, FILE, door), NONE, "{door}");
        }
        let flow = "#[cfg(unix)]\nfn f() {}";
        assert_eq!(lines(cfg, "crates/blob-io/src/wire/source.rs", flow), NONE);
        assert_eq!(lines(cfg, "crates/blob-io/tests/real.rs", flow), NONE);
    }
}
