//! Opens the file that an argument names, with the global flags; `-` is standard input.

use std::io;
use std::path::Path;

use blob_io::{Checkpoint, Error, Limits, OpenOptions};

use crate::args::{Command, Global};
use crate::failure::Failure;

/// Opens a file; reads its headers only.
pub(crate) fn open(path: &Path, global: &Global) -> Result<Checkpoint, Error> {
    open_with(OpenOptions::new(), path, global)
}

/// Opens a file for listing. A truncated file is opened up to its end; the caller reports that with
/// [`Checkpoint::whole`]. With --json it is an error, so that no program takes a part for the whole.
pub(crate) fn open_to_list(path: &Path, global: &Global) -> Result<Checkpoint, Error> {
    let options = OpenOptions::new();
    let options = if global.json { options } else { options.salvage() };
    open_with(options, path, global)
}

fn open_with(options: OpenOptions, path: &Path, global: &Global) -> Result<Checkpoint, Error> {
    let mut limits = Limits::default();
    if let Some(bytes) = global.max_alloc {
        limits.max_alloc = bytes;
    }
    if let Some(n) = global.max_arrays {
        limits.max_arrays = n;
    }
    if let Some(bytes) = global.max_spool {
        limits.max_spool = bytes;
    }
    let mut options = options.limits(limits);
    if let Some(format) = global.from {
        options = options.from(format);
    }
    if path != Path::new("-") {
        return options.open(path);
    }
    if let Some(member) = &global.member {
        options = options.member(member);
    }
    options.open_stream(name(path), io::stdin().lock()).map_err(|error| match error {
        Error::Several { file, members, more, .. } => Error::Several { file, is_stream: true, members, more },
        other => other,
    })
}

/// Refuses --member if no file is standard input.
pub(crate) fn check_member(command: &Command, global: &Global) -> Result<(), Failure> {
    match &global.member {
        Some(member) if !command.inputs().has_stdin() => {
            let failure = Failure::new(format!("--member {member}: no file is `-`, standard input"));
            Err(failure.help("a file of an archive on disk is named by its path: model.tar.gz/net.params"))
        }
        _ => Ok(()),
    }
}

/// The name of a file argument in messages and JSON.
pub(crate) fn name(path: &Path) -> String {
    match path == Path::new("-") {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}
