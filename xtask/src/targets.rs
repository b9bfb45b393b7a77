//! `cargo xtask targets [PART ...]`: tests with another standard library than this machine's: another processor's, or
//! one that is built under a sanitizer. Where rustup has none, Debian's packages of a compiler with the sources of its
//! std are unpacked below `target`; a part that cannot be fetched is named, and is no failure. Each part ends with a
//! list of its runs. The plans of every request in every state are left to `cargo test`: they are pure code on one
//! thread, and take most of an hour here.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::{debian, shell};

/// One thing to build or to run.
struct Part {
    name: &'static str,
    about: &'static str,
    /// The target whose std rustup may have; none where std must be built anew.
    target: Option<&'static str>,
    /// The packages besides a compiler.
    packages: &'static [&'static str],
    /// The command, as [`shell::command`] reads it.
    line: &'static str,
    /// Tests that do not run: words in their names.
    left_out: Option<&'static str>,
}

#[rustfmt::skip]
const PARTS: &[Part] = &[
    Part {
        name: "wasm", about: "blob-convert for wasm32-unknown-unknown",
        target: Some("wasm32-unknown-unknown"), packages: &[],
        line: "cargo build --target wasm32-unknown-unknown -p blob-convert", left_out: None,
    },
    Part {
        name: "aarch64", about: "the libraries' tests on aarch64, with NEON, under qemu",
        target: Some("aarch64-unknown-linux-gnu"),
        packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"],
        line: "BLOB_OPS_ISA=neon QEMU_LD_PREFIX={root}/usr/aarch64-linux-gnu \
            CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER={root}/usr/bin/aarch64-linux-gnu-gcc \
            CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS=-Clink-arg=--sysroot={root} \
            CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER={root}/usr/bin/qemu-aarch64 \
            cargo test --target aarch64-unknown-linux-gnu -p synced-mem -p blob-core -p blob-ops -p blob-io --lib --tests",
        left_out: Some(PLANS),
    },
    Part {
        name: "thread", about: "synced-mem's tests and soak under ThreadSanitizer, std too",
        target: None, packages: SANITIZER,
        line: "RUSTFLAGS={thread} BLOB_SOAK_SECONDS=120 \
            cargo test --target {host} -p synced-mem --lib --test promises --test soak",
        left_out: Some(PLANS),
    },
    // The tests ask for more than there is, and leak guards on purpose.
    Part {
        name: "address", about: "the memory crates' tests under AddressSanitizer, std too",
        target: None, packages: SANITIZER,
        line: "RUSTFLAGS={address} ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0 \
            cargo test --target {host} -p synced-mem -p blob-core --lib --tests",
        left_out: Some(PLANS),
    },
];

/// The plans of every request in every state.
const PLANS: &str = "every_request";

/// A compiler, and the sources of the std.
const COMPILER: &[&str] = &["rustc-web", "rust-web-src"];

/// A linker that has the sanitizers' runtimes.
const SANITIZER: &[&str] = &["clang-22", "libclang-rt-22-dev"];

/// Runs the parts that are named, or all.
pub(crate) fn run(named: &[&str]) -> Result<()> {
    if let Some(unknown) = named.iter().find(|name| !PARTS.iter().any(|part| part.name == **name)) {
        let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        bail!("there is no part {unknown:?} among {}", names.join(", "));
    }
    for part in PARTS.iter().filter(|part| named.is_empty() || named.contains(&part.name)) {
        let line = match tools(part) {
            Ok(tools) => format!("{}: {}", part.about, perform(command(part, &tools)?)?),
            Err(why) => format!("NOT TESTED: {}, not built: {why:#}", part.about),
        };
        println!("{}: {line}", part.name);
        report(&line)?;
    }
    Ok(())
}

/// The fetched needs of a part.
struct Tools {
    /// Where packages lie unpacked.
    root: PathBuf,
    /// Whether std is built too, by the compiler among them.
    builds_std: bool,
}

fn tools(part: &Part) -> Result<Tools> {
    let has_std = part.target.map_or(Ok(false), shell::has_target)?;
    let compiler = if has_std { &[] } else { COMPILER };
    Ok(Tools { root: debian::unpacked(&[compiler, part.packages].concat())?, builds_std: !has_std })
}

fn command(part: &Part, tools: &Tools) -> Result<Command> {
    let root = tools.root.display();
    let command = shell::command(part.line, |name| match name {
        "root" => Some(root.to_string()),
        "thread" | "address" => Some(format!(
            "-Zsanitizer={name} -Zexternal-clangrt -Clinker={root}/usr/bin/clang-22 -Clink-arg=-fsanitize={name}"
        )),
        "host" => Some(format!("{}-unknown-linux-gnu", std::env::consts::ARCH)),
        _ => None,
    });
    let mut command = command.context("a word is not known")?;
    command.env("CARGO_TARGET_DIR", shell::target_directory()?.join(part.name));
    if tools.builds_std {
        builds_std(&mut command, &tools.root, "-Zbuild-std");
    }
    if let Some(name) = part.left_out {
        command.args(["--", "--skip", name]);
    }
    Ok(command)
}

