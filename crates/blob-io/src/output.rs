//! A file that is being written: one without a name or under a temporary name, which gets the target's name when
//! complete, a place of the caller's, or a pipe.
//!
//! An existing target stays unchanged until the new file is complete. Relies on the file system's rename and file
//! locks; knows no format.

mod both;
mod complete;
mod dir;
mod disk;
mod kept;
mod nameless;
mod pair;
mod set;
mod sibling;
mod survey;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Existing, failed};
use crate::wire::sink::{Held, Sink};
pub use complete::Complete;
pub(crate) use complete::Written;
pub use dir::OutputDir;
use kept::Kept;
use pair::Pair;
use sibling::Sibling;

/// The files besides outputs that a process may have open: sources with their shards, terminals, folders, libraries.
const OTHERS: usize = 256;

/// The fate of a target that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// The target stays, and writing is [`Error::Exists`].
    Refuse,
    /// The new file replaces the target when complete.
    Replace,
    /// The target stays, and writing is [`Error::Exists`] unless the new file has the same bytes: for work that may
    /// have been done before.
    Same,
}

/// A file that is being written, or standard output.
///
/// A regular file has no name while it is written, so that a killed process leaves nothing, and [`Output::finish`]
/// gives it the target's; until then an existing target stays unchanged. The name is a temporary one beside the target,
/// `.NAME.blob-tmp-…`, where the system has no files without a name, and before another file is replaced: for a moment,
/// or from its sync on, where the file system might pass over the sync of a file without a name. Dropping the output
/// unfinished removes the temporary. After a crash the next output to the same target removes the temporary. A target
/// that is a pipe or a device is written directly.
#[derive(Debug)]
pub struct Output {
    /// The target, as the caller named it.
    name: String,
    backing: Backing,
    /// The offset at which [`Output::write_all`] continues.
    pos: u64,
    /// The length that [`Output::set_len`] declared.
    len: Option<u64>,
}

#[derive(Debug)]
enum Backing {
    /// A file without a name, or a temporary file beside the target.
    Sibling(Sibling),
    /// A file in an [`OutputDir`], whose folder is the temporary.
    Inside {
        file: File,
        kept: Kept,
        sync: bool,
    },
    /// Two files, the second behind the first.
    Pair(Box<Pair>),
    /// A place of the caller's.
    Held(Held),
    /// A pipe or a device, which has no positions.
    Direct(File),
    Stdout(io::Stdout),
}

impl Backing {
    /// Takes bytes at any offset; `None` for a pipe or a device.
    fn sink(&self) -> Option<&dyn Sink> {
        match self {
            Self::Sibling(sibling) => Some(sibling.file()),
            Self::Inside { file, .. } => Some(file),
            Self::Pair(pair) => Some(&**pair),
            Self::Held(held) => Some(held.sink()),
            Self::Direct(_) | Self::Stdout(_) => None,
        }
    }
}

impl Output {
    /// Begins the file `path`. A symbolic link is followed: the file that the link points to is replaced.
    ///
    /// A file that replaces another can be read by the owner alone until complete; then the new file gets the mode of
    /// the old one, and the owner and group of the old one where the system allows that.
    ///
    /// # Errors
    /// [`Error::Exists`] for a file or a disk that is not to be replaced; [`Error::Request`] for a folder and for a
    /// link to nothing; [`Error::Io`].
    pub fn create(path: impl AsRef<Path>, if_exists: IfExists) -> Result<Self, Error> {
        let mut output = Self::create_in_swept(path, if_exists)?;
        output.remove_stale();
        Ok(output)
    }

    /// As [`Output::create`], in a folder that [`Output::sweep`] has been called for: the folder is not listed again,
    /// which among thousands of files takes longer than to write one.
    ///
    /// # Errors
    /// As [`Output::create`].
    pub fn create_in_swept(path: impl AsRef<Path>, if_exists: IfExists) -> Result<Self, Error> {
        Self::begin(path.as_ref(), if_exists, None)
    }

    /// Removes the temporary files of a folder, whatever their targets, that a crash left. Files of running processes
    /// are locked, and stay.
    pub fn sweep(folder: impl AsRef<Path>) {
        sibling::sweep(folder.as_ref());
    }

