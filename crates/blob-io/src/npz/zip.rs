//! Reads the zip container from the central directory: sizes, dates and versions in local headers are ignored, because
//! MXNet 2 writes zeros there.

use crate::error::{FaultKind, ReadError};
use crate::limits::Limit;
use crate::names::name_from_bytes;
use crate::npz::{CENTRAL, END, END64, EXTRA_NAME, EXTRA_ZIP64, LOCAL, LOCATOR64, NAME_MARK};
use crate::wire::cursor::Cursor;

/// The end record has 22 bytes; a comment of up to 65,535 may follow.
const END_LEN: u64 = 22;
const MAX_COMMENT: u64 = u16::MAX as u64;
/// The record is looked for first in as many bytes at the file's end.
const NEAR: u64 = 256;
/// A local header without the name and the extra fields.
const LOCAL_LEN: u64 = 30;

/// The location of the central directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) count: u64,
    /// Where the archive ends; later bytes are not part of the archive.
    pub(crate) archive_end: u64,
}

/// One record of the central directory.
#[derive(Debug)]
pub(crate) struct ZipMember {
    /// The name, in bytes; never used as a path.
    pub(crate) name: Vec<u8>,
    /// The tensor's own name, if our writer had to give the member another.
    pub(crate) raw: Option<Vec<u8>>,
    pub(crate) method: u16,
    pub(crate) encrypted: bool,
    pub(crate) packed: u64,
    pub(crate) size: u64,
    pub(crate) crc: u32,
    /// The offset of the local header.
    pub(crate) local: u64,
}

impl ZipMember {
    /// The smallest offset at which the member can end: the local header may have more extra fields than the central
    /// one.
    pub(crate) fn least_end(&self) -> Option<u64> {
        self.local.checked_add(LOCAL_LEN + self.name.len() as u64)?.checked_add(self.packed)
    }
}

/// Finds the central directory.
pub(crate) fn directory(cursor: &mut Cursor<'_>) -> Result<Directory, ReadError> {
    let (at, archive_end) = find_end(cursor)?;
    cursor.seek(at + 8);
    let file_len = cursor.file_len();
    let mut short = || cursor.array(file_len, "the zip's end record").map(u16::from_le_bytes);
    let (_, count) = (short()?, short()?);
    let (len, begin) = (cursor.u32("the zip's end record")?, cursor.u32("the zip's end record")?);
    let full = count == u16::MAX || len == u32::MAX || begin == u32::MAX;
    let mut found =
        Directory { begin: begin.into(), end: u64::from(begin) + u64::from(len), count: count.into(), archive_end };
    let mut limit = at;
    if full && let Some(at64) = locate64(cursor, at)? {
        cursor.seek(at64 + 32);
        let field = "the zip's ZIP64 end record";
        let (count, len, begin) = (cursor.u64(field)?, cursor.u64(field)?, cursor.u64(field)?);
        let end = begin.saturating_add(len);
        found = Directory { begin, end, count, ..found };
        limit = at64;
    }
    if found.begin > limit {
        let what = format!("one at byte {}, behind that", found.begin);
        return Err(ReadError::fault(at, FaultKind::words("a central directory before the zip's end record", what)));
    }
    if found.end > limit {
        let (needed, left) = (found.end - found.begin, limit - found.begin);
        return Err(ReadError::fault(at, FaultKind::Truncated { field: "the zip's central directory", needed, left }));
    }
    Ok(found)
}

/// The offset of the end record, and where the archive ends with the comment. Takes the last record whose comment ends
/// at the file's end, else the last one whose comment fits into the file. Few archives have a comment, and few of these
/// a long one: most are found without the 64 KiB that one may have.
fn find_end(cursor: &mut Cursor<'_>) -> Result<End, ReadError> {
    match ends(cursor, NEAR)? {
        (Some(found), _) => Ok(found),
        _ => {
            let (exact, fits) = ends(cursor, END_LEN + MAX_COMMENT)?;
            let what = FaultKind::Truncated { field: "the zip's end record", needed: END_LEN, left: 0 };
            exact.or(fits).ok_or(ReadError::fault(cursor.file_len(), what))
        }
    }
}

/// An end record's offset, and where its comment ends.
type End = (u64, u64);

/// In the file's last `within` bytes, the last record whose comment ends at the file's end, and the last one whose
/// comment ends before.
fn ends(cursor: &mut Cursor<'_>, within: u64) -> Result<(Option<End>, Option<End>), ReadError> {
    let len = cursor.file_len();
    let from = len.saturating_sub(within);
    cursor.seek(from);
    let tail = cursor.bytes(len - from, len, within, "the zip's end record")?;
    let mut fits = None;
    for at in (0..(tail.len() + 1).saturating_sub(END_LEN as usize)).rev() {
        if tail[at..at + 4] != END.to_le_bytes() {
            continue;
        }
        let comment = usize::from(u16::from_le_bytes([tail[at + 20], tail[at + 21]]));
        let end = at + END_LEN as usize + comment;
        let found = (from + at as u64, from + end as u64);
        if end == tail.len() {
            return Ok((Some(found), fits));
        }
        if end < tail.len() && fits.is_none() {
            fits = Some(found);
        }
    }
    Ok((None, fits))
}

