//! A folder of npy files, read as one file: the folder's notes say which tensor lies in which file.
//!
//! The files are read as if concatenated; a file is opened when bytes of the file are needed, and only a few files stay
//! open. Nothing outside of the folder is read, whatever the notes say and wherever links lead, except that shards
//! may be links.

pub(crate) mod listing;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::entry::{Entry, Kind, Payload, Runs, Segment};
use crate::error::{Error, Fault, FaultKind, ReadError, Reason};
use crate::format::Format;
use crate::limits::MAX_OTHERS;
use crate::names::{NameTable, faulty};
use crate::notes::{FOLDER_LIST, NOTES};
use crate::npy::header;
use crate::wire::cursor::Cursor;
use crate::wire::source::{FileSource, Source};
use crate::words::joined;
use listing::Listed;

/// How many files stay open: as many as threads read at once.
const MAX_OPEN: usize = 8;
/// Notes of at most `MAX_TEXT` bytes besides the list of files are kept. Each item of that list may add
/// `TEXT_EACH` bytes and two names, in which a byte may take six: `\u0000`.
const MAX_TEXT: u64 = 4 << 20;
const TEXT_EACH: u64 = 1024;
const LONGEST_ESCAPE: u64 = 6;

/// The files of a folder as one source.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    files: Vec<FolderFile>,
    len: u64,
    /// The file that lists the others: the notes, or an index of shards.
    list: Option<List>,
    /// Whether files may be links; a link may lead out of the folder.
    has_links: bool,
    /// The files that were read most recently, each with the index of the file.
    open: Mutex<Vec<(usize, Arc<FileSource>)>>,
}

#[derive(Debug)]
struct FolderFile {
    path: Box<str>,
    /// The part's offset in the concatenated files.
    begin: u64,
    /// The modification time at listing, if the file system has one.
    modified: Option<SystemTime>,
}

#[derive(Debug)]
struct List {
    path: PathBuf,
    len: u64,
    modified: Option<SystemTime>,
}

/// Lists the arrays of a folder in the order of the notes.
pub(crate) fn open(path: &Path, name: &str, table: &mut NameTable) -> Result<Folder, Error> {
    let notes = match open_within(path, FOLDER_LIST).and_then(FileSource::try_from) {
        Ok(notes) => notes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(without(name, "no")),
        Err(source) => {
            return Err(Error::Io { file: name.to_owned(), action: format!("open its {FOLDER_LIST}"), source });
        }
    };
    let mut folder = Folder::new(path);
    folder.listed_in(path.join(FOLDER_LIST), &notes);
    let (mut max_len, mut named) = (MAX_TEXT, HashSet::new());
    let listed = listing::files(&notes, &mut |listed, at| {
        max_len += TEXT_EACH + LONGEST_ESCAPE * (listed.name.len() + listed.file.len()) as u64;
        named.insert(listed.file.clone());
        folder.list(&listed, at, table)
    });
    match listed {
        Ok(true) => {}
        Ok(false) => return Err(without(name, "a receipt that lists no files, not a")),
        Err(stop) => {
            return Err(stop.into_error(&path.join(FOLDER_LIST).display().to_string()));
        }
    }
    let (others, unlisted) = others(path, &named);
    for (folder, source) in unlisted {
        table.warn_of_loss(None, format!("{folder:?} cannot be listed, and files in it are left out: {source}"));
    }
    if !others.is_empty() {
        let what = format!(
            "the folder also has files that its receipt does not list and that are left out: {}",
            joined(MAX_OTHERS, &others)
        );
        table.warn_of_loss(None, what);
    }
    match text(&notes, max_len) {
        Ok(text) => table.metadata.push((NOTES.to_owned(), text)),
        Err(found) => table.fault(Fault::new(0, FaultKind::words("a receipt that can be read", found))),
    }
    Ok(folder)
}

/// The notes' text, or the reason why the notes cannot be read.
fn text(notes: &FileSource, max_len: u64) -> Result<String, String> {
    let len = notes.len();
    if len > max_len {
        return Err(format!("{len} bytes, more than its {max_len} for the files that it lists"));
    }
    let mut text = Vec::new();
    text.try_reserve_exact(len as usize).map_err(|_| format!("{len} bytes, for which there is no memory"))?;
    text.resize(len as usize, 0);
    notes.read_at(0, &mut text).map_err(|e| e.to_string())?;
    String::from_utf8(text).map_err(|_| "text that is not UTF-8".to_owned())
}

/// The files of tensors in a folder, sorted, that are not among the `named`, and the folders that cannot be listed.
/// Links are not followed.
fn others(root: &Path, named: &HashSet<String>) -> (Vec<String>, Vec<(String, io::Error)>) {
    let (mut others, mut unlisted, mut folders) = (Vec::new(), Vec::new(), vec![String::new()]);
    while let Some(folder) = folders.pop() {
        let files = match root.join(&folder).read_dir() {
            Ok(files) => files,
            Err(source) => {
                unlisted.push((folder, source));
                continue;
            }
        };
        for file in files.filter_map(Result::ok) {
            let path = format!("{folder}{}", file.file_name().to_string_lossy());
            match file.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(path + "/"),
                Ok(_) if Format::of_path(&path).is_some() && !named.contains(&path) => others.push(path),
                _ => {}
            }
        }
    }
    others.sort();
    unlisted.sort_by(|(a, _), (b, _)| a.cmp(b));
    (others, unlisted)
}

fn without(name: &str, what: &str) -> Error {
    Error::NotTensors {
        file: name.to_owned(),
        reason: Reason::Directory,
        what: format!("a folder with {what} {FOLDER_LIST} of a conversion in it"),
        help: None,
    }
}