    /// Whether a file is called as a temporary one beside the target is.
    #[must_use]
    pub fn is_temporary_of(target: impl AsRef<Path>, file: &str) -> bool {
        sibling::is_temporary_of(target.as_ref(), file)
    }

    /// As [`Output::create`], for one of the files that `index` will name: a file that replaces none is protected as an
    /// existing index is.
    ///
    /// # Errors
    /// As [`Output::create`].
    pub fn create_for(index: &Path, path: impl AsRef<Path>, if_exists: IfExists) -> Result<Self, Error> {
        let mut output = Self::begin(path.as_ref(), if_exists, Some(index))?;
        output.remove_stale();
        Ok(output)
    }

    fn remove_stale(&mut self) {
        if let Backing::Sibling(sibling) = &mut self.backing {
            sibling.remove_stale();
        }
    }

    fn begin(path: &Path, if_exists: IfExists, like: Option<&Path>) -> Result<Self, Error> {
        let name = path.display().to_string();
        let backing = if sibling::is_free(path) {
            Backing::Sibling(Sibling::create_first(&name, path, if_exists, like)?)
        } else if is_written_directly(&name, path, if_exists)? {
            let file = fs::OpenOptions::new().write(true).open(path);
            Backing::Direct(file.map_err(|e| failed(&name, "open", e))?)
        } else {
            Backing::Sibling(Sibling::create(&name, path, if_exists, like)?)
        };
        Ok(Self::new(name, backing))
    }

    /// Checks that [`Output::create`] would succeed, and removes any file made for the check. A pipe or a device is not
    /// opened.
    ///
    /// # Errors
    /// As [`Output::create`].
    pub fn check(path: impl AsRef<Path>, if_exists: IfExists) -> Result<(), Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        if is_written_directly(&name, path, if_exists)? {
            Ok(())
        } else {
            Sibling::create(&name, path, if_exists, None).map(drop)
        }
    }

    /// Standard output: always sequential, even if redirected to a file, because other processes may write there as
    /// well.
    #[must_use]
    pub fn stdout() -> Self {
        Self::new("standard output".to_owned(), Backing::Stdout(io::stdout()))
    }

    /// A place of yours in place of a file; `name` is for messages. Dropping the output unfinished discards the bytes.
    #[must_use]
    pub fn to_sink(name: impl Into<String>, sink: Box<dyn Sink>) -> Self {
        Self::new(name.into(), Backing::Held(Held::new(sink)))
    }

    /// How many outputs may be open at once: the process's limit of open files (`ulimit -n`), less some room for other
    /// files.
    #[must_use]
    pub fn most_open() -> usize {
        let limit = disk::open_files().unwrap_or(usize::MAX);
        limit - OTHERS.min(limit / 2)
    }

    fn new(name: String, backing: Backing) -> Self {
        Self { name, backing, pos: 0, len: None }
    }

    /// A file within a folder that is itself the temporary.
    fn inside(name: String, file: File, kept: Kept, sync: bool) -> Self {
        Self::new(name, Backing::Inside { file, kept, sync })
    }

    /// The target's name, as given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether bytes can be written at any offset; otherwise only in order.
    #[must_use]
    pub fn is_positioned(&self) -> bool {
        self.backing.sink().is_some()
    }

    /// Declares the file's length, which [`Output::finish`] checks; a positioned file is extended to that length now.
    ///
    /// # Errors
    /// [`Error::Io`], for instance if the file system cannot hold a file of that length.
    pub fn set_len(&mut self, len: u64) -> Result<(), Error> {
        if let Some(sink) = self.backing.sink() {
            let action = format!("make it {len} bytes long");
            sink.set_len(len).map_err(|e| failed(&self.name, &action, e))?;
        }
        self.len = Some(len);
        Ok(())
    }

    /// Writes `bytes` at `offset`, from any thread. Only for a positioned output.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Request`] for an output that is not positioned.
    pub fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let Some(sink) = self.backing.sink() else {
            return Err(request(&self.name, "cannot be written at an offset: it is a pipe or a device"));
        };
        sink.write_all_at(offset, bytes).map_err(|e| self.write_failed(offset, bytes, e))
    }

    /// Appends `bytes` to the bytes of earlier calls, for any kind of output.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let pos = self.pos;
        let written = match &mut self.backing {
            Backing::Direct(file) => file.write_all(bytes),
            Backing::Stdout(stdout) => stdout.write_all(bytes),
            positioned => positioned.sink().map_or(Ok(()), |sink| sink.write_all_at(pos, bytes)),
        };
        written.map_err(|e| self.write_failed(pos, bytes, e))?;
        self.pos += bytes.len() as u64;
        Ok(())
    }

    fn write_failed(&self, offset: u64, bytes: &[u8], source: io::Error) -> Error {
        failed(&self.name, &format!("write {} bytes at byte {offset}", bytes.len()), source)
    }

    /// Gives the file the target's name: [`Output::complete`] and [`Complete::publish`].
    ///
    /// # Errors
    /// As [`Output::complete`] and [`Complete::publish`].
    pub fn finish(self) -> Result<(), Error> {
        self.complete()?.publish()
    }

    /// Ends the writing. The file does not have the target's name yet, so you can read the bytes again, and still give
    /// up. A file that replaces another has the final permissions now, and is synced to the disk.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Request`] if the length is not the declared one; [`Error::Exists`] if another process
    /// has made the target meanwhile, under [`IfExists::Refuse`], or the target has other bytes, under
    /// [`IfExists::Same`]. The target is then unchanged.
    pub fn complete(self) -> Result<Complete, Error> {
        let Self { name, mut backing, pos, len } = self;
        let actual = match backing.sink() {
            Some(sink) => sink.written_len().map_err(|e| failed(&name, "look at", e))?,
            None => pos,
        };
        if let Some(len) = len.filter(|len| *len != actual) {
            return Err(request(&name, &format!("is {actual} bytes long after writing, not {len}")));
        }
        backing.complete(&name)?;
        Ok(Complete { name, backing })
    }
}

