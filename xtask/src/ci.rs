//! `cargo xtask ci`: everything that must hold, in order, up to the first failure; then the promises that were tested,
//! and the gaps. The tests append lines to the file that `BLOB_TEST_REPORT` names, one for each promise (`caffe: 78
//! files, 14 real`); a line that begins with `NOT TESTED:` joins the list of gaps. `BLOB_REAL_DATA` names the folder of
//! real files. Publishes nothing, installs neither toolchains nor targets (`targets` unpacks them below `target`), and
//! of other programs those that `tests/tools.txt` pins.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{python, report_check, shell, wheel, workflows};

/// No program is here. In place of a compiler's name the path shows that none is run; no step may run a protoc.
const NO_PROGRAM: &str = "/nonexistent";

/// Each step with its command, as [`shell::command`] reads it. One that names a `{library}` is run for each.
#[rustfmt::skip]
const STEPS: &[(&str, &str)] = &[
    ("format", "cargo fmt --all --check"),
    ("clippy", "cargo clippy --workspace --all-targets --all-features -- -D warnings"),
    ("tidy", "cargo xtask tidy"),
    ("spelling", "{typos}"),
    // What runs at a release, and has not run here.
    ("workflows", "cargo xtask workflows {npm}"),
    ("dependencies", "cargo {deny} check bans licenses sources"),
    ("codegen", "cargo xtask codegen --check"),
    ("kernels", "cargo xtask kernels --check"),
    // The tool is built with the tests, because a test of the tool's package runs the program.
    ("tests", "BLOB_TOOL={target}/debug/blob BLOB_TEST_REPORT={report} BLOB_REAL_DATA={real} BLOB_PYTHON={python} \
        cargo test --workspace --all-features"),
    // The page's program at the size that the page names; in the tests above the size is 3 GiB.
    ("a model of 30 GiB", "BLOB_PAGE_GIB=30 cargo test --workspace --all-features --test cuda page::a_checkpoint"),
    // Every interleaving of a few threads. In a target folder of its own, because everything is built with another
    // flag.
    ("loom", "RUSTFLAGS=--cfg=loom CARGO_TARGET_DIR={target}/loom cargo test -p synced-mem --test loom"),
    // The memories under threads and failures: another run each time, which says its seed.
    ("soak", SOAK),
    // In our target folder: its manifest has our profiles, so the dependencies that both need are built once.
    ("downstream", "CARGO_TARGET_DIR={target} cargo test --manifest-path tests/downstream/Cargo.toml"),
    // The driver for tests, beside cudarc's own streams and candle's tensors.
    ("beside others", "CARGO_TARGET_DIR={target} cargo test --manifest-path tests/beside/Cargo.toml"),
    // A workspace of its own. pyo3's stable ABI needs no interpreter to be checked, and an extension links no library.
    ("Python format", "cargo fmt --manifest-path python/Cargo.toml --check"),
    ("Python clippy", "PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1 CARGO_TARGET_DIR={target} cargo clippy \
        --manifest-path python/Cargo.toml --all-targets -- -D warnings"),
    // With the tool that the tests were built with, on the oldest CPython and the newest: each has another numpy, and
    // stubs are compared with the compiled half from 3.12 on.
    ("Python package", "BLOB_TOOL={target}/debug/blob cargo xtask wheel --debug {cpython}"),
    ("pages", "BLOB_TOOL={target}/debug/blob BLOB_BROWSER={browser} cargo xtask report-check"),
    // The module's own workspace, and the page in the browsers whose drivers are here. The libraries are built for
    // WebAssembly so; a missing std is fetched, if that is possible. `targets` has other machines, which take longer.
    ("module format", "cargo fmt --manifest-path web/Cargo.toml --all --check"),
    ("module clippy", "CARGO_TARGET_DIR={target} cargo clippy --manifest-path web/Cargo.toml --all-targets -- -D warnings"),
    ("page", "BLOB_TOOL={target}/debug/blob BLOB_TEST_REPORT={report} cargo xtask page-check --every 10"),
    ("documentation", "RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps"),
    // Again only where features add something.
    ("documentation, all features", "RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --all-features \
        -p synced-mem -p blob-core -p blob-ops -p blob-io -p blob-graph -p blob-convert"),
    ("{library} alone", "CC={none} CXX={none} NVCC={none} cargo check -p {library}"),
    ("{library} alone, all features", "cargo check -p {library} --all-features"),
    // An application may have the bindings linked instead of loaded, which takes functions away. Nothing is linked
    // here.
    ("CUDA linked", "cargo check -p synced-mem --features cuda,cudarc/dynamic-linking"),
    // The other target's code and tests, compiled and linted; nothing is run.
    ("aarch64", "cargo clippy --target {aarch64} -p synced-mem -p blob-core -p blob-ops -p blob-io --all-targets -- -D warnings"),
    ("package", "cargo package --workspace --exclude blob-tests --exclude blob-benches --exclude blob-gpu --exclude fake-cuda \
        --exclude xtask --no-verify --allow-dirty"),
];

