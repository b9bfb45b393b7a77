//! `cargo xtask ci`: everything that must hold, in order, up to the first failure; then what was and what was not tested.
//! The tests append lines to the file that `BLOB_TEST_REPORT` names, one for each promise (`caffe: 78 files, 14 real`);
//! a line that begins with `NOT TESTED:` joins the list of gaps. `BLOB_REAL_DATA` names the folder of real files.
//! It publishes nothing, installs neither toolchains nor targets, and of other programs those that `tests/tools.txt` pins.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::tidy::LAYERS;
use crate::{python, shell, soak};

/// No program is here. In place of a compiler's name it shows that none is run.
const NO_PROGRAM: &str = "/nonexistent";

/// The target on which the kernels have files of their own, besides the one that most machines are.
const OTHER_TARGET: &str = "aarch64-unknown-linux-gnu";
const OTHER_TARGET_PACKAGES: &str = "-p synced-mem -p blob-core -p blob-ops -p blob-io";
const OTHER_TARGET_ABSENT: &str = "aarch64-unknown-linux-gnu was not checked: its std is not installed \
    (rustup target add aarch64-unknown-linux-gnu)";
const TYPOS_ABSENT: &str = "spelling was not checked: tests/tools.txt could not be installed";
const DENY_ABSENT: &str = "licences and sources of dependencies were not checked: cargo-deny is not installed \
    (cargo install cargo-deny)";

/// Packages that are not published.
const UNPUBLISHED: &[&str] = &["blob-tests", "blob-benches", "blob-gpu", "fake-cuda", "xtask"];
const TOOL: &str = "blob-cli";

/// Names a Python that has NumPy, for the tests.
const PYTHON: &str = "BLOB_PYTHON";

const GAP: &str = "NOT TESTED:";

/// One thing that must hold.
struct Step {
    name: String,
    /// Or why this machine cannot do it: said in its place and at the end, so that nothing is left out in silence.
    command: std::result::Result<Command, &'static str>,
}

/// What this machine offers, found before the first step.
struct Machine {
    /// The folder of real files, absolute.
    real_data: Option<PathBuf>,
    /// The folder of the programs that are pinned.
    programs: Option<PathBuf>,
    target: PathBuf,
    has_other_target: bool,
    has_deny: bool,
}

/// Runs all steps.
pub(crate) fn run(_: &[&str]) -> Result<()> {
    let (machine, mut gaps) = Machine::find()?;
    std::fs::write(machine.report(), "").context("cannot create the tests' report")?;
    let steps = steps(&machine);
    gaps.extend(steps.iter().filter_map(|step| Some(step.command.as_ref().err()?.to_string())));
    let durations = perform(steps)?;
    println!("\n== all {} steps passed\n{}", durations.len(), table(&durations));
    let report = std::fs::read_to_string(machine.report()).context("the tests' report is gone")?;
    let (promises, more) = read_report(&report);
    gaps.extend(more);
    println!("{}", list("tested", &promises, "no test reported what it covered"));
    println!("{}", list("not tested", &gaps, "nothing that we know of"));
    Ok(())
}

/// Performs the steps in order, up to the first that fails.
fn perform(steps: Vec<Step>) -> Result<Vec<(String, Duration)>> {
    let count = steps.len();
    let mut durations = Vec::new();
    for (number, mut step) in (1..).zip(steps) {
        println!("\n== {number}/{count} {}: {}", step.name, step.line());
        let start = Instant::now();
        let done = step.command.as_mut().map_or(Ok(()), shell::run);
        done.with_context(|| format!("step {number} of {count}, {}, failed", step.name))?;
        durations.push((step.name, start.elapsed()));
    }
    Ok(durations)
}

impl Machine {
    /// Looks around; also gives what cannot be tested here, but for steps that are absent.
    fn find() -> Result<(Machine, Vec<String>)> {
        let metadata = shell::metadata()?;
        let target = shell::target_directory()?;
        std::fs::create_dir_all(&target)?;
        let mut gaps = Vec::new();
        let real_data = real_data(std::env::var_os("BLOB_REAL_DATA"), &std::env::current_dir()?);
        let compiler = shell::read(Command::new("rustc").arg("--version"))?;
        let promised = metadata["packages"][0]["rust_version"].as_str().unwrap_or("(none)");
        if !compiler.contains(&format!("rustc {promised}.")) {
            gaps.push(format!("Rust {promised}, the oldest promised: this was {}", compiler.trim()));
        }
        let machine = Machine {
            real_data: real_data.map_err(|gap| gaps.push(gap)).ok(),
            // Without NumPy the tests themselves report what they leave out.
            programs: python::programs(&target).inspect_err(|error| println!("tests/tools.txt: {error:#}")).ok(),
            target,
            has_other_target: shell::has_target(OTHER_TARGET)?,
            has_deny: Command::new("cargo-deny").arg("--version").output().is_ok(),
        };
        Ok((machine, gaps))
    }

