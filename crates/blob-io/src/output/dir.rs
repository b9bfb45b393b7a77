//! A folder in the making: a temporary sibling that takes its target's name once all its files are written.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::error::Error;
use crate::output::sibling::{remove_stale, resolve, temp_path};
use crate::output::{Output, exists, failed, parent, request, sync_folder};

/// The file whose lock says that a temporary folder has an owner.
const LOCK: &str = ".blob-lock";
/// The file that shows that a folder is one of ours and may be replaced.
const RECEIPT: &str = "blob.receipt.json";

/// A folder that is being written.
///
/// As for [`Output`], the files go to a temporary sibling, `.NAME.blob-tmp-…`, which [`OutputDir::finish`] renames;
/// dropping it unfinished removes it.
#[derive(Debug)]
pub struct OutputDir {
    name: String,
    temp: PathBuf,
    target: PathBuf,
    overwrite: bool,
    lock: Option<File>,
    done: bool,
}

impl OutputDir {
    /// Begins the folder `path`. One that exists must be empty, or `overwrite` be set and a `blob.receipt.json` in it
    /// show that it was written like this one: no other folder is ever replaced.
    ///
    /// # Errors
    /// [`Error::Request`] where the folder cannot be replaced or the name is taken by a file; [`Error::Io`].
    pub fn create(path: impl AsRef<Path>, overwrite: bool) -> Result<Self, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let target = resolve(path).map_err(|e| failed(&name, "follow the link", e))?;
        if target.file_name().is_none() {
            return Err(request(&name, "is no folder's name"));
        }
        check(&name, &target, overwrite)?;
        remove_stale(&target, &|path| remove_if_free(path, &target));
        let temp = temp_path(&target);
        fs::create_dir(&temp).map_err(|e| failed(&name, "make a temporary folder beside it", e))?;
        let mut dir = Self {
            name,
            temp,
            target,
            overwrite,
            lock: None,
            done: false,
        };
        let lock = File::create_new(dir.temp.join(LOCK));
        let lock = lock.map_err(|e| failed(&dir.name, "lock the temporary folder", e))?;
        let _ = lock.try_lock();
        dir.lock = Some(lock);
        Ok(dir)
    }

    /// Begins a file in the folder; `path` is relative and stays within it, as [`file_names`](crate::file_names) makes
    /// them. Folders on the way are made.
    ///
    /// # Errors
    /// [`Error::Request`] for a path that leaves the folder; [`Error::Io`], also where the file is already there.
    pub fn file(&self, path: impl AsRef<Path>) -> Result<Output, Error> {
        let path = path.as_ref();
        let name = Path::new(&self.name).join(path).display().to_string();
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if path.as_os_str().is_empty() || !path.components().all(plain) {
            return Err(request(&name, "does not stay in the folder"));
        }
        let temp = self.temp.join(path);
        fs::create_dir_all(parent(&temp)).map_err(|e| failed(&name, "make the folder", e))?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&temp);
        let file = file.map_err(|e| failed(&name, "create", e))?;
        Ok(Output::inside(name, file, self.overwrite))
    }

    /// Makes the folder take its name. The files are finished one by one before.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Request`] where the target has meanwhile become a folder that cannot be replaced. The
    /// target is then as it was.
    pub fn finish(mut self) -> Result<(), Error> {
        check(&self.name, &self.target, self.overwrite)?;
        let act = |action: &str, result: io::Result<()>| {
            result.map_err(|e| failed(&self.name, action, e))
        };
        act("unlock", fs::remove_file(self.temp.join(LOCK)))?;
        // An empty folder makes room; one with files stays, and is moved away.
        let _ = fs::remove_dir(&self.target);
        if fs::symlink_metadata(&self.target).is_err() {
            act("rename to the target", fs::rename(&self.temp, &self.target))?;
            self.done = true;
            return Ok(());
        }
        let mut old = temp_path(&self.target).into_os_string();
        old.push(".old");
        act("move the old folder away", fs::rename(&self.target, &old))?;
        if let Err(e) = fs::rename(&self.temp, &self.target) {
            let _ = fs::rename(&old, &self.target);
            return Err(failed(&self.name, "rename to the target", e));
        }
        self.done = true;
        sync_folder(&parent(&self.target));
        // The new folder stands; what is left of the old one is removed by the next run.
        let _ = fs::remove_dir_all(&old);
        Ok(())
    }
}

impl Drop for OutputDir {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_dir_all(&self.temp);
        }
    }
}

