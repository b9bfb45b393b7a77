//! A folder that is being written: a temporary folder beside the target, renamed when all files are written.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Existing};
use crate::output::kept::Kept;
use crate::output::sibling::{OLD, is_same, make_temporary, old_name, remove_stale, resolve};
use crate::output::survey::{Foreign, Snapshot, Survey, survey};
use crate::output::{IfExists, Output, disk, exists, failed, lock_folder, parent, request, sync_folder};

/// How often [`OutputDir::finish`] tries to take a name that other processes try to take too, and the pause between
/// tries. Each time, one of the processes succeeds.
const MAX_SWAPS: usize = 200;
const PAUSE: Duration = Duration::from_millis(1);

/// The extension of an old folder whose removal has begun.
const GONE: &str = "gone";

/// A folder that is being written.
///
/// As for [`Output`], the files go to a temporary sibling, `.NAME.blob-tmp-…`, which [`OutputDir::finish`] renames;
/// dropping an unfinished `OutputDir` removes the sibling. After a crash the next one to the same target removes the
/// sibling, on systems where a folder can be locked, and puts an old folder back that the crash left without a name.
#[derive(Debug)]
pub struct OutputDir {
    name: String,
    temp: PathBuf,
    target: PathBuf,
    if_exists: IfExists,
    /// The folder at the target when this one was created.
    there: Option<Snapshot>,
    /// The lock on the temporary folder; `None` on a file system without locks.
    lock: Option<File>,
    done: bool,
}

impl OutputDir {
    /// Begins the folder `path`. A folder that exists must be empty; or, with [`IfExists::Replace`] and
    /// [`IfExists::Same`], the `blob.receipt.json` that a conversion wrote there must list every file with the file's
    /// length. No other file is ever replaced or removed, nor the current folder.
    ///
    /// # Errors
    /// [`Error::Request`] if the folder cannot be replaced, or the target is a file; [`Error::Io`].
    pub fn create(path: impl AsRef<Path>, if_exists: IfExists) -> Result<Self, Error> {
        let (name, target) = target_of(path.as_ref())?;
        put_back(&target);
        let begun = Self::begin(name, target, if_exists)?;
        let target = &begun.target;
        remove_stale(target, &mut |path| remove_if_free(path, target, &begun.temp));
        Ok(begun)
    }

    /// As [`OutputDir::create`], but without removing temporary folders that a crash left: a dry run, which leaves
    /// nothing behind when dropped.
    ///
    /// # Errors
    /// As [`OutputDir::create`].
    pub fn check(path: impl AsRef<Path>, if_exists: IfExists) -> Result<Self, Error> {
        let (name, target) = target_of(path.as_ref())?;
        Self::begin(name, target, if_exists)
    }

    fn begin(name: String, target: PathBuf, if_exists: IfExists) -> Result<Self, Error> {
        let there = check(&name, &target, if_exists)?.filter(|_| if_exists == IfExists::Replace);
        let (temp, lock) = make_temporary(&name, &target, "folder", |temp| {
            Kept::of(&target).create_folder(&temp)?;
            Ok(lock_temporary(&temp).map(|lock| (temp, lock)))
        })?;
        Ok(Self { name, temp, target, if_exists, there, lock, done: false })
    }

    /// Whether the target is a folder of an earlier conversion, which [`OutputDir::finish`] will replace.
    #[must_use]
    pub fn replaces(&self) -> bool {
        self.there.is_some()
    }

    /// Whether the folder that was there at the beginning is gone, because another conversion has replaced that folder
    /// or is about to.
    #[must_use]
    pub fn is_overtaken(&self) -> bool {
        self.there.as_ref().is_some_and(|there| !there.is_current(&self.target))
    }

    /// The temporary folder, where you can read the finished files before [`OutputDir::finish`].
    #[must_use]
    pub fn temporary(&self) -> &Path {
        &self.temp
    }

