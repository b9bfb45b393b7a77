//! `cargo xtask wheel`: the Python package with the tool inside, installed in a fresh environment and tested there.
//! Relies on CPython 3.11 or newer with `venv` and `pip`, and on a package index that pip reaches for the programs that
//! `python/tests/requirements.txt` pins. A release also needs CPython 3.11 for those of `release.txt`: it is linked by
//! Zig for systems of 2014 on, checked by abi3audit and auditwheel, and has a bound on its size. `--debug` takes builds
//! without optimisation, as `ci` does; `--data TOOL` only puts a tool where maturin takes it from; `BLOB_TOOL` names a
//! tool that is built already. Uploads nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{python, shell};

const REQUIREMENTS: &str = "python/tests/requirements.txt";

const RELEASE: &str = "python/tests/release.txt";

/// Where maturin takes a wheel's other files from: `scripts` are put on the path, `data` into the environment.
const DATA: &str = "python/blob_io.data";

/// The completions, each with a place.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/blob"),
    ("zsh", "share/zsh/site-functions/_blob"),
    ("fish", "share/fish/vendor_completions.d/blob.fish"),
];

/// The platform of a release: systems with a C library of 2012 or newer.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const OLDEST: &str = "x86_64-unknown-linux-gnu.2.17";
const PLATFORM: &str = "manylinux2014";

/// No release is larger: tool and library had 5.70 MB and 4.50 MB deflated, and each repeats the other's code.
const MOST_BYTES: u64 = 10_400_000;

/// The interpreters that are tried where none is named.
pub(crate) const INTERPRETERS: &[&str] = &["python3.11", "python3.12", "python3.13", "python3.14", "python3"];

/// Builds the wheel, and tests it with each interpreter that is named, or that is found.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    if let ["--data", tool] = arguments {
        return lay_out(Path::new(tool));
    }
    let is_debug = arguments.first() == Some(&"--debug");
    let named: Vec<&str> = arguments[usize::from(is_debug)..].iter().flat_map(|word| word.split(',')).collect();
    if let Some(option) = named.iter().find(|word| word.starts_with('-')) {
        bail!("wheel takes --debug and interpreters, or --data TOOL, not {option:?}");
    }
    let interpreters = interpreters(if named.is_empty() { INTERPRETERS } else { &named });
    ensure!(!interpreters.is_empty(), "no CPython of 3.11 or newer among {named:?}");
    let folder = shell::target_directory()?.join("wheel");
    let first = environment(&interpreters[0], &folder)?;
    if !is_debug {
        shell::run(&mut python::pip(&first, RELEASE))?;
    }
    let wheel = build(&first, &folder, is_debug)?;
    let size = std::fs::metadata(&wheel)?.len();
    println!("wheel: {} has {size} bytes", wheel.display());
    if !is_debug {
        ensure!(size <= MOST_BYTES, "a release has at most {MOST_BYTES} bytes");
        audit(&first, &wheel)?;
    }
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
        None => build_tool(python, is_debug)?,
    };
    lay_out(&tool)?;
    let wheels = folder.join("dist");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels)?;
    }
    let mut maturin = maturin(python, "build", &wheels)?;
    if is_debug {
        maturin.args(["--quiet", "--profile", "dev", "--compatibility", "linux"]);
    } else {
        maturin.args(["--quiet", "--release", "--zig", "--target", TARGET, "--compatibility", PLATFORM]);
        maturin.env("RUSTFLAGS", unwinder(folder)?);
    }
    shell::run(&mut maturin)?;
    if !is_debug {
        build_from_source(python, folder)?;
    }
    only_file(&wheels)
}

/// The flags that link the system's unwinder. CPython before 3.14 ends a thread that comes back after the end of the
/// interpreter by `pthread_exit`, which unwinds by libgcc; a library with another unwinder, as Zig's, crashes then.
fn unwinder(folder: &Path) -> Result<String> {
    const LIBRARY: &str = "libgcc_s.so.1";
    let found = shell::read(Command::new("cc").arg(format!("-print-file-name={LIBRARY}")))?;
    // Alone in a folder: beside it lie the system's other libraries, which are newer than a release may need.
    let alone = folder.join("unwinder");
    std::fs::create_dir_all(&alone)?;
    std::fs::copy(found.trim(), alone.join(LIBRARY)).with_context(|| format!("{LIBRARY} of the C compiler"))?;
    Ok(format!("-L native={} -l dylib:+verbatim={LIBRARY}", alone.display()))
}

/// The file that maturin has written into a folder.
fn only_file(folder: &Path) -> Result<PathBuf> {
    let written: Vec<PathBuf> = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let [file] = &written[..] else { bail!("maturin wrote {written:?}, not one file") };
    Ok(file.clone())
}

