//! Unpacks a gzip file (RFC 1952) before the content is read, and checks each member's CRC-32 and length.
//!
//! Relies on `flate2` for the deflate stream and on [`Spool`] for the bound. Offsets in the errors here are those of
//! the packed bytes; later reads have offsets in the unpacked bytes.

use flate2::{Decompress, FlushDecompress, Status};

use crate::error::{Error, FaultKind, ReadError};
use crate::wire::cursor::Cursor;
use crate::wire::source::Source;
use crate::wire::spool::{PIECE, Spool};

/// The first bytes of a member, with the method (deflate).
const MAGIC: &[u8] = b"\x1F\x8B\x08";

/// Header flags: a CRC-16 of the header, an extra field, a name, a comment. The upper three are reserved.
const FHCRC: u8 = 1 << 1;
const FEXTRA: u8 = 1 << 2;
const FNAME: u8 = 1 << 3;
const FCOMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0xE0;

/// Whether bytes begin like a gzip file.
pub(crate) fn is_gzip(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Whether the source begins like a gzip file.
pub(crate) fn begins_as_gzip(source: &dyn Source) -> bool {
    let mut head = [0; MAGIC.len()];
    source.len() >= head.len() as u64 && source.read_at(0, &mut head).is_ok() && is_gzip(&head)
}

/// The name of the content: `net.caffemodel` for `net.caffemodel.gz`.
pub(crate) fn inner_name(name: &str) -> &str {
    let end = name.len().saturating_sub(".gz".len());
    match name.get(end..) {
        Some(extension) if extension.eq_ignore_ascii_case(".gz") => &name[..end],
        _ => name,
    }
}

/// Marks an error as one about the unpacked content of a gzip file.
pub(crate) fn inside(mut error: Error) -> Error {
    match &mut error {
        Error::NotTensors { what, .. } => *what = format!("a gzip file; unpacked, it is {what}"),
        Error::Malformed { subject, .. } | Error::LimitExceeded { subject, .. } => {
            *subject = Some(match subject.take() {
                Some(subject) => format!("unpacked {subject}"),
                None => "unpacked".to_owned(),
            });
        }
        _ => {}
    }
    error
}

/// Unpacks all members of a gzip file, one after the other.
///
/// # Errors
/// A member that is broken, ends too early, or has another CRC-32 or length than the trailer says; bytes after a member
/// that are neither zeros nor another member; an error of the spool.
pub(crate) fn unpack(name: &str, source: &dyn Source, spool: &mut Spool<'_>) -> Result<(), Error> {
    let own = |stop: ReadError| stop.within("gzip".to_owned()).into_error(name);
    let mut cursor = Cursor::new(source);
    let mut content = Inflated::new();
    while cursor.left() > 0 {
        header(&mut cursor).map_err(own)?;
        content.begin();
        while let Some(bytes) = content.next(&mut cursor).map_err(own)? {
            spool.push(bytes).map_err(inside)?;
        }
        padding(&mut cursor).map_err(own)?;
    }
    Ok(())
}

/// Appends the first bytes of a gzip file's content, at most `max`; compares no checksums.
pub(crate) fn beginning(source: &dyn Source, max: usize, out: &mut Vec<u8>) -> Result<(), ReadError> {
    let mut cursor = Cursor::new(source);
    header(&mut cursor)?;
    let mut content = Inflated::new();
    while out.len() < max
        && let Some(bytes) = content.next(&mut cursor)?
    {
        out.extend_from_slice(&bytes[..bytes.len().min(max - out.len())]);
    }
    Ok(())
}

/// Skips zeros after a member: files written in whole blocks of a tape or a disk end with zeros. gzip(1) and Python
/// skip such zeros too.
fn padding(cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
    while cursor.left() > 0 {
        let bytes = cursor.at_hand(cursor.file_len())?;
        let (zeros, len) = (bytes.iter().take_while(|b| **b == 0).count(), bytes.len());
        cursor.seek(cursor.pos() + zeros as u64);
        if zeros < len {
            break;
        }
    }
    Ok(())
}

/// Skips a member's header.
fn header(cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
    let (begin, end) = (cursor.pos(), cursor.file_len());
    for byte in MAGIC {
        if cursor.u8(end, "a gzip header")? != *byte {
            let found = format!("{} bytes of something else", end - begin);
            let what = FaultKind::words("the end of the gzip file or another member", found);
            return Err(ReadError::fault(begin, what));
        }
    }
    let flags = cursor.u8(end, "a gzip header")?;
    if flags & RESERVED != 0 {
        let found = format!("the flags {flags:#04x}");
        let what = FaultKind::words("a gzip header without reserved flags", found);
        return Err(ReadError::fault(begin + 3, what));
    }
    // Time, compression level, system.
    cursor.skip(6, "a gzip header")?;
    if flags & FEXTRA != 0 {
        let len = cursor.array(end, "the extra field of a gzip header")?;
        let len = u16::from_le_bytes(len);
        cursor.skip(len.into(), "the extra field of a gzip header")?;
    }
    for flag in [FNAME, FCOMMENT] {
        while flags & flag != 0 && cursor.u8(end, "a text of a gzip header")? != 0 {}
    }
    if flags & FHCRC != 0 {
        header_crc(cursor, begin)?;
    }
    Ok(())
}

/// Compares the lower half of the CRC-32 of the header from `begin` up to here.
fn header_crc(cursor: &mut Cursor<'_>, begin: u64) -> Result<(), ReadError> {
    let at = cursor.pos();
    let mut crc = crc32fast::Hasher::new();
    cursor.seek(begin);
    while cursor.pos() < at {
        let bytes = cursor.at_hand(at)?;
        crc.update(bytes);
        let len = bytes.len() as u64;
        cursor.seek(cursor.pos() + len);
    }
    let expected = u16::from_le_bytes(cursor.array(cursor.file_len(), "the CRC of a header")?);
    let found = crc.finalize() as u16;
    check_equal("the CRC-16 of the header", at, expected.into(), found.into())
}

/// A member's content, inflated piece by piece.
struct Inflated {
    inflate: Decompress,
    crc: crc32fast::Hasher,
    piece: Vec<u8>,
    ended: bool,
}

impl Inflated {
    fn new() -> Self {
        Self { inflate: Decompress::new(false), crc: crc32fast::Hasher::new(), piece: vec![0; PIECE], ended: false }
    }

    /// Resets for the next member.
    fn begin(&mut self) {
        self.inflate.reset(false);
        self.crc.reset();
        self.ended = false;
    }

    /// The next bytes; `None` at the end of a member with a correct trailer.
    fn next(&mut self, cursor: &mut Cursor<'_>) -> Result<Option<&[u8]>, ReadError> {
        if self.ended {
            self.trailer(cursor)?;
            return Ok(None);
        }
        loop {
            let (at, end) = (cursor.pos(), cursor.file_len());
            let (packed, unpacked) = (self.inflate.total_in(), self.inflate.total_out());
            let input = cursor.at_hand(end)?;
            let status = self.inflate.decompress(input, &mut self.piece, FlushDecompress::None);
            let used = self.inflate.total_in() - packed;
            let made = (self.inflate.total_out() - unpacked) as usize;
            cursor.seek(at + used);
            self.ended = matches!(status, Ok(Status::StreamEnd));
            if made > 0 || self.ended {
                self.crc.update(&self.piece[..made]);
                return Ok(Some(&self.piece[..made]));
            }
            if status.is_err() || used == 0 {
                cursor.need(1, end, "the deflate stream")?;
                let what = FaultKind::words("a deflate stream", "bytes that are not one");
                return Err(ReadError::fault(cursor.pos(), what));
            }
        }
    }

    /// Compares the CRC-32 of the unpacked bytes, and the number of bytes modulo 2³².
    fn trailer(&self, cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
        let found = self.inflate.total_out() as u32;
        let at = cursor.pos();
        let crc = cursor.u32("the CRC-32 of the unpacked bytes")?;
        let len = cursor.u32("the length of the unpacked bytes")?;
        let found_crc = self.crc.clone().finalize();
        check_equal("the CRC-32 of the unpacked bytes", at, crc, found_crc)?;
        check_equal("the length of the unpacked bytes", at + 4, len, found)
    }
}

fn check_equal(field: &'static str, at: u64, expected: u32, found: u32) -> Result<(), ReadError> {
    if expected == found {
        return Ok(());
    }
    let what = FaultKind::Trailer { field, expected, found };
    Err(ReadError::fault(at, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;

    #[test]
    fn a_name_loses_its_last_extension() {
        assert_eq!(inner_name("a.caffemodel.gz"), "a.caffemodel");
        assert_eq!(inner_name("a.GZ"), "a");
        assert_eq!(inner_name("a.npz"), "a.npz");
        assert_eq!(inner_name("é"), "é");
    }

    #[test]
    fn only_a_gzip_file_is_one() {
        assert!(begins_as_gzip(&Bytes(b"\x1F\x8B\x08\x00")));
        assert!(!begins_as_gzip(&Bytes(b"\x1F\x8B")));
        assert!(!begins_as_gzip(&Bytes(b"\x1F\x8B\x00\x00")));
    }

    fn unpacked(file: Vec<u8>) -> Result<Vec<u8>, Error> {
        let mut spool = Spool::new("x", |_| None, 1 << 20);
        unpack("x", &Bytes(file), &mut spool)?;
        let source = spool.finish()?;
        Ok(source.bytes().expect("in memory").to_vec())
    }

    #[test]
    fn every_part_of_a_header_is_skipped_and_its_crc_compared() {
        // "abc" in a stored block, with an extra field, a name, a comment and the header's CRC.
        let mut file = b"\x1F\x8B\x08\x1E\0\0\0\0\0\xFF\x02\0xynet\0why\0".to_vec();
        let crc = crc32fast::hash(&file) as u16;
        file.extend(crc.to_le_bytes());
        file.extend(b"\x01\x03\0\xFC\xFFabc");
        file.extend(crc32fast::hash(b"abc").to_le_bytes());
        file.extend(3u32.to_le_bytes());
        assert_eq!(unpacked(file.clone()).unwrap(), b"abc");
        file[14] ^= 1;
        let error = unpacked(file).unwrap_err();
        assert_eq!(error.reason(), crate::Reason::Checksum, "{error}");
        assert_eq!(error.offset(), Some(22), "{error}");
    }
}
