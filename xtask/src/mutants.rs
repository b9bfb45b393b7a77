//! `cargo xtask mutants [FILTER ...]`: breaks a copy of the workspace on purpose, one place at a time, and runs the
//! test that must fail. Relies on `breakages` for the rows, and on cargo.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};

use crate::breakages::{LISTS, Mutant, rows, stale};
use crate::shell;
use crate::tidy::Tree;

/// The test target whose models need loom's primitives.
const LOOM: &str = "loom";

/// Runs the rows whose name or file contains one of the filters, or all, and fails where one survives.
pub(crate) fn run(filters: &[&str]) -> Result<()> {
    let root = shell::root();
    let tree = Tree::read(&root)?;
    let all = rows(tree.texts());
    let messages: Vec<String> = all.iter().filter_map(|mutant| stale(mutant, |file| tree.text(file))).collect();
    ensure!(messages.is_empty(), "{LISTS} is out of date:\n  {}", messages.join("\n  "));
    let chosen = chosen(&all, filters)?;
    // The folders stay between runs, so that only what changed is built again.
    let scratch = shell::target_directory()?.join("mutants");
    let laboratory = Laboratory { tree: scratch.join("tree"), build: scratch.join("build") };
    laboratory.copy(&root, &all)?;
    laboratory.check_baseline(&chosen)?;
    let mut survivors = Vec::new();
    for mutant in &chosen {
        let is_killed = laboratory.kills(mutant)?;
        println!("{:<9} {}: {}", if is_killed { "killed" } else { "SURVIVED" }, mutant.file, mutant.name);
        survivors.extend((!is_killed).then_some(mutant.name.as_str()));
    }
    println!("mutants: {} tried, {} survived", chosen.len(), survivors.len());
    ensure!(survivors.is_empty(), "survived: {}", survivors.join(", "));
    Ok(())
}

/// The rows that a filter names, one file's after another's: each crate that was broken is built whole but once.
fn chosen<'a>(all: &'a [Mutant], filters: &[&str]) -> Result<Vec<&'a Mutant>> {
    let names = |mutant: &Mutant, filter: &str| mutant.name.contains(filter) || mutant.file.contains(filter);
    if let Some(idle) = filters.iter().find(|filter| !all.iter().any(|mutant| names(mutant, filter))) {
        bail!("no row of {LISTS} contains {idle:?}");
    }
    let is_chosen = |mutant: &&Mutant| filters.is_empty() || filters.iter().any(|filter| names(mutant, filter));
    let mut chosen: Vec<&Mutant> = all.iter().filter(is_chosen).collect();
    chosen.sort_by_key(|mutant| &mutant.file);
    Ok(chosen)
}

/// A copy of the workspace, and the folder of its builds.
struct Laboratory {
    tree: PathBuf,
    build: PathBuf,
}

impl Laboratory {
    /// Makes the tree a fresh copy of the workspace, with the times of its files.
    fn copy(&self, root: &Path, all: &[Mutant]) -> Result<()> {
        if self.tree.exists() {
            std::fs::remove_dir_all(&self.tree).context("cannot remove the old copy")?;
        }
        for file in shell::files(root)? {
            let (from, to) = (root.join(&file), self.tree.join(&file));
            std::fs::create_dir_all(to.parent().context("a file without a folder")?)?;
            std::fs::copy(&from, &to).with_context(|| format!("cannot copy {file}"))?;
            // Otherwise cargo would take every file for changed; but a file that an earlier run broke is built anew, or
            // the last breakage would be taken for the whole.
            let modified = if all.iter().any(|mutant| mutant.file == file) {
                SystemTime::now()
            } else {
                from.metadata()?.modified()?
            };
            std::fs::File::options().write(true).open(&to)?.set_modified(modified)?;
        }
        Ok(())
    }

