//! The file that will be the target: creates and names the file, and removes temporary files that a crash left.
//!
//! Where the system has files without a name, the file has none until it is complete, and a crash leaves nothing.
//! Elsewhere, and for the moment before a rename, it has a temporary name beside the target. The writing process holds
//! a lock on a file of such a name, so a crash left every unlocked one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Existing};
use crate::filenames::floor;
use crate::output::kept::Kept;
use crate::output::{IfExists, disk, exists, failed, nameless, parent, request, sibling_failed, sync_folder};
use crate::wire::source::{FileSource, Source};

/// The extension of a replaced file under a temporary name. Only the replacing process removes such a file.
pub(super) const OLD: &str = "old";

/// The part of every temporary name before its 16 random hexadecimal digits.
const MARK: &str = ".blob-tmp-";

/// How many bytes of two files are compared at once.
const BLOCK: usize = 1 << 16;

/// How many temporary names are tried. The names are random, so a second try is already rare.
const MAX_TRIES: usize = 16;

#[derive(Debug)]
pub(super) struct Sibling {
    file: File,
    /// The temporary name, if the file has one.
    temp: Option<PathBuf>,
    /// The target with every link resolved.
    target: PathBuf,
    /// The file whose protection a new file gets that replaces none.
    like: Option<PathBuf>,
    if_exists: IfExists,
    /// The temporary files of the same target that other processes held at the start.
    in_use: Vec<PathBuf>,
    /// Whether the file has the target's name, so that there is no temporary file to remove.
    done: bool,
}

impl Sibling {
    /// Begins the file. A file that replaces none is protected as `like` is, if that exists.
    pub(super) fn create(name: &str, path: &Path, if_exists: IfExists, like: Option<&Path>) -> Result<Self, Error> {
        let target = resolve(name, path)?;
        let own = Kept::of(&target);
        Self::begin(name, target, own, if_exists, like)
    }

    /// As [`Sibling::create`], for a path where [nothing is](is_free), so that nobody has to look again.
    pub(super) fn create_first(
        name: &str,
        path: &Path,
        if_exists: IfExists,
        like: Option<&Path>,
    ) -> Result<Self, Error> {
        Self::begin(name, path.to_owned(), Kept::default(), if_exists, like)
    }

    fn begin(name: &str, target: PathBuf, own: Kept, if_exists: IfExists, like: Option<&Path>) -> Result<Self, Error> {
        if target.file_name().is_none() {
            return Err(request(name, "is not a file name"));
        }
        let kept = kept(own, like);
        let (file, temp) = match kept.create_nameless(&parent(&target)) {
            Ok(file) => (file, None),
            Err(_) => make_temporary(name, &target, "file", |temp| {
                let file = kept.create_file(&temp)?;
                Ok(is_locked(&file, &temp).then_some((file, Some(temp))))
            })?,
        };
        let like = like.map(Path::to_owned);
        Ok(Self { file, temp, target, like, if_exists, in_use: Vec::new(), done: false })
    }

