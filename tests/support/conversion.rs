//! Conversions as most tests need them: to a file, which is replaced if it exists, or to bytes.

use std::path::Path;

use blob_convert::{Options, Place, Silent, Summary, plan};
use blob_io::{Checkpoint, Error, IfExists};

pub(crate) fn to_file(source: &Checkpoint, options: &Options, path: impl AsRef<Path>) -> Result<Summary, Error> {
    let target = Place::File { path: path.as_ref(), if_exists: IfExists::Replace };
    plan(source, options, &target)?.run(&Silent)
}

/// The bytes of the file that a conversion writes.
pub(crate) fn to_bytes(source: &Checkpoint, options: &Options) -> Result<Vec<u8>, Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    to_file(source, options, &path)?;
    Ok(std::fs::read(&path).expect("readable"))
}