    /// Every named test is there and passes while nothing is broken: one run of each test binary, with all its names.
    fn check_baseline(&self, chosen: &[&Mutant]) -> Result<()> {
        let mut names: BTreeMap<&[String], BTreeSet<&str>> = BTreeMap::new();
        for mutant in chosen {
            let (name, target) = mutant.test.split_last().context("a row names no test")?;
            names.entry(target).or_default().insert(name);
        }
        for (target, names) in names {
            let names: Vec<&str> = names.into_iter().collect();
            let output = self.cargo_test(target).arg("--").args(&names).output().context("cannot start cargo test")?;
            let words = target.join(" ");
            ensure!(output.status.success(), "`cargo test {words}` fails on the unbroken tree:\n{}", said(&output));
            let stdout = String::from_utf8_lossy(&output.stdout);
            let absent: Vec<&str> = names.into_iter().filter(|name| !has_run(&stdout, name)).collect();
            ensure!(absent.is_empty(), "`cargo test {words}` runs no test named {absent:?}");
        }
        Ok(())
    }

    /// Breaks one place, runs the row's test, mends the place.
    fn kills(&self, mutant: &Mutant) -> Result<bool> {
        let path = self.tree.join(&mutant.file);
        let text = std::fs::read_to_string(&path)?;
        std::fs::write(&path, text.replacen(&mutant.old, &mutant.new, 1))?;
        let built = self.cargo_test(&mutant.test).arg("--no-run").output().context("cannot start cargo test")?;
        let killed = !built.status.success() || !self.cargo_test(&mutant.test).output()?.status.success();
        std::fs::write(&path, text)?;
        // The times of two writes may be equal on a coarse clock; a later one is certainly seen.
        std::fs::File::options().write(true).open(&path)?.set_modified(SystemTime::now())?;
        let is_built = built.status.success();
        ensure!(is_built, "{:?} does not compile, so it shows nothing:\n{}", mutant.name, said(&built));
        Ok(killed)
    }

    fn cargo_test(&self, test: &[String]) -> Command {
        let mut command = shell::cargo("test");
        command.args(test).current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.build);
        // Some breakages show only in stores past the caches, which not every processor takes by itself.
        command.env("BLOB_OPS_STORES", "streaming");
        if test.iter().any(|word| word == LOOM) {
            // As in `cargo xtask ci`: another build of everything, so in a folder of its own.
            command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", self.build.join(LOOM));
        }
        command
    }
}

/// The output and the errors of a command.
fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// Whether a test whose path contains the name passed, by the lines `test PATH ... ok`.
fn has_run(output: &str, name: &str) -> bool {
    output.lines().any(|line| line.starts_with("test ") && line.ends_with(" ok") && line.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_unique() {
        let tree = Tree::read(&shell::root()).unwrap();
        let rows = rows(tree.texts());
        let names: BTreeSet<&str> = rows.iter().map(|mutant| mutant.name.as_str()).collect();
        assert_eq!(names.len(), rows.len());
        assert!(rows.len() > 200, "{}", rows.len());
    }

    #[test]
    fn a_filter_that_matches_nothing_runs_nothing() {
        let output = "running 2 tests\ntest a::sign ... ok\ntest a::order ... ignored\n";
        assert!(has_run(output, "sign") && !has_run(output, "order") && !has_run(output, "tests"));
        assert!(run(&["no row has this name"]).is_err());
    }

    #[test]
    fn several_filters_choose_each_row_once_file_after_file() {
        let row = |name: &str, file: &str| Mutant { name: name.into(), file: file.into(), ..Mutant::default() };
        let all = [row("sign", "b.rs"), row("order", "a.rs"), row("sign of b", "a.rs"), row("end", "c.rs")];
        let chosen = |filters: &[&str]| {
            chosen(&all, filters).map(|rows| rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>()).ok()
        };
        assert_eq!(chosen(&["sign", "b.rs", "order"]).unwrap(), ["order", "sign of b", "sign"]);
        assert_eq!(chosen(&[]).unwrap().len(), 4);
        assert_eq!(chosen(&["sign", "nothing"]), None);
    }
}
