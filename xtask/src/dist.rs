//! `cargo xtask dist`: the tool as it is released, with completions for the shells and its man pages, in `target/dist`.
//! It is one static program where the standard library of musl's target is installed, with the host's beside it, because a
//! static one loads no CUDA driver; else the host's alone. It says which libraries each needs. It relies on
//! `blob completions SHELL`, `blob man -o FOLDER` and `readelf`. It packs and uploads nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// Each shell with the file name that it looks for.
#[rustfmt::skip]
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "blob.bash"), ("zsh", "_blob"), ("fish", "blob.fish"), ("powershell", "_blob.ps1"), ("elvish", "blob.elv"),
];

/// Builds the tool and lets it write what belongs to it.
pub(crate) fn run(_: &[&str]) -> Result<()> {
    // The target whose programs need nothing of the system but its kernel.
    let musl = (std::env::consts::OS == "linux").then(|| format!("{}-unknown-linux-musl", std::env::consts::ARCH));
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
    println!("dist: {}: {}", name(), links(&needed, musl.as_deref().filter(|_| !has_musl)));
    if has_musl {
        let loads_drivers = dist.join(LOADS_DRIVERS);
        std::fs::copy(build(None)?, &loads_drivers).context("cannot copy the host's program")?;
        println!("dist: {LOADS_DRIVERS}, which loads a CUDA driver: {}", links(&self::needed(&loads_drivers), None));
    }
    Ok(())
}

/// The host's own program, where the other one is static.
const LOADS_DRIVERS: &str = "blob-glibc";

fn name() -> String {
    format!("blob{}", std::env::consts::EXE_SUFFIX)
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

    #[test]
    fn the_line_says_what_is_linked_and_what_is_missing() {
        let text =
            "  Tag  Type  Name/Value\n 0x01 (NEEDED)  Shared library: [libc.so.6]\n 0x6ffffffb (FLAGS_1)  Flags: PIE\n";
        assert_eq!(links(&Ok(libraries(text)), None), "it links libc.so.6");
        // A static program that may be placed anywhere has a section, and needs nothing.
        let line = links(&Ok(libraries(" 0x6ffffffb (FLAGS_1)  Flags: PIE\n")), Some("x86_64-unknown-linux-musl"));
        assert!(line.starts_with("one static program, it links nothing; not static, the std of x86_64-"), "{line}");
        assert_eq!(links(&Err(anyhow::anyhow!("no readelf")), None), "what it links is not known (no readelf)");
    }
}