/// Whether a target is a pipe or a device; an error where the target cannot be written.
fn is_written_directly(name: &str, path: &Path, if_exists: IfExists) -> Result<bool, Error> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => {
            let text = "it is a folder; end the name with a / to write one file an array into it";
            Err(failed(name, "write", io::Error::new(io::ErrorKind::IsADirectory, text)))
        }
        Ok(meta) if meta.is_file() && if_exists == IfExists::Refuse => Err(exists(name, Existing::File)),
        Ok(meta) if disk::is_disk(&meta) && if_exists != IfExists::Replace => Err(exists(name, Existing::Disk)),
        Ok(meta) => Ok(!meta.is_file()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(failed(name, "look at", e)),
    }
}

fn request(name: &str, message: &str) -> Error {
    Error::Request { file: name.to_owned(), message: message.to_owned() }
}

/// The error for a temporary file that could not be made beside the target, nearly always because the folder is
/// missing.
fn sibling_failed(name: &str, target: &Path, action: &str, source: io::Error) -> Error {
    let folder = parent(target);
    if source.kind() == io::ErrorKind::NotFound && !folder.exists() {
        let text = format!("the folder {} is missing", folder.display());
        return failed(name, "write", io::Error::new(source.kind(), text));
    }
    failed(name, &format!("{action} beside it"), source)
}

fn exists(name: &str, target: Existing) -> Error {
    Error::Exists { path: name.to_owned(), target }
}

/// Syncs the folder, so that the rename survives a crash. An error is ignored: the rename itself has succeeded.
#[cfg(unix)]
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) {}

/// Locks a folder through a descriptor of the folder, so that no lock file appears there.
#[cfg(unix)]
fn lock_folder(folder: &Path) -> Result<File, fs::TryLockError> {
    let folder = File::open(folder).map_err(fs::TryLockError::Error)?;
    folder.try_lock()?;
    Ok(folder)
}

/// Other systems cannot lock a folder: there, files left by a crash are not removed.
#[cfg(not(unix))]
fn lock_folder(_: &Path) -> Result<File, fs::TryLockError> {
    Err(fs::TryLockError::Error(io::ErrorKind::Unsupported.into()))
}

