//! Files that are written together: none is named before all are complete, and none stays where one fails.

use std::fs;
use std::path::{Path, PathBuf};

use blob_io::{Complete, Error};

use crate::failure::Failure;

/// New files wait for each other only if fewer than every system lets be open at once: 256 on some.
const MAX_TOGETHER: usize = 100;

/// Files that replace others stay open until all are complete, and systems allow about a thousand open files.
const MAX_REPLACED: usize = 500;

/// The files of one output. Dropping it unpublished leaves those that existed before as they were, and removes the new
/// ones.
#[derive(Debug)]
pub(crate) struct Together {
    /// Whether new files wait for each other; of too many, each is named at once.
    is_waiting: bool,
    complete: Vec<(PathBuf, Complete)>,
    /// The files that did not exist before and are named.
    new: Vec<PathBuf>,
}

impl Together {
    /// The output of files with these names.
    ///
    /// # Errors
    /// More files that exist than can be replaced at once.
    pub(crate) fn of<'p>(paths: impl ExactSizeIterator<Item = &'p Path>) -> Result<Self, Failure> {
        let is_waiting = paths.len() <= MAX_TOGETHER;
        let replaced = paths.filter(|path| path.exists()).count();
        if replaced > MAX_REPLACED {
            let message = format!("{replaced} files would be replaced at once; at most {MAX_REPLACED} are");
            return Err(Failure::new(message).help("remove the old files, or name another folder"));
        }
        Ok(Self { is_waiting, complete: Vec::new(), new: Vec::new() })
    }

    /// Takes a file that is written to the end.
    pub(crate) fn add(&mut self, path: &Path, complete: Complete) -> Result<(), Error> {
        if self.is_waiting || path.exists() {
            self.complete.push((path.to_owned(), complete));
            return Ok(());
        }
        complete.publish()?;
        self.new.push(path.to_owned());
        Ok(())
    }

    /// Names all files.
    pub(crate) fn publish(mut self) -> Result<(), Error> {
        for (path, complete) in std::mem::take(&mut self.complete) {
            let is_new = !path.exists();
            complete.publish()?;
            self.new.extend(is_new.then_some(path));
        }
        self.new.clear();
        Ok(())
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        self.new.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// The folders that were made for an output. Dropping them unkept removes those that are empty.
#[derive(Debug, Default)]
pub(crate) struct Folders(Vec<PathBuf>);

impl Folders {
    /// Makes the missing folders of these files.
    pub(crate) fn of<'p>(files: impl Iterator<Item = &'p Path>) -> Result<Self, Failure> {
        let mut made = Self::default();
        for folder in files.filter_map(Path::parent) {
            let missing = folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
            let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
            for folder in missing.into_iter().rev() {
                fs::create_dir(&folder)
                    .map_err(|error| Failure::new(format!("{}: cannot be made: {error}", folder.display())))?;
                made.0.push(folder);
            }
        }
        Ok(made)
    }

    /// Keeps the folders.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        self.0.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

#[cfg(test)]
mod tests {
    use blob_io::{IfExists, Output};

    use super::*;

    #[test]
    fn no_new_file_has_its_name_before_all_are_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        let mut together = Together::of(paths.iter().map(|path| &**path)).expect("few");
        for path in &paths {
            let output = Output::create(path, IfExists::Refuse).expect("a new file");
            together.add(path, output.complete().expect("complete")).expect("taken");
        }
        assert!(paths.iter().all(|path| !path.exists()));
        together.publish().expect("named");
        assert!(paths.iter().all(|path| path.exists()));
    }
}
