//! The tasks of this workspace, run as `cargo xtask TASK`: one row in the table below for each.
//! It relies on cargo, rustfmt and git being on the path, and depends on none of our crates.
//! It builds no kernels for a GPU and publishes nothing.

#![forbid(unsafe_code)]

mod ci;
mod codegen;
mod dist;
mod mutants;
mod numpy;
mod record;
mod sanitize;
mod shell;
mod soak;
mod tidy;

use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

/// One task: how it is called, what it does, and the function.
struct Task {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[&str]) -> Result<()>,
}

const TASKS: &[Task] = &[
    Task { name: "ci", arguments: "", about: "everything that must hold before a commit, in order", run: ci::run },
    Task {
        name: "tidy",
        arguments: "",
        about: "the rules of style and architecture that a program can check",
        run: tidy::run,
    },
    Task {
        name: "codegen",
        arguments: "[--check]",
        about: "proto/caffe.proto to crates/blob-io/src/caffe/messages.rs",
        run: codegen::run,
    },
    Task {
        name: "mutants",
        arguments: "[FILTER]",
        about: "break the code on purpose, one place at a time; each break must fail its test",
        run: mutants::run,
    },
    Task {
        name: "sanitize",
        arguments: "",
        about: "the memory crates' tests under the address and thread sanitizers, where a nightly is",
        run: sanitize::run,
    },
    Task {
        name: "soak",
        arguments: "[--seconds N] [--seed S] [--threads T]",
        about: "the memories under threads and failures, every byte checked, for 30 seconds or N",
        run: soak::run,
    },
    Task { name: "bench", arguments: "[ARGS]", about: "the benches, with ARGS given to cargo bench", run: bench },
    Task {
        name: "peers",
        arguments: "[ARGS]",
        about: "what other crates take for the cases of the kernel benches, with ARGS given to them",
        run: peers,
    },
    Task {
        name: "record",
        arguments: "FILE [ARGS]",
        about: "the kernel benches and all peers in one table, with ARGS given to each",
        run: record::run,
    },
    Task {
        name: "dist",
        arguments: "",
        about: "the released tool, static where it can be, with completions and man pages, in target/dist",
        run: dist::run,
    },
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
    match TASKS.iter().find(|task| task.name == name) {
        Some(task) => (task.run)(rest),
        None => bail!("there is no task {name:?}\n{}", usage()),
    }
}

fn usage() -> String {
    let mut text = String::from("cargo xtask TASK");
    for task in TASKS {
        let call = format!("{} {}", task.name, task.arguments);
        text.push_str(&format!("\n  {call:<20} {}", task.about));
    }
    text
}

/// Runs the benches; what they record lies in `benches/record`.
fn bench(arguments: &[&str]) -> Result<()> {
    let mut command = shell::cargo(&["bench", "-p", "blob-benches"]);
    command.args(arguments);
    shell::run(&mut command)
}

/// Measures the crates in `benches/peers`, a workspace of its own, which is built beside ours.
fn peers(arguments: &[&str]) -> Result<()> {
    shell::run(&mut peers_command(arguments)?)
}

fn peers_command(arguments: &[&str]) -> Result<Command> {
    let mut command = shell::cargo(&["run", "--release", "--manifest-path", "benches/peers/Cargo.toml", "--"]);
    command.args(arguments);
    command.env("CARGO_TARGET_DIR", shell::target_directory()?.join("peers"));
    Ok(command)
}

/// Fails on arguments to a task that takes none.
fn no_arguments(arguments: &[&str]) -> Result<()> {
    match arguments {
        [] => Ok(()),
        [first, ..] => bail!("this task takes no argument, and got {first:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_task_names_the_known_ones() {
        let error = dispatch(&["polish"]).unwrap_err().to_string();
        assert!(error.contains("\"polish\""), "{error}");
        for task in TASKS {
            assert!(error.contains(task.name), "{error} does not name {}", task.name);
        }
    }

    #[test]
    fn an_argument_too_many_is_refused() {
        assert!(dispatch(&["tidy", "--loosely"]).is_err());
    }
}
