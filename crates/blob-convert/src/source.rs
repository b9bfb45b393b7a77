//! Refuses an output that would replace a file that is read: a conversion that fails late must not destroy the only
//! copy.
//!
//! Compares files, not paths: a link or another spelling can name the same file.

use std::fs;
use std::path::Path;

use blob_io::{Checkpoint, Error, IfExists, Remedy};

use crate::goal::Place;

/// Refuses a target that is one of these open files, or a shard of one.
pub(crate) fn check(sources: &[&Checkpoint], target: &Place<'_>) -> Result<(), Error> {
    match *target {
        Place::File { path, if_exists } | Place::Folder { path, if_exists } => {
            sources.iter().try_for_each(|source| check_source(source, path, if_exists))
        }
        Place::Stdout => Ok(()),
    }
}

/// Refuses an output that is the open file or a shard of the file, and as [`check_output`] the folder around.
///
/// # Errors
/// [`Error::Misfit`] or [`Error::Request`] for such an output.
pub fn check_source(source: &Checkpoint, output: &Path, if_exists: IfExists) -> Result<(), Error> {
    let Some(path) = source.path() else { return Ok(()) };
    check_output(path, output, if_exists)?;
    match source.shards().iter().find(|shard| is_same(&path.with_file_name(shard), output)) {
        None => Ok(()),
        Some(shard) => {
            let message = format!("this is {shard}, which is read, and a source is never replaced by its copy");
            Err(Error::misfit(output.display(), message, Remedy::OtherFolder))
        }
    }
}

/// Refuses an output that is the input itself. If existing files are replaced, refuses also a folder that contains the
/// input, and a file in an input folder.
///
/// # Errors
/// [`Error::Misfit`] or [`Error::Request`] for such an output.
pub fn check_output(input: &Path, output: &Path, if_exists: IfExists) -> Result<(), Error> {
    if !is_on_disk(output) {
        return Ok(());
    }
    // A path that continues after a file names a member of that archive.
    let input = input.ancestors().find(|path| path.is_file()).unwrap_or(input);
    if !is_on_disk(input) {
        return Ok(());
    }
    let refused = |file: &Path, message: String| Err(Error::Request { file: file.display().to_string(), message });
    if is_same(input, output) {
        let message = "this is what is read, and a source is never replaced by its copy";
        return Err(Error::misfit(output.display(), message, Remedy::OtherName));
    }
    let (Ok(real_input), Ok(real_output), IfExists::Replace) =
        (fs::canonicalize(input), fs::canonicalize(output), if_exists)
    else {
        return Ok(());
    };
    if real_input.starts_with(&real_output) {
        return refused(input, format!("lies in {}, which would be replaced; name another folder", output.display()));
    }
    if real_output.starts_with(&real_input) {
        return refused(output, format!("lies in {}, which is read; name a file outside it", input.display()));
    }
    Ok(())
}

fn is_same(one: &Path, other: &Path) -> bool {
    is_on_disk(one) && is_on_disk(other) && same_file::is_same_file(one, other).unwrap_or(false)
}

/// Whether there is a file or folder. A pipe has nothing to lose, and opening a pipe would wait for a writer.
fn is_on_disk(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() || meta.is_dir())
}
