//! `cargo xtask dist`: the tool as it is released, with completions for the shells and its man pages, in `target/dist`.
//! It is one static program where the standard library of musl's target is installed, else the host's, and its last line
//! says which libraries it needs. It relies on `blob completions SHELL`, `blob man -o FOLDER` and `readelf`. It packs and
//! uploads nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{no_arguments, shell};

/// Each shell with the file name that it looks for.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "blob.bash"),
    ("zsh", "_blob"),
    ("fish", "blob.fish"),
    ("powershell", "_blob.ps1"),
    ("elvish", "blob.elv"),
];

/// Builds the tool and lets it write what belongs to it.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    no_arguments(arguments)?;
    let musl = static_target(std::env::consts::OS, std::env::consts::ARCH);
    let has_musl = musl.as_deref().is_some_and(|target| shell::has_target(target).unwrap_or(false));
    let built = build(musl.as_deref().filter(|_| has_musl))?;
    let dist = shell::target_directory()?.join("dist");
    if dist.exists() {
        std::fs::remove_dir_all(&dist).context("cannot remove the last dist")?;
    }
    std::fs::create_dir_all(&dist)?;
    let tool = dist.join(name());
    std::fs::copy(&built, &tool).with_context(|| format!("cannot copy {}", built.display()))?;
    let pages = documents(&tool, &dist)?;
    let needed = needed(&tool);
    anyhow::ensure!(
        !has_musl || matches!(&needed, Ok(libraries) if libraries.is_empty()),
        "musl's program is not static: {needed:?}"
    );
    println!("dist: {}, {} completions, {pages} man pages in {}", name(), COMPLETIONS.len(), dist.display());
    println!("dist: {}", links(&needed, musl.as_deref().filter(|_| !has_musl)));
    Ok(())
}

fn name() -> String {
    format!("blob{}", std::env::consts::EXE_SUFFIX)
}

/// The target whose programs need nothing of the system but its kernel.
fn static_target(os: &str, arch: &str) -> Option<String> {
    (os == "linux").then(|| format!("{arch}-unknown-linux-musl"))
}

/// Builds for this target, or for the host; gives the program.
fn build(target: Option<&str>) -> Result<PathBuf> {
    let mut cargo = shell::cargo(&["build", "--release", "-p", "blob-cli"]);
    let mut folder = shell::target_directory()?;
    if let Some(target) = target {
        cargo.args(["--target", target]);
        folder.push(target);
    }
    shell::run(&mut cargo)?;
    Ok(folder.join("release").join(name()))
}

/// Lets the tool write its completions and man pages; gives the number of pages.
fn documents(tool: &Path, dist: &Path) -> Result<usize> {
    let (completions, man) = (dist.join("completions"), dist.join("man"));
    std::fs::create_dir_all(&completions)?;
    std::fs::create_dir_all(&man)?;
    for (shell_name, file) in COMPLETIONS {
        let script = shell::read(Command::new(tool).args(["completions", shell_name]))?;
        std::fs::write(completions.join(file), script)?;
    }
    shell::run(Command::new(tool).args(["man", "-o"]).arg(&man))?;
    let pages = std::fs::read_dir(&man)?.count();
    anyhow::ensure!(pages > 0, "`blob man` wrote no page");
    Ok(pages)
}

/// The shared libraries that an ELF program asks for, as `readelf` lists them.
fn needed(program: &Path) -> Result<Vec<String>> {
    let mut readelf = Command::new("readelf");
    let text = shell::read(readelf.arg("-d").arg(program).env("LC_ALL", "C"))?;
    Ok(libraries(&text))
}

/// The names in the lines `(NEEDED) Shared library: [NAME]`.
fn libraries(text: &str) -> Vec<String> {
    let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
    let name = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.to_string());
    needed.filter_map(name).collect()
}

/// What the program links, in one line; `absent` is the target that would have made it static.
fn links(needed: &Result<Vec<String>>, absent: Option<&str>) -> String {
    let mut line = match needed {
        Ok(libraries) if libraries.is_empty() => "one static program, it links nothing".to_string(),
        Ok(libraries) => format!("it links {}", libraries.join(", ")),
        Err(error) => format!("what it links is not known ({error:#})"),
    };
    if let Some(target) = absent {
        line.push_str(&format!("; not static, the std of {target} is not installed (rustup target add {target})"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const DYNAMIC: &str = "\nDynamic section at offset 0x99e808 contains 30 entries:\n  \
        Tag        Type                         Name/Value\n \
        0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]\n \
        0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n \
        0x000000006ffffffb (FLAGS_1)            Flags: NOW PIE\n";

    #[test]
    fn libraries_are_those_that_readelf_calls_needed() {
        assert_eq!(libraries(DYNAMIC), ["libgcc_s.so.1", "libc.so.6"]);
        assert!(libraries("There is no dynamic section in this file.\n").is_empty());
        // A static program that may be placed anywhere has a section, and needs nothing.
        assert!(libraries(" 0x6ffffffb (FLAGS_1)  Flags: PIE\n").is_empty());
    }

    #[test]
    fn this_program_needs_a_libc() {
        let me = std::env::current_exe().unwrap();
        match needed(&me) {
            Ok(libraries) => assert!(libraries.iter().any(|l| l.contains("libc.")), "{libraries:?}"),
            Err(error) => eprintln!("xtask: readelf skipped ({error:#})"),
        }
    }

    #[test]
    fn the_line_says_what_is_linked_and_what_is_missing() {
        assert_eq!(links(&Ok(Vec::new()), None), "one static program, it links nothing");
        let line = links(&Ok(libraries(DYNAMIC)), Some("x86_64-unknown-linux-musl"));
        assert_eq!(
            line,
            "it links libgcc_s.so.1, libc.so.6; not static, the std of x86_64-unknown-linux-musl is not installed \
             (rustup target add x86_64-unknown-linux-musl)"
        );
        let unknown = links(&Err(anyhow::anyhow!("no readelf")), None);
        assert_eq!(unknown, "what it links is not known (no readelf)");
    }

    #[test]
    fn only_linux_has_a_static_target() {
        let target = static_target("linux", "aarch64");
        assert_eq!(target.as_deref(), Some("aarch64-unknown-linux-musl"));
        assert_eq!(static_target("macos", "aarch64"), None);
    }
}
