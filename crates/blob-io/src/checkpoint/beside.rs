//! Files that lie beside the open one: a network's description, a list of classes.
//!
//! Reads only the requested file, whole and within a limit.

use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::Checkpoint;
use crate::archive::Archive;
use crate::error::{Error, ReadError, check_limit};
use crate::format::Files;
use crate::limits::{Limit, MAX_OTHERS};
use crate::shards;
use crate::warning::Warning;
use crate::wire::source::{FileSource, Source, read};
use crate::words::joined;

/// The longest file that is read. A network of ten thousand layers takes a few megabytes of JSON.
const LONGEST: u64 = 64 << 20;

/// Where the files beside the open one are.
#[derive(Debug)]
pub(super) enum Home {
    /// No folder: a stream, or a source that the caller made.
    Nowhere,
    Folder(PathBuf),
    /// A folder in an archive; the name ends with a slash, unless empty.
    Archive {
        archive: Archive,
        folder: String,
    },
}

impl Home {
    /// The folder that a file lies in.
    pub(super) fn of_file(path: &Path) -> Self {
        path.parent().map_or(Self::Nowhere, |folder| Self::Folder(folder.to_owned()))
    }
}

impl Checkpoint {
    /// The bytes of the file `name` in the same folder as this one, which may be a folder in an archive:
    /// `net-symbol.json` beside `net-0000.params`. `None` where there is no such file, where `name` leads to another
    /// folder, and where the checkpoint was read from a stream or a source of the caller's.
    ///
    /// # Errors
    /// A file of more than 64 MiB, or one that cannot be read.
    pub fn beside(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let mut parts = Path::new(name).components();
        let (Some(Component::Normal(_)), None) = (parts.next(), parts.next()) else {
            return Ok(None);
        };
        match &self.home {
            Home::Nowhere => Ok(None),
            Home::Folder(folder) => file(&folder.join(name)),
            Home::Archive { archive, folder } => member(self, archive, &format!("{folder}{name}")),
        }
    }

    /// The files beside an index of shards that have the name of a file of tensors, and are no shards of this index.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn beside_shards(&self) -> Result<Vec<PathBuf>, Error> {
        let is_indexed = self.format.holds().files == Files::Shards && !self.shards().is_empty();
        let (Home::Folder(folder), true) = (&self.home, is_indexed) else { return Ok(Vec::new()) };
        let others = shards::find(folder)?.others.into_iter().filter(|file| !self.shards().contains(file));
        Ok(others.map(|file| folder.join(file)).collect())
    }

    /// Warns of tensor files in the folder that are no shards of the index.
    pub(super) fn warn_of_others(&mut self, files: &[String]) {
        let others: Vec<String> = files.iter().filter(|file| !self.shards.contains(file)).cloned().collect();
        if !others.is_empty() {
            let text = format!(
                "the folder also has files that are no shards of its index and are left out: {}",
                joined(MAX_OTHERS, &others)
            );
            self.warnings.push(Warning::of_loss(None, text));
        }
    }
}

fn file(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let name = path.display().to_string();
    let failed = |source| Error::Io { file: name.clone(), action: "open".to_owned(), source };
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => {}
        // Opening a pipe would wait for a writer.
        Ok(_) => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    }
    let source = File::open(path).and_then(FileSource::try_from).map_err(failed)?;
    whole(&source, &name).map(Some)
}

fn member(checkpoint: &Checkpoint, archive: &Archive, name: &str) -> Result<Option<Vec<u8>>, Error> {
    // A link is not followed: the target may be anywhere.
    let found = archive.find(name).map(|found| found.filter(|found| !found.is_link()));
    let found = found.and_then(|found| found.map(|found| archive.bytes(&found, LONGEST)).transpose());
    found.map_err(|stop| stop.within(format!("member {name:?}")).into_error(checkpoint.file()))
}

/// All bytes of a source.
fn whole(source: &dyn Source, name: &str) -> Result<Vec<u8>, Error> {
    let stopped = |stop: ReadError| stop.into_error(name);
    check_limit(0, Limit::Fixed, "the file's length", source.len(), LONGEST).map_err(|fault| stopped(fault.into()))?;
    let mut bytes = vec![0; source.len() as usize];
    read(source, 0, &mut bytes).map_err(stopped)?;
    Ok(bytes)
}
