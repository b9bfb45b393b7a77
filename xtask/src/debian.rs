//! Packages of Debian, fetched and unpacked below `target` without being installed: no rights are needed, and nothing
//! on the machine changes. Relies on apt-get, dpkg and a mirror that apt reaches.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;

/// The folder in which these packages lie unpacked, with all dependencies that the machine lacks. A package that was
/// unpacked before is not fetched again.
pub(crate) fn unpacked(wanted: &[&str]) -> Result<PathBuf> {
    let home = shell::target_directory()?.join("debian");
    let (root, list) = (home.join("root"), home.join("unpacked.txt"));
    let before = fs::read_to_string(&list).unwrap_or_default();
    let mut here: BTreeSet<&str> = before.lines().collect();
    if wanted.iter().all(|name| here.contains(name)) {
        return Ok(root);
    }
    fs::create_dir_all(home.join("lists/partial")).with_context(|| home.display().to_string())?;
    // One of many mirrors may not answer: the next command says whether that matters.
    let _ = apt(&home, &["update"]).status();
    let plan = shell::read(apt(&home, &["install", "--simulate", "--no-install-recommends"]).args(wanted))?;
    let names = plan.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
    let missing: Vec<&str> = names.filter(|name| !here.contains(name)).collect();
    println!("fetched into {}: {}", home.display(), missing.join(" "));
    shell::run(apt(&home, &["download"]).args(&missing).current_dir(&home))?;
    for file in fs::read_dir(&home)?.collect::<Result<Vec<_>, _>>()? {
        if file.path().extension().is_some_and(|end| end == "deb") {
            shell::run(Command::new("dpkg").arg("-x").args([&file.path(), &root]))?;
            fs::remove_file(file.path())?;
        }
    }
    here.extend(missing);
    let lines: Vec<&str> = here.iter().copied().collect();
    fs::write(&list, lines.join("\n"))?;
    let installed = wanted.iter().find(|name| !here.contains(*name));
    ensure!(installed.is_none(), "{} is installed, and so was not fetched", installed.unwrap_or(&""));
    Ok(root)
}

/// apt-get with package lists of its own, which need no right to renew the machine's lists.
fn apt(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-qq", "-o", "APT::Sandbox::User="]).env("LC_ALL", "C");
    command.arg("-o").arg(format!("Dir::State::lists={}", home.join("lists").display()));
    command.args(arguments);
    command
}
