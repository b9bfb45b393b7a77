//! The programs that `tests/tools.txt` pins, NumPy for the tests and typos, in an environment of their own below
//! `target`. Relies on `python3` with `venv` and `pip`, and on a package index that pip reaches.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

const REQUIREMENTS: &str = "tests/tools.txt";

/// The folder of the environment's programs, `python` among them; filled once, and again when the requirements change.
pub(crate) fn programs(target: &Path) -> Result<PathBuf> {
    let wanted = std::fs::read_to_string(shell::root().join(REQUIREMENTS)).context(REQUIREMENTS)?;
    let environment = target.join("tools");
    let (programs, stamp) = (environment.join("bin"), environment.join("installed.txt"));
    let works = || shell::read(Command::new(programs.join("python")).args(["-c", "import numpy"]));
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) && works().is_ok() {
        return Ok(programs);
    }
    shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    shell::run(&mut pip(&programs.join("python"), REQUIREMENTS))?;
    works()?;
    std::fs::write(&stamp, wanted)?;
    Ok(programs)
}

/// Installs wheels whose hashes are known: nothing is compiled, and nothing else comes along.
pub(crate) fn pip(python: &Path, requirements: &str) -> Command {
    let mut pip = shell::program(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--timeout=60"]);
    pip.args(["--retries=2", "--require-hashes", "--no-deps", "--only-binary=:all:", "-r", requirements]);
    pip
}
