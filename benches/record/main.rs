//! `cargo xtask record FILE [ARGS]`: measures our operations and their peers, and writes one table to FILE.
//!
//! Runs programs that print tab-separated fields with `--tsv`, among them a Python with numpy, and torch if it has it,
//! which `BLOB_PEERS_PYTHON` names. Measures nothing itself.

mod table;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use table::Table;

/// The environment variable that names a Python with numpy; without it those columns stay empty.
const PYTHON: &str = "BLOB_PEERS_PYTHON";

/// The arguments after the file are passed to every program: `--mib`, `--rounds`, `--only`.
fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((file, rest)) = arguments.split_first() else {
        bail!("which file is to be written?");
    };
    ensure!(!file.starts_with('-'), "a file comes first, not {file:?}");
    let mut table = Table::default();
    for line in head(rest)? {
        table.about(&line);
    }
    eprintln!("record: ours");
    table.read(&read(cargo(&["bench", "-p", "blob-benches", "--bench", "ops"]).args(["--", "--tsv"]).args(rest))?)?;
    eprintln!("record: the crates of benches/peers");
    match read(cargo(&["xtask", "peers", "--tsv"]).args(rest)) {
        Ok(text) => table.read(&text)?,
        Err(error) => absent(&mut table, "ndarray, candle, strided-perm", &error),
    }
    eprintln!("record: Python");
    match python(rest) {
        Ok(text) => table.read(&text)?,
        Err(error) => absent(&mut table, "numpy, torch", &error),
    }
    std::fs::write(file, table.markdown()).with_context(|| format!("cannot write {file}"))
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments);
    command
}

/// Runs the command at the workspace's root and returns its standard output.
fn read(command: &mut Command) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has a root")?;
    let output = command.current_dir(root).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{command:?} failed: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// The lines of the record's head that the programs do not print. Paths are left out: they are those of one machine.
fn head(rest: &[String]) -> Result<Vec<String>> {
    let commit = read(Command::new("git").args(["describe", "--always", "--dirty"]))?;
    let rustc = read(Command::new("rustc").arg("-V"))?;
    let command = format!("cargo xtask record FILE {}", rest.join(" "));
    Ok(vec![format!("command: `{}`", command.trim_end()), format!("commit: {}, {}", commit.trim(), rustc.trim())])
}

/// Records that these peers are absent. The reason is only printed, because it may contain paths.
fn absent(table: &mut Table, peers: &str, error: &anyhow::Error) {
    eprintln!("record: without {peers}: {error:#}");
    table.about(&format!("absent: {peers}"));
}

fn python(rest: &[String]) -> Result<String> {
    let python = std::env::var_os(PYTHON).with_context(|| format!("{PYTHON} names no Python"))?;
    read(Command::new(python).args(["benches/peers/ops.py", "--tsv"]).args(rest))
}
