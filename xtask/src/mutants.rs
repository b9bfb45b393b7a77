//! `cargo xtask mutants [FILTER]`: breaks a copy of the workspace on purpose, one place at a time, and runs the test that must fail.
//! It relies on the table, which anyone who writes a test extends, and on cargo. A breakage that makes the test run for ever
//! is not noticed: choose another.

mod table;

use std::path::Path;
use std::process::Output;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::shell;
pub(crate) use table::all;

/// Where the table stands, for messages.
pub(crate) const TABLE_FILE: &str = "xtask/src/mutants/table.rs";

/// The test target whose models need loom's primitives.
const LOOM: &str = "loom";

/// A deliberate breakage, and the test that has to notice it.
pub(crate) struct Mutant {
    /// What is broken, in a few words; the filter looks here and in `file`.
    name: &'static str,
    /// The file, from the workspace's root.
    file: &'static str,
    /// The text to replace; it stands in the file exactly once.
    old: &'static str,
    /// What replaces it; it must compile.
    new: &'static str,
    /// What is given to `cargo test`: the package, and the name of the test.
    test: &'static [&'static str],
}

/// The entries whose old text is not found exactly once, or that break nothing, as messages.
pub(crate) fn stale<'a>(
    table: impl IntoIterator<Item = &'a Mutant>,
    read: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut messages = Vec::new();
    for Mutant { name, file, old, new, .. } in table {
        match read(file).map(|text| text.matches(old).count()) {
            None => messages.push(format!("{name:?}: there is no {file}")),
            Some(1) if old != new => {}
            Some(1) => messages.push(format!("{name:?}: the new text is the old one")),
            Some(count) => messages.push(format!("{name:?}: its old text stands {count} times in {file}, not once")),
        }
    }
    messages
}

/// Runs the chosen entries, and fails where one survives.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let filter = match arguments {
        [] => "",
        [filter] => filter,
        _ => bail!("mutants takes one filter, and got {arguments:?}"),
    };
    let root = shell::root();
    let messages = stale(all(), |file| std::fs::read_to_string(root.join(file)).ok());
    if !messages.is_empty() {
        bail!("{TABLE_FILE} is out of date:\n  {}", messages.join("\n  "));
    }
    let is_chosen = |mutant: &&Mutant| mutant.name.contains(filter) || mutant.file.contains(filter);
    let chosen: Vec<&Mutant> = all().filter(is_chosen).collect();
    if chosen.is_empty() {
        bail!("no entry of {TABLE_FILE} contains {filter:?}");
    }
    // The folders stay between runs, so that only what changed is built again.
    let scratch = shell::target_directory()?.join("mutants");
    let laboratory = Laboratory { tree: scratch.join("tree"), build: scratch.join("build") };
    laboratory.copy(&root)?;
    laboratory.check_baseline(&chosen)?;
    let mut survivors = Vec::new();
    for mutant in &chosen {
        let killed = laboratory.kills(mutant)?;
        println!("{}  {}: {}", if killed { "killed  " } else { "SURVIVED" }, mutant.file, mutant.name);
        if !killed {
            survivors.push(mutant.name);
        }
    }
    println!("mutants: {} tried, {} survived", chosen.len(), survivors.len());
    if !survivors.is_empty() {
        bail!("survived: {}", survivors.join(", "));
    }
    Ok(())
}

/// A copy of the workspace, and where it is built.
struct Laboratory {
    tree: std::path::PathBuf,
    build: std::path::PathBuf,
}

impl Laboratory {
    /// Makes the tree a fresh copy of the workspace, with the times of its files.
    fn copy(&self, root: &Path) -> Result<()> {
        if self.tree.exists() {
            std::fs::remove_dir_all(&self.tree).context("cannot remove the old copy")?;
        }
        for file in shell::files(root)? {
            let (from, to) = (root.join(&file), self.tree.join(&file));
            std::fs::create_dir_all(to.parent().context("a file without a folder")?)?;
            std::fs::copy(&from, &to).with_context(|| format!("cannot copy {file}"))?;
            // Otherwise cargo would take every file for changed; but what an earlier run broke is built anew, or its last
            // breakage would be taken for the whole.
            let modified = match all().any(|mutant| mutant.file == file) {
                true => SystemTime::now(),
                false => from.metadata()?.modified()?,
            };
            std::fs::File::options().write(true).open(&to)?.set_modified(modified)?;
        }
        Ok(())
    }

