//! One array's bytes as a reader.

use std::io::{self, Read};

use crate::entry::Entry;
use crate::error::{Error, ReadError};
use crate::payload::Elements;

/// The bytes of one array, row-major and little-endian, pulled piece by piece.
///
/// Memory stays small however large the array is, except for column-major arrays, which are reordered as a whole. If
/// the file stores a checksum of the array, the last bytes come only if the checksum matches: a reader that reached the
/// end has returned the right bytes. After an error a reader fails for good.
pub struct Reader<'a> {
    file: &'a str,
    entry: &'a Entry,
    elements: Elements<'a>,
    /// An element that was returned in part, and the number of returned bytes: callers may ask for any number.
    split: ([u8; 8], usize),
    has_failed: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a str, entry: &'a Entry, elements: Elements<'a>) -> Self {
        let split = ([0; 8], elements.width());
        Self { file, entry, elements, split, has_failed: false }
    }

    /// How many bytes are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.elements.left() + self.rest().len() as u64
    }

    /// Fills the beginning of `out` with the next bytes and returns the number of bytes; 0 at the end, and if `out` is
    /// empty. The same as [`Read::read`], with this crate's error.
    ///
    /// # Errors
    /// As [`Checkpoint::load`](crate::Checkpoint::load); with the last bytes, a checksum that does not match.
    pub fn pull(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let width = self.elements.width();
        if self.rest().is_empty() && out.len() < width && self.elements.left() > 0 && !out.is_empty() {
            let mut element = [0; 8];
            self.run(|elements| elements.next(&mut element[..width]))?;
            self.split = (element, 0);
        }
        let rest = self.rest();
        if !rest.is_empty() {
            let n = rest.len().min(out.len());
            out[..n].copy_from_slice(&rest[..n]);
            self.split.1 += n;
            return Ok(n);
        }
        let n = (out.len() as u64).min(self.elements.left()) as usize / width * width;
        self.run(|elements| elements.next(&mut out[..n]))?;
        Ok(n)
    }

    /// Skips the next `bytes` bytes, at most all that are left. Reads nothing of plain runs; the member of an npz is
    /// read up to there for the checksum, and a deflated one is inflated in pieces.
    ///
    /// # Errors
    /// As [`Reader::pull`].
    pub fn skip(&mut self, bytes: u64) -> Result<(), Error> {
        let bytes = bytes.min(self.left());
        let within = bytes.min(self.rest().len() as u64);
        self.split.1 += within as usize;
        let width = self.elements.width() as u64;
        let bytes = bytes - within;
        self.run(|elements| elements.skip(bytes / width * width))?;
        let mut part = [0; 8];
        let remainder = (bytes % width) as usize;
        self.pull(&mut part[..remainder]).map(drop)
    }

    /// The rest of an element that was returned in part.
    fn rest(&self) -> &[u8] {
        &self.split.0[self.split.1..self.elements.width()]
    }

    fn run(&mut self, step: impl FnOnce(&mut Elements<'a>) -> Result<(), ReadError>) -> Result<(), Error> {
        if self.has_failed {
            return Err(self.entry.refused(self.file, "could not be read on; open another reader"));
        }
        step(&mut self.elements).map_err(|e| {
            self.has_failed = true;
            self.entry.error(self.file, e)
        })
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.pull(out).map_err(|error| {
            let kind = match &error {
                // `Interrupted` would make callers try again.
                Error::Io { source, .. } if source.kind() != io::ErrorKind::Interrupted => source.kind(),
                Error::Malformed { .. } => io::ErrorKind::InvalidData,
                _ => io::ErrorKind::Other,
            };
            io::Error::new(kind, error)
        })
    }
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("name", &self.entry.name()).field("left", &self.left()).finish_non_exhaustive()
    }
}