/// Packs the sdist, and builds it as pip does where no wheel fits. It has the library alone: a tool is built from the
/// packages of Rust.
fn build_from_source(python: &Path, folder: &Path) -> Result<()> {
    let sources = folder.join("sdist");
    if sources.exists() {
        std::fs::remove_dir_all(&sources)?;
    }
    shell::run(&mut maturin(python, "sdist", &sources)?)?;
    let mut pip = shell::program(python);
    pip.args(["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]);
    pip.arg("--wheel-dir").arg(folder.join("from-sdist")).arg(only_file(&sources)?);
    // maturin is called by name.
    pip.env("PATH", path_with(python)?);
    // Not optimised: the question is only whether the sdist builds.
    pip.env("MATURIN_PEP517_ARGS", "--profile dev --compatibility linux");
    shell::run(pip.env("CARGO_TARGET_DIR", folder.join("from-sdist/target")))
}

/// A command of maturin's that writes into a folder.
fn maturin(python: &Path, command: &str, out: &Path) -> Result<Command> {
    let mut maturin = shell::program(python);
    maturin.args(["-m", "maturin", command, "--manifest-path", "python/Cargo.toml", "--out"]).arg(out);
    // That of the tool, whatever the caller's. Cargo builds the crates for each workspace anew nevertheless.
    maturin.env("CARGO_TARGET_DIR", shell::target_directory()?);
    // maturin asks the interpreter on the path for Zig.
    maturin.env("PATH", path_with(python)?);
    Ok(maturin)
}

/// The path with an environment's programs first.
fn path_with(python: &Path) -> Result<std::ffi::OsString> {
    let programs = python.parent().context("an interpreter lies in a folder")?.to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&path)))?)
}

/// Puts the tool, its completions and its manual pages where maturin takes them from.
fn lay_out(tool: &Path) -> Result<()> {
    let data = shell::root().join(DATA);
    for made in ["scripts", "data/share/man"].map(|made| data.join(made)).iter().filter(|made| made.exists()) {
        std::fs::remove_dir_all(made)?;
    }
    let file = |place: &str| -> Result<PathBuf> {
        let file = data.join(place);
        std::fs::create_dir_all(file.parent().unwrap_or(&data))?;
        Ok(file)
    };
    let name = tool.file_name().context("a tool has a name")?.to_string_lossy();
    std::fs::copy(tool, file(&format!("scripts/{name}"))?)
        .with_context(|| format!("cannot copy {}", tool.display()))?;
    for (shell, place) in COMPLETIONS {
        let script = shell::read(Command::new(tool).args(["completions", shell]))?;
        std::fs::write(file(&format!("data/{place}"))?, script)?;
    }
    let pages = file("data/share/man/man1/blob.1")?;
    shell::run(Command::new(tool).args(["man", "--quiet", "-o"]).arg(pages.parent().unwrap_or(&data)))
}

/// Builds the tool; gives the path.
fn build_tool(python: &Path, is_debug: bool) -> Result<PathBuf> {
    let target = shell::target_directory()?;
    if is_debug {
        // As all tests are built, so that nothing is built again.
        shell::run(&mut shell::cargo("build -q --workspace --all-features --bin blob"))?;
        return Ok(target.join("debug/blob"));
    }
    let programs = python.parent().context("an interpreter lies in a folder")?;
    let mut zig = shell::program(programs.join("cargo-zigbuild"));
    zig.args(["zigbuild", "-q", "--release", "-p", "blob-cli", "--bin", "blob", "--target", OLDEST]);
    // cargo-zigbuild asks the interpreter on the path for Zig.
    shell::run(zig.env("PATH", path_with(python)?))?;
    Ok(target.join(TARGET).join("release/blob"))
}

/// Checks that a release uses the stable ABI alone, and lists the needs of a system.
fn audit(python: &Path, wheel: &Path) -> Result<()> {
    let programs = python.parent().context("an interpreter lies in a folder")?;
    shell::run(shell::program(programs.join("abi3audit")).arg("--strict").arg(wheel))?;
    let shown = shell::read(shell::program(programs.join("auditwheel")).arg("show").arg(wheel))?;
    println!("{}", shown.trim());
    ensure!(shown.contains("manylinux_2_17_x86_64"), "auditwheel does not find a wheel of {PLATFORM}");
    Ok(())
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
        // The module's buffers have no `__buffer__` that stubtest could find.
        return Ok(());
    }
    shell::run(shell::program(python).args(["-m", "mypy.stubtest", "blob_io"]))?;
    shell::run(shell::program(python).args(["-m", "mypy", "--strict", "-p", "blob_io"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All crates are optimised together when a program or a library is linked, by the level of that package: with "s"
    /// the tool took twice as long to round and four times as long for statistics.
    #[test]
    fn what_is_linked_last_is_optimised_for_speed() {
        for (manifest, package) in [("Cargo.toml", "blob-cli"), ("python/Cargo.toml", "blob-python")] {
            let text = std::fs::read_to_string(shell::root().join(manifest)).unwrap();
            assert!(text.contains("[profile.release]\nlto = \"fat\""), "{manifest} has another profile");
            assert!(!text.contains(&format!("[profile.release.package.{package}]")), "{manifest}: {package}");
        }
    }

    #[test]
    fn only_new_cpython_is_supported() {
        let supported = ["cpython 3 11", "cpython 3 15"];
        let others = ["cpython 3 10", "cpython 2 7", "pypy 3 11", "", "cpython 3 x"];
        assert!(supported.into_iter().all(is_supported) && !others.into_iter().any(is_supported));
        assert!(interpreters(&["a-program-that-is-not-there"]).is_empty());
    }
}
