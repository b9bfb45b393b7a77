//! Reads a zip member's content once, from front to back, stored or inflated, and computes the CRC-32.
//!
//! Relies on the zip's reader having checked that the content lies within the file. Knows no npy header.

use std::io;

use crc32fast::Hasher;
use flate2::{Decompress, FlushDecompress, Status};

use crate::entry::Checksum;
use crate::error::{Fault, FaultKind, ReadError};
use crate::wire::source::{Source, read};

/// How many bytes are read and hashed at once: so few are still in the processor's cache when the checksum is computed.
pub(crate) const PIECE: usize = 256 << 10;
/// How many bytes of a deflate stream are read at once.
const INPUT: u64 = 64 << 10;

/// A member's content during reading.
pub(crate) struct Content<'a> {
    source: &'a dyn Source,
    expected: &'a Checksum,
    crc: Hasher,
    /// How many bytes have been read.
    done: u64,
    inflater: Option<Box<Inflater>>,
}

impl<'a> Content<'a> {
    pub(crate) fn open(source: &'a dyn Source, expected: &'a Checksum) -> Self {
        let inflater = expected.packed.map(|packed| Box::new(Inflater::new(expected.offset, packed)));
        Self { source, expected, crc: Hasher::new(), done: 0, inflater }
    }

    /// Fills `out` with the next bytes.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> Result<(), ReadError> {
        let mut filled = 0;
        while filled < out.len() {
            let end = out.len().min(filled + PIECE);
            let n = self.piece(&mut out[filled..end])?;
            if n == 0 {
                return Err(self.length("the member's length", self.done));
            }
            filled += n;
        }
        Ok(())
    }

    /// Appends the next bytes until `out` has `len` bytes or the content ends.
    pub(crate) fn extend(&mut self, out: &mut Vec<u8>, len: usize) -> Result<(), ReadError> {
        let mut filled = out.len();
        out.resize(len.max(filled), 0);
        while filled < out.len() {
            match self.piece(&mut out[filled..])? {
                0 => out.truncate(filled),
                n => filled += n,
            }
        }
        Ok(())
    }

    /// Skips the next bytes.
    pub(crate) fn skip(&mut self, mut bytes: u64) -> Result<(), ReadError> {
        let mut scratch = vec![0; bytes.min(PIECE as u64) as usize];
        while bytes > 0 {
            let n = bytes.min(PIECE as u64);
            self.read(&mut scratch[..n as usize])?;
            bytes -= n;
        }
        Ok(())
    }

    /// Skips the next piece and returns the length; 0 at the end.
    pub(crate) fn step(&mut self, scratch: &mut Vec<u8>) -> Result<usize, ReadError> {
        let left = self.expected.size.saturating_sub(self.done);
        // The inflater needs room for one more byte to notice the end of the stream.
        let room = left.saturating_add(u64::from(self.inflater.is_some()));
        scratch.resize(room.min(PIECE as u64) as usize, 0);
        self.piece(scratch)
    }

    /// Skips the rest, and errors unless length and CRC-32 are those in the directory, and a deflate stream ends with
    /// the member.
    pub(crate) fn finish(&mut self) -> Result<(), ReadError> {
        let mut scratch = Vec::new();
        while self.step(&mut scratch)? > 0 {}
        if let (Some(inflater), Some(packed)) = (&self.inflater, self.expected.packed) {
            let found = inflater.inflate.total_in();
            if found != packed {
                return Err(mismatch(self.expected, "the deflate stream's length", packed, found));
            }
        }
        if self.done != self.expected.size {
            return Err(self.length("the member's length", self.done));
        }
        check_crc(self.expected, self.crc.clone().finalize())
    }

    /// Reads the next bytes, as many as are available; none at the end.
    fn piece(&mut self, out: &mut [u8]) -> Result<usize, ReadError> {
        let begin = self.expected.offset;
        let n = match &mut self.inflater {
            Some(inflater) => inflater.read(self.source, begin, out)?,
            None => {
                let n = (out.len() as u64).min(self.expected.size - self.done) as usize;
                read(self.source, begin + self.done, &mut out[..n])?;
                n
            }
        };
        self.crc.update(&out[..n]);
        self.done += n as u64;
        if self.done > self.expected.size {
            return Err(self.length("the member's length, at least", self.done));
        }
        Ok(n)
    }

    fn length(&self, field: &'static str, found: u64) -> ReadError {
        mismatch(self.expected, field, self.expected.size, found)
    }
}