/// Lets a build for WebAssembly, by a command of cargo, find a std and a linker.
pub(crate) fn for_wasm(command: &mut Command) -> Result<()> {
    let target = "wasm32-unknown-unknown";
    if shell::has_target(target)? {
        return Ok(());
    }
    let sysroot = shell::read(Command::new("rustc").args(["--print", "sysroot"]))?;
    let host = format!("lib/rustlib/{}-unknown-linux-gnu/bin/rust-lld", std::env::consts::ARCH);
    let own = PathBuf::from(sysroot.trim()).join(host);
    let linker: &[&str] = if own.is_file() { &[] } else { &["lld-22"] };
    let root = debian::unpacked(&[COMPILER, linker].concat())?;
    let linker = if own.is_file() { own } else { root.join("usr/bin/wasm-ld-22") };
    command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
    builds_std(command, &root, "-Zbuild-std=std,panic_abort");
    Ok(())
}

/// Builds std too, with the compiler that is unpacked.
fn builds_std(command: &mut Command, root: &Path, flag: &str) {
    // Unstable flags of a released compiler.
    command.arg(flag).env("RUSTC_BOOTSTRAP", "1").env("RUSTC", root.join("usr/bin/rustc"));
    let libraries = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    command.env("LD_LIBRARY_PATH", root.join(libraries));
}

/// The runs, read from the output of cargo and the tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    /// How many times a file of tests ended; none where nothing but a build was asked for.
    files: u64,
    tests: u64,
    ignored: u64,
    /// The tests that the command leaves out.
    skipped: u64,
    /// The findings of a sanitizer.
    warnings: u64,
    /// The result of the soak.
    soak: String,
}

impl Counts {
    fn read(&mut self, line: &str) {
        let number =
            |what: &str| line.split("; ").find_map(|part| part.strip_suffix(what)?.rsplit(' ').next()?.parse().ok());
        if line.starts_with("test result: ") {
            self.files += 1;
            self.tests += number(" passed").unwrap_or(0);
            self.ignored += number(" ignored").unwrap_or(0);
            self.skipped += number(" filtered out").unwrap_or(0);
        } else if line.starts_with("soak: ") && line.contains(" operations,") {
            self.soak = format!("; {line}");
        }
        self.warnings +=
            u64::from(line.contains("WARNING: ThreadSanitizer") || line.contains("ERROR: AddressSanitizer"));
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, tests, ignored, skipped, warnings, soak } = self;
        if *files == 0 {
            return f.write_str("built");
        }
        write!(
            f,
            "{tests} tests passed, {ignored} ignored, {skipped} left out, {warnings} warnings of a sanitizer{soak}"
        )
    }
}

/// Runs a command, passes the output on, and says how many tests ran and for how long.
fn perform(mut command: Command) -> Result<String> {
    let (start, mut counts) = (Instant::now(), Counts::default());
    let (output, writer) = std::io::pipe()?;
    let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    let line = shell::line(&command);
    drop(command); // the last writer that is ours
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        counts.read(&line);
    }
    let status = child.wait()?;
    ensure!(status.success(), "`{line}` failed: {status}; {counts}");
    Ok(format!("{counts}, {} s", start.elapsed().as_secs()))
}

/// Tells `cargo xtask ci` as a test does, where asked to.
pub(crate) fn report(line: &str) -> Result<()> {
    let Some(path) = std::env::var_os("BLOB_TEST_REPORT") else {
        return Ok(());
    };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    Ok(writeln!(file, "{line}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_is_counted() {
        let mut counts = Counts::default();
        assert_eq!(counts.to_string(), "built");
        for line in [
            "   Compiling std v0.0.0",
            "test result: ok. 100 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out; finished in 1.00s",
            "WARNING: ThreadSanitizer: data race (pid=1)",
            "soak: seed 7",
            "soak: 120 s, 4 threads, 3 devices, 7 operations, 2 injected failures, 0 differences",
            "test result: FAILED. 83 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ] {
            counts.read(line);
        }
        let soak = "; soak: 120 s, 4 threads, 3 devices, 7 operations, 2 injected failures, 0 differences";
        assert_eq!(
            counts,
            Counts { files: 2, tests: 183, ignored: 1, skipped: 9, warnings: 1, soak: soak.to_string() }
        );
        assert_eq!(
            counts.to_string(),
            format!("183 tests passed, 1 ignored, 9 left out, 1 warnings of a sanitizer{soak}")
        );
    }

    #[test]
    fn each_part_has_a_command_and_an_unknown_one_is_refused() {
        for (part, builds_std) in PARTS.iter().flat_map(|part| [(part, true), (part, false)]) {
            let line = shell::line(&command(part, &Tools { root: "/root-of-it".into(), builds_std }).unwrap());
            assert!(!line.contains(['{', '}']) && line.contains("cargo "), "{line}");
            let of_cargo = line.split(" -- ").next().unwrap();
            assert_eq!(of_cargo.contains("-Zbuild-std"), builds_std, "{line}");
        }
        assert!(run(&["wsm"]).unwrap_err().to_string().contains("\"wsm\" among wasm, aarch64"));
    }
}
