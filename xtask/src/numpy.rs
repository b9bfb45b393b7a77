//! A Python with the NumPy that `tests/numpy.txt` pins, in an environment of its own below `target`, for the tests of CI.
//! It relies on `python3` with `venv` and `pip`, and on a package index that pip reaches.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// Names a Python that has NumPy; the tests read it, and where it is set nothing is installed.
pub(crate) const PYTHON: &str = "BLOB_PYTHON";

const REQUIREMENTS: &str = "tests/numpy.txt";

/// The Python to hand to the tests; installed once, and again when the requirements change.
pub(crate) fn python(target: &Path) -> Result<PathBuf> {
    if let Some(python) = std::env::var_os(PYTHON).filter(|python| !python.is_empty()) {
        return Ok(python.into());
    }
    let wanted = std::fs::read_to_string(shell::root().join(REQUIREMENTS)).context(REQUIREMENTS)?;
    let environment = target.join("numpy");
    let (python, stamp) = (environment.join("bin/python"), environment.join("installed.txt"));
    let has_numpy = || shell::read(Command::new(&python).args(["-c", "import numpy"]));
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) && has_numpy().is_ok() {
        return Ok(python);
    }
    for mut command in install(&environment, &python) {
        shell::run(&mut command)?;
    }
    has_numpy()?;
    std::fs::write(&stamp, wanted)?;
    Ok(python)
}

/// An empty environment, then NumPy in it: a wheel whose hash is known, so nothing is compiled and nothing else comes along.
fn install(environment: &Path, python: &Path) -> [Command; 2] {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(environment);
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--timeout=60"]);
    pip.args(["--retries=2", "--require-hashes", "--no-deps", "--only-binary=:all:", "-r", REQUIREMENTS]);
    pip.current_dir(shell::root());
    [venv, pip]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numpy_is_pinned_by_hash() {
        let text = std::fs::read_to_string(shell::root().join(REQUIREMENTS)).unwrap();
        assert!(text.contains("\nnumpy==") && text.contains("--hash=sha256:"), "{text}");
        let [venv, pip] = install(Path::new("/e"), Path::new("/e/bin/python")).map(|command| shell::line(&command));
        assert_eq!(venv, "python3 -m venv --clear /e");
        assert!(pip.contains("--require-hashes") && pip.ends_with("-r tests/numpy.txt"), "{pip}");
    }
}