    /// Every test passes while nothing is broken, and there is a test of that name at all.
    fn check_baseline(&self, chosen: &[&Mutant]) -> Result<()> {
        let mut tests: Vec<&[&str]> = chosen.iter().map(|mutant| mutant.test).collect();
        tests.sort_unstable();
        tests.dedup();
        for test in tests {
            let output = self.cargo_test(test, &[])?;
            if !output.status.success() {
                bail!("`cargo test {}` fails on the unbroken tree:\n{}", test.join(" "), said(&output));
            }
            if tests_run(&String::from_utf8_lossy(&output.stdout)) == 0 {
                bail!("`cargo test {}` runs no test", test.join(" "));
            }
        }
        Ok(())
    }

    /// Breaks one place, runs its test, mends the place.
    fn kills(&self, mutant: &Mutant) -> Result<bool> {
        let path = self.tree.join(mutant.file);
        let text = std::fs::read_to_string(&path)?;
        std::fs::write(&path, text.replacen(mutant.old, mutant.new, 1))?;
        let built = self.cargo_test(mutant.test, &["--no-run"])?;
        let killed = !built.status.success() || !self.cargo_test(mutant.test, &[])?.status.success();
        std::fs::write(&path, text)?;
        // The times of two writes may be equal on a coarse clock; a later one is certainly seen.
        std::fs::File::options().write(true).open(&path)?.set_modified(SystemTime::now())?;
        if !built.status.success() {
            bail!("{:?} does not compile, so it shows nothing:\n{}", mutant.name, said(&built));
        }
        Ok(killed)
    }

    fn cargo_test(&self, test: &[&str], more: &[&str]) -> Result<Output> {
        let mut command = shell::cargo(&["test", "--quiet"]);
        command
            .args(more)
            .args(test)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.build)
            // Some breakages show only in stores past the caches, which not every processor takes by itself.
            .env("BLOB_OPS_STORES", "streaming");
        if test.contains(&LOOM) {
            // As in `cargo xtask ci`: another build of everything, so in a folder of its own.
            command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", self.build.join(LOOM));
        }
        command.output().context("cannot start cargo test")
    }
}

/// What a command wrote, both ways.
fn said(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

/// How many tests ran, by the lines `running N tests` of all binaries.
fn tests_run(output: &str) -> usize {
    let counts = output.lines().filter_map(|line| {
        let rest = line.strip_prefix("running ")?;
        rest.split(' ').next()?.parse::<usize>().ok()
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUTANT: Mutant = Mutant { name: "sign", file: "a.rs", old: "a + b", new: "a - b", test: &["-p", "a"] };

    #[test]
    fn every_entry_of_the_table_finds_its_text_once() {
        let root = shell::root();
        let messages = stale(all(), |file| std::fs::read_to_string(root.join(file)).ok());
        assert_eq!(messages, [""; 0]);
    }

    #[test]
    fn a_stale_entry_is_found() {
        let stale_in = |text: Option<&str>| stale(&[MUTANT], |_| text.map(str::to_string));
        assert_eq!(stale_in(Some("a + b")).len(), 0);
        assert!(stale_in(Some("a * b"))[0].contains("0 times"));
        assert!(stale_in(Some("a + b + a + b"))[0].contains("2 times"));
        assert!(stale_in(None)[0].contains("there is no a.rs"));
        let idle = Mutant { new: "a + b", ..MUTANT };
        assert_eq!(stale(&[idle], |_| Some("a + b".to_string())).len(), 1);
    }

    #[test]
    fn the_names_are_unique() {
        let mut names: Vec<&str> = all().map(|mutant| mutant.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn a_filter_that_matches_nothing_runs_nothing() {
        assert_eq!(tests_run("running 0 tests\n\nrunning 3 tests\n...\nrunning 1 test\n"), 4);
        assert_eq!(tests_run("running 0 tests\n"), 0);
        assert!(run(&["no entry has this name"]).is_err());
    }
}