/// As all tests are built, so that nothing is built again. `cargo xtask soak` runs the same.
pub(crate) const SOAK: &str = "BLOB_SOAK_SECONDS=30 BLOB_TEST_REPORT={report} cargo test --workspace --all-features \
    --test soak -- --nocapture --exact soak";

/// The target on which the kernels have files of their own, besides the one that most machines are.
const OTHER_TARGET: &str = "aarch64-unknown-linux-gnu";

const GAP: &str = "NOT TESTED:";

/// Each value with the gap of a machine that has none.
#[rustfmt::skip]
const ABSENT: &[(&str, &str)] = &[
    ("python", "NumPy: tests/tools.txt could not be installed, and BLOB_PYTHON names no other"),
    ("real", "real files: BLOB_REAL_DATA names no folder"),
    ("browser", "the pages of `blob report` in a browser: no Chromium is on the path (apt-get install chromium), and BLOB_BROWSER names none"),
    ("typos", "spelling was not checked: tests/tools.txt could not be installed"),
    ("cpython", "the Python package: no CPython of 3.11 or newer is on the path"),
    ("npm", "the workflows were not linted: node or npm is not on the path"),
    ("deny", "licences and sources of dependencies were not checked: cargo-deny is not installed (cargo install cargo-deny)"),
    ("aarch64", "aarch64-unknown-linux-gnu was not linted: its std is not installed (rustup target add aarch64-unknown-linux-gnu); `cargo xtask targets aarch64` runs its tests"),
];

/// The values of the names in braces on this machine.
type Values = BTreeMap<&'static str, String>;