/// The folder that holds `path`.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    mod failures;
    mod sinks;

    use super::nameless::ways::{self, Way};
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let listing = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn message(result: Result<impl std::fmt::Debug, Error>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        for way in Way::ALL {
            ways::with(way, || has_its_name_only_when_it_is_whole(way));
        }
    }

    fn has_its_name_only_when_it_is_whole(way: Way) {
        let folder = folder();
        let target = folder.path().join("x.npz");
        let mut output = Output::create(&target, IfExists::Refuse).unwrap();
        assert!(output.is_positioned());
        output.set_len(12).unwrap();
        std::thread::scope(|scope| {
            let output = &output;
            for i in 0..3u8 {
                scope.spawn(move || output.write_all_at(4 * u64::from(i), &[i; 4]).unwrap());
            }
        });
        let there = names(folder.path());
        let temporary = if way == Way::Named { 1 } else { 0 };
        assert!(there.len() == temporary && there.iter().all(|name| name.starts_with(".x.npz.blob-tmp-")), "{there:?}");
        output.finish().unwrap();
        assert_eq!(names(folder.path()), ["x.npz"]);
        assert_eq!(fs::read(&target).unwrap(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    }

    #[test]
    fn an_unfinished_file_leaves_nothing_and_changes_nothing() {
        let folder = folder();
        let target = folder.path().join("x");
        drop(Output::create(&target, IfExists::Refuse).unwrap());
        assert!(names(folder.path()).is_empty());
        fs::write(&target, "old").unwrap();
        let mut output = Output::create(&target, IfExists::Replace).unwrap();
        output.write_all(b"new").unwrap();
        drop(output);
        assert_eq!(names(folder.path()), ["x"]);
        assert_eq!(fs::read(&target).unwrap(), b"old");
    }

    #[test]
    fn an_existing_file_is_replaced_only_when_asked() {
        let folder = folder();
        let target = folder.path().join("x");
        fs::write(&target, "old").unwrap();
        let refused = message(Output::create(&target, IfExists::Refuse));
        assert!(refused.ends_with("x: exists"), "{refused}");
        let mut output = Output::create(&target, IfExists::Replace).unwrap();
        output.write_all(b"ne").unwrap();
        output.write_all(b"w").unwrap();
        output.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
    }

    #[test]
    fn a_file_of_the_same_bytes_stays_and_another_is_an_error() {
        let folder = folder();
        let target = folder.path().join("x");
        let write = |bytes: &[u8]| {
            let mut output = Output::create(&target, IfExists::Same)?;
            output.write_all(bytes)?;
            output.finish()
        };
        write(b"first").unwrap();
        let written = fs::metadata(&target).unwrap().modified().unwrap();
        write(b"first").unwrap();
        for other in [&b"other"[..], b"firs", b"first!", b""] {
            assert!(message(write(other)).ends_with("x: exists with other bytes"));
        }
        assert_eq!((names(folder.path()), fs::read(&target).unwrap()), (vec!["x".to_owned()], b"first".to_vec()));
        assert_eq!(fs::metadata(&target).unwrap().modified().unwrap(), written);
    }

    #[test]
    fn a_sweep_removes_what_a_crash_left_of_any_target() {
        let folder = folder();
        let own = [".x.blob-tmp-0123456789abcdef", ".a.b.npz.blob-tmp-ffffffffffffffff"];
        let others =
            [".x.blob-tmp-0123456789abcdeg", "x.blob-tmp-0123456789abcdef", ".x.blob-tmp-0123456789abcdef.old"];
        own.iter().chain(&others).for_each(|name| fs::write(folder.path().join(name), "left").unwrap());
        let running = Output::create_in_swept(folder.path().join("x"), IfExists::Refuse).unwrap();
        Output::sweep(folder.path());
        running.finish().unwrap();
        let mut left: Vec<&str> = others.into_iter().chain(["x"]).collect();
        left.sort_unstable();
        assert_eq!(names(folder.path()), left);
    }

    #[test]
    fn a_file_made_meanwhile_is_not_replaced() {
        let folder = folder();
        let target = folder.path().join("x");
        let mut output = Output::create(&target, IfExists::Refuse).unwrap();
        output.write_all(b"late").unwrap();
        fs::write(&target, "first").unwrap();
        assert!(message(output.finish()).contains("exists"));
        assert_eq!(fs::read(&target).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn a_link_never_replaces_a_file() {
        // Tests the link that `finish` relies on, without the check before it.
        for way in Way::ALL {
            let folder = folder();
            let target = folder.path().join("x");
            let create = || Sibling::create("x", &target, IfExists::Refuse, None);
            let mut sibling = ways::with(way, create).unwrap();
            fs::write(&target, "first").unwrap();
            assert!(message(ways::with(way, || sibling.link("x"))).contains("exists"));
            assert_eq!(fs::read(&target).unwrap(), b"first");
        }
    }

    #[test]
    fn another_length_than_promised_is_an_error() {
        let folder = folder();
        let mut output = Output::create(folder.path().join("x"), IfExists::Refuse).unwrap();
        output.set_len(4).unwrap();
        output.write_all(b"12345").unwrap();
        assert!(message(output.finish()).contains("5 bytes long after writing, not 4"));
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_a_crash_left_is_removed_and_what_is_in_use_is_not() {
        let folder = folder();
        let target = folder.path().join("x");
        let create = || ways::with(Way::Named, || Output::create(&target, IfExists::Refuse)).unwrap();
        let other = create();
        fs::write(folder.path().join(".x.blob-tmp-0123456789abcdef"), "left").unwrap();
        fs::write(folder.path().join(".y.blob-tmp-0123456789abcdef"), "of another").unwrap();
        let output = create();
        let there = names(folder.path());
        assert_eq!(there.len(), 3, "{there:?}");
        assert!(!there.contains(&".x.blob-tmp-0123456789abcdef".to_owned()));
        output.finish().unwrap();
        assert!(message(other.finish()).contains("exists"));
        assert_eq!(names(folder.path()), [".y.blob-tmp-0123456789abcdef", "x"]);
    }

    #[test]
    fn what_a_dying_process_held_at_the_start_is_removed_at_the_end() {
        let folder = folder();
        let target = folder.path().join("x");
        let left = folder.path().join(".x.blob-tmp-0123456789abcdef");
        let held = File::create(&left).unwrap();
        held.lock().unwrap();
        let output = Output::create(&target, IfExists::Replace).unwrap();
        assert!(left.exists());
        drop(held);
        output.finish().unwrap();
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn a_long_name_has_a_temporary_too() {
        let folder = folder();
        let target = folder.path().join("é".repeat(127));
        Output::create(&target, IfExists::Refuse).unwrap().finish().unwrap();
        assert!(target.exists());
    }

    #[test]
    fn targets_that_are_not_files_are_refused() {
        let folder = folder();
        assert!(message(Output::create(folder.path(), IfExists::Replace)).contains("is a folder"));
        let missing = folder.path().join("no/x");
        for refused in [
            message(Output::create(&missing, IfExists::Replace)),
            message(Output::check(&missing, IfExists::Replace)),
            message(OutputDir::check(missing.join("y"), IfExists::Replace)),
        ] {
            assert!(refused.ends_with(" is missing"), "{refused}");
        }
        fs::write(folder.path().join("x"), "").unwrap();
        assert!(message(Output::check(folder.path().join("x"), IfExists::Refuse)).contains("exists"));
        Output::check(folder.path().join("y"), IfExists::Refuse).unwrap();
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[cfg(unix)]
    mod unix {
        use std::os::unix::fs::{PermissionsExt, symlink};
        use std::process::Command;

        use super::*;

        #[test]
        fn the_permissions_of_a_replaced_file_stay() {
            let folder = folder();
            let target = folder.path().join("x");
            fs::write(&target, "old").unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o604)).unwrap();
            Output::create(&target, IfExists::Replace).unwrap().finish().unwrap();
            let mode = fs::metadata(&target).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o604);
        }

        fn of(backing: &Backing) -> &File {
            let Backing::Sibling(sibling) = backing else { panic!("{backing:?}") };
            sibling.file()
        }

        #[test]
        fn a_file_that_is_replaced_is_as_private_as_before_from_the_first_moment() {
            let folder = folder();
            let target = folder.path().join("x");
            let mode = |file: &File| file.metadata().unwrap().permissions().mode() & 0o777;
            for (old, way) in [0o600, 0o640, 0o666, 0o400].into_iter().flat_map(|old| Way::ALL.map(|way| (old, way))) {
                let _ = fs::remove_file(&target);
                fs::write(&target, "old").unwrap();
                fs::set_permissions(&target, fs::Permissions::from_mode(old)).unwrap();
                let mut output = ways::with(way, || Output::create(&target, IfExists::Replace)).unwrap();
                assert_eq!(mode(of(&output.backing)), 0o600, "{way:?}");
                output.write_all(b"new").unwrap();
                assert_eq!(mode(of(&output.backing)), 0o600);
                let complete = ways::with(way, || output.complete()).unwrap();
                assert_eq!((mode(of(&complete.backing)), fs::read(&target).unwrap()), (old, b"old".to_vec()));
                ways::with(way, || complete.publish()).unwrap();
                assert_eq!((mode(&File::open(&target).unwrap()), fs::read(&target).unwrap()), (old, b"new".to_vec()));
            }
        }

        #[test]
        fn the_owner_of_a_replaced_file_stays_where_that_is_allowed() {
            use std::os::unix::fs::{MetadataExt, chown};
            let folder = folder();
            let target = folder.path().join("x");
            fs::write(&target, "old").unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
            if chown(&target, Some(12345), Some(23456)).is_err() {
                println!("NOT TESTED: only an administrator may give files away");
                return;
            }
            Output::create(&target, IfExists::Replace).unwrap().finish().unwrap();
            let new = fs::metadata(&target).unwrap();
            assert_eq!((new.uid(), new.gid(), new.mode() & 0o777), (12345, 23456, 0o640));
        }

        #[test]
        fn links_are_followed_but_not_to_nothing() {
            let folder = folder();
            let (link, far) = (folder.path().join("link"), folder.path().join("sub/x"));
            fs::create_dir(folder.path().join("sub")).unwrap();
            symlink("sub/x", &link).unwrap();
            for if_exists in [IfExists::Refuse, IfExists::Replace] {
                for refused in [
                    message(Output::create(&link, if_exists)),
                    message(Output::check(&link, if_exists)),
                    message(OutputDir::create(&link, if_exists)),
                ] {
                    assert!(refused.contains("is a link to sub/x, where nothing is"), "{refused}");
                }
            }
            assert_eq!(
                (names(folder.path()), names(&folder.path().join("sub"))),
                (vec!["link".into(), "sub".into()], vec![])
            );
            fs::write(&far, "old").unwrap();
            assert!(message(Output::create(&link, IfExists::Refuse)).contains("exists"));
            let mut output = Output::create(&link, IfExists::Replace).unwrap();
            output.write_all(b"new").unwrap();
            output.finish().unwrap();
            assert!(link.is_symlink());
            assert_eq!(fs::read(&far).unwrap(), b"new");
            symlink("round", folder.path().join("round")).unwrap();
            assert!(Output::create(folder.path().join("round"), IfExists::Refuse).is_err());
        }

        #[test]
        fn a_device_and_a_pipe_are_written_directly() {
            let mut output = Output::create("/dev/null", IfExists::Refuse).unwrap();
            assert!(!output.is_positioned());
            assert!(output.write_all_at(0, b"x").is_err());
            output.set_len(3).unwrap();
            output.write_all(b"abc").unwrap();
            output.finish().unwrap();
            assert!(fs::metadata("/dev/null").is_ok_and(|meta| !meta.is_file()));

            let folder = folder();
            let pipe = folder.path().join("pipe");
            assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let reader = std::thread::spawn({
                let pipe = pipe.clone();
                move || fs::read(pipe).unwrap()
            });
            let mut output = Output::create(&pipe, IfExists::Refuse).unwrap();
            output.write_all(b"through").unwrap();
            output.finish().unwrap();
            assert_eq!(reader.join().unwrap(), b"through");
            assert_eq!(names(folder.path()), ["pipe"]);
        }

        #[test]
        fn a_full_disk_leaves_the_old_file_whole() {
            let full = Path::new("/dev/full");
            if !full.exists() {
                return;
            }
            let mut output = Output::create(full, IfExists::Refuse).unwrap();
            let error = output.write_all(b"x").unwrap_err();
            assert!(matches!(error, Error::Io { .. }), "{error}");
            // A file system has no file of that length.
            let folder = folder();
            let target = folder.path().join("x");
            fs::write(&target, "old").unwrap();
            let mut output = Output::create(&target, IfExists::Replace).unwrap();
            assert!(output.set_len(i64::MAX as u64).is_err());
            drop(output);
            assert_eq!(names(folder.path()), ["x"]);
            assert_eq!(fs::read(&target).unwrap(), b"old");
        }
    }
}
