//! Sources of bytes, with a positioned read: a file, a part of one, bytes in memory or a mapping.
//!
//! The mapping is the only unsafe code of the crate. Knows no format.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::error::ReadError;
use crate::work;

/// Bytes that can be read at any offset, from any thread.
///
/// All bytes are read through this trait, which remote streams can implement too.
pub trait Source: Send + Sync {
    /// The number of bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// If not all bytes can be read, also because some lie past the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Says where headers begin that are read next, in ascending order. A source of few, long requests can then ask for
    /// those that lie together at once.
    fn expect(&self, begins: &[u64]) {
        let _ = begins;
    }

    /// Says that all headers were read: values are read next.
    fn listed(&self) {}

    /// Whether the bytes are the same as when the source was opened, as far as a cheap check can tell. A source without
    /// such a check counts as unchanged.
    ///
    /// # Errors
    /// If that cannot be checked.
    fn is_unchanged(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// The bytes themselves, if the source is in memory; then views can be borrowed.
    fn bytes(&self) -> Option<&[u8]> {
        None
    }
}

/// A file of at most so many bytes is kept whole after [`SMALL_READS`] reads of at most [`SMALL_READ`] bytes, as an npz
/// of several arrays costs, and after a read of all that follows a small one, as of what is listed and then hashed. The
/// first small read at the begin takes the [`HEAD`] with it: most headers lie there. Once the file is
/// [listed](Source::listed), kept bytes are given out only where the file is the same by its time.
const SMALL_FILE: u64 = 128 << 10;
const SMALL_READ: usize = 1 << 10;
const SMALL_READS: u32 = 3;
const HEAD: u64 = 4 << 10;

/// An open file, read with positioned reads.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    len: u64,
    /// The modification time when the file was opened, if the file system has one.
    modified: Option<SystemTime>,
    small_reads: AtomicU32,
    /// The first bytes of a small file.
    head: OnceLock<Vec<u8>>,
    /// All bytes of a small file.
    whole: OnceLock<Vec<u8>>,
    is_listed: AtomicBool,
}

impl FileSource {
    /// Opens a regular file. A pipe or a device cannot be read at an offset: [`crate::OpenOptions::open_stream`] reads
    /// such a stream.
    ///
    /// # Errors
    /// As the operating system says; a directory or a pipe is an error.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::try_from(File::open(path)?)
    }

    /// A file that the caller has looked at.
    pub(crate) fn of(file: File, meta: &Metadata) -> io::Result<Self> {
        if meta.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let (small_reads, head, whole) = (AtomicU32::new(0), OnceLock::new(), OnceLock::new());
        let (len, modified, is_listed) = (meta.len(), meta.modified().ok(), AtomicBool::new(false));
        Ok(Self { len, modified, file, small_reads, head, whole, is_listed })
    }

    /// The bytes of a small file from its begin on, as far as they are kept and reach `end`.
    fn kept(&self, asked: usize, end: u64) -> Option<&[u8]> {
        let found = |kept: &'_ OnceLock<Vec<u8>>| kept.get().is_some_and(|bytes| end <= bytes.len() as u64);
        if self.is_listed.load(Ordering::Relaxed) {
            let is_same = found(&self.whole) && self.modified.is_some() && self.is_unchanged().unwrap_or(false);
            return self.whole.get().filter(|_| is_same).map(Vec::as_slice);
        }
        if self.len <= SMALL_FILE && asked <= SMALL_READ && !found(&self.whole) && !found(&self.head) {
            let (kept, len) = if self.small_reads.fetch_add(1, Ordering::Relaxed) >= SMALL_READS {
                (&self.whole, self.len)
            } else {
                (&self.head, self.len.min(HEAD))
            };
            if end <= len && kept.get().is_none() {
                let mut bytes = vec![0; len as usize];
                // A file that became shorter is an error of the read itself.
                if read_exact_at(&self.file, 0, &mut bytes).is_ok() {
                    kept.get_or_init(|| bytes);
                }
            }
        }
        [&self.whole, &self.head].into_iter().find(|kept| found(kept))?.get().map(Vec::as_slice)
    }

    /// Keeps what was read of a small file if that is all, and more reads are likely.
    fn keep(&self, offset: u64, bytes: &[u8]) {
        let is_all = offset == 0 && bytes.len() as u64 == self.len && self.len <= SMALL_FILE;
        if is_all && self.small_reads.load(Ordering::Relaxed) > 0 {
            self.whole.get_or_init(|| bytes.to_owned());
        }
    }

    /// The modification time when the file was opened, if the file system has one.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.modified
    }
}

/// Reads from a file that is already open, which must be a regular file.
impl TryFrom<File> for FileSource {
    type Error = io::Error;

