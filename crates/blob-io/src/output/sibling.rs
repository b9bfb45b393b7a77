//! The temporary file beside its target: creates it, renames it, and removes those that a crash left.
//!
//! The process that writes it holds a lock on it, so an unlocked one was left by a crash.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Existing};
use crate::filenames::floor;
use crate::output::{IfExists, exists, failed, parent, request, sibling_failed, sync_folder};

/// How many temporary names are tried. They are random, so a second try is already rare.
const MAX_TRIES: usize = 16;

#[derive(Debug)]
pub(super) struct Sibling {
    file: File,
    temp: PathBuf,
    /// The target with every link resolved.
    target: PathBuf,
    if_exists: IfExists,
    /// Whether the file has its target's name, so that there is no temporary file to remove.
    done: bool,
}

impl Sibling {
    pub(super) fn create(name: &str, path: &Path, if_exists: IfExists) -> Result<Self, Error> {
        let target = resolve(path).map_err(|e| failed(name, "follow the link", e))?;
        if target.file_name().is_none() {
            return Err(request(name, "is not a file name"));
        }
        make_temporary(name, &target, "file", |temp| {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&temp)?;
            let sibling = Self { file, temp, target: target.clone(), if_exists, done: false };
            Ok(sibling.lock().then_some(sibling))
        })
    }

    /// Takes the lock. False if another process has locked the file first and treats it as stale. On a file system
    /// without locks no other process can lock it either.
    fn lock(&self) -> bool {
        !matches!(self.file.try_lock(), Err(TryLockError::WouldBlock)) && fs::symlink_metadata(&self.temp).is_ok()
    }

    /// Removes temporary files that earlier runs to the same target left; that of this run is locked.
    pub(super) fn remove_stale(&self) {
        remove_stale(&self.target, &|path| {
            if path != self.temp {
                remove_if_free(path);
            }
        });
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file the permissions of the one that it replaces, and syncs it.
    pub(super) fn complete(&self, name: &str) -> Result<(), Error> {
        let Ok(old) = fs::metadata(&self.target) else { return Ok(()) };
        if self.if_exists == IfExists::Refuse {
            return Err(exists(name, Existing::File));
        }
        self.file.set_permissions(old.permissions()).map_err(|e| failed(name, "keep the permissions", e))?;
        self.file.sync_all().map_err(|e| failed(name, "sync", e))
    }

    pub(super) fn publish(mut self, name: &str) -> Result<(), Error> {
        let replaces = fs::symlink_metadata(&self.target).is_ok();
        match self.if_exists {
            IfExists::Replace => {
                fs::rename(&self.temp, &self.target).map_err(|e| failed(name, "rename over the target", e))?;
            }
            IfExists::Refuse => self.link(name)?,
        }
        self.done = true;
        if replaces {
            sync_folder(&parent(&self.target));
        }
        Ok(())
    }

    /// Gives the file its name without ever replacing another file: a link fails where a rename would not.
    pub(super) fn link(&self, name: &str) -> Result<(), Error> {
        match fs::hard_link(&self.temp, &self.target) {
            Ok(()) => {
                // The target is complete. If the temporary name cannot be removed, the next run removes it.
                let _ = fs::remove_file(&self.temp);
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(exists(name, Existing::File)),
            // A file system without links: only a file that appears between this check and the rename would be
            // replaced.
            Err(_) if fs::symlink_metadata(&self.target).is_ok() => Err(exists(name, Existing::File)),
            Err(_) => fs::rename(&self.temp, &self.target).map_err(|e| failed(name, "rename to the target", e)),
        }
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_file(&self.temp);
        }
    }
}

/// Follows all links, also to a file that does not exist yet.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    if let Ok(real) = fs::canonicalize(path) {
        return Ok(real);
    }
    let mut path = path.to_owned();
    // Linux follows at most 40 links.
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(to) => path = parent(&path).join(to),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links"))
}

/// Makes a temporary file or folder beside `target` under a new name; `make` returns `None` if another process has
/// locked it.
pub(super) fn make_temporary<T>(
    name: &str,
    target: &Path,
    what: &str,
    make: impl Fn(PathBuf) -> io::Result<Option<T>>,
) -> Result<T, Error> {
    for _ in 0..MAX_TRIES {
        match make(temp_path(target)) {
            Ok(Some(made)) => return Ok(made),
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(sibling_failed(name, target, &format!("make a temporary {what}"), e)),
        }
    }
    Err(request(name, &format!("no temporary {what} beside it could be kept: another process removes them")))
}

/// A new temporary name beside `target`.
pub(super) fn temp_path(target: &Path) -> PathBuf {
    let random = RandomState::new().hash_one(std::process::id());
    let mut name = prefix(target);
    name.push(format!("{random:016x}"));
    target.with_file_name(name)
}

/// The prefix of all temporary names of a target.
fn prefix(target: &Path) -> OsString {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    // At most 255 bytes with the rest. Two targets with long names may have the same prefix, which does no harm,
    // because only unlocked files are removed.
    let name = &name[..floor(&name, 200)];
    OsString::from(format!(".{name}.blob-tmp-"))
}

/// Calls `remove` with every path beside `target` that has a temporary name; `remove` checks whether it is stale.
pub(super) fn remove_stale(target: &Path, remove: &dyn Fn(&Path)) {
    let prefix = prefix(target);
    let Ok(listing) = fs::read_dir(parent(target)) else {
        return;
    };
    for entry in listing.flatten() {
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes()) {
            remove(&entry.path());
        }
    }
}

/// Removes a temporary file that no process has locked.
fn remove_if_free(path: &Path) {
    if !fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()) {
        return;
    }
    if let Ok(file) = OpenOptions::new().write(true).open(path)
        && file.try_lock().is_ok()
    {
        let _ = fs::remove_file(path);
    }
}
