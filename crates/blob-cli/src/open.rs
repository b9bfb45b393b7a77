//! Opens the file that an argument names, with the global flags; `-` is standard input.

use std::io;
use std::path::Path;

use blob_io::{Checkpoint, Error, Limits, OpenOptions};

use crate::args::Global;

/// Opens a file; reads its headers only.
pub(crate) fn open(path: &Path, global: &Global) -> Result<Checkpoint, Error> {
    let mut limits = Limits::default();
    if let Some(bytes) = global.max_alloc {
        limits = limits.max_alloc(bytes);
    }
    if let Some(n) = global.max_arrays {
        limits = limits.max_arrays(n);
    }
    if let Some(bytes) = global.max_spool {
        limits = limits.max_spool(bytes);
    }
    let mut options = OpenOptions::new().limits(limits);
    if let Some(format) = global.from {
        options = options.from(format);
    }
    match path == Path::new("-") {
        true => options.open_stream(name(path), io::stdin().lock()),
        false => options.open(path),
    }
}

/// How messages and JSON call the file that an argument names.
pub(crate) fn name(path: &Path) -> String {
    match path == Path::new("-") {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}
