//! `cargo xtask dist`: the tool as it is released, with completions for the shells and man pages, in `target/dist`.
//! The program is static where the standard library of musl's target is installed, else the host's; the task says which
//! libraries the program needs. Relies on `blob completions SHELL`, `blob man -o FOLDER` and `readelf`. Packs and
//! uploads nothing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;

/// Each shell with the file name that the shell looks for.
#[rustfmt::skip]
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "blob.bash"), ("zsh", "_blob"), ("fish", "blob.fish"), ("powershell", "_blob.ps1"), ("elvish", "blob.elv"),
];

/// Builds the tool and lets the tool write completions and man pages.
pub(crate) fn run(_: &[&str]) -> Result<()> {
    let dist = shell::target_directory()?.join("dist");
    if dist.exists() {
        std::fs::remove_dir_all(&dist).context("cannot remove the last dist")?;
    }
    std::fs::create_dir_all(dist.join("completions"))?;
    std::fs::create_dir_all(dist.join("man"))?;
    // The target whose programs need nothing of the system but its kernel.
    let musl = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let has_musl = std::env::consts::OS == "linux" && shell::has_target(&musl).unwrap_or(false);
    let tool = dist.join(format!("blob{}", std::env::consts::EXE_SUFFIX));
    build(has_musl.then_some(&musl), &tool)?;
    if has_musl {
        let libraries = needed(&tool)?;
        ensure!(libraries.is_empty(), "{} is not static: {libraries:?}", tool.display());
        println!("dist: static");
    } else {
        match needed(&tool) {
            Ok(libraries) => println!("dist: links {libraries:?}"),
            Err(error) => println!("dist: what the program links is not known ({error:#})"),
        }
        println!("dist: not static, the std of {musl} is not installed (rustup target add {musl})");
    }
    let pages = documents(&tool, &dist)?;
    println!("dist: {} completions, {pages} man pages in {}", COMPLETIONS.len(), dist.display());
    Ok(())
}

/// Builds for this target, or for the host, and copies the program.
fn build(target: Option<&String>, to: &Path) -> Result<()> {
    let (mut cargo, mut folder) = (shell::cargo("build --release -p blob-cli"), shell::target_directory()?);
    if let Some(target) = target {
        cargo.args(["--target", target]);
        folder.push(target);
    }
    shell::run(&mut cargo)?;
    let built = folder.join(format!("release/blob{}", std::env::consts::EXE_SUFFIX));
    std::fs::copy(&built, to).with_context(|| format!("cannot copy {}", built.display())).map(drop)
}

/// Lets the tool write completions and man pages; gives the number of pages.
fn documents(tool: &Path, dist: &Path) -> Result<usize> {
    for (shell_name, file) in COMPLETIONS {
        let script = shell::read(Command::new(tool).args(["completions", shell_name]))?;
        std::fs::write(dist.join("completions").join(file), script)?;
    }
    shell::run(Command::new(tool).args(["man", "-o"]).arg(dist.join("man")))?;
    let pages = std::fs::read_dir(dist.join("man"))?.count();
    ensure!(pages > 0, "`blob man` wrote no page");
    Ok(pages)
}

/// The shared libraries that an ELF program asks for: the lines `(NEEDED) Shared library: [NAME]` of `readelf`.
fn needed(program: &Path) -> Result<Vec<String>> {
    let text = shell::read(Command::new("readelf").arg("-d").arg(program).env("LC_ALL", "C"))?;
    let lines = text.lines().filter(|line| line.contains("(NEEDED)"));
    Ok(lines.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_string())).collect())
}
