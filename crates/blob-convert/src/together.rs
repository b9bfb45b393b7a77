//! Files that are written together: no file gets its name before all are complete, and no new file stays if one fails.

use std::fs;
use std::path::{Path, PathBuf};

use blob_io::{Complete, Error, Output};

/// More new files than this do not wait for each other: a cut of a net into thousands of files keeps few open.
const MAX_TOGETHER: usize = 100;

/// Files that replace others stay open until all are complete.
const MAX_REPLACED: usize = 500;

/// The files of one output. Dropping the output unpublished leaves the files that existed before unchanged, and removes
/// the new ones.
#[derive(Debug)]
pub struct Together {
    /// Whether new files wait for each other; of too many, each is named at once.
    is_waiting: bool,
    /// How many files may be open besides the waiting ones.
    room: usize,
    complete: Vec<Complete>,
    /// The files that did not exist before and are named.
    new: Vec<PathBuf>,
}

impl Together {
    /// The output of files with these names.
    ///
    /// # Errors
    /// More files that exist than can be replaced at once.
    pub fn of<'p>(paths: impl ExactSizeIterator<Item = &'p Path>) -> Result<Self, Error> {
        let (count, most) = (paths.len(), Output::most_open());
        let is_waiting = count <= most.min(MAX_TOGETHER);
        let (replaced, most_replaced) = (paths.filter(|path| path.exists()).count(), most.min(MAX_REPLACED));
        if replaced > most_replaced {
            let message = format!(
                "{replaced} files would be replaced at once; at most {most_replaced} are: remove the old files, or name \
                 another folder"
            );
            return Err(Error::Request { file: String::new(), message });
        }
        let room = if is_waiting { count } else { (most - replaced).clamp(1, MAX_TOGETHER) };
        Ok(Self { is_waiting, room, complete: Vec::new(), new: Vec::new() })
    }

    /// How many files may be open at once, besides the waiting ones.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// Takes a file that is written to the end.
    ///
    /// # Errors
    /// As [`Complete::publish`].
    pub fn add(&mut self, path: &Path, complete: Complete) -> Result<(), Error> {
        if self.is_waiting || path.exists() {
            self.complete.push(complete);
            return Ok(());
        }
        complete.publish()?;
        self.new.push(path.to_owned());
        Ok(())
    }

    /// Names all files; if one cannot be named, the files that others have replaced come back.
    ///
    /// # Errors
    /// As [`Complete::publish_all`].
    pub fn publish(mut self) -> Result<(), Error> {
        Complete::publish_all(std::mem::take(&mut self.complete))?;
        self.new.clear();
        Ok(())
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        self.new.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

/// The folders that were made for an output. Dropping the list unkept removes the empty ones.
#[derive(Debug, Default)]
pub struct Folders(Vec<PathBuf>);

impl Folders {
    /// Makes the missing folders of these files.
    ///
    /// # Errors
    /// [`Error::Request`] for a folder that cannot be made.
    pub fn of<'p>(files: impl Iterator<Item = &'p Path>) -> Result<Self, Error> {
        let mut made = Self::default();
        for folder in files.filter_map(Path::parent) {
            let missing = folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
            let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
            for folder in missing.into_iter().rev() {
                fs::create_dir(&folder).map_err(|e| Error::Request {
                    file: folder.display().to_string(),
                    message: format!("cannot be made: {e}"),
                })?;
                made.0.push(folder);
            }
        }
        Ok(made)
    }

    /// Keeps the folders.
    pub fn keep(mut self) {
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
    use blob_io::IfExists;

    use super::*;

    #[test]
    fn no_new_file_has_its_name_before_all_are_complete() {
        let folder = std::env::temp_dir().join(format!("blob-together-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let paths = ["a", "b"].map(|name| folder.join(name));
        let mut together = Together::of(paths.iter().map(|path| &**path)).expect("few");
        for path in &paths {
            let output = Output::create(path, IfExists::Refuse).expect("a new file");
            together.add(path, output.complete().expect("complete")).expect("taken");
        }
        assert!(paths.iter().all(|path| !path.exists()));
        together.publish().expect("named");
        assert!(paths.iter().all(|path| path.exists()));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