    /// Removes temporary files that earlier runs to the same target left; that of this run is locked.
    pub(super) fn remove_stale(&mut self) {
        let Self { temp, target, in_use, .. } = self;
        remove_stale(target, &mut |path| {
            if temp.as_deref() != Some(path) && !remove_if_free(path) {
                in_use.push(path.to_owned());
            }
        });
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    pub(super) fn if_exists(&self) -> IfExists {
        self.if_exists
    }

    /// Gives the file the protection of the replaced one, and syncs the file then.
    pub(super) fn complete(&mut self, name: &str) -> Result<(), Error> {
        let own = Kept::of(&self.target);
        let replaces = own.replaces();
        let kept = kept(own, self.like.as_deref());
        kept.protect(&self.file).map_err(|e| failed(name, "keep the permissions", e))?;
        if !replaces {
            return Ok(());
        }
        match self.if_exists {
            IfExists::Refuse => Err(exists(name, Existing::File)),
            IfExists::Same => self.check_same(name),
            IfExists::Replace => self.sync(name),
        }
    }

    /// Refuses a target that has other bytes than the file.
    fn check_same(&self, name: &str) -> Result<(), Error> {
        let is_same = is_same(&self.file, &self.target).map_err(|e| failed(name, "compare with the new file", e))?;
        if is_same { Ok(()) } else { Err(exists(name, Existing::Different)) }
    }

    /// Syncs the file, under a temporary name where the file system might pass over a file without one.
    pub(super) fn sync(&mut self, name: &str) -> Result<(), Error> {
        if self.temp.is_none() && !nameless::is_synced(&self.file) {
            self.temporary(name)?;
        }
        disk::sync(&self.file).map_err(|e| failed(name, "sync", e))
    }

    /// The temporary name, which the file gets here if it has none: locked before another process can see it.
    pub(super) fn temporary(&mut self, name: &str) -> Result<&Path, Error> {
        let temp = match self.temp.take() {
            Some(temp) => temp,
            None => {
                let _ = self.file.try_lock();
                let (temp, copy) = make_temporary(name, &self.target, "file", |temp| self.named(temp))?;
                if let Some(copy) = copy {
                    self.file = copy;
                }
                temp
            }
        };
        Ok(self.temp.insert(temp))
    }

    /// Gives the file this temporary name. If the system does not name open files after all, a copy gets the name, and
    /// is returned; `None` if another process has locked the copy.
    fn named(&self, temp: PathBuf) -> io::Result<Option<(PathBuf, Option<File>)>> {
        match nameless::link(&self.file, &temp) {
            Ok(()) => return Ok(Some((temp, None))),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Err(e),
            Err(_) => {}
        }
        let kept = kept(Kept::of(&self.target), self.like.as_deref());
        let copy = kept.create_file(&temp)?;
        if !is_locked(&copy, &temp) {
            return Ok(None);
        }
        let copied = disk::copy(&self.file, &copy).and_then(|()| kept.protect(&copy));
        let done = copied.and_then(|()| if kept.replaces() { disk::sync(&copy) } else { Ok(()) });
        if done.is_err() {
            let _ = disk::remove_file(&temp);
        }
        done.map(|()| Some((temp, Some(copy))))
    }

    pub(super) fn publish(mut self, name: &str) -> Result<(), Error> {
        match self.if_exists {
            IfExists::Replace => self.replace(name)?,
            IfExists::Same => match self.link(name) {
                // The file was there, or another process has just named its own.
                Err(Error::Exists { .. }) => return self.check_same(name),
                linked => linked?,
            },
            IfExists::Refuse => self.link(name)?,
        }
        self.done = true;
        // A killed process may have held its file still when this one began: whoever restarts its work is that quick.
        for path in &self.in_use {
            remove_if_free(path);
        }
        Ok(())
    }

    /// Names the file, in place of one that is there.
    fn replace(&mut self, name: &str) -> Result<(), Error> {
        let replaces = fs::symlink_metadata(&self.target).is_ok();
        if self.temp.is_none() && !replaces && self.link_to(&self.target).is_ok() {
            return Ok(());
        }
        self.rename(name, "rename over the target")?;
        if replaces {
            sync_folder(&parent(&self.target));
        }
        Ok(())
    }

    fn rename(&mut self, name: &str, action: &str) -> Result<(), Error> {
        let target = self.target.clone();
        disk::rename(self.temporary(name)?, &target).map_err(|e| failed(name, action, e))
    }

    /// Gives the file one more name, which no file has yet.
    pub(super) fn link_to(&self, path: &Path) -> io::Result<()> {
        self.temp.as_ref().map_or_else(|| nameless::link(&self.file, path), |temp| disk::hard_link(temp, path))
    }

    /// Names the file without ever replacing another file: a link fails where a rename would not.
    pub(super) fn link(&mut self, name: &str) -> Result<(), Error> {
        let mut linked = self.link_to(&self.target);
        if self.temp.is_none() && linked.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::AlreadyExists) {
            // A system that does not name open files after all has links of files with a name.
            self.temporary(name)?;
            linked = self.link_to(&self.target);
        }
        match linked {
            Ok(()) => {
                // The target is complete. If the temporary name cannot be removed, the next run removes that name.
                let _ = self.temp.as_ref().map(|temp| disk::remove_file(temp));
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(exists(name, Existing::File)),
            // A file system without links: only a file that appears between this check and the rename would be
            // replaced.
            Err(_) if fs::symlink_metadata(&self.target).is_ok() => Err(exists(name, Existing::File)),
            Err(_) => self.rename(name, "rename to the target"),
        }
    }
}

impl Drop for Sibling {
    fn drop(&mut self) {
        if let (Some(temp), false) = (&self.temp, self.done) {
            let _ = disk::remove_file(temp);
        }
    }
}

/// Takes the lock of a new file. False if another process took the file for stale and locked first. On a file system
/// without locks no other process can lock the file either.
fn is_locked(file: &File, temp: &Path) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && fs::symlink_metadata(temp).is_ok()
}

