//! Checks where a conversion's output goes before the work begins.

use std::path::{Path, PathBuf};

use blob_io::layout::OutputDir;
use blob_io::{Checkpoint, Error, IfExists, Output};

use crate::destination::Destination;
use crate::plan::Plan;
use crate::self_check::receipt;
use crate::symbol::NewSymbol;
use crate::watch::{Uncounted, Watch};
use blob_io::words::Listed;

/// How many changed arrays an error names.
const NAMED: usize = 3;

impl Plan<'_> {
    /// The file beside an ONNX model that gets the model's values; `None` for an output of one file.
    #[must_use]
    pub fn values(&self) -> Option<PathBuf> {
        let (path, _, layout) = self.file()?;
        let name = self.model()?.outside.as_deref().filter(|_| layout.divided().is_some())?;
        Some(path.with_file_name(name))
    }

    /// Checks for the errors that [`run`](Plan::run) would return before writing: a file that exists, a folder that is
    /// missing or cannot be written, files that would be lost. Anything created for the check is removed.
    ///
    /// # Errors
    /// As [`run`](Plan::run).
    pub fn check(&self, watch: &dyn Watch) -> Result<(), Error> {
        self.symbol.iter().try_for_each(NewSymbol::check)?;
        match &self.output {
            Destination::Stdout { .. } => Ok(()),
            Destination::File { path, if_exists, .. } => {
                Output::check(path, *if_exists)?;
                self.values().map_or(Ok(()), |values| Output::check(values, *if_exists))
            }
            Destination::Shards { if_exists, shards } => shards.check(self.checkpoint, *if_exists),
            Destination::Folder { path, if_exists, .. } => {
                check_unchanged(path, &OutputDir::check(path, *if_exists)?, watch)
            }
        }
    }
}

/// Begins a folder.
pub(crate) fn folder(path: &Path, if_exists: IfExists, watch: &dyn Watch) -> Result<OutputDir, Error> {
    let folder = OutputDir::create(path, if_exists)?;
    check_unchanged(path, &folder, watch)?;
    Ok(folder)
}

/// Refuses to replace a folder whose arrays were changed after the conversion: such changes are the user's own work.
///
/// If another conversion replaces the folder during the check, the findings mix two folders and are ignored.
fn check_unchanged(path: &Path, folder: &OutputDir, watch: &dyn Watch) -> Result<(), Error> {
    if !folder.replaces() {
        return Ok(());
    }
    let checked = check_digests(path, watch);
    if folder.is_overtaken() {
        return Ok(());
    }
    checked
}

fn check_digests(path: &Path, watch: &dyn Watch) -> Result<(), Error> {
    let old = Checkpoint::open(path)?;
    let mut changed: Listed<String, NAMED> = Listed::default();
    let checked = receipt(&old, &Uncounted(watch), &mut |finding| changed.push(|| format!("{:?}", finding.tensor)))?;
    let refused = |message| Err(Error::Request { file: path.display().to_string(), message });
    if checked.is_none() {
        return refused(
            "has a receipt whose digests cannot be read, and so may hold the work of others, which is never replaced; move the folder away, or name another one"
                .to_owned(),
        );
    }
    if changed.count == 0 {
        return Ok(());
    }
    refused(format!(
        "holds arrays that were changed since they were written, which are never replaced: {}; move them away, or name another folder",
        changed.joined()
    ))
}
