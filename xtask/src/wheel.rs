//! `cargo xtask wheel`: the Python package with the tool inside, installed in a fresh environment and tested there.
//! Relies on CPython 3.11 or newer with `venv` and `pip`, and on a package index that pip reaches for the programs that
//! `python/tests/requirements.txt` pins. `--debug` takes builds without optimisation, as `ci` does; `BLOB_TOOL` names a
//! tool that is built already. Uploads nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{python, shell};

const REQUIREMENTS: &str = "python/tests/requirements.txt";

/// Where maturin takes the tool from: a wheel's `scripts` are put on the path.
const SCRIPTS: &str = "python/blob_io.data/scripts";

/// The interpreters that are tried where none is named.
pub(crate) const INTERPRETERS: &[&str] = &["python3.11", "python3.12", "python3.13", "python3.14", "python3"];

/// Builds the wheel, and tests it with each interpreter that is named, or that is found.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let is_debug = arguments.first() == Some(&"--debug");
    let named = &arguments[usize::from(is_debug)..];
    if let Some(option) = named.iter().find(|word| word.starts_with('-')) {
        bail!("wheel takes --debug and interpreters, not {option:?}");
    }
    let interpreters = interpreters(if named.is_empty() { INTERPRETERS } else { named });
    ensure!(!interpreters.is_empty(), "no CPython of 3.11 or newer among {named:?}");
    let folder = shell::target_directory()?.join("wheel");
    let first = environment(&interpreters[0], &folder)?;
    let wheel = build(&first, &folder, is_debug)?;
    let size = std::fs::metadata(&wheel)?.len();
    println!("wheel: {} has {size} bytes", wheel.display());
    for interpreter in &interpreters {
        test(&environment(interpreter, &folder)?, &wheel)?;
    }
    Ok(())
}

/// The interpreters of CPython 3.11 or newer among these, each version once.
pub(crate) fn interpreters(names: &[&str]) -> Vec<String> {
    let script = "import sys; print(sys.implementation.name, *sys.version_info[:2])";
    let mut found: Vec<(String, String)> = Vec::new();
    for name in names {
        let Ok(output) = Command::new(name).args(["-c", script]).output() else { continue };
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if is_supported(&version) && !found.iter().any(|(_, known)| *known == version) {
            found.push(((*name).to_owned(), version));
        }
    }
    found.into_iter().map(|(name, _)| name).collect()
}

/// Whether the package is for an interpreter that calls itself so: `cpython 3 11`.
fn is_supported(version: &str) -> bool {
    let minor = version.strip_prefix("cpython 3 ").and_then(|minor| minor.parse::<u32>().ok());
    minor.is_some_and(|minor| minor >= 11)
}

/// A fresh environment with the programs that build and test; gives its python.
fn environment(interpreter: &str, folder: &Path) -> Result<PathBuf> {
    let environment = folder.join(interpreter.replace(['/', '\\'], "_"));
    shell::run(Command::new(interpreter).args(["-m", "venv", "--clear"]).arg(&environment))?;
    let python = environment.join("bin/python");
    shell::run(&mut python::pip(&python, REQUIREMENTS))?;
    Ok(python)
}

/// Builds tool and library, and packs both.
fn build(python: &Path, folder: &Path, is_debug: bool) -> Result<PathBuf> {
    let tool = match std::env::var_os("BLOB_TOOL") {
        Some(built) => PathBuf::from(built),
        None => build_tool(is_debug)?,
    };
    let scripts = shell::root().join(SCRIPTS);
    std::fs::create_dir_all(&scripts)?;
    std::fs::copy(&tool, scripts.join("blob")).with_context(|| format!("cannot copy {}", tool.display()))?;
    let wheels = folder.join("dist");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels)?;
    }
    let mut maturin = shell::program(python);
    maturin.args(["-m", "maturin", "build", "--quiet", "--manifest-path", "python/Cargo.toml", "--out"]).arg(&wheels);
    // A folder of its own, whatever the caller's: the profiles are others.
    maturin.env("CARGO_TARGET_DIR", shell::root().join("python/target"));
    if is_debug {
        maturin.args(["--profile", "dev", "--compatibility", "linux"]);
    } else {
        maturin.arg("--release");
    }
    shell::run(&mut maturin)?;
    let built: Vec<PathBuf> = std::fs::read_dir(&wheels)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let [wheel] = &built[..] else { bail!("maturin wrote {built:?}, not one wheel") };
    Ok(wheel.clone())
}

/// Builds the tool; gives its place.
fn build_tool(is_debug: bool) -> Result<PathBuf> {
    // As all tests are built, so that nothing is built again.
    let debug = ("debug", "build -q --workspace --all-features --bin blob");
    let (folder, line) = if is_debug { debug } else { ("release", "build -q --release -p blob-cli") };
    shell::run(&mut shell::cargo(line))?;
    Ok(shell::target_directory()?.join(folder).join("blob"))
}

/// Installs the wheel, and runs its tests and stubtest.
fn test(python: &Path, wheel: &Path) -> Result<()> {
    let mut pip = shell::program(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]).arg(wheel);
    shell::run(&mut pip)?;
    shell::run(
        shell::program(python).args(["-m", "pytest", "-p", "no:cacheprovider", "python/tests"]).env_remove("BLOB_TOOL"),
    )?;
    let version = shell::read(Command::new(python).args(["-c", "import sys; print(sys.version_info[1])"]))?;
    if version.trim() == "11" {
        // Its buffers have no `__buffer__` that stubtest could find.
        return Ok(());
    }
    shell::run(shell::program(python).args(["-m", "mypy.stubtest", "blob_io"]))?;
    shell::run(shell::program(python).args(["-m", "mypy", "--strict", "-p", "blob_io"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_cpython_is_supported() {
        let supported = ["cpython 3 11", "cpython 3 15"];
        let others = ["cpython 3 10", "cpython 2 7", "pypy 3 11", "", "cpython 3 x"];
        assert!(supported.into_iter().all(is_supported) && !others.into_iter().any(is_supported));
        assert!(interpreters(&["a-program-that-is-not-there"]).is_empty());
    }
}
