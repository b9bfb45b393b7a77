//! `cargo xtask mutants --in-diff [BASE]`: cargo-mutants breaks the lines of a change in ways that need no row of ours:
//! results, operators, arms and bodies. Relies on git for the change. Installs nothing.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::shell;

/// The command that a machine without the program lacks.
const INSTALL: &str = "cargo install cargo-mutants --locked";

/// Breaks the changes of the working tree since the branch left `BASE`, which is `main` where none is named. The tests
/// are those of each changed crate, and the tests of all crates together.
pub(super) fn run(arguments: &[&str]) -> Result<()> {
    let base = match arguments {
        [] => "main",
        [base] if !base.starts_with('-') => base,
        _ => bail!("--in-diff takes one BASE, not {arguments:?}"),
    };
    let is_installed = shell::program("cargo-mutants").args(["mutants", "--version"]).output();
    if !is_installed.is_ok_and(|output| output.status.success()) {
        bail!("NOT INSTALLED: cargo-mutants; `{INSTALL}` installs it");
    }
    let fork = shell::read(shell::program("git").args(["merge-base", base, "HEAD"]))?;
    let diff = shell::read(shell::program("git").args([
        "diff",
        "--no-ext-diff",
        "--src-prefix=a/",
        "--dst-prefix=b/",
        fork.trim(),
    ]))?;
    let packages = packages(&diff);
    if packages.is_empty() {
        println!("mutants: no line of a crate changed since {base}");
        return Ok(());
    }
    let output = shell::target_directory()?.join("mutants");
    std::fs::create_dir_all(&output)?;
    let change = output.join("change.diff");
    std::fs::write(&change, &diff)?;
    let mut mutants = shell::cargo("mutants --all-features --in-diff");
    mutants.arg(&change).arg("--output").arg(&output);
    for package in packages.iter().copied().chain(["blob-tests"]) {
        mutants.args(["--test-package", package]);
    }
    shell::run(&mut mutants)
}

/// The crates whose sources a diff changes.
fn packages(diff: &str) -> BTreeSet<&str> {
    let files = diff.lines().filter_map(|line| line.strip_prefix("+++ b/crates/"));
    files.filter_map(|file| file.split_once("/src/")).map(|(package, _)| package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_of_a_change_are_those_with_changed_sources() {
        let diff = "+++ b/crates/blob-io/src/npy.rs\n+++ b/crates/blob-io/src/npz.rs\n+++ b/crates/blob-cli/README.md\n\
                    --- a/crates/blob-ops/src/fill.rs\n+++ /dev/null\n+++ b/tests/npy.rs\n";
        assert_eq!(packages(diff), ["blob-io"].into());
        assert!(run(&["--list"]).is_err() && run(&["a", "b"]).is_err());
    }
}
