//! `cargo xtask sanitize`: the memory crates' tests under the address and the thread sanitizer, where a nightly is.
//! Each sanitizer has a target folder of its own. The thread sanitizer wants a standard library built with it, so it needs
//! the sources of std; what cannot run here is said, and is no failure.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::shell;

/// Sanitizers are flags of the unstable compiler.
const TOOLCHAIN: &str = "+nightly";

/// What runs under them: the crates with threads and raw memory.
const TESTS: &[&str] = &["test", "-p", "synced-mem", "-p", "blob-core", "--lib", "--tests"];

/// Runs what can be run.
pub(crate) fn run(_: &[&str]) -> Result<()> {
    let Some(host) = nightly_host() else {
        println!("not run: no nightly toolchain is installed");
        return Ok(());
    };
    shell::run(&mut tests(&host, "address")?)?;
    println!("address sanitizer: clean");
    if !has_std_sources()? {
        println!("not run: the thread sanitizer (the component rust-src of the nightly is not installed)");
        return Ok(());
    }
    shell::run(tests(&host, "thread")?.arg("-Zbuild-std"))?;
    println!("thread sanitizer: clean");
    Ok(())
}

/// The nightly's own target, if there is a nightly.
fn nightly_host() -> Option<String> {
    let output = Command::new("rustc").args([TOOLCHAIN, "-vV"]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_string)
}

fn has_std_sources() -> Result<bool> {
    let root = shell::read(Command::new("rustc").args([TOOLCHAIN, "--print", "sysroot"]))?;
    let sources = Path::new(root.trim()).join("lib/rustlib/src/rust/library/std");
    Ok(sources.is_dir())
}

fn tests(host: &str, sanitizer: &str) -> Result<Command> {
    let target = shell::target_directory()?.join(sanitizer);
    let mut command = Command::new("cargo");
    command.arg(TOOLCHAIN).args(TESTS).args(["--target", host]).current_dir(shell::root());
    // Cargo tells what it runs which toolchain it is; the nightly is another.
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    command.env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}")).env("CARGO_TARGET_DIR", target);
    // Tests ask for more than there is, and leak guards on purpose.
    command.env("ASAN_OPTIONS", "allocator_may_return_null=1:detect_leaks=0");
    Ok(command)
}
