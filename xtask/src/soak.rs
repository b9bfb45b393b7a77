//! `cargo xtask soak [--seconds N] [--seed S] [--threads T]`: the memory's stress machine, which is a test of `synced-mem`.
//! It hands over what is asked for in variables; what the run does stands in `crates/synced-mem/tests/soak/`.

use std::process::Command;

use anyhow::{Result, bail};

use crate::shell;

/// The options, and the variables that the test reads.
const OPTIONS: &[(&str, &str)] =
    &[("--seconds", SECONDS), ("--seed", "BLOB_SOAK_SEED"), ("--threads", "BLOB_SOAK_THREADS")];
const SECONDS: &str = "BLOB_SOAK_SECONDS";

/// Where nothing else is asked for, and in `cargo xtask ci`.
const USUAL_SECONDS: &str = "30";

/// Runs the stress machine.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    shell::run(&mut asked(arguments)?)
}

/// The run of `cargo xtask ci`.
pub(crate) fn usual() -> Command {
    // As all tests are built, so that nothing is built again.
    let mut command = shell::cargo(&["test", "--workspace", "--all-features", "--test", "soak"]);
    command.args(["--", "--nocapture", "--exact", "soak"]).env(SECONDS, USUAL_SECONDS);
    command
}

fn asked(arguments: &[&str]) -> Result<Command> {
    let mut command = usual();
    for pair in arguments.chunks(2) {
        let variable = OPTIONS.iter().find(|(option, _)| *option == pair[0]).map(|(_, variable)| variable);
        match (variable, pair.get(1).map(|value| value.parse::<u64>())) {
            (Some(variable), Some(Ok(value))) => command.env(variable, value.to_string()),
            _ => bail!("soak takes --seconds, --seed and --threads, each with a number, not {pair:?}"),
        };
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_reaches_the_test() {
        let line = |arguments: &[&str]| Ok::<_, anyhow::Error>(shell::line(&asked(arguments)?));
        assert!(line(&[]).unwrap().contains("BLOB_SOAK_SECONDS=30"));
        let asked = line(&["--seed", "7", "--seconds", "2"]).unwrap();
        assert!(asked.contains("BLOB_SOAK_SECONDS=2") && asked.contains("BLOB_SOAK_SEED=7"));
        assert!(asked.contains("--test soak"), "{asked}");
        for wrong in [&["--speed", "7"][..], &["--seed"], &["--seed", "x"]] {
            assert!(line(wrong).is_err(), "{wrong:?}");
        }
    }
}
