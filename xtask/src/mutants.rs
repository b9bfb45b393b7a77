//! `cargo xtask mutants [FILTER ...]`: breaks a copy of the workspace on purpose, and runs the test that must fail.
//! One build holds all breakages that can be chosen at run time (`together`); the others are built one at a time.
//! Relies on `breakages` for the rows, and on cargo.

mod in_diff;
mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};

use crate::breakages::{LISTS, Mutant, rows, stale};
use crate::shell;
use crate::tidy::Tree;
use together::Together;

/// How many seconds a broken test may take; each takes a few where nothing is broken.
const LIMIT: &str = "300";

/// The test target whose models need loom's primitives.
const LOOM: &str = "loom";

/// Runs the rows whose name or file contains one of the filters, or all, and fails where one survives.
pub(crate) fn run(filters: &[&str]) -> Result<()> {
    if let Some((&"--in-diff", rest)) = filters.split_first() {
        return in_diff::run(rest);
    }
    let root = shell::root();
    let tree = Tree::read(&root)?;
    let all = rows(tree.texts());
    let messages: Vec<String> = all.iter().filter_map(|mutant| stale(mutant, |file| tree.text(file))).collect();
    ensure!(messages.is_empty(), "{LISTS} is out of date:\n  {}", messages.join("\n  "));
    let chosen = chosen(&all, filters)?;
    // The folders stay between runs, so that only changed code is built again.
    let scratch = shell::target_directory()?.join("mutants");
    let laboratory = Laboratory { tree: scratch.join("tree"), build: scratch.join("build") };
    laboratory.copy(&root, &all)?;
    let together = laboratory.build_together(&chosen, &tree)?;
    laboratory.check_baseline(&chosen)?;
    let mut survivors = Vec::new();
    let mut report = |mutant: &Mutant, fate: Fate| {
        println!("{:<9} {}: {}", fate.word(), mutant.file, mutant.name);
        survivors.extend((fate != Fate::Killed).then(|| mutant.name.clone()));
    };
    for row in together.rows() {
        report(chosen[row], laboratory.fate(chosen[row], row)?);
    }
    laboratory.mend(&together, &tree)?;
    let alone = (0..chosen.len()).filter(|row| !together.rows().contains(row)).map(|row| chosen[row]);
    for mutant in alone {
        report(mutant, laboratory.fate_alone(mutant)?);
    }
    println!("mutants: {} tried, {} in one build, {} survived", chosen.len(), together.rows().len(), survivors.len());
    ensure!(survivors.is_empty(), "survived: {}", survivors.join(", "));
    Ok(())
}

/// The end of a breakage.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Killed,
    Survived,
    /// The test did not end in time, which nobody would call a failure that says something.
    Endless,
}

impl Fate {
    fn word(self) -> &'static str {
        match self {
            Fate::Killed => "killed",
            Fate::Survived => "SURVIVED",
            Fate::Endless => "NO END",
        }
    }
}

/// The rows that a filter names, one file's after another's: each crate that was broken is built whole but once.
fn chosen<'a>(all: &'a [Mutant], filters: &[&str]) -> Result<Vec<&'a Mutant>> {
    let names = |mutant: &Mutant, filter: &str| mutant.name.contains(filter) || mutant.file.contains(filter);
    if let Some(idle) = filters.iter().find(|filter| !all.iter().any(|mutant| names(mutant, filter))) {
        bail!("no row of {LISTS} contains {idle:?}");
    }
    let chosen = all.iter().filter(|row| filters.is_empty() || filters.iter().any(|filter| names(row, filter)));
    let mut chosen: Vec<&Mutant> = chosen.collect();
    chosen.sort_by_key(|mutant| &mutant.file);
    Ok(chosen)
}

/// A copy of the workspace, and the folder of the copy's builds.
struct Laboratory {
    tree: PathBuf,
    build: PathBuf,
}

impl Laboratory {
    /// Makes the tree a fresh copy of the workspace, with the same times of files.
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

    /// Every named test is there and passes while nothing is broken: one run of each test binary, with all names there.
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