    /// Creates a file in the folder. `path` is relative and stays within the folder, like those of
    /// [`file_names`](crate::layout::file_names). Missing folders are created.
    ///
    /// # Errors
    /// [`Error::Request`] for a path that leaves the folder; [`Error::Io`], also if the file already exists.
    pub fn file(&self, path: impl AsRef<Path>) -> Result<Output, Error> {
        let path = path.as_ref();
        let name = Path::new(&self.name).join(path).display().to_string();
        if path.as_os_str().is_empty() || !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(request(&name, "does not stay in the folder"));
        }
        let temp = self.temp.join(path);
        fs::create_dir_all(parent(&temp)).map_err(|e| failed(&name, "make the folder", e))?;
        let kept = Kept::of(&self.target.join(path));
        let file = kept.create_file(&temp).map_err(|e| failed(&name, "create", e))?;
        Ok(Output::inside(name, file, kept, self.if_exists == IfExists::Replace))
    }

    /// Renames the folder to the target. Each file must be finished before.
    ///
    /// If several processes write the same folder at once, the first one wins; with [`IfExists::Replace`] the last.
    /// With [`IfExists::Same`] a folder with the same files stays.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Request`] if the target has meanwhile become a folder that cannot be replaced;
    /// [`Error::Exists`] for a folder with other files under [`IfExists::Same`]. The target is then unchanged.
    pub fn finish(mut self) -> Result<(), Error> {
        let kept = Kept::of(&self.target);
        kept.protect_folder(&self.temp).map_err(|e| failed(&self.name, "keep the permissions", e))?;
        for _ in 0..MAX_SWAPS {
            // A rename replaces only an empty folder.
            let Err(e) = disk::rename(&self.temp, &self.target) else {
                self.done = true;
                return Ok(());
            };
            let now = check(&self.name, &self.target, self.if_exists)?;
            if self.if_exists == IfExists::Same && now.is_some() {
                let is_same = holds_same(&self.temp, &self.target);
                let is_same = is_same.map_err(|e| failed(&self.name, "compare with the new folder", e))?;
                return if is_same { Ok(()) } else { Err(exists(&self.name, Existing::Different)) };
            }
            if let (Some(before), Some(now)) = (&self.there, &now)
                && let Some(file) = before.changed(now)
            {
                return Err(changed(&self.name, &file));
            }
            let there = fs::symlink_metadata(&self.target).is_ok();
            if !there && !is_taken(&e) {
                return Err(failed(&self.name, "rename to the target", e));
            }
            let old = old_name(&self.target);
            if there && self.if_exists == IfExists::Replace && self.swap(&old, now.as_ref())? {
                self.done = true;
                sync_folder(&parent(&self.target));
                // The new folder is in place. The next run removes any files left of the old one. A process that has
                // just written the old one may still hold its lock.
                retire(&old);
                remove_stale(&self.target, &mut |path| {
                    remove_if_free(path, &self.target, &self.temp);
                });
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        Err(request(&self.name, "could not take its name: other processes replace it all the time"))
    }

    /// Gives the folder the name of the target, whose state was `before`. False if another process has changed the
    /// target in the meantime.
    fn swap(&self, old: &Path, before: Option<&Snapshot>) -> Result<bool, Error> {
        Ok(self.exchange(old, before)? || self.swap_in_two(old, before)?)
    }

    /// Gives the folder and the target each other's names in one step, so that there is always a folder at the target.
    /// False where the system has no such step.
    fn exchange(&self, old: &Path, before: Option<&Snapshot>) -> Result<bool, Error> {
        // The folder first gets the name that the old one will have. While its lock is held, no process takes it for an
        // old folder to be removed; after a crash it is one, whether the names were exchanged or not.
        if self.lock.is_none() || disk::rename(&self.temp, old).is_err() {
            return Ok(false);
        }
        if disk::exchange(old, &self.target).is_err() {
            return match disk::rename(old, &self.temp) {
                Ok(()) => Ok(false),
                Err(e) => Err(failed(&self.name, "rename to the target", e)),
            };
        }
        // The folder that was there may not be the one that was checked.
        let error = match check(&self.name, old, IfExists::Replace) {
            Ok(now) => before.zip(now).and_then(|(before, now)| before.changed(&now)),
            Err(e) => return Err(self.exchange_back(old, e)),
        };
        match error {
            Some(file) => Err(self.exchange_back(old, changed(&self.name, &file))),
            None => Ok(true),
        }
    }

    /// Gives the old folder the target's name again; returns the error to report.
    fn exchange_back(&self, old: &Path, error: Error) -> Error {
        match disk::exchange(old, &self.target).and_then(|()| disk::rename(old, &self.temp)) {
            Ok(()) => error,
            Err(_) => self.left_at(old),
        }
    }

    /// Moves the target away and gives the folder that name: between the two there is no folder at the target.
    fn swap_in_two(&self, old: &Path, before: Option<&Snapshot>) -> Result<bool, Error> {
        match disk::rename(&self.target, old) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(failed(&self.name, "move the old folder away", e)),
        }
        // The folder that was moved may not be the one that was checked.
        let mut error = match check(&self.name, old, IfExists::Replace) {
            Ok(now) => before.zip(now).and_then(|(before, now)| before.changed(&now)),
            Err(e) => return Err(self.move_back(old, e)),
        }
        .map(|file| changed(&self.name, &file));
        let mut retry = false;
        if error.is_none()
            && let Err(e) = disk::rename(&self.temp, &self.target)
        {
            retry = is_taken(&e);
            error = Some(failed(&self.name, "rename to the target", e));
        }
        match error {
            // If the old folder cannot be moved back either, a later run removes that folder when a folder of ours is
            // at the target.
            Some(_) if retry => {
                let _ = disk::rename(old, &self.target);
                Ok(false)
            }
            Some(error) => Err(self.move_back(old, error)),
            None => Ok(true),
        }
    }

    /// Moves the old folder back to the target; returns the error to report.
    fn move_back(&self, old: &Path, error: Error) -> Error {
        match disk::rename(old, &self.target) {
            Ok(()) => error,
            Err(_) => self.left_at(old),
        }
    }

    fn left_at(&self, old: &Path) -> Error {
        request(&self.name, &format!("changed while it was replaced; what was there is now {}", old.display()))
    }
}