fn kept(kept: Kept, like: Option<&Path>) -> Kept {
    like.filter(|_| !kept.replaces()).map_or(kept, Kept::of)
}

/// Whether nothing is at a path, not even a link.
pub(super) fn is_free(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

/// Follows all links. Through a link to nothing, a file would be made in a place that nobody has named.
pub(super) fn resolve(name: &str, path: &Path) -> Result<PathBuf, Error> {
    let link = fs::read_link(path);
    // Nothing is there, as for nearly every new file.
    if link.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(path.to_owned());
    }
    match (fs::canonicalize(path), link) {
        (Ok(real), _) => Ok(real),
        (Err(_), Ok(to)) => {
            Err(request(name, &format!("is a link to {}, where nothing is; name that path itself", to.display())))
        }
        (Err(_), Err(_)) => Ok(path.to_owned()),
    }
}

/// Makes a temporary file or folder beside `target` under a new name; `make` returns `None` if another process has
/// locked the new file or folder.
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

/// A new temporary name beside `target` for the old file or folder.
pub(super) fn old_name(target: &Path) -> PathBuf {
    let mut name = temp_path(target).into_os_string();
    name.push(format!(".{OLD}"));
    PathBuf::from(name)
}

/// Whether two files have the same bytes.
pub(super) fn is_same(file: &File, target: &Path) -> io::Result<bool> {
    let other = File::open(target)?;
    let len = file.metadata()?.len();
    if other.metadata()?.len() != len {
        return Ok(false);
    }
    let (one, other) = (FileSource::try_from(file.try_clone()?)?, FileSource::try_from(other)?);
    let (mut ours, mut theirs) = (vec![0; BLOCK], vec![0; BLOCK]);
    for at in (0..len).step_by(BLOCK) {
        let part = (len - at).min(BLOCK as u64) as usize;
        one.read_at(at, &mut ours[..part])?;
        other.read_at(at, &mut theirs[..part])?;
        if ours[..part] != theirs[..part] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The prefix of all temporary names of a target.
fn prefix(target: &Path) -> OsString {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    // At most 255 bytes with the rest. Two targets with long names may have the same prefix, which does no harm,
    // because only unlocked files are removed.
    let name = &name[..floor(&name, 200)];
    OsString::from(format!(".{name}{MARK}"))
}

/// Whether a name is a temporary one of a target.
pub(super) fn is_temporary_of(target: &Path, name: &str) -> bool {
    name.as_bytes().starts_with(prefix(target).as_encoded_bytes())
}

/// Calls `remove` with every path beside `target` that has a temporary name; `remove` checks whether the path is stale.
pub(super) fn remove_stale(target: &Path, remove: &mut dyn FnMut(&Path)) {
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

/// Removes every temporary file of a folder that no process has locked.
pub(super) fn sweep(folder: &Path) {
    let Ok(listing) = fs::read_dir(folder) else {
        return;
    };
    for entry in listing.flatten() {
        let name = entry.file_name();
        let random = name.to_str().filter(|name| name.starts_with('.')).and_then(|name| name.rsplit_once(MARK));
        if random.is_some_and(|(_, random)| random.len() == 16 && random.bytes().all(|b| b.is_ascii_hexdigit())) {
            remove_if_free(&entry.path());
        }
    }
}

/// Removes a temporary file that no process has locked. False for a file that one has.
fn remove_if_free(path: &Path) -> bool {
    let is_old = path.extension().is_some_and(|end| end == OLD);
    if is_old || !fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()) {
        return true;
    }
    let Ok(file) = OpenOptions::new().write(true).open(path) else {
        return true;
    };
    let is_free = file.try_lock().is_ok();
    if is_free {
        let _ = disk::remove_file(path);
    }
    is_free
}
