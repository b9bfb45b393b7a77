//! The file or the standard output that a command writes to; with -n the bytes are counted instead.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;

use blob_io::{Complete, Error, Output};

use crate::args::{Global, if_exists};
use crate::failure::Failure;

/// The output name for standard output.
const STDOUT: &str = "-";

/// Whether a path names standard output.
pub(crate) fn is_stdout(output: &Path) -> bool {
    output == Path::new(STDOUT)
}

/// The bytes that a command writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Text, which a terminal can show.
    Text,
    Binary,
}

/// Refuses an output that would mix with JSON on standard output, or bytes that would garble a terminal.
pub(crate) fn check_stdout(output: &Path, content: Content, dry_run: bool, global: &Global) -> Result<(), Failure> {
    if dry_run {
        return Ok(());
    }
    if is_stdout(output) && global.json {
        return Err(Failure::new("--json and -o - would both write to standard output"));
    }
    if is_stdout(output) && is_closed() {
        let failure = Failure::new("standard output: is closed, and -o - writes there");
        return Err(failure.help("name a file with -o; -o /dev/null keeps nothing"));
    }
    if content == Content::Binary && is_terminal(output) {
        let failure = Failure::new(format!("-o {} would write binary data to the terminal", output.display()));
        return Err(failure.help("name a file with -o, or send the bytes on: `-o - | …`, `-o - > FILE`"));
    }
    Ok(())
}

/// Whether standard output was closed at the start. Rust's runtime then opens `/dev/null` in its place, for reading
/// too, so that bytes vanish without an error; a shell opens `/dev/null` for writing alone.
#[cfg(unix)]
fn is_closed() -> bool {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    let Ok(stdout) = io::stdout().as_fd().try_clone_to_owned() else { return true };
    let mut stdout = File::from(stdout);
    let device = |meta: io::Result<std::fs::Metadata>| meta.map(|meta| meta.rdev()).ok().filter(|device| *device != 0);
    let own = device(stdout.metadata());
    own.is_some() && own == device(std::fs::metadata("/dev/null")) && stdout.read(&mut [0]).is_ok()
}

#[cfg(not(unix))]
fn is_closed() -> bool {
    false
}

/// Whether bytes for this output reach a terminal: `-`, `/dev/stdout`, `/dev/tty`.
fn is_terminal(output: &Path) -> bool {
    if is_stdout(output) {
        return io::stdout().is_terminal();
    }
    // Only terminals are opened here: a reader of a named pipe would take this for the writer, and leave.
    let place = output.canonicalize().ok();
    let is_among_terminals = place
        .as_deref()
        .and_then(Path::parent)
        .is_some_and(|parent| parent == Path::new("/dev") || parent == Path::new("/dev/pts"));
    is_among_terminals && File::options().write(true).open(output).is_ok_and(|device| device.is_terminal())
}

/// The target of a command's bytes.
pub(crate) struct Sink {
    /// `None` in a dry run.
    output: Option<Output>,
    len: u64,
}

impl Sink {
    /// Begins the output. A dry run only checks that the output could be begun.
    ///
    /// # Errors
    /// As [`Output::create`].
    pub(crate) fn begin(path: &Path, force: bool, dry_run: bool) -> Result<Self, Error> {
        let output = match (is_stdout(path), dry_run) {
            (true, true) => None,
            (true, false) => Some(Output::stdout()),
            (false, true) => {
                Output::check(path, if_exists(force))?;
                None
            }
            (false, false) => Some(Output::create(path, if_exists(force))?),
        };
        Ok(Self { output, len: 0 })
    }

    /// An output of which only the length is wanted.
    pub(crate) fn counting() -> Self {
        Self { output: None, len: 0 }
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.len += bytes.len() as u64;
        self.output.as_mut().map_or(Ok(()), |output| output.write_all(bytes))
    }

    /// Completes the output, which is named later; `None` where only the length is wanted.
    pub(crate) fn complete(self) -> Result<(Option<Complete>, u64), Error> {
        Ok((self.output.map(Output::complete).transpose()?, self.len))
    }

    /// Completes the output, and returns the length.
    pub(crate) fn finish(self) -> Result<u64, Error> {
        self.output.map_or(Ok(()), Output::finish)?;
        Ok(self.len)
    }
}