impl Drop for OutputDir {
    fn drop(&mut self) {
        if !self.done {
            let _ = disk::remove_dir_all(&self.temp);
        }
    }
}

/// Locks a new temporary folder. `Some(None)` on a file system without locks, where no other process can lock the
/// folder either; `None` if another process took the folder for stale and locked first.
fn lock_temporary(temp: &Path) -> Option<Option<File>> {
    let lock = match lock_folder(temp) {
        Ok(lock) => Some(lock),
        Err(TryLockError::WouldBlock) => return None,
        Err(TryLockError::Error(_)) => None,
    };
    fs::symlink_metadata(temp).is_ok().then_some(lock)
}

/// Whether a rename failed because the target exists.
fn is_taken(e: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty};
    matches!(e.kind(), AlreadyExists | DirectoryNotEmpty)
}

/// Checks that the target is free (`None`) or may be replaced (the files there).
fn check(name: &str, target: &Path, if_exists: IfExists) -> Result<Option<Snapshot>, Error> {
    for _ in 0..MAX_SWAPS {
        match survey(target) {
            Ok(Survey::Free) => return Ok(None),
            Ok(Survey::Ours(_)) if if_exists == IfExists::Refuse => return Err(exists(name, Existing::Folder)),
            Ok(Survey::Ours(there)) => return Ok(Some(there)),
            // Never replaced, so the error must not suggest that `IfExists::Replace` would help.
            Ok(Survey::Foreign(files)) => return Err(foreign(name, &files)),
            // Another process is replacing the folder.
            Err(e) if e.kind() == io::ErrorKind::Interrupted => std::thread::sleep(PAUSE),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return Err(request(name, "is a file, not a folder"));
            }
            Err(e) => return Err(failed(name, "list", e)),
        }
    }
    Err(request(name, "is being changed by other processes"))
}

