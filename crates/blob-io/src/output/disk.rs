//! The calls that change the disk, in one place, so that tests let each call fail in turn.
//!
//! Thin: every function is the call of the standard library of that name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek};
use std::path::Path;

use crate::wire::sink::Sink;
use crate::wire::source::{FileSource, Source};

pub(super) fn create(options: &OpenOptions, path: &Path) -> io::Result<File> {
    may_fail()?;
    options.open(path)
}

/// Makes a file without a name in a folder.
#[cfg(target_os = "linux")]
pub(super) fn create_nameless(options: &mut OpenOptions, folder: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    may_fail()?;
    options.custom_flags(rustix::fs::OFlags::TMPFILE.bits().cast_signed()).open(folder)
}

/// Gives an open file a name, also one that has none.
#[cfg(target_os = "linux")]
pub(super) fn link_open(file: &File, to: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    use std::os::fd::AsRawFd;
    may_fail()?;
    Ok(linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), CWD, to, AtFlags::SYMLINK_FOLLOW)?)
}

/// Copies all bytes of a file to the beginning of another.
pub(super) fn copy(mut from: &File, mut to: &File) -> io::Result<()> {
    may_fail()?;
    from.rewind()?;
    io::copy(&mut from, &mut to).map(drop)
}

pub(super) fn create_dir(options: &fs::DirBuilder, path: &Path) -> io::Result<()> {
    may_fail()?;
    options.create(path)
}

pub(super) fn set_len(file: &File, len: u64) -> io::Result<()> {
    may_fail()?;
    within_limit(len)?;
    file.set_len(len)
}

pub(super) fn sync(file: &File) -> io::Result<()> {
    may_fail()?;
    file.sync_all()
}

pub(super) fn set_permissions(file: &File, permissions: fs::Permissions) -> io::Result<()> {
    may_fail()?;
    file.set_permissions(permissions)
}

pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    may_fail()?;
    fs::rename(from, to)
}

/// Gives two files or folders each other's names at once.
#[cfg(target_os = "linux")]
pub(super) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    may_fail()?;
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// Other systems have no such call, or one for some file systems.
#[cfg(not(target_os = "linux"))]
pub(super) fn exchange(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    may_fail()?;
    fs::hard_link(from, to)
}

pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    may_fail()?;
    fs::remove_file(path)
}

pub(super) fn remove_dir(path: &Path) -> io::Result<()> {
    may_fail()?;
    fs::remove_dir(path)
}

pub(super) fn remove_dir_all(path: &Path) -> io::Result<()> {
    may_fail()?;
    fs::remove_dir_all(path)
}

/// Success also where there was nothing to rename, link or remove.
pub(super) fn optional(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

#[cfg(unix)]
pub(super) fn write_all_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    may_fail()?;
    within_limit(offset.saturating_add(bytes.len() as u64))?;
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

/// Refuses to go past the largest file that this process may write (`ulimit -f`): the signal of the system would end
/// the process, and leave the temporary file. The limit is asked for once: a file may have 600,000 writes.
#[cfg(unix)]
fn within_limit(len: u64) -> io::Result<()> {
    use rustix::process::{Resource, getrlimit};
    static LIMIT: std::sync::OnceLock<Option<u64>> = std::sync::OnceLock::new();
    let limit = LIMIT.get_or_init(|| getrlimit(Resource::Fsize).current);
    if limit.is_some_and(|limit| len > limit) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(())
}

#[cfg(not(unix))]
fn within_limit(_: u64) -> io::Result<()> {
    Ok(())
}

/// How many files this process may have open; `None` without a limit.
#[cfg(unix)]
pub(super) fn open_files() -> Option<usize> {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile).current.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The C library of Windows allows 512.
#[cfg(not(unix))]
pub(super) fn open_files() -> Option<usize> {
    Some(512)
}

#[cfg(windows)]
pub(super) fn write_all_at(file: &File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    may_fail()?;
    while !bytes.is_empty() {
        match file.seek_write(bytes, offset)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => {
                offset += n as u64;
                bytes = &bytes[n..];
            }
        }
    }
    Ok(())
}

/// Other systems, such as WebAssembly in a browser, have no files.
#[cfg(not(any(unix, windows)))]
pub(super) fn write_all_at(_: &File, _: u64, _: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether a path is a disk itself.
#[cfg(unix)]
pub(super) fn is_disk(meta: &fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_block_device(&meta.file_type())
}

#[cfg(not(unix))]
pub(super) fn is_disk(_: &fs::Metadata) -> bool {
    false
}

/// A file whose name and removal are cared for elsewhere.
impl Sink for File {
    fn set_len(&self, len: u64) -> io::Result<()> {
        set_len(self, len)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        write_all_at(self, offset, bytes)
    }

    fn source(&self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.try_clone().and_then(FileSource::try_from)?))
    }

    fn written_len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "it fails in tests")]
fn may_fail() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
use failing::may_fail;

/// Failures on request, for the calls of one thread.
#[cfg(test)]
pub(super) mod failing {
    use std::cell::Cell;
    use std::io;

    /// Which calls fail.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fails {
        /// The one of this number, counted from 0.
        Once(usize),
        /// That one and all later ones. No cleanup follows: the disk is as after a killed process.
        From(usize),
        /// The first, and the second and all later ones: the process is killed while it undoes the failed work.
        Then(usize, usize),
    }

    thread_local! {
        static FAILS: Cell<Option<(Fails, usize)>> = const { Cell::new(None) };
    }

    /// Runs `work` with these failures; returns the result, and whether a call has failed.
    pub(crate) fn with<T>(fails: Fails, work: impl FnOnce() -> T) -> (T, bool) {
        FAILS.set(Some((fails, 0)));
        let done = work();
        let calls = FAILS.take().map_or(0, |(_, calls)| calls);
        let (Fails::Once(last) | Fails::From(last) | Fails::Then(_, last)) = fails;
        (done, calls > last)
    }

    pub(super) fn may_fail() -> io::Result<()> {
        let Some((fails, call)) = FAILS.get() else { return Ok(()) };
        FAILS.set(Some((fails, call + 1)));
        match fails {
            Fails::Once(at) if call == at => Err(io::Error::other("made to fail")),
            Fails::Then(first, _) if call == first => Err(io::Error::other("made to fail")),
            Fails::From(first) | Fails::Then(_, first) if call >= first => Err(io::Error::other("made to fail")),
            _ => Ok(()),
        }
    }
}
