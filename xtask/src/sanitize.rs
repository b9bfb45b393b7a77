//! `cargo xtask sanitize`: the memory crates' tests under the address and the thread sanitizer, where a nightly is.
//! Each sanitizer has a target folder of its own. The thread sanitizer wants a standard library built with it, so it
//! needs the sources of std; what cannot run here is said, and is no failure.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::shell;

/// What runs under them: the crates with threads and raw memory. Sanitizers are flags of the unstable compiler.
const TESTS: &[&str] = &["+nightly", "test", "-p", "synced-mem", "-p", "blob-core", "--lib", "--tests"];

/// Each sanitizer with what cargo needs for it.
const SANITIZERS: [(&str, Option<&str>); 2] = [("address", None), ("thread", Some("-Zbuild-std"))];

/// Runs what can be run.
pub(crate) fn run(_: &[&str]) -> Result<()> {
    let (Some(host), Some(sysroot)) = (nightly("host-tuple"), nightly("sysroot")) else {
        println!("not run: no nightly toolchain is installed");
        return Ok(());
    };
    let has_sources = Path::new(&sysroot).join("lib/rustlib/src/rust/library/std").is_dir();
    for (sanitizer, more) in SANITIZERS {
        if more.is_some() && !has_sources {
            println!("not run: the {sanitizer} sanitizer (the component rust-src of the nightly is not installed)");
            continue;
        }
        let mut command = Command::new("cargo");
        command.args(TESTS).args(["--target", &host]).args(more).current_dir(shell::root());
        // Cargo tells what it runs which toolchain it is; the nightly is another.
        command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN").env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"));
        command.env("CARGO_TARGET_DIR", shell::target_directory()?.join(sanitizer));
        // Tests ask for more than there is, and leak guards on purpose.
        command.env("ASAN_OPTIONS", "allocator_may_return_null=1:detect_leaks=0");
        shell::run(&mut command)?;
        println!("{sanitizer} sanitizer: clean");
    }
    Ok(())
}

/// What the nightly compiler prints, if there is one.
fn nightly(what: &str) -> Option<String> {
    let output = Command::new("rustc").args(["+nightly", "--print", what]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}
