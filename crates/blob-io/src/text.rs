//! Reads the text that describes a net: a file, the content of a gzip file, or a file in an archive.
//!
//! Relies on `archive` and `gunzip`, as the opening of weights does. Leaves the parsing to the formats, and files
//! beside open weights to `checkpoint::beside`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::archive::Archive;
use crate::checkpoint::split_at_file;
use crate::error::{Error, failed};
use crate::limits::Limits;
use crate::mxnet::symbol::{MAX_BYTES, Symbol};
use crate::wire::gunzip;
use crate::wire::source::{Bytes, FileSource, Input, Source, read};
use crate::wire::spool::Spool;

/// The first `most` + 1 bytes of a file: the extra byte lets you refuse a longer file. A gzip file is unpacked, and a
/// path that goes on behind an archive names a file in the archive: `model.tar.gz/net-symbol.json`.
///
/// # Errors
/// [`Error::Open`], [`Error::Io`]; a gzip file or an archive that is broken; a file that the archive lacks.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> Result<Vec<u8>, Error> {
    let path = path.as_ref();
    let name = path.display().to_string();
    let bytes = match File::open(path) {
        Ok(file) => first(file, most, &name)?,
        Err(source) => match split_at_file(path).filter(|(file, _)| file.is_file()) {
            Some((archive, member)) => of_member(archive, &member, most)?,
            None => return Err(Error::Open { file: name, source }),
        },
    };
    if !gunzip::is_gzip(&bytes) {
        return Ok(bytes);
    }
    let content = unpacked(&name, &Bytes(bytes), most)?;
    let mut bytes = vec![0; content.len() as usize];
    read(&*content, 0, &mut bytes).map_err(|stop| stop.into_error(&name))?;
    Ok(bytes)
}

/// The file on the disk that a path of [`read_text`] reads: of `model.tar.gz/net-symbol.json` the archive.
#[must_use]
pub fn file_of(path: &Path) -> &Path {
    if path.exists() { path } else { split_at_file(path).map_or(path, |(file, _)| file) }
}

impl Symbol {
    /// Reads a symbol file, which may be packed: see [`read_text`].
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::Io`]; [`Error::Malformed`] or [`Error::LimitExceeded`], with the offset, for a file
    /// that is no symbol file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        Self::from_source(&path.display().to_string(), &Bytes(read_text(path, MAX_BYTES)?))
    }
}

fn first(file: impl Read, most: u64, name: &str) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    match file.take(most.saturating_add(1)).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(source) => Err(failed(name, "read", source)),
    }
}

/// The bytes of a file in an archive, of at most `most` bytes.
fn of_member(archive: &Path, member: &str, most: u64) -> Result<Vec<u8>, Error> {
    let name = archive.display().to_string();
    let source = FileSource::open(archive).map_err(|source| failed(&name, "read", source))?;
    let mut input = Input::new(Box::new(source));
    let limits = Limits::default();
    if gunzip::begins_as_gzip(&input) {
        input = Input::new(unpacked(&name, &input, limits.max_spool)?);
    }
    let Some(files) = Archive::of(&input, &limits) else {
        let message = format!("is not a tar or zip archive, so there is no {member:?} in it");
        return Err(Error::Request { file: name, message });
    };
    let found = files.member(&name, member)?;
    files.bytes(&found, most).map_err(|stop| stop.within(format!("member {member:?}")).into_error(&name))
}

fn unpacked(name: &str, source: &dyn Source, most: u64) -> Result<Box<dyn Source>, Error> {
    let mut spool = Spool::new(name, |_| None, most);
    gunzip::unpack(name, source, &mut spool)?;
    spool.finish()
}
