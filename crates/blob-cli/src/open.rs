//! Opens the file that an argument names, with the global flags; `-` is standard input.

use std::io;
use std::path::Path;

use blob_io::{Checkpoint, Error, Limits, OpenOptions, spool};

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
    let mut options = OpenOptions::new().limits(limits);
    if let Some(format) = global.from {
        options = options.from(format);
    }
    if path != Path::new("-") {
        return options.open(path);
    }
    let name = name(path);
    let source = spool(io::stdin().lock()).map_err(|source| Error::Io {
        file: name.clone(),
        action: "read".to_owned(),
        source,
    })?;
    options.open_source(name, source)
}

/// How messages and JSON call the file that an argument names.
pub(crate) fn name(path: &Path) -> String {
    match path == Path::new("-") {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}
