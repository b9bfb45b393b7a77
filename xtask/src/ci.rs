//! `cargo xtask ci`: everything that must hold, in order, up to the first failure; then what was and what was not tested.
//! The tests append lines to the file that `BLOB_TEST_REPORT` names, one for each promise (`caffe: 78 files, 14 real`);
//! a line that begins with `NOT TESTED:` joins the list of gaps. `BLOB_REAL_DATA` names the folder of real files.
//! It publishes nothing, and installs neither toolchains nor targets.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{codegen, no_arguments, numpy, shell, soak, tidy};

/// No program is here. In place of a compiler's name it shows that none is run.
const NO_PROGRAM: &str = "/nonexistent";

/// The target on which the kernels have files of their own, besides the one that most machines are.
const OTHER_TARGET: &str = "aarch64-unknown-linux-gnu";
const OTHER_TARGET_PACKAGES: &[&str] = &["synced-mem", "blob-core", "blob-ops", "blob-io"];
const OTHER_TARGET_ABSENT: &str = "aarch64-unknown-linux-gnu was not checked: its std is not installed \
    (rustup target add aarch64-unknown-linux-gnu)";

/// Packages that are not published.
const UNPUBLISHED: &[&str] = &["blob-tests", "blob-benches", "xtask"];

const GAP: &str = "NOT TESTED:";

/// One thing that must hold.
struct Step {
    name: String,
    work: Work,
}