/// The offset of the ZIP64 end record, if there is one.
fn locate64(cursor: &mut Cursor<'_>, end: u64) -> Result<Option<u64>, ReadError> {
    let Some(at) = end.checked_sub(20) else {
        return Ok(None);
    };
    cursor.seek(at);
    let field = "the zip's ZIP64 locator";
    if cursor.u32(field)? != LOCATOR64 {
        return Ok(None);
    }
    cursor.skip(4, field)?;
    let at64 = cursor.u64(field)?;
    if at64.checked_add(56).is_none_or(|end| end > at) {
        let field = "the place of the zip's ZIP64 end record";
        let what = FaultKind::Limit { field, needed: at64, allowed: at.saturating_sub(56), limit: Limit::Fixed };
        return Err(ReadError::fault(at + 8, what));
    }
    cursor.seek(at64);
    signature(cursor, END64, "the zip's ZIP64 end record")?;
    Ok(Some(at64))
}

fn signature(cursor: &mut Cursor<'_>, expected: u32, field: &'static str) -> Result<(), ReadError> {
    let at = cursor.pos();
    let found = cursor.u32(field)?;
    if found == expected {
        return Ok(());
    }
    Err(ReadError::fault(at, FaultKind::Signature { field, expected, found }))
}

/// Reads the record at the cursor, which ends before `end`, and moves the cursor past the record.
pub(crate) fn member(cursor: &mut Cursor<'_>, end: u64) -> Result<ZipMember, ReadError> {
    let at = cursor.pos();
    let field = "a record of the zip's central directory";
    cursor.need(46, end, field)?;
    signature(cursor, CENTRAL, field)?;
    let rest: [u8; 42] = cursor.array(end, field)?;
    let short = |i: usize| u16::from_le_bytes([rest[i - 4], rest[i - 3]]);
    let long = |i: usize| u32::from(short(i)) | u32::from(short(i + 2)) << 16;
    let (name_len, extra_len, comment_len) = (short(28), short(30), short(32));
    let mut member = ZipMember {
        name: cursor.bytes(name_len.into(), end, u64::from(u16::MAX), "a member's name")?,
        raw: None,
        method: short(10),
        encrypted: short(8) & 1 != 0,
        packed: long(20).into(),
        size: long(24).into(),
        crc: long(16),
        local: long(42).into(),
    };
    let extra = cursor.bytes(extra_len.into(), end, u64::from(u16::MAX), "a member's extra fields")?;
    cursor.need(comment_len.into(), end, "a member's comment")?;
    cursor.seek(cursor.pos() + u64::from(comment_len));
    member.extra(&extra).map_err(|what| ReadError::fault(at, what))?;
    Ok(member)
}

impl ZipMember {
    /// Reads the extra fields, up to the first that does not fit.
    fn extra(&mut self, mut extra: &[u8]) -> Result<(), FaultKind> {
        while let [a, b, c, d, rest @ ..] = extra {
            let (id, len) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
            let Some((content, rest)) = rest.split_at_checked(len.into()) else {
                break;
            };
            extra = rest;
            match id {
                EXTRA_ZIP64 => self.zip64(content)?,
                EXTRA_NAME => self.raw = content.strip_prefix(NAME_MARK).map(<[u8]>::to_vec),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the 64-bit numbers that replace 32-bit ones with all bits set, in this order.
    fn zip64(&mut self, mut content: &[u8]) -> Result<(), FaultKind> {
        for number in [&mut self.size, &mut self.packed, &mut self.local] {
            if *number == u64::from(u32::MAX) {
                let (first, rest) = content.split_first_chunk().ok_or(FaultKind::Truncated {
                    field: "a member's ZIP64 field",
                    needed: 8,
                    left: content.len() as u64,
                })?;
                *number = u64::from_le_bytes(*first);
                content = rest;
            }
        }
        Ok(())
    }
}

/// The offset of the member's content, all of which lies before `end`.
pub(crate) fn content(cursor: &mut Cursor<'_>, member: &ZipMember, end: u64) -> Result<u64, ReadError> {
    cursor.seek(member.local);
    cursor.need(LOCAL_LEN, end, "a member's local header")?;
    signature(cursor, LOCAL, "a member's local header")?;
    cursor.skip(22, "a member's local header")?;
    let mut short = || cursor.array(end, "a member's local header").map(u16::from_le_bytes);
    let (name, extra) = (short()?, short()?);
    let at = cursor.pos();
    let local = cursor.bytes(name.into(), end, u64::from(u16::MAX), "a member's name")?;
    if local != member.name {
        let found = format!("{:?}", name_from_bytes(&local));
        let what = FaultKind::words("the name that the zip's directory gives the member", found);
        return Err(ReadError::fault(at, what));
    }
    cursor.seek(cursor.pos() + u64::from(extra));
    cursor.need(member.packed, end, "a member's content")?;
    Ok(cursor.pos())
}
