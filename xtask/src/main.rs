//! The tasks of this workspace, run as `cargo xtask TASK`: one row in the table below for each.
//! It relies on cargo, rustfmt and git being on the path, and depends on none of our crates.
//! It publishes nothing.

#![forbid(unsafe_code)]

mod breakages;
mod ci;
mod codegen;
mod dist;
mod fuzz;
mod kernels;
mod mutants;
mod python;
mod report_check;
mod sanitize;
mod shell;
mod soak;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail, ensure};

/// How a task is called, what it takes, what it does, and the function.
type Task = (&'static str, &'static str, &'static str, fn(&[&str]) -> Result<()>);

#[rustfmt::skip]
const TASKS: &[Task] = &[
    ("ci", "", "everything that must hold before a commit, in order", ci::run),
    ("tidy", "", "the rules of style and architecture that a program can check", tidy::run),
    ("codegen", "[--check]", "proto/caffe.proto to crates/blob-io/src/caffe/proto.rs", codegen::run),
    ("kernels", "[--check]", "the CUDA kernels of blob-ops to PTX, assembled for each GPU", kernels::run),
    ("mutants", "[FILTER]", "break the code on purpose, one place at a time; each break must fail its test", mutants::run),
    ("sanitize", "", "the memory crates' tests under the address and thread sanitizers, where a nightly is", sanitize::run),
    ("soak", "[--seconds N] [--seed S] [--threads T]", "the memories under threads and failures, every byte checked", soak::run),
    ("bench", "[ARGS]", "the benches, with ARGS given to cargo bench", bench),
    ("peers", "[ARGS]", "what other crates take for the cases of the kernel benches, with ARGS given to them", peers),
    ("record", "FILE [ARGS]", "the kernel benches and all peers in one table, with ARGS given to each", record),
    ("fuzz", "[--seconds N] [TARGET ...]", "the readers and writers under a fuzzer, from the golden files", fuzz::run),
    ("interop", "[--only TEXT]", "what the tool writes read by MXNet, Caffe, NeoML, OpenCV, h5py …, and the other way round", interop),
    ("gpu", "", "what needs a GPU, packed: one command there leaves a page for benches/record", gpu),
    ("report-check", "", "the pages of `blob report` in headless Chromium, where there is one: no request, no word on the console", report_check::run),
    ("dist", "", "the released tool, static where it can be, with completions and man pages, in target/dist", dist::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[&str]) -> Result<()> {
    let Some((&name, rest)) = arguments.split_first() else {
        bail!("which task?\n{}", usage());
    };
    if matches!(name, "help" | "-h" | "--help") {
        println!("{}", usage());
        return Ok(());
    }
    match TASKS.iter().find(|(task, ..)| *task == name) {
        Some((_, "", ..)) if !rest.is_empty() => bail!("this task takes no argument, and got {rest:?}"),
        Some((_, _, _, run)) => run(rest),
        None => bail!("there is no task {name:?}\n{}", usage()),
    }
}

fn usage() -> String {
    let row = |(name, arguments, about, _): &Task| format!("\n  {:<20} {about}", format!("{name} {arguments}"));
    TASKS.iter().map(row).fold("cargo xtask TASK".to_string(), |text, row| text + &row)
}

/// Runs the benches; what they record lies in `benches/record`.
fn bench(arguments: &[&str]) -> Result<()> {
    shell::run(shell::cargo(&["bench", "-p", "blob-benches"]).args(arguments))
}

/// Measures the crates in `benches/peers`, a workspace of its own, which is built beside ours.
fn peers(arguments: &[&str]) -> Result<()> {
    let mut command = shell::cargo(&["run", "--release", "--manifest-path", "benches/peers/Cargo.toml", "--"]);
    shell::run(command.args(arguments).env("CARGO_TARGET_DIR", shell::target_directory()?.join("peers")))
}

fn record(arguments: &[&str]) -> Result<()> {
    shell::run(shell::cargo(&["run", "-q", "-p", "blob-benches", "--bin", "record", "--"]).args(arguments))
}

/// The frameworks themselves against the tool; the last result lies in `tests/interop/RESULT.md`.
fn interop(arguments: &[&str]) -> Result<()> {
    shell::run(&mut shell::cargo(&["build", "-q", "--release", "-p", "blob-cli"]))?;
    let target = shell::target_directory()?;
    let mut command = shell::program("python3");
    command.arg("tests/interop/run.py").arg("--blob").arg(target.join("release/blob"));
    shell::run(command.arg("--work").arg(target.join("interop")).args(arguments))
}

/// Packs the program that checks and measures a GPU with its script, for a machine that has neither Rust nor a network.
fn gpu(_: &[&str]) -> Result<()> {
    let commit = shell::read(shell::program("git").args(["describe", "--always", "--dirty"]))?;
    let mut cargo = shell::cargo(&["build", "-q", "--release", "-p", "blob-gpu"]);
    shell::run(cargo.env("BLOB_COMMIT", commit.trim()))?;
    let target = shell::target_directory()?;
    let packed = target.join("blob-gpu");
    std::fs::create_dir_all(&packed)?;
    std::fs::copy(target.join("release/blob-gpu"), packed.join("blob-gpu"))?;
    std::fs::copy(shell::root().join("benches/gpu/gpu.py"), packed.join("gpu.py"))?;
    let archive = target.join("blob-gpu.tar.gz");
    shell::run(shell::program("tar").arg("-czf").arg(&archive).arg("-C").arg(&target).arg("blob-gpu"))?;
    let bytes = archive.metadata()?.len();
    ensure!(bytes <= 64 << 20, "{} has {bytes} bytes", archive.display());
    println!("gpu: {}, {:.1} MiB", archive.display(), bytes as f64 / f64::from(1 << 20));
    println!("gpu: there: tar -xzf blob-gpu.tar.gz && ./blob-gpu/blob-gpu");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_task_names_the_known_ones() {
        let error = dispatch(&["polish"]).unwrap_err().to_string();
        assert!(error.contains("\"polish\""), "{error}");
        for (name, ..) in TASKS {
            assert!(error.contains(name), "{error} does not name {name}");
        }
    }

    #[test]
    fn an_argument_too_many_is_refused() {
        assert!(dispatch(&["tidy", "--loosely"]).is_err());
    }
}
