//! Where the workspace lies, and how a task starts another program: cargo itself, in the workspace's root.
//! Relies on the environment that cargo gives to the programs that cargo runs. Captures output only where asked to.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable anew at each run, so a checkout that was moved is found too.
    let manifest = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_string());
    Path::new(&manifest).parent().unwrap_or(Path::new(".")).to_path_buf()
}

/// A program that runs in the workspace's root; as cargo the same one that runs us.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let cargo = std::env::var_os("CARGO").filter(|_| name.as_ref() == "cargo");
    let mut command = Command::new(cargo.as_deref().unwrap_or(name.as_ref()));
    command.current_dir(root());
    command
}

/// Cargo, the same one that runs us, with arguments that hold no space.
pub(crate) fn cargo(arguments: &str) -> Command {
    let mut command = program("cargo");
    command.args(arguments.split(' '));
    command
}

/// The command that a line spells: variables, program, arguments, single spaces between. `{name}` in a word
/// stands for the value of that name. A variable without a value is removed; a program or an argument without one
/// leaves no command.
pub(crate) fn command(line: &str, value: impl Fn(&str) -> Option<String>) -> Option<Command> {
    let fill = |word: &str| match word.split_once('{') {
        None => Some(word.to_string()),
        Some((before, rest)) => {
            let (name, after) = rest.split_once('}')?;
            Some(format!("{before}{}{after}", value(name)?))
        }
    };
    let is_variable = |word: &&str| word.contains('=');
    let words = line.split(' ').skip_while(is_variable).map(fill).collect::<Option<Vec<String>>>()?;
    let mut command = program(words.first()?);
    command.args(&words[1..]);
    for (name, text) in line.split(' ').take_while(is_variable).filter_map(|word| word.split_once('=')) {
        match fill(text) {
            Some(text) => command.env(name, text),
            None => command.env_remove(name),
        };
    }
    Some(command)
}

/// Runs a command with our own input and output, and fails where the command fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", line(command)))?;
    ensure!(status.success(), "`{}` failed: {status}", line(command));
    Ok(())
}

/// Runs a command and gives the standard output; standard error passes through.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {}", line(command)))?;
    ensure!(output.status.success(), "`{}` failed: {}", line(command), output.status);
    String::from_utf8(output.stdout).with_context(|| format!("`{}` wrote bytes that are not UTF-8", line(command)))
}

/// The command as you would type it, with the variables set before it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args()).map(|word| word.display().to_string());
    let variables = command.get_envs().filter_map(|(name, value)| Some((name.display(), value?.display())));
    variables.map(|(name, value)| format!("{name}={value}")).chain(words).collect::<Vec<_>>().join(" ")
}

/// The files of the workspace, from its root, with `/`: all that git tracks or would track, and that are there.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let list = read(&mut git).context("git lists the files of the workspace")?;
    let files: BTreeSet<&str> = list.split('\0').filter(|file| root.join(file).is_file()).collect();
    Ok(files.into_iter().map(str::to_string).collect())
}

/// Cargo's metadata of the workspace's own packages, as JSON.
pub(crate) fn metadata() -> Result<serde_json::Value> {
    let text = read(&mut cargo("metadata --no-deps --format-version 1"))?;
    serde_json::from_str(&text).context("cargo metadata is not JSON")
}

/// Where cargo builds, `target` unless the user set another folder.
pub(crate) fn target_directory() -> Result<PathBuf> {
    Ok(metadata()?["target_directory"].as_str().context("cargo metadata names no target directory")?.into())
}

/// The tool: the one that `BLOB_TOOL` names, or one that is built now.
pub(crate) fn tool() -> Result<PathBuf> {
    if let Some(tool) = std::env::var_os("BLOB_TOOL") {
        return Ok(PathBuf::from(tool));
    }
    run(&mut cargo("build -q -p blob-cli"))?;
    Ok(target_directory()?.join("debug/blob"))
}

/// Whether this target's standard library is installed.
pub(crate) fn has_target(target: &str) -> Result<bool> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]);
    Ok(Path::new(read(&mut rustc)?.trim()).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_filled_in_or_gives_no_command() {
        let filled = |text: &str| {
            let value = |name: &str| (name == "here").then(|| "a b".to_string());
            command(text, value).map(|command| (command.get_args().count(), line(&command)))
        };
        assert_eq!(filled("X={here}/x Y={gone} make {here} -j"), Some((2, "X=a b/x make a b -j".to_string())));
        assert_eq!(filled("make {gone}"), None);
        assert_eq!(filled("{gone} -j"), None);
    }

    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        // Two files that differ: a failure without a word.
        let mut command = Command::new("git");
        command.args(["diff", "--no-index", "--quiet", "Cargo.toml", "src/main.rs"]);
        assert!(run(&mut command).unwrap_err().to_string().contains("git diff --no-index"));
        assert!(read(&mut command).is_err());
        let missing = run(&mut Command::new("a-program-that-is-not-there")).unwrap_err();
        assert!(missing.to_string().contains("a-program-that-is-not-there"));
    }

    #[test]
    fn the_files_are_ours_and_not_what_is_built() {
        let files = files(&root()).unwrap();
        assert!(files.contains(&"xtask/src/shell.rs".to_string()));
        assert!(!files.iter().any(|file| file.starts_with("target/")));
    }
}