    fn try_from(file: File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Self::of(file, &meta)
    }
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if let Some(bytes) = self.kept(buf.len(), offset.saturating_add(buf.len() as u64)) {
            return Bytes(bytes).read_at(offset, buf);
        }
        read_exact_at(&self.file, offset, buf).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(e.kind(), "the file became shorter while it was read"),
            _ => e,
        })?;
        self.keep(offset, buf);
        Ok(())
    }

    fn listed(&self) {
        self.is_listed.store(true, Ordering::Relaxed);
    }

    fn is_unchanged(&self) -> io::Result<bool> {
        let meta = self.file.metadata()?;
        Ok((meta.len(), meta.modified().ok()) == (self.len, self.modified))
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buf, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    while !buf.is_empty() {
        match file.seek_read(buf, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                offset += n as u64;
                buf = &mut buf[n..];
            }
        }
    }
    Ok(())
}

/// Other systems, such as WebAssembly in a browser, have no files.
#[cfg(not(any(unix, windows)))]
fn read_exact_at(_: &File, _: u64, _: &mut [u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Bytes in memory, owned or `'static`.
#[derive(Debug)]
pub struct Bytes<B>(pub B);

impl<B: AsRef<[u8]> + Send + Sync> Source for Bytes<B> {
    fn len(&self) -> u64 {
        self.0.as_ref().len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.as_ref();
        let found = usize::try_from(offset)
            .ok()
            .and_then(|at| bytes.get(at..at.checked_add(buf.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(found);
        Ok(())
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self.0.as_ref())
    }
}

/// Two inputs, the second behind the first.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) first: Input,
    pub(crate) second: Input,
}

impl Source for Joined {
    fn len(&self) -> u64 {
        self.first.len() + self.second.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let at = self.first.len();
        let left = at.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (of_first, of_second) = buf.split_at_mut(left);
        if !of_first.is_empty() {
            self.first.read_at(offset, of_first)?;
        }
        if of_second.is_empty() { Ok(()) } else { self.second.read_at(offset.max(at) - at, of_second) }
    }

    fn is_unchanged(&self) -> io::Result<bool> {
        Ok(self.first.is_unchanged()? && self.second.is_unchanged()?)
    }
}

/// Fills `out` with the bytes from `offset` on; an error has the offset.
pub(crate) fn read(source: &dyn Source, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
    work::visit(out.len() as u64, 1);
    source.read_at(offset, out).map_err(|source| ReadError::Io { offset, source })
}

/// A source, and the number of bytes read from the source.
#[derive(Clone)]
pub(crate) struct Input {
    source: Arc<dyn Source>,
    read: Arc<AtomicU64>,
}

impl Input {
    pub(crate) fn new(source: Box<dyn Source>) -> Self {
        Self { source: source.into(), read: Arc::default() }
    }

    /// A part of the input as a separate input. Bytes read from the part are not counted for the whole.
    pub(crate) fn window(&self, at: u64, len: u64) -> Self {
        Self::new(Box::new(Window { source: self.source.clone(), at, len }))
    }

    /// How many bytes have been read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

impl Source for Input {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.source.read_at(offset, buf)
    }

    fn expect(&self, begins: &[u64]) {
        self.source.expect(begins);
    }

    fn listed(&self) {
        self.source.listed();
    }

    fn is_unchanged(&self) -> io::Result<bool> {
        self.source.is_unchanged()
    }

    fn bytes(&self) -> Option<&[u8]> {
        self.source.bytes()
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("len", &self.source.len()).finish_non_exhaustive()
    }
}

/// A part of a source.
struct Window {
    source: Arc<dyn Source>,
    at: u64,
    len: u64,
}

impl Source for Window {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match offset.checked_add(buf.len() as u64) {
            Some(end) if end <= self.len => self.source.read_at(self.at + offset, buf),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn is_unchanged(&self) -> io::Result<bool> {
        self.source.is_unchanged()
    }

    fn bytes(&self) -> Option<&[u8]> {
        let begin = usize::try_from(self.at).ok()?;
        self.source.bytes()?.get(begin..begin.checked_add(usize::try_from(self.len).ok()?)?)
    }
}

/// A file mapped into memory: views borrow the bytes without a copy.
#[cfg(feature = "mmap")]
#[derive(Debug)]
pub struct Mmap(memmap2::Mmap);

#[cfg(feature = "mmap")]
impl Mmap {
    /// Maps a regular file.
    ///
    /// # Errors
    /// As the operating system says.
    ///
    /// # Safety
    /// No process may change or truncate the file while the mapping lives: a change is undefined behaviour in
    /// Rust's terms, a truncation kills the process with SIGBUS.
    pub unsafe fn open(path: &Path) -> io::Result<Self> {
        let file = FileSource::open(path)?.file;
        // SAFETY: the caller promises that the file keeps its bytes while the mapping lives.
        Ok(Self(unsafe { memmap2::Mmap::map(&file)? }))
    }
}

#[cfg(feature = "mmap")]
impl Source for Mmap {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        Bytes(&self.0[..]).read_at(offset, buf)
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of `len` bytes, which have the values that are returned.
    fn file(folder: &tempfile::TempDir, len: u64) -> (std::path::PathBuf, Vec<u8>) {
        let (path, bytes) = (folder.path().join(len.to_string()), (0..len).map(|i| (i % 251) as u8).collect());
        std::fs::write(&path, &bytes).unwrap();
        (path, bytes)
    }

    #[test]
    fn a_small_file_is_read_once_after_some_small_reads() {
        let folder = tempfile::tempdir().unwrap();
        for (len, is_small) in [(SMALL_FILE, true), (SMALL_FILE + 1, false)] {
            let (path, old) = file(&folder, len);
            let source = FileSource::open(&path).unwrap();
            let mut all = vec![0; len as usize];
            source.read_at(0, &mut all).unwrap();
            assert!(source.whole.get().is_none() && all == old);
            let mut two = [0; 2];
            for at in (HEAD..).step_by(100).take(SMALL_READS as usize + 1) {
                assert!(source.whole.get().is_none(), "before {at}");
                source.read_at(at, &mut two).unwrap();
                assert_eq!(two, old[at as usize..][..2]);
            }
            assert_eq!(source.whole.get().is_some(), is_small);
            assert!(source.head.get().is_none());
            std::fs::write(&path, vec![255; len as usize]).unwrap();
            source.read_at(700, &mut two).unwrap();
            source.read_at(0, &mut all).unwrap();
            let wanted = if is_small { old } else { vec![255; len as usize] };
            assert!(two == wanted[700..702] && all == wanted);
            assert!(source.read_at(len - 1, &mut two).is_err() && source.read_at(u64::MAX, &mut two).is_err());
        }
    }

    #[test]
    fn a_small_file_that_was_listed_and_read_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        for (len, is_small) in [(SMALL_FILE, true), (SMALL_FILE + 1, false)] {
            let (path, old) = file(&folder, len);
            let source = FileSource::open(&path).unwrap();
            let (mut all, mut two) = (vec![0; len as usize], [0; 2]);
            source.read_at(0, &mut two).unwrap();
            assert_eq!(source.head.get().map(Vec::len), is_small.then_some(HEAD as usize));
            source.read_at(0, &mut all[1..]).unwrap();
            assert!(source.whole.get().is_none());
            source.read_at(0, &mut all).unwrap();
            assert_eq!((source.whole.get().is_some(), all), (is_small, old));
        }
    }

    #[test]
    fn the_head_of_a_small_file_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        for len in [1, 300, HEAD, HEAD + 1, SMALL_FILE] {
            let (path, old) = file(&folder, len);
            let source = FileSource::open(&path).unwrap();
            let mut one = [0];
            source.read_at(0, &mut one).unwrap();
            let head = len.min(HEAD);
            std::fs::write(&path, vec![255; len as usize]).unwrap();
            for at in (0..head).rev() {
                source.read_at(at, &mut one).unwrap();
                assert_eq!(one[0], old[at as usize], "byte {at} of {len}");
            }
            assert_eq!(source.small_reads.load(Ordering::Relaxed), 1);
            let mut two = [0; 2];
            let behind = source.read_at(head - 1, &mut two);
            assert!(if head == len {
                behind.is_err()
            } else {
                two == [old[head as usize - 1], 255] || two == [255; 2]
            });
        }
    }

    #[test]
    fn values_of_a_file_that_was_written_since_are_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = file(&folder, SMALL_FILE);
        let source = FileSource::open(&path).unwrap();
        let (mut one, mut all) = ([0], vec![0; old.len()]);
        source.read_at(7, &mut one).unwrap();
        source.listed();
        source.read_at(0, &mut all).unwrap();
        assert!(source.head.get().is_some() && source.whole.get() == Some(&old));
        let later = std::fs::metadata(&path).unwrap().modified().unwrap() + std::time::Duration::from_secs(1);
        std::fs::write(&path, vec![255; old.len()]).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        for at in [7, HEAD, SMALL_FILE - 1] {
            source.read_at(at, &mut one).unwrap();
            assert_eq!(one, [255], "byte {at}");
        }
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (path, _) = file(&folder, 5000);
        let source = FileSource::open(&path).unwrap();
        std::fs::write(&path, [7; 100]).unwrap();
        let mut one = [0];
        source.read_at(99, &mut one).unwrap();
        assert_eq!(one, [7]);
        for at in [100, 4999] {
            assert_eq!(source.read_at(at, &mut one).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn bytes_past_the_end_are_an_error() {
        let source = Bytes(vec![1u8, 2, 3]);
        let mut two = [0; 2];
        source.read_at(1, &mut two).unwrap();
        assert_eq!(two, [2, 3]);
        assert!(source.read_at(2, &mut two).is_err());
        assert!(source.read_at(u64::MAX, &mut two).is_err());
    }
}