    /// Where the tests report.
    fn report(&self) -> PathBuf {
        self.target.join("blob-test-report.txt")
    }
}

/// The folder of real files, absolute, or why there is none.
fn real_data(variable: Option<OsString>, here: &Path) -> std::result::Result<PathBuf, String> {
    let Some(folder) = variable.filter(|folder| !folder.is_empty()) else {
        return Err("real files: BLOB_REAL_DATA is not set".to_string());
    };
    let folder = here.join(folder);
    if !folder.is_dir() {
        return Err(format!("real files: BLOB_REAL_DATA is {}, which is no folder", folder.display()));
    }
    folder.canonicalize().map_err(|error| format!("real files: {}: {error}", folder.display()))
}

fn steps(machine: &Machine) -> Vec<Step> {
    let typos = machine.programs.as_ref().map(|programs| shell::program(programs.join("typos")));
    let mut steps = vec![
        step("format", cargo("fmt --all --check")),
        step("clippy", cargo("clippy --workspace --all-targets --all-features -- -D warnings")),
        step("tidy", cargo("xtask tidy")),
        step_or("spelling", typos, TYPOS_ABSENT),
        step_or("dependencies", machine.has_deny.then(|| cargo("deny check bans licenses sources")), DENY_ABSENT),
        step("codegen", cargo("xtask codegen --check")),
        step("kernels", cargo("xtask kernels --check")),
        step("tests", tests(machine)),
        step("loom", loom(machine)),
        step("soak", soak(machine)),
        step("downstream", downstream(machine)),
    ];
    // Again only where features add something.
    let featured = "doc --no-deps --all-features -p synced-mem -p blob-core -p blob-ops -p blob-io -p blob-convert";
    for (name, arguments) in [("documentation", "doc --workspace --no-deps"), ("documentation, all features", featured)]
    {
        let mut command = cargo(arguments);
        command.env("RUSTDOCFLAGS", "-D warnings");
        steps.push(step(name, command));
    }
    let is_library = |name: &&str| !UNPUBLISHED.contains(name) && *name != TOOL;
    for library in LAYERS.iter().map(|(name, _)| *name).filter(is_library) {
        let mut alone = cargo(&format!("check -p {library}"));
        alone.env("CC", NO_PROGRAM).env("CXX", NO_PROGRAM).env("NVCC", NO_PROGRAM);
        steps.push(step(&format!("{library} alone"), alone));
        let all = cargo(&format!("check -p {library} --all-features"));
        steps.push(step(&format!("{library} alone, all features"), all));
    }
    // An application may have the bindings linked instead of loaded, which takes functions away. Nothing is linked here.
    steps.push(step("CUDA linked", cargo("check -p synced-mem --features cuda,cudarc/dynamic-linking")));
    // The other target's code and tests, compiled and linted; nothing is run.
    let other = format!("clippy --target {OTHER_TARGET} {OTHER_TARGET_PACKAGES} --all-targets -- -D warnings");
    steps.push(step_or("aarch64", machine.has_other_target.then(|| cargo(&other)), OTHER_TARGET_ABSENT));
    let excluded = UNPUBLISHED.join(" --exclude ");
    steps.push(step("package", cargo(&format!("package --workspace --exclude {excluded} --no-verify --allow-dirty"))));
    steps
}

/// All tests, examples in the documentation included.
fn tests(machine: &Machine) -> Command {
    let mut command = cargo("test --workspace --all-features");
    command.env("BLOB_TEST_REPORT", machine.report());
    match &machine.real_data {
        Some(folder) => command.env("BLOB_REAL_DATA", folder),
        None => command.env_remove("BLOB_REAL_DATA"),
    };
    if let (Some(programs), None) = (&machine.programs, std::env::var_os(PYTHON)) {
        command.env(PYTHON, programs.join("python"));
    }
    command
}

/// Every interleaving of a few threads. In a target folder of its own, because everything is built with another flag.
fn loom(machine: &Machine) -> Command {
    let mut command = cargo("test -p synced-mem --test loom");
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", machine.target.join("loom"));
    command
}

/// In our target folder: its manifest has our profiles, so the dependencies that both need are built once.
fn downstream(machine: &Machine) -> Command {
    let mut command = cargo("test --manifest-path tests/downstream/Cargo.toml");
    command.env("CARGO_TARGET_DIR", &machine.target);
    command
}

/// The memories under threads and failures. Another run each time: it says its seed.
fn soak(machine: &Machine) -> Command {
    let mut command = soak::usual();
    command.env("PROTOC", NO_PROGRAM).env("BLOB_TEST_REPORT", machine.report());
    command
}

fn step(name: &str, command: Command) -> Step {
    Step { name: name.to_string(), command: Ok(command) }
}

fn step_or(name: &str, command: Option<Command>, absent: &'static str) -> Step {
    Step { name: name.to_string(), command: command.ok_or(absent) }
}

/// Cargo with arguments that hold no space. No step may run a protoc.
fn cargo(arguments: &str) -> Command {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let mut command = shell::cargo(&arguments);
    command.env("PROTOC", NO_PROGRAM);
    command
}