    /// Writes the tree with all rows that can be placed and builds every test that they name. A row whose body does not
    /// compile beside the others is left out.
    fn build_together(&self, chosen: &[&Mutant], tree: &Tree) -> Result<Together> {
        let targets: BTreeSet<&[String]> =
            chosen.iter().filter_map(|mutant| Some(mutant.test.split_last()?.1)).collect();
        let mut left_out = BTreeSet::new();
        loop {
            let rows = chosen.iter().enumerate().filter(|(row, _)| !left_out.contains(row));
            let together = Together::new(rows.map(|(row, mutant)| (row, *mutant)), |file| tree.text(file));
            self.write(together.texts.iter().map(|(file, text)| (file.as_str(), text.as_str())))?;
            let mut faulty = BTreeSet::new();
            for target in &targets {
                let mut build = self.cargo_test(target);
                let output =
                    build.args(["--no-run", "--message-format=json"]).output().context("cannot start cargo test")?;
                let places = error_places(&String::from_utf8_lossy(&output.stdout));
                faulty.extend(places.iter().filter_map(|(file, byte)| together.row_at(file, *byte)));
                let is_explained = output.status.success() || !faulty.is_empty();
                ensure!(is_explained, "`cargo test {}` does not build:\n{}", target.join(" "), said(&output));
            }
            if faulty.is_empty() {
                return Ok(together);
            }
            left_out.append(&mut faulty);
            self.write(together.texts.keys().filter_map(|file| Some((file.as_str(), tree.text(file)?))))?;
        }
    }

    /// Writes the files that were changed back.
    fn mend(&self, together: &Together, tree: &Tree) -> Result<()> {
        self.write(together.texts.keys().filter_map(|file| Some((file.as_str(), tree.text(file)?))))
    }

    fn write<'a>(&self, files: impl Iterator<Item = (&'a str, &'a str)>) -> Result<()> {
        for (file, text) in files {
            let path = self.tree.join(file);
            std::fs::write(&path, text)?;
            // The times of two writes may be equal on a coarse clock; a later one is certainly seen.
            std::fs::File::options().write(true).open(&path)?.set_modified(SystemTime::now())?;
        }
        Ok(())
    }

    /// Runs the row's test with the row's bodies.
    fn fate(&self, mutant: &Mutant, row: usize) -> Result<Fate> {
        let mut test = self.cargo_test(&mutant.test);
        fate(test.env(together::CHOICE, row.to_string()))
    }

    /// Breaks one place, builds and runs the row's test, mends the place.
    fn fate_alone(&self, mutant: &Mutant) -> Result<Fate> {
        let text = std::fs::read_to_string(self.tree.join(&mutant.file))?;
        let broken = text.replacen(&mutant.old, &mutant.new, 1);
        self.write([(mutant.file.as_str(), broken.as_str())].into_iter())?;
        let built = self.cargo_test(&mutant.test).arg("--no-run").output().context("cannot start cargo test")?;
        let fate = built.status.success().then(|| fate(&self.cargo_test(&mutant.test)));
        self.write([(mutant.file.as_str(), text.as_str())].into_iter())?;
        fate.with_context(|| format!("{:?} does not compile, so it shows nothing:\n{}", mutant.name, said(&built)))?
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

/// Runs a test until the end, or until the time is over: then the test and all children are killed.
fn fate(test: &Command) -> Result<Fate> {
    let mut limited = Command::new("timeout");
    limited.args(["--signal=KILL", LIMIT]).arg(test.get_program()).args(test.get_args());
    limited.envs(test.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.current_dir(test.get_current_dir().context("a test runs in the tree")?);
    let status = limited.stdout(Stdio::null()).stderr(Stdio::null()).status().context("cannot start timeout")?;
    Ok(match status.code() {
        Some(0) => Fate::Survived,
        // Killed by the signal, or told so by a shell's number.
        None | Some(137) => Fate::Endless,
        Some(_) => Fate::Killed,
    })
}

/// The files and bytes at which rustc's messages in JSON name an error.
fn error_places(messages: &str) -> Vec<(String, usize)> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let errors = messages.filter(|message| message["message"]["level"] == "error");
    let spans = errors.flat_map(|error| error["message"]["spans"].as_array().cloned().unwrap_or_default());
    let places = spans.filter_map(|span| {
        Some((span["file_name"].as_str()?.to_string(), usize::try_from(span["byte_start"].as_u64()?).ok()?))
    });
    places.collect()
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
    fn errors_of_the_compiler_have_places() {
        let span = r#"{"file_name":"crates/a/src/b.rs","byte_start":7,"byte_end":9}"#;
        let line =
            |level| format!(r#"{{"reason":"compiler-message","message":{{"level":"{level}","spans":[{span}]}}}}"#);
        let messages = format!("{}\nnoise\n{}\n", line("warning"), line("error"));
        assert_eq!(error_places(&messages), [("crates/a/src/b.rs".to_string(), 7)]);
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
