//! Names files and an index of the files together: at every moment the index names files of one output, also if the
//! process is killed.
//!
//! The old files stay under other names, and the old index lists these names, until all new files are named. Relies on
//! hard links; on a file system without links the old index goes first. Processes take turns by a lock on the folder.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Existing};
use crate::output::disk::optional;
use crate::output::pair::Parts;
use crate::output::sibling::{OLD, Sibling, old_name, remove_stale, temp_path};
use crate::output::{Backing, Complete, IfExists, disk, exists, failed, lock_folder, parent, request, sync_folder};

/// The largest index that is kept readable while the files are replaced; a larger one is removed first.
const MAX_INDEX: u64 = 64 << 20;

/// How often the folder's lock is tried, a minute in all. A process holds the lock for some renames.
const MAX_LOCKS: usize = 12_000;
const PAUSE: Duration = Duration::from_millis(5);

impl Complete {
    /// Names `files` and then this index of the files. Files that exist, and the old index, are replaced as this index
    /// may replace files; all in one folder.
    ///
    /// At every moment an index in the folder names files of one output, the old or the new one. While the new files
    /// are named, the folder has the old index with other names for the old files. `renamed` writes that index: the
    /// function gets each name with the other one, and returns `None` if the index names none of the files.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Exists`] for a file that is not to be replaced; [`Error::Request`] for a pipe or a
    /// device. The old output can then still be read by the old index.
    pub fn publish_with(
        self,
        files: Vec<Self>,
        renamed: &impl Fn(&[u8], &BTreeMap<String, String>) -> Option<Vec<u8>>,
    ) -> Result<(), Error> {
        let index = SetFile::new(self)?;
        let files: Vec<SetFile> = files.into_iter().map(SetFile::new).collect::<Result<_, Error>>()?;
        let _lock = wait_for(&index)?;
        match index.sibling.if_exists() {
            IfExists::Refuse | IfExists::Same => add(files, index),
            IfExists::Replace => replace(files, index, renamed),
        }
    }
}

impl Complete {
    /// Names all files, in any folders. If one cannot be named, the others get back what they replaced, and new files
    /// are removed. Each file is whole at every moment, the old or the new one. A pipe or a device gets no name.
    ///
    /// On a file system without links, files that were named before the one that cannot be named stay.
    ///
    /// # Errors
    /// As [`Complete::publish`], for the first file that cannot be named.
    pub fn publish_all(files: Vec<Self>) -> Result<(), Error> {
        let files = files.into_iter().flat_map(|file| match file.backing {
            Backing::Pair(pair) => {
                let Parts { first, second, .. } = pair.into_parts(file.name);
                vec![second, first]
            }
            backing => vec![Self { name: file.name, backing }],
        });
        let files = files.filter(|file| matches!(file.backing, Backing::Sibling(_)));
        let members: Vec<SetFile> = files.map(SetFile::new).collect::<Result<_, Error>>()?;
        // In order, so that two processes never wait for each other; one folder may have several spellings.
        let in_folder = members.iter().map(|member| {
            let folder = parent(member.target());
            (fs::canonicalize(&folder).unwrap_or(folder), member)
        });
        let in_folder: BTreeMap<PathBuf, &SetFile> = in_folder.collect();
        let _locks = in_folder.into_values().map(wait_for).collect::<Result<Vec<_>, Error>>()?;
        members.iter().for_each(|member| remove_stale(member.target(), &mut |path| remove_old(path)));
        let aside: Vec<Aside> = members.iter().map(|member| Aside::of(member.target())).collect();
        let mut named = 0;
        let done = members.into_iter().try_for_each(|member| {
            member.publish()?;
            named += 1;
            Ok(())
        });
        if done.is_err() {
            aside[..named].iter().for_each(Aside::put_back);
        }
        aside.iter().for_each(Aside::forget);
        done
    }
}

/// The file that a new one replaces.
struct Aside {
    target: PathBuf,
    was: Was,
}

