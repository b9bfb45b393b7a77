//! `cargo xtask additions`: a made-up format and a made-up transform, each a patch of `docs/additions` that shows where
//! one goes, applied to a copy of the last commit. Their own tests run there.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::shell;

/// A patch of `docs/additions`.
struct Addition {
    name: &'static str,
    package: &'static str,
    /// The files of its own, and the tests, by this word in their paths.
    own: &'static str,
    /// So many other files may change.
    others: usize,
}

const ADDITIONS: &[Addition] = &[
    Addition { name: "format", package: "blob-io", own: "lone", others: 3 },
    Addition { name: "transform", package: "blob-convert", own: "prefix", others: 2 },
];

fn git(arguments: &[&str]) -> Command {
    let mut git = shell::program("git");
    git.args(arguments);
    git
}

fn patch(addition: &Addition) -> String {
    format!("docs/additions/{}.patch", addition.name)
}

/// Whether a patch applies, and how many files it changes besides its own.
fn check(addition: &Addition) -> Result<()> {
    let text = std::fs::read_to_string(shell::root().join(patch(addition)))?;
    let files = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
    let others: Vec<&str> = files.filter(|file| !file.contains(addition.own)).collect();
    ensure!(others.len() == addition.others, "{} changes {others:?}, not {} files", addition.name, addition.others);
    shell::run(git(&["apply", "--check", &patch(addition)]).current_dir(shell::root()))
}

/// Applies each patch and runs its tests.
pub(crate) fn run(_: &[&str]) -> Result<()> {
    let (root, target) = (shell::root(), shell::target_directory()?);
    for addition in ADDITIONS {
        check(addition)?;
        let tree = target.join("additions").join(addition.name);
        let path = tree.display().to_string();
        if tree.exists() {
            shell::run(&mut git(&["worktree", "remove", "--force", &path]))?;
        }
        shell::run(&mut git(&["worktree", "add", "--quiet", "--detach", &path]))?;
        let applied = shell::run(git(&["apply", &root.join(patch(addition)).display().to_string()]).current_dir(&tree));
        let test = format!("test --all-features -p {} --lib {}", addition.package, addition.own);
        let tested = applied.and_then(|()| {
            shell::run(shell::cargo(&test).env("CARGO_TARGET_DIR", target.join("additions/target")).current_dir(&tree))
        });
        shell::run(&mut git(&["worktree", "remove", "--force", &path]))?;
        tested?;
    }
    println!("additions: {} applied and tested", ADDITIONS.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_addition_applies_and_touches_few_files() {
        ADDITIONS.iter().for_each(|addition| check(addition).unwrap());
    }
}
