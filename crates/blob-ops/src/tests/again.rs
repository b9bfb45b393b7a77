//! This test binary, to be run once more in a process of its own: by the emulator that runs this one, where cargo was
//! told of one for another processor.

use std::process::Command;

/// Cargo's own variable. The system can start the emulator, but not the binary.
const RUNNER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER";

pub(crate) fn this_binary() -> Command {
    let this = std::env::current_exe().expect("a running test has a file");
    let runner = std::env::var(RUNNER).ok().filter(|_| cfg!(target_arch = "aarch64")).unwrap_or_default();
    let mut words = runner.split_whitespace();
    let Some(emulator) = words.next() else {
        return Command::new(this);
    };
    let mut command = Command::new(emulator);
    command.args(words).arg(this);
    command
}