/// What a target was.
enum Was {
    Nothing,
    /// A file, which has this second name.
    Linked(PathBuf),
    /// A file that cannot have a second name.
    Unlinked,
}

impl Aside {
    fn of(target: &Path) -> Self {
        let other = old_name(target);
        let was = match disk::hard_link(target, &other) {
            Ok(()) => Was::Linked(other),
            Err(_) if fs::symlink_metadata(target).is_ok() => Was::Unlinked,
            Err(_) => Was::Nothing,
        };
        Self { target: target.to_owned(), was }
    }

    /// Gives the target back to the old file. A failure leaves the new file, which is whole.
    fn put_back(&self) {
        let _ = match &self.was {
            Was::Nothing => disk::remove_file(&self.target),
            Was::Linked(other) => disk::rename(other, &self.target),
            Was::Unlinked => Ok(()),
        };
    }

    /// Removes the second name, unless the file has its own name again.
    fn forget(&self) {
        if let Was::Linked(other) = &self.was {
            let _ = disk::remove_file(other);
        }
    }
}

/// A complete file of the set.
pub(super) struct SetFile {
    pub(super) name: String,
    pub(super) sibling: Sibling,
}

impl SetFile {
    pub(super) fn new(complete: Complete) -> Result<Self, Error> {
        let Complete { name, backing } = complete;
        match backing {
            Backing::Sibling(sibling) => Ok(Self { name, sibling }),
            _ => Err(request(&name, "is a pipe or a device, and no place for one of several files")),
        }
    }

    pub(super) fn target(&self) -> &Path {
        self.sibling.target()
    }

    pub(super) fn is_there(&self) -> bool {
        fs::symlink_metadata(self.target()).is_ok()
    }

    pub(super) fn publish(self) -> Result<(), Error> {
        self.sibling.publish(&self.name)
    }
}

