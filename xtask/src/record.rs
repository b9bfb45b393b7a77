//! `cargo xtask record FILE [ARGS]`: our operations and their peers measured one after another, as one table in FILE.
//! It relies on the fields that the programs print with `--tsv`, and on a Python with numpy, and torch where there is one,
//! in `BLOB_PEERS_PYTHON`. It measures nothing itself.

mod table;

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{peers_command, shell};
use table::Table;

/// Names a Python that has numpy; without it those columns stay empty.
const PYTHON: &str = "BLOB_PEERS_PYTHON";

/// Measures and writes. The arguments after the file go to every program: `--mib`, `--rounds`, `--only`.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let Some((&file, rest)) = arguments.split_first() else {
        bail!("which file is to be written?");
    };
    anyhow::ensure!(!file.starts_with('-'), "a file comes first, not {file:?}");
    let mut table = Table::default();
    for line in head(rest)? {
        table.about(&line);
    }
    let given: Vec<&str> = [&["--tsv"], rest].concat();
    let ours = ["bench", "-p", "blob-benches", "--bench", "ops", "--"];
    eprintln!("record: ours");
    table.read(&shell::read(shell::cargo(&ours).args(&given))?)?;
    eprintln!("record: the crates of benches/peers");
    match shell::read(&mut peers_command(&given)?) {
        Ok(text) => table.read(&text)?,
        Err(error) => absent(&mut table, "ndarray, candle, strided-perm", &error),
    }
    eprintln!("record: Python");
    match python(&given) {
        Ok(text) => table.read(&text)?,
        Err(error) => absent(&mut table, "numpy, torch", &error),
    }
    std::fs::write(file, table.markdown()).with_context(|| format!("cannot write {file}"))
}

/// What the programs do not say themselves. The file's path and Python's stay out: they are of one machine.
fn head(rest: &[&str]) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty"]);
    let commit = shell::read(git.current_dir(shell::root()))?;
    let rustc = shell::read(Command::new("rustc").arg("-V").current_dir(shell::root()))?;
    let command = [&["cargo xtask record FILE"], rest].concat().join(" ");
    Ok(vec![format!("command: `{command}`"), format!("commit: {}, {}", commit.trim(), rustc.trim())])
}

/// The reason goes to the terminal: it may hold paths.
fn absent(table: &mut Table, peers: &str, error: &anyhow::Error) {
    eprintln!("record: without {peers}: {error:#}");
    table.about(&format!("absent: {peers}"));
}

fn python(given: &[&str]) -> Result<String> {
    let python = std::env::var_os(PYTHON).with_context(|| format!("{PYTHON} names no Python"))?;
    let mut command = Command::new(python);
    command.arg("benches/peers/ops.py").args(given);
    shell::read(command.current_dir(shell::root()))
}
