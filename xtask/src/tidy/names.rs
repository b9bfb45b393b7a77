//! Rule 11, one name in one place: no glob re-exports, no aliases for others to use, no prelude;
//! beside it, that no tracked file names a folder of one machine.
//! An alias that stays private to its module is allowed: it is no second name for anyone else.

use syn::visit::{self, Visit};
use syn::{UseTree, Visibility};

use super::{Finding, Tree};

/// No glob re-exports, no type aliases beyond their module, no prelude.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.sources {
        let mut visitor = Names { path: &source.path, findings: &mut findings };
        visitor.visit_file(&source.syntax);
    }
    findings
}

struct Names<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if is_seen_outside(&item.vis) && has_glob(&item.tree) {
            let line = item.use_token.span.start().line;
            self.findings.push(Finding::new(self.path, line, "a glob re-export; name what is exported"));
        }
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        if is_seen_outside(&item.vis) {
            let line = item.type_token.span.start().line;
            let message = format!("`{}` is a second name for a type", item.ident);
            self.findings.push(Finding::new(self.path, line, message));
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident == "prelude" {
            let line = item.mod_token.span.start().line;
            self.findings.push(Finding::new(self.path, line, "a prelude is a second place for its names"));
        }
        visit::visit_item_mod(self, item);
    }
}

fn is_seen_outside(visibility: &Visibility) -> bool {
    !matches!(visibility, Visibility::Inherited)
}

fn has_glob(tree: &UseTree) -> bool {
    match tree {
        UseTree::Glob(_) => true,
        UseTree::Path(path) => has_glob(&path.tree),
        UseTree::Group(group) => group.items.iter().any(has_glob),
        UseTree::Name(_) | UseTree::Rename(_) => false,
    }
}

/// The first components of paths that exist on a developer's or a runner's machine only.
const MACHINE_FOLDERS: &[&str] = &["work", "farm", "root", "home"];

/// No tracked text file names a path of one machine.
pub(super) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !path.ends_with(".lock")) {
        for (index, line) in text.lines().enumerate() {
            if let Some(folder) = MACHINE_FOLDERS.iter().find(|folder| names_path(line, folder)) {
                let message = format!("a path of one machine: /{folder}/…");
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
    findings
}

/// Whether the line has `/folder/` where an absolute path begins, not within a URL or a longer path.
fn names_path(line: &str, folder: &str) -> bool {
    line.match_indices(&format!("/{folder}/")).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::{NONE, lines};

    const FILE: &str = "crates/blob-io/src/npy.rs";

    #[test]
    fn a_second_name_is_found() {
        for bad in [
            "pub use a::*;",
            "pub(crate) use a::{b, c::*};",
            "pub type A = B;",
            "pub(crate) type A = B;",
            "pub mod prelude;",
            "mod a { pub use b::*; }",
        ] {
            assert_eq!(lines(check, FILE, bad), [1], "{bad}");
        }
        for good in [
            "pub use a::{B, c::D as E};",
            "use super::*;",
            "type A = B;",
            "impl A for B { type C = D; }",
            "trait A { type B; }",
        ] {
            assert_eq!(lines(check, FILE, good), NONE, "{good}");
        }
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        for folder in MACHINE_FOLDERS {
            for before in ["", "see ", "\"", "(", "~"] {
                let text = format!("first\n{before}/{folder}/blob\n");
                assert_eq!(lines(machine_paths, "README.md", &text), [2], "{text}");
            }
            for before in ["https://example.org", "..", "a_", "$HOME"] {
                let text = format!("{before}/{folder}/blob\n");
                assert_eq!(lines(machine_paths, "README.md", &text), NONE, "{text}");
            }
            assert_eq!(lines(machine_paths, "Cargo.lock", &format!("/{folder}/a")), NONE);
        }
        assert_eq!(lines(machine_paths, "README.md", "a path like /tmp/blob"), NONE);
    }
}