/// Whether the target is free, or may be replaced.
fn check(name: &str, target: &Path, overwrite: bool) -> Result<(), Error> {
    let mut listing = match fs::read_dir(target) {
        Ok(listing) => listing,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            return Err(request(name, "is a file, not a folder"));
        }
        Err(e) => return Err(failed(name, "list", e)),
    };
    if listing.next().is_none() {
        return Ok(());
    }
    if !overwrite {
        return Err(exists(name));
    }
    if !target.join(RECEIPT).is_file() {
        return Err(request(
            name,
            "holds other files; only an empty folder or one with a blob.receipt.json is replaced",
        ));
    }
    Ok(())
}

/// Removes a temporary folder that nobody holds. An old folder that was moved away goes only if a new one has come.
fn remove_if_free(path: &Path, target: &Path) {
    if !fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        return;
    }
    if path.extension().is_some_and(|e| e == "old") {
        if target.is_dir() {
            let _ = fs::remove_dir_all(path);
        }
        return;
    }
    match OpenOptions::new().write(true).open(path.join(LOCK)) {
        Ok(lock) => {
            if lock.try_lock().is_ok() {
                let _ = fs::remove_dir_all(path);
            }
        }
        // Without a lock it is about to be renamed, or just made: only an empty one goes.
        Err(_) => {
            let _ = fs::remove_dir(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &OutputDir, path: &str, bytes: &[u8]) {
        let mut file = dir.file(path).unwrap();
        file.write_all(bytes).unwrap();
        file.finish().unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        let listing = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = listing
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_has_its_name_only_when_it_is_whole() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let dir = OutputDir::create(&target, false).unwrap();
        write(&dir, "conv1/0.npy", b"1");
        write(&dir, "conv1/1.npy", b"2");
        assert!(dir.file("conv1/1.npy").is_err());
        for path in ["../x", "/x", "a/../../x", "", "."] {
            assert!(
                matches!(dir.file(path), Err(Error::Request { .. })),
                "{path}"
            );
        }
        let there = names(home.path());
        assert!(
            there.len() == 1 && there[0].starts_with(".out.blob-tmp-"),
            "{there:?}"
        );
        dir.finish().unwrap();
        assert_eq!(names(home.path()), ["out"]);
        assert_eq!(names(&target), ["conv1"]);
        assert_eq!(names(&target.join("conv1")), ["0.npy", "1.npy"]);
    }

    #[test]
    fn an_unfinished_folder_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let dir = OutputDir::create(home.path().join("out"), false).unwrap();
        write(&dir, "a.npy", b"1");
        drop(dir);
        assert!(names(home.path()).is_empty());
    }

    #[test]
    fn only_an_empty_folder_or_one_of_ours_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out/");
        fs::create_dir(&target).unwrap();
        let dir = OutputDir::create(&target, false).unwrap();
        write(&dir, "old.npy", b"1");
        dir.finish().unwrap();
        for (overwrite, why) in [(false, "exists"), (true, "holds other files")] {
            let refused = OutputDir::create(&target, overwrite)
                .unwrap_err()
                .to_string();
            assert!(refused.contains(why), "{refused}");
        }
        fs::write(target.join(RECEIPT), "{}").unwrap();
        let dir = OutputDir::create(&target, true).unwrap();
        write(&dir, "new.npy", b"2");
        assert_eq!(names(&target), [RECEIPT, "old.npy"]);
        dir.finish().unwrap();
        assert_eq!(names(&target), ["new.npy"]);
        assert_eq!(names(home.path()), ["out"]);
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = OutputDir::create(&file, true).unwrap_err().to_string();
        assert!(refused.contains("is a file"), "{refused}");
    }

    #[test]
    fn what_a_crash_left_is_removed_and_what_is_in_use_is_not() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let left = home.path().join(".out.blob-tmp-0123456789abcdef");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        fs::write(left.join("a.npy"), "left").unwrap();
        // The only copy of what a crash kept from being replaced.
        let old = home.path().join(".out.blob-tmp-fedcba9876543210.old");
        fs::create_dir(&old).unwrap();
        let first = OutputDir::create(&target, false).unwrap();
        assert!(!left.exists() && old.exists());
        let second = OutputDir::create(&target, false).unwrap();
        write(&first, "a.npy", b"1");
        first.finish().unwrap();
        drop(second);
        fs::write(target.join(RECEIPT), "{}").unwrap();
        OutputDir::create(&target, true).unwrap();
        assert!(!old.exists());
        assert_eq!(names(home.path()), ["out"]);
    }
}
