//! `cargo xtask dist`: the tool as it is released, with completions for the shells and its man pages, in `target/dist`.
//! It relies on `blob completions SHELL` and `blob man -o FOLDER`. It packs and uploads nothing.

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
    shell::run(&mut shell::cargo(&["build", "--release", "-p", "blob-cli"]))?;
    let target = shell::target_directory()?;
    let name = format!("blob{}", std::env::consts::EXE_SUFFIX);
    let (built, dist) = (target.join("release").join(&name), target.join("dist"));
    if dist.exists() {
        std::fs::remove_dir_all(&dist).context("cannot remove the last dist")?;
    }
    let (completions, man) = (dist.join("completions"), dist.join("man"));
    std::fs::create_dir_all(&completions)?;
    std::fs::create_dir_all(&man)?;
    let tool = dist.join(&name);
    std::fs::copy(&built, &tool).with_context(|| format!("cannot copy {}", built.display()))?;
    for (shell_name, file) in COMPLETIONS {
        let script = shell::read(Command::new(&tool).args(["completions", shell_name]))?;
        std::fs::write(completions.join(file), script)?;
    }
    shell::run(Command::new(&tool).args(["man", "-o"]).arg(&man))?;
    let pages = std::fs::read_dir(&man)?.count();
    anyhow::ensure!(pages > 0, "`blob man` wrote no page");
    println!(
        "dist: {name}, {} completions, {pages} man pages in {}",
        COMPLETIONS.len(),
        dist.display()
    );
    Ok(())
}