impl Folder {
    /// A folder whose files come with [`Folder::add`].
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), files: Vec::new(), len: 0, list: None, has_links: false, open: Mutex::default() }
    }

    /// A folder in which links are followed: Hugging Face's cache consists of links. The files there have plain names.
    pub(crate) fn with_links(root: &Path) -> Self {
        Self { has_links: true, ..Self::new(root) }
    }

    /// Opens a file of the folder.
    pub(crate) fn open(&self, path: &str) -> io::Result<FileSource> {
        if !self.has_links {
            return open_within(&self.root, path).and_then(FileSource::try_from);
        }
        let whole = self.root.join(path);
        // Opening a pipe would wait for a writer.
        if !fs::metadata(&whole)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "is no ordinary file"));
        }
        File::open(whole).and_then(FileSource::try_from)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The paths of the files within the folder.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|part| &*part.path)
    }

    /// Appends a file.
    pub(crate) fn add(&mut self, path: &str, file: &FileSource) {
        self.files.push(FolderFile { path: path.into(), begin: self.len, modified: file.modified() });
        self.len += file.len();
    }

    /// Names the file that lists the others. The folder's bytes do not include this file.
    pub(crate) fn listed_in(&mut self, path: PathBuf, file: &FileSource) {
        self.list = Some(List { path, len: file.len(), modified: file.modified() });
    }

    pub(crate) fn count(&self) -> usize {
        self.files.len()
    }

    /// Adds a file and lists the array; a fault of the file is the array's.
    fn list(&mut self, listed: &Listed, at: u64, table: &mut NameTable) -> Result<(), ReadError> {
        let position = table.next_position(at)?;
        let entry = match self.describe(listed, position) {
            Ok((entry, file)) => {
                self.add(&listed.file, &file);
                entry
            }
            Err(fault) => faulty(position, 0, Kind::Data, fault),
        };
        table.push(entry, &listed.name, at)
    }

    /// The array of one file, and the file. Offsets in faults are those in the file.
    fn describe(&self, listed: &Listed, position: u32) -> Result<(Entry, FileSource), Fault> {
        let unread = |e: io::Error| {
            let found = format!("{}: {e}", listed.file);
            Fault::new(0, FaultKind::words("a file that the receipt lists", found))
        };
        let source = self.open(&listed.file);
        let source = source.map_err(unread)?;
        let len = source.len();
        let mut cursor = Cursor::new(&source);
        let (header, data) = header::read(&mut cursor, len).map_err(|stop| match stop {
            ReadError::Fault(fault) => fault,
            ReadError::Io { source, .. } => unread(source),
            ReadError::Other(_, what, _) => Fault::new(0, FaultKind::words("an npy file", what)),
        })?;
        let mut entry = Entry::new(position, 0, Kind::Data);
        header.describe(&mut entry, data, len - data)?;
        if let Payload::Runs(Runs::One(run)) = &entry.payload {
            entry.payload = Payload::Runs(Runs::One(Segment { offset: self.len.saturating_add(run.offset), ..*run }));
        }
        Ok((entry, source))
    }

    /// Where a file ends in the concatenated files.
    fn end(&self, index: usize) -> u64 {
        self.files.get(index + 1).map_or(self.len, |next| next.begin)
    }

    fn file(&self, index: usize) -> io::Result<Arc<FileSource>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = open.iter().position(|(i, _)| *i == index) {
            let found = open.remove(at);
            let file = found.1.clone();
            open.push(found);
            return Ok(file);
        }
        let file = self.open(&self.files[index].path)?;
        if file.len() != self.end(index) - self.files[index].begin {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "is of another length than when it was listed"));
        }
        let file = Arc::new(file);
        if open.len() == MAX_OPEN {
            open.remove(0);
        }
        open.push((index, file.clone()));
        Ok(file)
    }
}

impl Source for Folder {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            if offset >= self.len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // Of files that begin here, all but the last are empty.
            let index = self.files.partition_point(|part| part.begin <= offset) - 1;
            let part = &self.files[index];
            let end = self.end(index);
            let (now, rest) = buf.split_at_mut(buf.len().min((end - offset) as usize));
            let named = |place: String, e: io::Error| io::Error::new(e.kind(), format!("{}{place}: {e}", part.path));
            let (file, at) = (self.file(index).map_err(|e| named(String::new(), e))?, offset - part.begin);
            file.read_at(at, now).map_err(|e| named(format!(", at byte {at} of it"), e))?;
            offset += now.len() as u64;
            buf = rest;
        }
        Ok(())
    }

    /// Asks each file by name: a replaced file is another one, even where the old one is still open.
    fn is_unchanged(&self) -> io::Result<bool> {
        for (index, part) in self.files.iter().enumerate() {
            let len = self.end(index) - part.begin;
            if !is_as_listed(&self.root.join(&*part.path), len, part.modified)? {
                return Ok(false);
            }
        }
        self.list.as_ref().map_or(Ok(true), |list| is_as_listed(&list.path, list.len, list.modified))
    }
}

/// Whether a file still has the listed length and modification time.
fn is_as_listed(path: &Path, len: u64, modified: Option<SystemTime>) -> io::Result<bool> {
    let now = match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        now => now?,
    };
    Ok((now.len(), now.modified().ok()) == (len, modified))
}

/// Opens a file of a folder, without following links.
fn open_within(root: &Path, path: &str) -> io::Result<File> {
    let mut whole = root.to_owned();
    let mut parts = path.split('/').peekable();
    while let Some(part) = parts.next() {
        whole.push(part);
        let kind = fs::symlink_metadata(&whole)?.file_type();
        let fits = match parts.peek() {
            Some(_) => kind.is_dir(),
            None => kind.is_file(),
        };
        if !fits {
            let what = "is no ordinary file within the folder";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    }
    File::open(whole)
}
