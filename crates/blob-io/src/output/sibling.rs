//! The temporary file beside its target: made, found again after a crash, renamed.
//!
//! The process that writes it holds a lock on it; an unlocked one was left by a crash.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Existing};
use crate::filenames::floor;
use crate::output::{IfExists, beside, exists, failed, parent, request, sync_folder};

/// How many temporary names are tried. They are random, so a second try is already rare.
const TRIES: usize = 16;

#[derive(Debug)]
pub(super) struct Sibling {
    file: File,
    temp: PathBuf,
    /// The target with every link resolved.
    target: PathBuf,
    if_exists: IfExists,
    /// Whether the file has its target's name: there is no temporary to remove.
    done: bool,
}

impl Sibling {
    pub(super) fn create(name: &str, path: &Path, if_exists: IfExists) -> Result<Self, Error> {
        let target = resolve(path).map_err(|e| failed(name, "follow the link", e))?;
        if target.file_name().is_none() {
            return Err(request(name, "is not a file name"));
        }
        temporary(name, &target, "file", |temp| {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&temp)?;
            let sibling = Self { file, temp, target: target.clone(), if_exists, done: false };
            Ok(sibling.lock().then_some(sibling))
        })
    }

    /// Takes the lock. False if another process was faster and takes the file for a stale one. On a file system without
    /// locks no other process can take it either.
    fn lock(&self) -> bool {
        !matches!(self.file.try_lock(), Err(TryLockError::WouldBlock)) && fs::symlink_metadata(&self.temp).is_ok()
    }

    /// Removes what earlier runs to the same target left behind; the temporary of this one is locked.
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

    pub(super) fn finish(mut self, name: &str) -> Result<(), Error> {
        let old = fs::metadata(&self.target).ok();
        if let Some(old) = &old {
            if self.if_exists == IfExists::Refuse {
                return Err(exists(name, Existing::File));
            }
            let mode = old.permissions();
            self.file.set_permissions(mode).map_err(|e| failed(name, "keep the permissions", e))?;
            self.file.sync_all().map_err(|e| failed(name, "sync", e))?;
        }
        if self.if_exists == IfExists::Replace {
            fs::rename(&self.temp, &self.target).map_err(|e| failed(name, "rename over the target", e))?;
        } else {
            self.link(name)?;
        }
        self.done = true;
        if old.is_some() {
            sync_folder(&parent(&self.target));
        }
        Ok(())
    }

    /// Gives the file its name without ever replacing another file: a link fails where a rename would not.
    pub(super) fn link(&self, name: &str) -> Result<(), Error> {
        match fs::hard_link(&self.temp, &self.target) {
            Ok(()) => {
                // The target is whole; a second name that stays behind is removed by the next run.
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

/// Follows links to the end, also to a file that does not exist yet.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    if let Ok(real) = fs::canonicalize(path) {
        return Ok(real);
    }
    let mut path = path.to_owned();
    // As many as Linux follows.
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(to) => path = parent(&path).join(to),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links"))
}

/// Makes a temporary beside `target` under a new name; `make` returns `None` if another process took it.
pub(super) fn temporary<T>(
    name: &str,
    target: &Path,
    what: &str,
    make: impl Fn(PathBuf) -> io::Result<Option<T>>,
) -> Result<T, Error> {
    for _ in 0..TRIES {
        match make(temp_path(target)) {
            Ok(Some(made)) => return Ok(made),
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(beside(name, target, &format!("make a temporary {what}"), e)),
        }
    }
    Err(request(name, &format!("no temporary {what} beside it could be kept: another process removes them")))
}

/// A new name for a temporary beside `target`.
pub(super) fn temp_path(target: &Path) -> PathBuf {
    let random = RandomState::new().hash_one(std::process::id());
    let mut name = prefix(target);
    name.push(format!("{random:016x}"));
    target.with_file_name(name)
}

/// What every temporary of a target begins with.
fn prefix(target: &Path) -> OsString {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    // At most 255 bytes with the rest. Two targets with long names may share their temporaries, which does no harm:
    // only an unlocked one is removed.
    let name = &name[..floor(&name, 200)];
    OsString::from(format!(".{name}.blob-tmp-"))
}

/// Calls `remove`, which looks closer, with every sibling of `target` that has a temporary's name.
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

/// Removes a temporary file that no process holds.
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