/// The bytes of a small member; the caller has checked the length. The vector grows with the content, so a member that
/// is shorter than the directory says takes no more memory than the content.
pub(crate) fn bytes(source: &dyn Source, expected: &Checksum) -> Result<Vec<u8>, ReadError> {
    let (mut content, mut bytes) = (Content::open(source, expected), Vec::new());
    while (bytes.len() as u64) < expected.size {
        let before = bytes.len();
        content.extend(&mut bytes, (before as u64 + PIECE as u64).min(expected.size) as usize)?;
        if bytes.len() == before {
            break;
        }
    }
    content.finish()?;
    Ok(bytes)
}

/// A deflate stream in a range of a source.
struct Inflater {
    inflate: Decompress,
    input: Vec<u8>,
    /// How many bytes of the input are used.
    used: usize,
    next: u64,
    end: u64,
    ended: bool,
}

impl Inflater {
    fn new(offset: u64, packed: u64) -> Self {
        Self {
            inflate: Decompress::new(false),
            input: Vec::new(),
            used: 0,
            next: offset,
            end: offset + packed,
            ended: false,
        }
    }

    /// The next inflated bytes; none at the end of the stream, which lies within the member.
    fn read(&mut self, source: &dyn Source, begin: u64, out: &mut [u8]) -> Result<usize, ReadError> {
        let fault = |what| ReadError::Fault(Fault::new(begin, what));
        while !self.ended && !out.is_empty() {
            if self.used == self.input.len() && self.next < self.end {
                let n = (self.end - self.next).min(INPUT);
                self.input.resize(n as usize, 0);
                read(source, self.next, &mut self.input)?;
                self.next += n;
                self.used = 0;
            }
            let (before, made) = (self.inflate.total_in(), self.inflate.total_out());
            let input = &self.input[self.used..];
            let status = self
                .inflate
                .decompress(input, out, FlushDecompress::None)
                .map_err(|e| fault(FaultKind::words("a deflate stream", e.to_string())))?;
            self.ended = status == Status::StreamEnd;
            let used = (self.inflate.total_in() - before) as usize;
            self.used += used;
            let made = (self.inflate.total_out() - made) as usize;
            if made > 0 {
                return Ok(made);
            }
            if used == 0 && !self.ended {
                let what = FaultKind::words("a deflate stream that ends within the member", "none");
                return Err(fault(what));
            }
        }
        Ok(0)
    }
}

/// Checks a stored member in memory.
pub(crate) fn check(bytes: &[u8], expected: &Checksum) -> Result<(), ReadError> {
    let range = usize::try_from(expected.offset).ok().and_then(|at| {
        let end = at.checked_add(usize::try_from(expected.size).ok()?)?;
        bytes.get(at..end)
    });
    let content = range.ok_or_else(|| {
        let source = io::ErrorKind::UnexpectedEof.into();
        ReadError::Io { offset: expected.offset, source }
    })?;
    check_crc(expected, crc32fast::hash(content))
}

fn mismatch(at: &Checksum, field: &'static str, expected: u64, found: u64) -> ReadError {
    let what = FaultKind::Mismatch { field, expected, found };
    ReadError::Fault(Fault::new(at.offset, what))
}

/// Errors unless the content's CRC-32 is the directory's.
fn check_crc(expected: &Checksum, found: u32) -> Result<(), ReadError> {
    if found == expected.crc {
        return Ok(());
    }
    let what = FaultKind::Checksum { expected: expected.crc, found };
    Err(ReadError::Fault(Fault::new(expected.offset, what)))
}