/// A step's name, and the command, or why this machine has none.
type Step = (String, std::result::Result<Command, &'static str>);

/// Runs all steps.
pub(crate) fn run(_: &[&str]) -> Result<()> {
    let values = values()?;
    let metadata = shell::metadata()?;
    std::fs::write(&values["report"], "").context("cannot create the tests' report")?;
    let absent = ABSENT.iter().filter(|(name, _)| !values.contains_key(name));
    let mut gaps: Vec<String> = absent.map(|(_, why)| why.to_string()).chain(older_rust(&metadata)?).collect();
    let durations = perform(steps(&values, &libraries(&metadata)))?;
    println!("\n== all {} steps passed\n{}", durations.len(), table(&durations));
    let report = std::fs::read_to_string(&values["report"]).context("the tests' report is gone")?;
    let (promises, more) = read_report(&report);
    gaps.extend(more);
    println!("{}", list("tested", &promises, "no test reported what it covered"));
    println!("{}", list("not tested", &gaps, "nothing that we know of"));
    Ok(())
}

/// Performs the steps in order, up to the first that fails. A step without a command is said to be skipped.
fn perform(steps: Vec<Step>) -> Result<Vec<(String, Duration)>> {
    let count = steps.len();
    let mut durations = Vec::new();
    for (number, (name, command)) in (1..).zip(steps) {
        let line = command.as_ref().map_or_else(|why| why.to_string(), shell::line);
        println!("\n== {number}/{count} {name}: {line}");
        let start = Instant::now();
        let done = command.map_or(Ok(()), |mut command| shell::run(&mut command));
        done.with_context(|| format!("step {number} of {count}, {name}, failed"))?;
        durations.push((name, start.elapsed()));
    }
    Ok(durations)
}

/// Looks at the machine.
fn values() -> Result<Values> {
    let target = shell::target_directory()?;
    std::fs::create_dir_all(&target)?;
    let programs = python::programs(&target).inspect_err(|error| println!("tests/tools.txt: {error:#}")).ok();
    let program = |name| Some(programs.as_ref()?.join(name).display().to_string());
    let has_deny = Command::new("cargo-deny").arg("--version").output().is_ok();
    let found = [
        ("none", Some(NO_PROGRAM.to_string())),
        ("report", Some(target.join("blob-test-report.txt").display().to_string())),
        ("target", Some(target.display().to_string())),
        ("browser", report_check::browser().map(|browser| browser.display().to_string())),
        ("typos", program("typos")),
        ("python", std::env::var("BLOB_PYTHON").ok().or_else(|| program("python"))),
        ("real", real_data(std::env::var_os("BLOB_REAL_DATA"), &std::env::current_dir()?)),
        ("cpython", oldest_and_newest(&wheel::interpreters(wheel::INTERPRETERS))),
        ("npm", workflows::npm()),
        ("deny", has_deny.then(|| "deny".to_string())),
        ("aarch64", shell::has_target(OTHER_TARGET)?.then(|| OTHER_TARGET.to_string())),
    ];
    Ok(found.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

/// The first and the last of these names, with a comma between them; `None` where there are none.
fn oldest_and_newest(names: &[String]) -> Option<String> {
    let (first, last) = (names.first()?, names.last()?);
    Some(if first == last { first.clone() } else { format!("{first},{last}") })
}

/// A gap where this compiler is not the oldest that the packages promise to build with.
fn older_rust(metadata: &serde_json::Value) -> Result<Option<String>> {
    let compiler = shell::read(Command::new("rustc").arg("--version"))?;
    let promised = metadata["packages"][0]["rust_version"].as_str().unwrap_or("(none)");
    let is_promised = compiler.contains(&format!("rustc {promised}."));
    Ok((!is_promised).then(|| format!("Rust {promised}, the oldest promised: this was {}", compiler.trim())))
}

/// The folder of real files, absolute: the tests run elsewhere.
fn real_data(variable: Option<OsString>, here: &Path) -> Option<String> {
    let folder = here.join(variable.filter(|folder| !folder.is_empty())?);
    Some(folder.is_dir().then(|| folder.canonicalize().ok())??.display().to_string())
}

/// The libraries that are published, by cargo's metadata.
fn libraries(metadata: &serde_json::Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let libraries =
        packages.iter().filter(|package| package["publish"].is_null() && package["targets"][0]["kind"][0] == "lib");
    libraries.filter_map(|package| package["name"].as_str()).map(str::to_string).collect()
}

fn steps(values: &Values, libraries: &[String]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (name, line) in STEPS {
        let each = if name.contains("{library}") { libraries } else { &[String::new()] };
        let fill = |text: &str, library: &str| text.replace("{library}", library);
        steps.extend(each.iter().map(|library| (fill(name, library), step(&fill(line, library), values))));
    }
    steps
}

/// The command that a step's line spells, or why there is none.
fn step(line: &str, values: &Values) -> Result<Command, &'static str> {
    let mut command = shell::command(line, |name| values.get(name).cloned()).ok_or_else(|| {
        let mut absent = ABSENT.iter().filter(|(name, _)| !values.contains_key(name));
        absent.find(|(name, _)| line.contains(&format!("{{{name}}}"))).map_or("a word is not known", |(_, why)| why)
    })?;
    command.env("PROTOC", NO_PROGRAM);
    Ok(command)
}

/// The durations in seconds, and the sum.
fn table(durations: &[(String, Duration)]) -> String {
    let total: Duration = durations.iter().map(|(_, duration)| *duration).sum();
    let rows = durations.iter().map(|(name, duration)| (name.as_str(), duration)).chain([("total", &total)]);
    rows.map(|(name, duration)| format!("  {:>7.1} s  {name}\n", duration.as_secs_f64())).collect()
}

/// Splits the tests' report into promises that were tested, and gaps.
fn read_report(report: &str) -> (Vec<String>, Vec<String>) {
    // The tests run in any order, and several may say the same.
    let lines: BTreeSet<&str> = report.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let (gaps, promises): (Vec<&str>, Vec<&str>) = lines.into_iter().partition(|line| line.starts_with(GAP));
    let gaps = gaps.iter().map(|line| line[GAP.len()..].trim().to_string());
    (promises.into_iter().map(str::to_string).collect(), gaps.collect())
}

/// The title before each line, so that no line is read alone; without lines, the title says so.
fn list(title: &str, lines: &[String], none: &str) -> String {
    let none = [none.to_string()];
    let lines = if lines.is_empty() { &none } else { lines };
    lines.iter().map(|line| format!("{title}: {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands, or why there is none, on a machine that has everything, or nothing that can be absent.
    fn lines(has: bool) -> Vec<String> {
        let absent = ABSENT.iter().map(|(name, _)| *name).filter(|_| has);
        let values =
            ["none", "report", "target"].into_iter().chain(absent).map(|name| (name, format!("/{name}"))).collect();
        let steps = steps(&values, &["blob-io".to_string(), "blob-ops".to_string()]);
        steps.iter().map(|(_, command)| command.as_ref().map_or_else(|why| why.to_string(), shell::line)).collect()
    }

    #[test]
    fn a_machine_that_lacks_something_says_so_and_runs_the_rest() {
        let (here, elsewhere) = (lines(true), lines(false));
        assert_eq!((here.len(), elsewhere.len()), (STEPS.len() + 2, STEPS.len() + 2));
        assert!(here.iter().all(|line| line.contains("PROTOC=/nonexistent") && !line.contains(['{', '}'])), "{here:?}");
        let is_one = |line: &String, words: &[&str]| words.iter().all(|word| line.contains(word));
        let has = |lines: &[String], words: &[&str]| lines.iter().any(|line| is_one(line, words));
        assert!(has(&here, &["BLOB_REAL_DATA=/real", "BLOB_PYTHON=/python", "cargo test --workspace"]), "{here:?}");
        assert!(has(&here, &["CC=/none", "cargo check -p blob-ops"]), "{here:?}");
        // Of the first three only a variable is absent.
        for (_, why) in &ABSENT[3..] {
            assert!(elsewhere.iter().any(|line| line == why) && !here.iter().any(|line| line == why), "{why}");
        }
        assert!(has(&elsewhere, &["BLOB_TEST_REPORT=/report", "cargo test --workspace"]), "{elsewhere:?}");
        assert!(!has(&elsewhere, &["BLOB_REAL_DATA="]) && !has(&elsewhere, &["BLOB_PYTHON="]), "{elsewhere:?}");
    }

    #[test]
    fn each_published_library_is_built_alone() {
        let libraries = libraries(&shell::metadata().unwrap());
        assert_eq!(libraries.len(), 6, "{libraries:?}");
        assert!(!libraries.iter().any(|name| ["blob-cli", "xtask", "fake-cuda"].contains(&name.as_str())));
    }

    #[test]
    fn real_data_is_a_folder_made_absolute() {
        let root = shell::root();
        assert_eq!(real_data(Some("xtask".into()), &root), Some(root.join("xtask").display().to_string()));
        for absent in [None, Some("".into()), Some("no-such-folder".into())] {
            assert_eq!(real_data(absent, &root), None);
        }
    }

    #[test]
    fn the_package_is_tested_on_the_oldest_python_and_the_newest() {
        let names = |names: &[&str]| oldest_and_newest(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(names(&["python3.11", "python3.12", "python3.13"]).as_deref(), Some("python3.11,python3.13"));
        assert_eq!((names(&["python3.12"]).as_deref(), names(&[])), (Some("python3.12"), None));
    }

    #[test]
    fn the_report_is_split_into_promises_and_gaps() {
        let report = "mxnet: 9 files\n\ncaffe: 78 files\nNOT TESTED: cuda: no device\ncaffe: 78 files\n";
        let (promises, gaps) = read_report(report);
        assert_eq!(promises, ["caffe: 78 files", "mxnet: 9 files"]);
        assert_eq!(gaps, ["cuda: no device"]);
        assert_eq!(list("not tested", &gaps, "nothing"), "not tested: cuda: no device");
        assert_eq!(list("not tested", &[], "nothing"), "not tested: nothing");
    }

    #[test]
    fn the_first_failing_step_is_named_and_the_last() {
        let task = |name: &str, program| (name.to_string(), Ok(Command::new(program)));
        let error = perform(vec![task("a", "true"), task("b", "false"), task("c", "false")]).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.starts_with("step 2 of 3, b, failed: "), "{error}");
        let absent = ("b".to_string(), Err("why"));
        assert_eq!(perform(vec![task("a", "true"), absent]).unwrap().len(), 2);
    }
}