impl Step {
    fn line(&self) -> String {
        self.command.as_ref().map_or_else(|why| why.to_string(), shell::line)
    }
}

/// The durations in seconds, and their sum.
fn table(durations: &[(String, Duration)]) -> String {
    let total: Duration = durations.iter().map(|(_, duration)| *duration).sum();
    let rows = durations.iter().map(|(name, duration)| (name.as_str(), duration));
    let rows = rows.chain([("total", &total)]);
    rows.map(|(name, duration)| format!("  {:>7.1} s  {name}\n", duration.as_secs_f64())).collect()
}

/// Splits what the tests reported into promises that were tested, and gaps.
fn read_report(report: &str) -> (Vec<String>, Vec<String>) {
    // The tests run in any order, and several may say the same.
    let lines: BTreeSet<&str> = report.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let (gaps, promises): (Vec<&str>, Vec<&str>) = lines.into_iter().partition(|line| line.starts_with(GAP));
    let gaps = gaps.iter().map(|line| line[GAP.len()..].trim().to_string());
    (promises.into_iter().map(str::to_string).collect(), gaps.collect())
}

/// Each line after the title, so that none is read without it; without lines, the title says so.
fn list(title: &str, lines: &[String], none: &str) -> String {
    let none = [none.to_string()];
    let lines = if lines.is_empty() { &none } else { lines };
    lines.iter().map(|line| format!("{title}: {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that has everything, or nothing that can be missing.
    fn machine(has: bool) -> Machine {
        Machine {
            real_data: has.then(|| "/data".into()),
            programs: has.then(|| "/programs".into()),
            target: "/target".into(),
            has_other_target: has,
            has_deny: has,
        }
    }

    fn lines(has: bool) -> Vec<String> {
        steps(&machine(has)).iter().map(Step::line).collect()
    }

    #[test]
    fn no_step_may_run_protoc_and_no_default_build_a_c_compiler() {
        let lines = lines(true);
        for line in lines.iter().filter(|line| line.contains("cargo ")) {
            assert!(line.contains("PROTOC=/nonexistent"), "{line}");
        }
        let alone = lines.iter().find(|line| line.ends_with("check -p blob-io")).unwrap();
        assert!(alone.split(' ').any(|word| word == "CC=/nonexistent"), "{alone}");
    }

    #[test]
    fn the_tests_get_the_real_files_a_python_and_a_report() {
        let lines = lines(true);
        let test = lines.iter().find(|line| line.contains("cargo test --workspace")).unwrap();
        for variable in ["BLOB_REAL_DATA=/data", "BLOB_PYTHON=", "BLOB_TEST_REPORT=/target/"] {
            assert!(test.contains(variable) || std::env::var_os(PYTHON).is_some(), "{test}");
        }
    }

    #[test]
    fn what_a_machine_lacks_is_missed_aloud() {
        let (here, elsewhere) = (lines(true), lines(false));
        assert_eq!(here.len(), elsewhere.len());
        for (command, absent) in
            [("clippy --target", OTHER_TARGET_ABSENT), ("typos", TYPOS_ABSENT), ("cargo deny", DENY_ABSENT)]
        {
            assert!(here.iter().any(|line| line.contains(command)) && !here.iter().any(|line| line == absent));
            assert!(elsewhere.iter().any(|line| line == absent), "{absent}");
        }
    }

    #[test]
    fn real_data_is_a_folder_made_absolute_or_a_gap() {
        let root = shell::root();
        let found = real_data(Some("xtask".into()), &root).unwrap();
        assert_eq!(found, root.join("xtask").canonicalize().unwrap());
        assert!(real_data(None, &root).unwrap_err().contains("not set"));
        assert!(real_data(Some("".into()), &root).unwrap_err().contains("not set"));
        assert!(real_data(Some("no-such-folder".into()), &root).unwrap_err().contains("no-such-folder"));
    }

    #[test]
    fn the_report_is_split_into_promises_and_gaps() {
        let (promises, gaps) =
            read_report("mxnet: 9 files\n\ncaffe: 78 files\nNOT TESTED: cuda: no device\ncaffe: 78 files\n");
        assert_eq!(promises, ["caffe: 78 files", "mxnet: 9 files"]);
        assert_eq!(gaps, ["cuda: no device"]);
        assert_eq!(list("not tested", &gaps, "nothing"), "not tested: cuda: no device");
        assert_eq!(list("not tested", &[], "nothing"), "not tested: nothing");
    }

    #[test]
    fn the_first_failing_step_is_named_and_the_last() {
        let task = |name: &str, program| step(name, Command::new(program));
        let error = perform(vec![task("a", "true"), task("b", "false"), task("c", "false")]).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.starts_with("step 2 of 3, b, failed: "), "{error}");
        assert_eq!(perform(vec![task("a", "true"), step_or("b", None, "why")]).unwrap().len(), 2);
    }
}