/// Whether two folders have the same files, with the same bytes.
fn holds_same(ours: &Path, theirs: &Path) -> io::Result<bool> {
    let mut count = 0;
    for entry in fs::read_dir(ours)? {
        let entry = entry?;
        let (path, other) = (entry.path(), theirs.join(entry.file_name()));
        let is_folder = entry.file_type()?.is_dir();
        if other.is_dir() != is_folder || other.is_file() == is_folder {
            return Ok(false);
        }
        if !(if is_folder { holds_same(&path, &other)? } else { is_same(&File::open(&path)?, &other)? }) {
            return Ok(false);
        }
        count += 1;
    }
    Ok(fs::read_dir(theirs)?.count() == count)
}

fn foreign(name: &str, files: &Foreign) -> Error {
    let message = format!(
        "holds other files than blob wrote there, which are never replaced: {files}; move them away, or name another folder"
    );
    request(name, &message)
}

fn changed(name: &str, file: &str) -> Error {
    let message = format!("{file:?} in it has changed meanwhile; nothing was replaced");
    request(name, &message)
}

/// The name and the place of a folder to be written.
fn target_of(path: &Path) -> Result<(String, PathBuf), Error> {
    let name = path.display().to_string();
    // A trailing `/` would make a link to nothing look like a folder.
    let bare: PathBuf = path.components().collect();
    let target = resolve(&name, &bare)?;
    let Some(last) = target.file_name() else {
        return Err(request(&name, "is not a folder that can be made; name one in it"));
    };
    // Drops a trailing `/` or `/.`.
    let target = target.with_file_name(last);
    if fs::canonicalize(".").is_ok_and(|current| current.starts_with(&target)) {
        return Err(request(&name, "is or holds the current folder, which cannot be replaced; name another one"));
    }
    Ok((name, target))
}

/// Gives an old folder the target's name back, if a crash left no folder there.
fn put_back(target: &Path) {
    if fs::symlink_metadata(target).is_ok() {
        return;
    }
    remove_stale(target, &mut |path| {
        if is_named(path, OLD) && matches!(survey(path), Ok(Survey::Ours(_))) {
            // Another process that is replacing the folder now fails to take the name, and tries again.
            let _ = disk::rename(path, target);
        }
    });
}

/// Removes a temporary folder, other than `own`, that no process has locked. Of an old folder that was moved away,
/// removes only the files that the list names, and only if there is a folder at the target.
fn remove_if_free(path: &Path, target: &Path, own: &Path) {
    if path == own || !fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        return;
    }
    if is_named(path, OLD) {
        // Where folders have no locks, no new folder has the name of an old one.
        if matches!(lock_folder(path), Err(TryLockError::WouldBlock)) {
            return;
        }
        if matches!(survey(target), Ok(Survey::Ours(_) | Survey::Foreign(_))) {
            retire(path);
        }
    } else if is_named(path, GONE) {
        remove_listed(path);
    } else if let Ok(_lock) = lock_folder(path) {
        // Locked until the folder is removed, so that a process that has just created the folder notices.
        let _ = disk::remove_dir_all(path);
    }
}

/// Removes the files of an old folder that the list names, where there is a new folder at the target.
fn retire(old: &Path) {
    // From this rename on, no process takes the old folder for the only copy, whatever becomes of the target.
    let gone = old.with_extension(GONE);
    if matches!(survey(old), Ok(Survey::Ours(_) | Survey::Free)) && disk::rename(old, &gone).is_ok() {
        remove_listed(&gone);
    }
}

fn is_named(path: &Path, extension: &str) -> bool {
    path.extension() == Some(OsStr::new(extension))
}