enum Work {
    Command(Command),
    Task(&'static str, fn(&[&str]) -> Result<()>, &'static [&'static str]),
    /// What this machine cannot do, and why: said in its place, so that nothing is left out in silence.
    Absent(&'static str),
}

/// What this machine offers, found before the first step.
struct Machine {
    /// The library packages of the workspace, by name.
    libraries: Vec<String>,
    /// The folder of real files, absolute.
    real_data: Option<PathBuf>,
    /// A Python that has NumPy.
    python: Option<PathBuf>,
    /// Where the tests report.
    report: PathBuf,
    /// Where the loom models are built.
    loom_target: PathBuf,
    has_other_target: bool,
}

/// Runs all steps.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    no_arguments(arguments)?;
    let (machine, mut gaps) = Machine::find()?;
    std::fs::write(&machine.report, "").context("cannot create the tests' report")?;
    let durations = perform(steps(&machine))?;
    println!("\n== all {} steps passed\n{}", durations.len(), table(&durations));
    let report = std::fs::read_to_string(&machine.report).context("the tests' report is gone")?;
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
    for (index, Step { name, mut work }) in steps.into_iter().enumerate() {
        let number = index + 1;
        println!("\n== {number}/{count} {name}: {}", work.line());
        let start = Instant::now();
        work.run().with_context(|| format!("step {number} of {count}, {name}, failed"))?;
        durations.push((name, start.elapsed()));
    }
    Ok(durations)
}

impl Machine {
    /// Looks around; also gives what cannot be tested here.
    fn find() -> Result<(Machine, Vec<String>)> {
        let metadata = shell::metadata()?;
        let target = shell::target_directory()?;
        std::fs::create_dir_all(&target)?;
        let mut gaps = Vec::new();
        let real_data = real_data(std::env::var_os("BLOB_REAL_DATA"), &std::env::current_dir()?);
        let real_data = real_data.map_err(|gap| gaps.push(gap)).ok();
        // Without it the tests themselves report what they leave out.
        let python = numpy::python(&target).inspect_err(|error| println!("NumPy is not installed: {error:#}")).ok();
        let has_other_target = shell::has_target(OTHER_TARGET)?;
        if !has_other_target {
            gaps.push(OTHER_TARGET_ABSENT.to_string());
        }
        let compiler = shell::read(Command::new("rustc").arg("--version"))?;
        let promised = promised_rust(&metadata);
        if !compiler.contains(&format!("rustc {promised}.")) {
            gaps.push(format!("Rust {promised}, the oldest promised: this was {}", compiler.trim()));
        }
        let machine = Machine {
            libraries: libraries(&metadata),
            real_data,
            python,
            report: target.join("blob-test-report.txt"),
            loom_target: target.join("loom"),
            has_other_target,
        };
        Ok((machine, gaps))
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

fn promised_rust(metadata: &serde_json::Value) -> String {
    let version = &metadata["packages"][0]["rust_version"];
    version.as_str().unwrap_or("(none)").to_string()
}

fn libraries(metadata: &serde_json::Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let is_library = |package: &&serde_json::Value| {
        let targets = package["targets"].as_array().into_iter().flatten();
        targets.into_iter().any(|target| target["kind"][0] == "lib")
    };
    packages
        .filter(is_library)
        .filter_map(|package| Some(package["name"].as_str()?.to_string()))
        .filter(|name| !UNPUBLISHED.contains(&name.as_str()))
        .collect()
}

fn steps(machine: &Machine) -> Vec<Step> {
    let mut steps = vec![
        step("format", cargo("fmt --all --check")),
        step("clippy", cargo("clippy --workspace --all-targets --all-features -- -D warnings")),
        Step { name: "tidy".to_string(), work: Work::Task("tidy", tidy::run, &[]) },
        Step { name: "codegen".to_string(), work: Work::Task("codegen", codegen::run, &["--check"]) },
        step("tests", tests_command(machine)),
        step("loom", loom_command(machine)),
        step("soak", soak_command(machine)),
    ];
    for (name, arguments) in [
        ("documentation", "doc --workspace --no-deps"),
        ("documentation, all features", "doc --workspace --no-deps --all-features"),
    ] {
        let mut command = cargo(arguments);
        command.env("RUSTDOCFLAGS", "-D warnings");
        steps.push(step(name, command));
    }
    for library in &machine.libraries {
        let mut alone = cargo(&format!("check -p {library}"));
        alone.env("CC", NO_PROGRAM).env("CXX", NO_PROGRAM).env("NVCC", NO_PROGRAM);
        steps.push(step(&format!("{library} alone"), alone));
        let all = cargo(&format!("check -p {library} --all-features"));
        steps.push(step(&format!("{library} alone, all features"), all));
    }
    steps.push(other_target_step(machine));
    let excluded = format!("--exclude {}", UNPUBLISHED.join(" --exclude "));
    let package = cargo(&format!("package --workspace {excluded} --no-verify --allow-dirty"));
    steps.push(step("package", package));
    steps
}

/// The other target's code and tests, compiled and linted; nothing is run.
fn other_target_step(machine: &Machine) -> Step {
    if !machine.has_other_target {
        return Step { name: "aarch64, not checked".to_string(), work: Work::Absent(OTHER_TARGET_ABSENT) };
    }
    let packages = format!("-p {}", OTHER_TARGET_PACKAGES.join(" -p "));
    let clippy = cargo(&format!("clippy --target {OTHER_TARGET} {packages} --all-targets -- -D warnings"));
    step("aarch64", clippy)
}

/// All tests, examples in the documentation included.
fn tests_command(machine: &Machine) -> Command {
    let mut command = cargo("test --workspace --all-features");
    command.env("BLOB_TEST_REPORT", &machine.report);
    match &machine.real_data {
        Some(folder) => command.env("BLOB_REAL_DATA", folder),
        None => command.env_remove("BLOB_REAL_DATA"),
    };
    if let Some(python) = &machine.python {
        command.env(numpy::PYTHON, python);
    }
    command
}

/// Every interleaving of a few threads. In a target folder of its own: its flags are not the other steps'.
fn loom_command(machine: &Machine) -> Command {
    let mut command = cargo("test -p synced-mem --test loom --release");
    command.env("RUSTFLAGS", "--cfg loom");
    command.env("CARGO_TARGET_DIR", &machine.loom_target);
    command
}

/// The memories under threads and failures. Another run each time: it says its seed.
fn soak_command(machine: &Machine) -> Command {
    let mut command = soak::step(&machine.report);
    command.env("PROTOC", NO_PROGRAM);
    command
}

fn step(name: &str, command: Command) -> Step {
    Step { name: name.to_string(), work: Work::Command(command) }
}

/// Cargo with arguments that hold no space. No step may run a protoc.
fn cargo(arguments: &str) -> Command {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let mut command = shell::cargo(&arguments);
    command.env("PROTOC", NO_PROGRAM);
    command
}

impl Work {
    fn line(&self) -> String {
        match self {
            Work::Command(command) => shell::line(command),
            Work::Task(name, _, arguments) => [&["cargo", "xtask", name], *arguments].concat().join(" "),
            Work::Absent(why) => why.to_string(),
        }
    }

    fn run(&mut self) -> Result<()> {
        match self {
            Work::Command(command) => shell::run(command),
            Work::Task(_, task, arguments) => task(arguments),
            Work::Absent(_) => Ok(()),
        }
    }
}

/// The durations in seconds, and their sum.
fn table(durations: &[(String, Duration)]) -> String {
    let total: Duration = durations.iter().map(|(_, duration)| *duration).sum();
    let rows = durations.iter().map(|(name, duration)| (name.as_str(), duration));
    let rows = rows.chain([("total", &total)]);
    let lines = rows.map(|(name, duration)| format!("  {:>7.1} s  {name}\n", duration.as_secs_f64()));
    lines.collect()
}

/// Splits what the tests reported into promises that were tested, and gaps.
fn read_report(report: &str) -> (Vec<String>, Vec<String>) {
    let lines = report.lines().map(str::trim).filter(|line| !line.is_empty());
    let (gaps, mut promises): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with(GAP));
    // The tests run in any order.
    promises.sort_unstable();
    promises.dedup();
    let mut gaps: Vec<String> = gaps.iter().map(|line| line[GAP.len()..].trim().to_string()).collect();
    gaps.sort_unstable();
    gaps.dedup();
    (promises.into_iter().map(str::to_string).collect(), gaps)
}

/// Each line after the title, so that none is read without it; without lines, the title says so.
fn list(title: &str, lines: &[String], none: &str) -> String {
    let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    if lines.is_empty() {
        lines.push(none);
    }
    let titled: Vec<String> = lines.iter().map(|line| format!("{title}: {line}")).collect();
    titled.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(has_other_target: bool) -> Machine {
        Machine {
            libraries: vec!["blob-io".to_string()],
            real_data: Some(PathBuf::from("/data")),
            python: Some(PathBuf::from("/python")),
            report: PathBuf::from("/report"),
            loom_target: PathBuf::from("/loom"),
            has_other_target,
        }
    }

    fn lines(machine: &Machine) -> Vec<String> {
        steps(machine).iter().map(|step| step.work.line()).collect()
    }

    #[test]
    fn no_step_may_run_protoc_and_no_default_build_a_c_compiler() {
        let lines = lines(&machine(true));
        for line in lines.iter().filter(|line| !line.starts_with("cargo xtask")) {
            assert!(line.contains("PROTOC=/nonexistent"), "{line}");
        }
        let alone = lines.iter().find(|line| line.ends_with("check -p blob-io")).unwrap();
        assert!(alone.split(' ').any(|word| word == "CC=/nonexistent"), "{alone}");
    }

    #[test]
    fn the_tests_get_the_real_files_a_python_and_a_report() {
        let lines = lines(&machine(false));
        let test = lines.iter().find(|line| line.contains("cargo test --workspace")).unwrap();
        for variable in ["BLOB_REAL_DATA=/data", "BLOB_PYTHON=/python", "BLOB_TEST_REPORT=/report"] {
            assert!(test.contains(variable), "{test}");
        }
    }

    #[test]
    fn the_other_target_is_checked_where_it_is_and_missed_aloud_elsewhere() {
        let named = |machine| {
            let lines = lines(&machine).into_iter();
            lines.filter(|line| line.contains(OTHER_TARGET)).collect::<Vec<_>>()
        };
        let here = named(machine(true));
        assert_eq!(here.len(), 1, "{here:?}");
        assert!(here[0].contains("clippy --target"), "{here:?}");
        assert!(here[0].contains("-p blob-ops") && here[0].contains("--all-targets"), "{here:?}");
        let elsewhere = named(machine(false));
        assert_eq!(elsewhere, [OTHER_TARGET_ABSENT]);
        let installs = format!("rustup target add {OTHER_TARGET}");
        assert!(OTHER_TARGET_ABSENT.contains(&installs));
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
        let task = |name: &str, run| Step { name: name.to_string(), work: Work::Task("sample", run, &[]) };
        let fails = |_: &[&str]| anyhow::bail!("on purpose");
        let later = |_: &[&str]| anyhow::bail!("a step after the failing one ran");
        let steps = vec![task("a", |_| Ok(())), task("b", fails), task("c", later)];
        let error = format!("{:#}", perform(steps).unwrap_err());
        assert_eq!(error, "step 2 of 3, b, failed: on purpose");
        let mut silent = Command::new("git");
        silent.args(["diff", "--no-index", "--quiet", "Cargo.toml", "src/main.rs"]);
        assert!(perform(vec![step("command", silent)]).is_err());
        assert_eq!(perform(vec![task("a", |_| Ok(()))]).unwrap().len(), 1);
    }

    #[test]
    fn the_libraries_are_ours_and_published() {
        let libraries = libraries(&shell::metadata().unwrap());
        assert!(libraries.contains(&"synced-mem".to_string()), "{libraries:?}");
        assert!(!libraries.contains(&"xtask".to_string()) && !libraries.contains(&"blob-tests".to_string()));
    }
}
