//! Refuses an output that would replace what is read: a conversion that fails late must not destroy the only copy.
//!
//! Compares files, not paths: a link or another spelling can name the same file.

use std::fs;
use std::path::Path;

use blob_io::{Checkpoint, IfExists};

use crate::failure::Failure;

/// Refuses an output that is the input itself. If existing files are replaced, refuses also a folder that contains the
/// input, and a file in an input folder.
pub(crate) fn check_output(input: &Path, output: &Path, if_exists: IfExists) -> Result<(), Failure> {
    // A path that continues after a file names a member of that archive.
    let input = input.ancestors().find(|path| path.is_file()).unwrap_or(input);
    // A pipe has nothing to lose, and opening it would wait for its writer.
    let is_on_disk = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.is_file() || meta.is_dir());
    if !(is_on_disk(input) && is_on_disk(output)) {
        return Ok(());
    }
    let (from, to) = (input.display(), output.display());
    if same_file::is_same_file(input, output).unwrap_or(false) {
        let failure = Failure::new(format!("{to}: this is what is read, and a source is never replaced by its copy"));
        return Err(failure.help("write to another name beside it, then move that over it"));
    }
    let (Ok(real_from), Ok(real_to), IfExists::Replace) =
        (fs::canonicalize(input), fs::canonicalize(output), if_exists)
    else {
        return Ok(());
    };
    if real_from.starts_with(&real_to) {
        return Err(Failure::new(format!("{from} lies in {to}, which would be replaced; name another folder")));
    }
    if real_to.starts_with(&real_from) {
        return Err(Failure::new(format!("{to} lies in {from}, which is read; name a file outside it")));
    }
    Ok(())
}

/// Refuses an output that is one of the shards that are read.
pub(crate) fn check_shards(checkpoint: &Checkpoint, output: &Path) -> Result<(), Failure> {
    let index = Path::new(checkpoint.name());
    let is_read = |shard: &String| same_file::is_same_file(index.with_file_name(shard), output).unwrap_or(false);
    match checkpoint.shards().iter().find(|shard| is_read(shard)) {
        None => Ok(()),
        Some(shard) => {
            let message = format!(
                "{}: this is {shard}, which is read, and a source is never replaced by its copy",
                output.display()
            );
            Err(Failure::new(message).help("name a file in another folder"))
        }
    }
}