/// Removes the files that the folder's list names.
fn remove_listed(folder: &Path) {
    match survey(folder) {
        // If this fails, the next run goes on.
        Ok(Survey::Ours(old)) => drop(old.remove(folder)),
        Ok(Survey::Free) => drop(disk::remove_dir(folder)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notes::FOLDER_LIST;
    use crate::output::disk::failing::{Fails, with};

    /// A receipt that lists these files, with these lengths.
    fn receipt(files: &[(&str, usize)]) -> String {
        let file = |(file, bytes): &(&str, usize)| format!(r#"{{"name":"n","file":"{file}","file_bytes":{bytes}}}"#);
        let files: Vec<String> = files.iter().map(file).collect();
        format!(r#"{{"contents":[{}]}}"#, files.join(","))
    }

    fn write(dir: &OutputDir, path: &str, bytes: &[u8]) {
        let mut file = dir.file(path).unwrap();
        file.write_all(bytes).unwrap();
        file.finish().unwrap();
    }

    fn names(folder: &Path) -> Vec<String> {
        let listing = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_same_folder_stays_and_another_one_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let finish = |deep: &str, more: &[&str]| {
            let dir = OutputDir::create(&target, IfExists::Same).unwrap();
            assert!(!dir.replaces());
            write(&dir, "deep/a.npy", deep.as_bytes());
            write(&dir, FOLDER_LIST, receipt(&[("deep/a.npy", 2)]).as_bytes());
            more.iter().for_each(|file| write(&dir, file, b""));
            dir.finish().map_err(|e| e.to_string())
        };
        let begun = OutputDir::create(&target, IfExists::Same).unwrap();
        finish("12", &[]).unwrap();
        finish("12", &[]).unwrap();
        for (deep, more) in [("13", &[][..]), ("12", &["b.npy"]), ("12", &["deep/b.npy"])] {
            assert!(finish(deep, more).unwrap_err().contains("other bytes"));
        }
        // A process that began before the folder had its name.
        write(&begun, "deep/a.npy", b"12");
        write(&begun, FOLDER_LIST, receipt(&[("deep/a.npy", 2)]).as_bytes());
        begun.finish().unwrap();
        assert_eq!(fs::read(target.join("deep/a.npy")).unwrap(), b"12");
        assert_eq!(names(home.path()), ["out"]);
        fs::write(target.join("mine"), "x").unwrap();
        assert!(OutputDir::create(&target, IfExists::Same).unwrap_err().to_string().contains("other files"));
    }

    #[test]
    fn a_folder_has_its_name_only_when_it_is_whole() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let dir = OutputDir::create(&target, IfExists::Refuse).unwrap();
        write(&dir, "conv1/0.npy", b"1");
        write(&dir, "conv1/1.npy", b"2");
        assert!(dir.file("conv1/1.npy").is_err());
        for path in ["../x", "/x", "a/../../x", "", "."] {
            assert!(matches!(dir.file(path), Err(Error::Request { .. })), "{path}");
        }
        let there = names(home.path());
        assert!(there.len() == 1 && there[0].starts_with(".out.blob-tmp-"), "{there:?}");
        dir.finish().unwrap();
        assert_eq!(names(home.path()), ["out"]);
        assert_eq!(names(&target), ["conv1"]);
        assert_eq!(names(&target.join("conv1")), ["0.npy", "1.npy"]);
    }

    #[test]
    fn an_unfinished_folder_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let dir = OutputDir::create(home.path().join("out"), IfExists::Refuse).unwrap();
        write(&dir, "a.npy", b"1");
        drop(dir);
        assert!(names(home.path()).is_empty());
    }

    #[test]
    fn only_an_empty_folder_or_one_of_ours_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out/");
        fs::create_dir(&target).unwrap();
        let dir = OutputDir::create(&target, IfExists::Refuse).unwrap();
        write(&dir, "old.npy", b"1");
        dir.finish().unwrap();
        for overwrite in [IfExists::Refuse, IfExists::Replace] {
            let refused = OutputDir::create(&target, overwrite).unwrap_err().to_string();
            assert!(refused.contains("holds other files"), "{refused}");
        }
        let listed = receipt(&[("old.npy", 1)]);
        fs::write(target.join(FOLDER_LIST), listed).unwrap();
        let dir = OutputDir::create(&target, IfExists::Replace).unwrap();
        write(&dir, "new.npy", b"2");
        assert_eq!(names(&target), [FOLDER_LIST, "old.npy"]);
        dir.finish().unwrap();
        assert_eq!(names(&target), ["new.npy"]);
        assert_eq!(names(home.path()), ["out"]);
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = OutputDir::create(&file, IfExists::Replace).unwrap_err().to_string();
        assert!(refused.contains("is a file"), "{refused}");
    }

    #[test]
    fn what_a_crash_left_is_removed_and_what_is_in_use_is_not() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let left = home.path().join(".out.blob-tmp-0123456789abcdef");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("a.npy"), "left").unwrap();
        let foreign = home.path().join(".out.blob-tmp-0000000000000000.old");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("a.txt"), "of another").unwrap();
        let first = OutputDir::create(&target, IfExists::Refuse).unwrap();
        assert!(!left.exists());
        let second = OutputDir::create(&target, IfExists::Refuse).unwrap();
        write(&first, "a.npy", b"1");
        first.finish().unwrap();
        drop(second);
        fs::write(target.join(FOLDER_LIST), receipt(&[("a.npy", 1)])).unwrap();
        OutputDir::create(&target, IfExists::Replace).unwrap();
        fs::remove_dir_all(foreign).unwrap();
        assert_eq!(names(home.path()), ["out"]);
    }

    /// A folder of two arrays with a receipt.
    fn ours(at: &Path) {
        fs::create_dir_all(at.join("a/b")).unwrap();
        fs::write(at.join("a/b/x.npy"), "1").unwrap();
        fs::write(at.join("y.npy"), "2").unwrap();
        fs::write(at.join(FOLDER_LIST), receipt(&[("a/b/x.npy", 1), ("y.npy", 1)])).unwrap();
    }

    #[test]
    fn the_only_copy_of_an_interrupted_replacement_gets_its_name_back() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        ours(&home.path().join(".out.blob-tmp-fedcba9876543210.old"));
        drop(OutputDir::check(&target, IfExists::Refuse).unwrap());
        assert_eq!(names(home.path()), [".out.blob-tmp-fedcba9876543210.old"]);
        let refused = OutputDir::create(&target, IfExists::Refuse).unwrap_err().to_string();
        assert!(refused.ends_with("exists"), "{refused}");
        assert_eq!(
            (names(home.path()), names(&target)),
            (vec!["out".into()], vec!["a".into(), FOLDER_LIST.into(), "y.npy".into()])
        );
    }

    #[test]
    fn an_interrupted_removal_is_carried_on_wherever_it_stopped() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let old = home.path().join(".out.blob-tmp-fedcba9876543210.old");
        ours(&target);
        for call in 0.. {
            ours(&old);
            let (_, failed) = with(Fails::From(call), || remove_if_free(&old, &target, home.path()));
            // The target may be gone when the removal goes on.
            let without = call % 2 == 1 && !old.exists();
            if without {
                fs::remove_dir_all(&target).unwrap();
            }
            drop(OutputDir::create(&target, IfExists::Replace).unwrap());
            if without {
                ours(&target);
            }
            assert_eq!((names(home.path()), names(&target).len()), (vec!["out".into()], 3), "{call}");
            if !failed {
                assert!(call > 6, "{call}");
                return;
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_protection_of_a_replaced_folder_stays() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        ours(&target);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        fs::set_permissions(&target, fs::Permissions::from_mode(0o750)).unwrap();
        fs::set_permissions(target.join("y.npy"), fs::Permissions::from_mode(0o640)).unwrap();
        let dir = OutputDir::create(&target, IfExists::Replace).unwrap();
        assert_eq!(mode(dir.temporary()), 0o700);
        let mut file = dir.file("y.npy").unwrap();
        assert_eq!(mode(&dir.temporary().join("y.npy")), 0o600);
        file.write_all(b"3").unwrap();
        file.finish().unwrap();
        dir.finish().unwrap();
        assert_eq!((mode(&target), mode(&target.join("y.npy"))), (0o750, 0o640));
    }

    #[test]
    fn a_folder_may_hold_any_name_but_no_lock_of_ours() {
        let home = tempfile::tempdir().unwrap();
        let dir = OutputDir::create(home.path().join("out"), IfExists::Refuse).unwrap();
        assert!(names(&dir.temp).is_empty());
        write(&dir, ".blob-lock/x.npy", b"1");
        dir.finish().unwrap();
        assert_eq!(names(&home.path().join("out")), [".blob-lock"]);
    }

    #[test]
    fn a_folder_made_meanwhile_is_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let finish = |overwrite, file: &str| {
            let dir = OutputDir::create(&target, overwrite).unwrap();
            write(&dir, "a.npy", b"late");
            fs::create_dir(&target).unwrap();
            fs::write(target.join(file), receipt(&[])).unwrap();
            let result = dir.finish();
            let kept = fs::read(target.join(file)).is_ok();
            assert_eq!(names(home.path()), ["out"]);
            fs::remove_dir_all(&target).unwrap();
            (result.err().map(|e| e.to_string()), kept)
        };
        for (overwrite, file, why) in [
            (IfExists::Refuse, FOLDER_LIST, "exists"),
            (IfExists::Refuse, "x", "holds other files"),
            (IfExists::Replace, "x", "holds other files"),
        ] {
            let (refused, kept) = finish(overwrite, file);
            assert!(refused.is_some_and(|e| e.contains(why)), "{file}");
            assert!(kept);
        }
        assert_eq!(finish(IfExists::Replace, FOLDER_LIST), (None, false));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn there_is_a_folder_at_the_target_at_every_moment() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let home = tempfile::tempdir().unwrap();
        let (target, other) = (home.path().join("out"), home.path().join("other"));
        ours(&target);
        fs::create_dir(&other).unwrap();
        if disk::exchange(&target, &other).and_then(|()| disk::exchange(&target, &other)).is_err() {
            println!("NOT TESTED: a folder that is replaced at once (a file system without RENAME_EXCHANGE)");
            return;
        }
        fs::remove_dir(other).unwrap();
        let is_done = AtomicBool::new(false);
        let missed = std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut missed = 0;
                while !is_done.load(Ordering::Relaxed) {
                    missed += usize::from(fs::read(target.join("y.npy")).is_err());
                }
                missed
            });
            for _ in 0..300 {
                let dir = OutputDir::create(&target, IfExists::Replace).unwrap();
                write(&dir, "y.npy", b"2");
                write(&dir, FOLDER_LIST, receipt(&[("y.npy", 1)]).as_bytes());
                dir.finish().unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
            looks.join().unwrap()
        });
        assert_eq!((missed, names(home.path())), (0, vec!["out".to_owned()]));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_new_folder_under_the_name_of_an_old_one_is_no_old_one_while_it_is_locked() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        ours(&target);
        let old = home.path().join(".out.blob-tmp-fedcba9876543210.old");
        ours(&old);
        let Ok(lock) = lock_folder(&old) else {
            println!("NOT TESTED: a folder that another process is about to name (a file system without locks)");
            return;
        };
        drop(OutputDir::create(&target, IfExists::Replace).unwrap());
        assert_eq!(names(home.path()).len(), 2);
        drop(lock);
        drop(OutputDir::create(&target, IfExists::Replace).unwrap());
        assert_eq!(names(home.path()), ["out"]);
    }

    #[test]
    fn a_foreign_folder_that_was_moved_away_is_moved_back() {
        // Tests the swap that `finish` relies on, without the earlier check.
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let dir = OutputDir::create(&target, IfExists::Replace).unwrap();
        let old = old_name(&target);
        assert!(!dir.swap(&old, None).unwrap());
        fs::create_dir(&target).unwrap();
        fs::write(target.join("x"), "of another").unwrap();
        let refused = dir.swap(&old, None).unwrap_err().to_string();
        assert!(refused.contains("holds other files"), "{refused}");
        assert_eq!(names(&target), ["x"]);
        drop(dir);
        assert_eq!(names(home.path()), ["out"]);
    }

    #[test]
    fn what_the_receipt_does_not_list_is_named_and_stays() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        fs::create_dir_all(target.join("conv1")).unwrap();
        fs::write(target.join("conv1/0.npy"), "12").unwrap();
        let listed = receipt(&[("conv1/0.npy", 2), ("gone.npy", 7)]);
        fs::write(target.join(FOLDER_LIST), listed).unwrap();
        let refused = || {
            assert!(OutputDir::check(&target, IfExists::Replace).unwrap().replaces());
            fs::read_dir(home.path()).unwrap().count()
        };
        assert_eq!(refused(), 1, "a check leaves nothing");
        for (path, name) in [
            ("NOTES.md", "NOTES.md"),
            (".hidden", ".hidden"),
            ("conv1/mine.npy", "conv1/mine.npy"),
            ("conv1/.git/x", "conv1/.git/"),
            ("work/train.py", "work/"),
        ] {
            let file = target.join(path);
            fs::create_dir_all(parent(&file)).unwrap();
            fs::write(&file, "mine").unwrap();
            let all = [
                OutputDir::create(&target, IfExists::Replace).map(drop),
                OutputDir::check(&target, IfExists::Replace).map(drop),
            ];
            for refused in all {
                let said = refused.unwrap_err().to_string();
                let expected = format!("never replaced: {name}; move");
                assert!(said.contains(&expected), "{said}");
            }
            assert_eq!(fs::read(&file).unwrap(), b"mine");
            fs::remove_file(&file).unwrap();
            if let Some(folder) = name.strip_suffix('/') {
                fs::remove_dir(target.join(folder)).unwrap();
            }
        }
        for i in 0..5 {
            fs::write(target.join(format!("{i}")), "").unwrap();
        }
        let said = OutputDir::check(&target, IfExists::Replace).unwrap_err().to_string();
        assert!(said.contains(": 0, 1, 2 and 2 more; move"), "{said}");
    }

    #[test]
    fn what_was_put_there_meanwhile_stays_too() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("out");
        let begin = || {
            let _ = fs::remove_dir_all(&target);
            fs::create_dir(&target).unwrap();
            fs::write(target.join("a.npy"), "12").unwrap();
            fs::write(target.join(FOLDER_LIST), receipt(&[("a.npy", 2)])).unwrap();
            OutputDir::create(&target, IfExists::Replace).unwrap()
        };
        let dir = begin();
        fs::write(target.join("mine"), "x").unwrap();
        let said = dir.finish().unwrap_err().to_string();
        assert!(said.contains("never replaced: mine"), "{said}");
        assert_eq!(fs::read(target.join("mine")).unwrap(), b"x");
        // Changes of the same length, between the beginning and the end, and between the last check and the swap.
        let dir = begin();
        fs::remove_file(target.join("a.npy")).unwrap();
        fs::write(target.join("b"), "").unwrap();
        fs::write(target.join("a.npy"), "34").unwrap();
        fs::remove_file(target.join("b")).unwrap();
        let said = dir.finish().unwrap_err().to_string();
        assert!(said.contains("\"a.npy\" in it has changed"), "{said}");
        assert_eq!(fs::read(target.join("a.npy")).unwrap(), b"34");
        let dir = begin();
        let before = check("x", &target, IfExists::Replace).unwrap();
        fs::write(target.join("mine"), "x").unwrap();
        let said = dir.swap(&old_name(&target), before.as_ref()).unwrap_err().to_string();
        assert!(said.contains("never replaced: mine"), "{said}");
        assert_eq!(fs::read(target.join("mine")).unwrap(), b"x");
    }

    #[test]
    fn the_current_folder_is_no_target() {
        let current = std::env::current_dir().unwrap();
        for path in [Path::new("."), Path::new("./"), Path::new(".."), &current] {
            let refused = OutputDir::create(path, IfExists::Replace).unwrap_err().to_string();
            assert!(refused.contains("current folder"), "{refused}");
        }
    }
}
