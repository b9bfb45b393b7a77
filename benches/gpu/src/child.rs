//! Runs a child process with a time limit: returns the output, and the reason of a failure. Does not know what the
//! child does.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;

/// The beginning of the reason if the time limit was exceeded.
pub(crate) const TOOK: &str = "it took over ";

/// Runs a command with this input. Returns the output, and the reason of a failure. If it exceeds the limit, it is
/// killed together with its own children.
pub(crate) fn run(command: &mut Command, input: &str, limit: Duration) -> Result<(String, Option<String>)> {
    let file = |text: &str| -> Result<File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(text.as_bytes())?;
        file.rewind()?;
        Ok(file)
    };
    let (input, output, errors) = (file(input)?, file("")?, file("")?);
    command.stdin(Stdio::from(input)).stdout(output.try_clone()?).stderr(errors.try_clone()?);
    let mut child = group::of_its_own(command).spawn()?;
    let begin = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if begin.elapsed() > limit => {
                group::kill(&child);
                end(&mut child)?;
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let last = text(errors)?.lines().rfind(|line| !line.trim().is_empty()).map(str::to_string);
    let why = match status {
        Some(status) if status.success() => None,
        Some(status) => Some(last.map_or(status.to_string(), |last| last.trim_start_matches("blob-gpu: ").to_string())),
        None => Some(format!("{TOOK}{} s", limit.as_secs())),
    };
    Ok((text(output)?, why))
}

fn end(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

/// Reads the output. Invalid UTF-8 is replaced, because a killed process can end within a character.
fn text(mut file: File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Process groups: a sanitizer starts the program that it checks, and both must be killed.
#[cfg(unix)]
mod group {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    pub(super) fn of_its_own(command: &mut Command) -> &mut Command {
        command.process_group(0)
    }

    /// Kills the group if there is a shell. The caller kills the child itself in any case.
    pub(super) fn kill(child: &Child) {
        let _ = Command::new("sh").args(["-c", &format!("kill -KILL -{}", child.id())]).status();
    }
}

#[cfg(not(unix))]
mod group {
    use std::process::{Child, Command};

    pub(super) fn of_its_own(command: &mut Command) -> &mut Command {
        command
    }

    pub(super) fn kill(_: &Child) {}
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn output_before_the_time_limit_is_kept_and_all_processes_end() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!; printf 'a\\303'; wait"]);
        let (text, why) = run(&mut shell, "", Duration::from_millis(300)).unwrap();
        assert!(why.is_some_and(|why| why.starts_with(TOOK)));
        let (id, rest) = text.split_once('\n').unwrap();
        assert_eq!(rest, "a\u{FFFD}");
        // A process that has ended is gone, or a zombie until its new parent reaps it. The signal may take a while.
        let is_alive = || {
            let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z ")
        };
        let begin = Instant::now();
        while is_alive() {
            assert!(begin.elapsed() < Duration::from_secs(20), "{id} goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