/// Waits for the folder's lock; `None` where a folder cannot be locked.
pub(super) fn wait_for(index: &SetFile) -> Result<Option<File>, Error> {
    let folder = parent(index.target());
    for _ in 0..MAX_LOCKS {
        match lock_folder(&folder) {
            Ok(lock) => return Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
    Err(request(&index.name, "could not take its name: other processes hold the folder"))
}

/// Names the files if none exists, or if those that exist may stay.
pub(super) fn add(files: Vec<SetFile>, index: SetFile) -> Result<(), Error> {
    for file in files.iter().chain([&index]) {
        if file.sibling.if_exists() == IfExists::Refuse && file.is_there() {
            return Err(exists(&file.name, Existing::File));
        }
    }
    let mut named = Vec::new();
    for member in files.into_iter().chain([index]) {
        let (target, is_new) = (member.target().to_owned(), !member.is_there());
        if let Err(e) = member.publish() {
            named.iter().for_each(|path: &PathBuf| drop(disk::remove_file(path)));
            return Err(e);
        }
        named.extend(is_new.then_some(target));
    }
    Ok(())
}

/// Names the files in place of those that exist.
fn replace(
    mut files: Vec<SetFile>,
    mut index: SetFile,
    renamed: &impl Fn(&[u8], &BTreeMap<String, String>) -> Option<Vec<u8>>,
) -> Result<(), Error> {
    // What the index names must be on the disk before the index is.
    if index.is_there() || files.iter().any(SetFile::is_there) {
        files.iter_mut().chain([&mut index]).try_for_each(|member| member.sibling.sync(&member.name))?;
    }
    let (folder, target) = (parent(index.target()), index.target().to_owned());
    let added: Vec<PathBuf> = files.iter().filter(|file| !file.is_there()).map(|file| file.target().into()).collect();
    let old = Old::set_aside(&files, &index, renamed)?;
    let done = files.into_iter().try_for_each(SetFile::publish).and_then(|()| {
        sync_folder(&folder);
        index.publish()
    });
    if done.is_ok() {
        remove_stale(&target, &mut |path| remove_old(path));
    } else {
        // First the files where the old output had none, because the old index may name such files. If any of this
        // fails too, the old index goes on naming the old files by the second names.
        let removed = added.iter().map(|file| optional(disk::remove_file(file))).fold(Ok(()), Result::and);
        let _ = removed.and_then(|()| old.map_or(Ok(()), Old::put_back));
    }
    done
}

/// Removes an old file that no index names any more. Called under the folder's lock.
pub(super) fn remove_old(path: &Path) {
    if path.extension().is_some_and(|end| end == OLD) {
        let _ = disk::remove_file(path);
    }
}

/// The old files under other names, beside the new ones, and the old index.
pub(super) struct Old {
    /// Each file that is replaced, and the other name.
    pub(super) files: Vec<(PathBuf, PathBuf)>,
    pub(super) index: (PathBuf, PathBuf),
}

impl Old {
    /// Gives the old files second names, and writes these into the old index. `None` if no old index names a file to be
    /// replaced, or if the index is removed because links cannot be made.
    fn set_aside(
        files: &[SetFile],
        index: &SetFile,
        renamed: &impl Fn(&[u8], &BTreeMap<String, String>) -> Option<Vec<u8>>,
    ) -> Result<Option<Self>, Error> {
        let Some(text) = read(index.target()).map_err(|e| failed(&index.name, "read the old index", e))? else {
            return Ok(None);
        };
        let beside = |target: &Path| (target.to_owned(), old_name(index.target()));
        let old =
            Self { files: files.iter().map(|file| beside(file.target())).collect(), index: beside(index.target()) };
        let Some(text) = text else { return old.without_links(index) };
        let Some(text) = renamed(&text, &old.names()) else { return Ok(None) };
        // An old output may lack a file of the index.
        if old.pairs().try_for_each(|(file, other)| optional(disk::hard_link(file, other))).is_err() {
            return old.without_links(index);
        }
        let written = Sibling::create(&index.name, index.target(), IfExists::Replace, None).and_then(|mut sibling| {
            disk::write_all_at(sibling.file(), 0, &text).map_err(|e| failed(&index.name, "write", e))?;
            sibling.complete(&index.name)?;
            sync_folder(&parent(index.target()));
            sibling.publish(&index.name)
        });
        match written {
            Ok(()) => Ok(Some(old)),
            Err(e) => {
                old.forget();
                Err(e)
            }
        }
    }

    /// The names of the files, each with the other name, as in an index.
    fn names(&self) -> BTreeMap<String, String> {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.files.iter().map(|(file, other)| (name(file), name(other))).collect()
    }

    /// Without second names the old index would name a mix.
    fn without_links(self, index: &SetFile) -> Result<Option<Self>, Error> {
        self.forget();
        disk::remove_file(index.target()).map_err(|e| failed(&index.name, "remove the old index", e))?;
        Ok(None)
    }

    /// Gives the old names back to the old files, and then to the old index, which lists these names.
    pub(super) fn put_back(self) -> io::Result<()> {
        for (file, other) in self.pairs() {
            // The second name stays until the end, because the index has this name.
            let third = temp_path(&self.index.0);
            optional(disk::hard_link(other, &third))?;
            let renamed = optional(disk::rename(&third, file));
            // A rename to another name of the same file does nothing.
            let _ = disk::remove_file(&third);
            renamed?;
        }
        self.forget();
        Ok(())
    }

    fn forget(&self) {
        self.pairs().for_each(|(_, other)| drop(disk::remove_file(other)));
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = &(PathBuf, PathBuf)> {
        self.files.iter().chain([&self.index])
    }
}

/// The old index: `None` where there is none, `Some(None)` for one that is too large.
fn read(index: &Path) -> io::Result<Option<Option<Vec<u8>>>> {
    let file = match File::open(index) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut text = Vec::new();
    file.take(MAX_INDEX + 1).read_to_end(&mut text)?;
    Ok(Some((text.len() as u64 <= MAX_INDEX).then_some(text)))
}
