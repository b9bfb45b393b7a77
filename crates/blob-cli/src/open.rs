//! Opens the file that an argument names, with the global flags; `-` is standard input.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use blob_convert::Selection;
use blob_io::{Checkpoint, Error, Limits, OpenOptions, Reason};

use crate::args::{Global, Salvage};
use crate::failure::{Failure, Status};
use crate::inputs::{is_stdin, redirected_stdin};
use crate::output::Terminal;
use crate::select::select;
use crate::units;

/// Why --salvage finds no array in a file that breaks off.
const NO_SALVAGE: &str = "--salvage takes arrays of Caffe, MXNet, NeoML and safetensors, which stand one after the other; \
                          an npz has its list at the end, HDF5 all over the file, an archive is read as a whole, and a \
                          shard is taken by its own name";

/// Opens a file; reads headers only. With --salvage, a file that breaks off is opened for its whole arrays, and a
/// warning says where it does.
pub(crate) fn open(path: &Path, global: &Global) -> Result<Checkpoint, Error> {
    if global.salvage.is_none() {
        return open_whole(path, global);
    }
    let opened = open_with(OpenOptions::new().salvage(), path, global);
    if opened.as_ref().is_err_and(|error| error.reason() == Reason::Truncated && error.intact().is_none()) {
        Terminal::new(global).warning(NO_SALVAGE);
    }
    let checkpoint = opened?.take_whole_arrays();
    if let Some(error) = checkpoint.salvaged() {
        global.is_salvaged.store(true, Ordering::Relaxed);
        let arrays = units::plural(checkpoint.entries().len() as u64, "whole array");
        Terminal::new(global).warning(format!("{error}; --salvage takes {arrays}"));
    }
    Ok(checkpoint)
}

/// Opens a file; a file that breaks off is an error, whatever the flags say.
pub(crate) fn open_whole(path: &Path, global: &Global) -> Result<Checkpoint, Error> {
    open_with(OpenOptions::new(), path, global)
}

/// Opens a file and takes some of the tensors.
///
/// # Errors
/// As [`open`] and [`select`].
pub(crate) fn open_some(path: &Path, selection: &Selection, global: &Global) -> Result<Checkpoint, Failure> {
    only(open(path, global)?, selection)
}

/// The file with the selected tensors alone.
///
/// # Errors
/// As [`select`].
pub(crate) fn only(checkpoint: Checkpoint, selection: &Selection) -> Result<Checkpoint, Failure> {
    if selection.is_all() {
        return Ok(checkpoint);
    }
    let places = select(&checkpoint, selection)?;
    Ok(checkpoint.only(&places))
}

/// Opens a file for listing. A truncated file is opened up to the break; the caller reports that with
/// [`Checkpoint::check_whole`]. With --json a truncated file is an error, so that no program takes a part for the whole
/// unasked.
pub(crate) fn open_to_list(path: &Path, global: &Global) -> Result<Checkpoint, Error> {
    if global.json || global.salvage.is_some() {
        return open(path, global);
    }
    open_with(OpenOptions::new().salvage(), path, global)
}

/// The status of a command: after a part of a file was taken, which `--salvage=ok` accepts.
pub(crate) fn salvaged(status: Status, global: &Global) -> Status {
    match (global.is_salvaged.load(Ordering::Relaxed), global.salvage) {
        (true, Some(Salvage::Report)) => status.max(Status::No),
        _ => status,
    }
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
    if !is_stdin(path) {
        return options.open(path);
    }
    if let Some(file) = redirected_stdin() {
        options = options.redirected_from(file);
    }
    if let Some(member) = &global.member {
        options = options.member(member);
    }
    options.open_stream(name(path), io::stdin().lock()).map_err(|error| match error {
        Error::Several { file, members, more, .. } => Error::Several { file, is_stream: true, members, more },
        other => other,
    })
}

/// The name of a file argument in messages and JSON.
pub(crate) fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}
