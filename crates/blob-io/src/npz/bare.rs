//! Whether an archive holds arrays alone: no other member, no byte between members, no comment.
//!
//! Relies on the archive having been opened, so members do not overlap and each entry has the content of one member.
//! Sizes and dates in local headers do not count, because no reader uses these fields.

use std::collections::HashMap;

use crate::entry::Entry;
use crate::error::ReadError;
use crate::npz::END;
use crate::npz::members::member_names;
use crate::npz::zip::{self, Directory, ZipMember};
use crate::wire::cursor::Cursor;
use crate::wire::source::Source;

/// A local header, a record of the directory and the end record, without names, extra fields and comments.
const LOCAL_LEN: u64 = 30;
const RECORD_LEN: u64 = 46;
const END_LEN: u64 = 22;
/// The records that ZIP64 puts before the end record: the ZIP64 end record, and the locator.
const END64_LEN: u64 = 56 + 20;
/// The lengths of a descriptor behind a content: three numbers of 32 or 64 bits, with or without a signature.
const DESCRIPTORS: [u64; 5] = [0, 12, 16, 20, 24];
/// Extra fields that zip tools write: ZIP64's sizes, times, and the owner's number.
const EXTRAS: [u16; 4] = [1, 0x5455, 0x7875, 0x5855];

/// Whether every byte belongs to one of these entries, which are all of the archive's, or to the archive's own
/// structure, and each member has the name that [`member_names`] gives the entry.
pub(crate) fn is_bare(source: &dyn Source, entries: &[Entry]) -> Result<bool, ReadError> {
    let mut cursor = Cursor::new(source);
    let directory = zip::directory(&mut cursor)?;
    if directory.count != entries.len() as u64 {
        return Ok(false);
    }
    let names: Vec<&str> = entries.iter().map(Entry::name).collect();
    let names = member_names(&names);
    let own: HashMap<String, &Entry> = names.into_iter().map(|name| name + ".npy").zip(entries).collect();
    let mut places = Vec::with_capacity(entries.len());
    let mut record = directory.begin;
    for _ in 0..directory.count {
        cursor.seek(record);
        let member = zip::member(&mut cursor, directory.end)?;
        let content = zip::content(&mut cursor, &member, directory.begin)?;
        let name = str::from_utf8(&member.name).ok();
        let is_own = name.and_then(|name| own.get(name)).is_some_and(|entry| holds_only(entry, &member, content));
        let extra = content - member.local - LOCAL_LEN - member.name.len() as u64;
        if !is_own || !are_plain(&mut cursor, content - extra, extra)? {
            return Ok(false);
        }
        let next = record_end(&mut cursor, record, &member)?;
        let Some(next) = next else { return Ok(false) };
        record = next;
        places.push((member.local, content + member.packed));
    }
    places.sort_unstable();
    let ends = [0].into_iter().chain(places.iter().map(|(_, end)| *end));
    let begins = places.iter().map(|(begin, _)| *begin).chain([directory.begin]);
    let is_tight = ends.zip(begins).enumerate().all(|(place, (end, begin))| {
        let gap = begin.checked_sub(end);
        gap.is_some_and(|gap| if place == 0 { gap == 0 } else { DESCRIPTORS.contains(&gap) })
    });
    Ok(is_tight && record == directory.end && ends_there(&mut cursor, directory, source.len())?)
}

/// Whether the member is the entry's, and the array fills the member from the end of the npy header on.
fn holds_only(entry: &Entry, member: &ZipMember, content: u64) -> bool {
    let checksum = entry.checksum.as_deref();
    let is_its = checksum.is_some_and(|checksum| checksum.offset == content && checksum.packed.is_none());
    // An entry without bytes has no place; the header alone fills the member then.
    let is_filled = entry.offset().is_none_or(|at| at + entry.byte_len() == content + member.packed);
    is_its && entry.dtype.is_some() && is_filled
}

/// Whether `len` bytes from `at` on are extra fields that zip tools write.
fn are_plain(cursor: &mut Cursor<'_>, at: u64, len: u64) -> Result<bool, ReadError> {
    cursor.seek(at);
    let extra = cursor.bytes(len, at + len, u64::from(u16::MAX), "a member's extra fields")?;
    let mut extra = &extra[..];
    while let [a, b, c, d, rest @ ..] = extra {
        let (id, len) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
        match rest.get(usize::from(len)..) {
            Some(rest) if EXTRAS.contains(&id) && len <= 32 => extra = rest,
            _ => return Ok(false),
        }
    }
    Ok(extra.is_empty())
}

/// Where a record of the directory ends; `None` for a comment or for other extra fields than zip tools write.
fn record_end(cursor: &mut Cursor<'_>, record: u64, member: &ZipMember) -> Result<Option<u64>, ReadError> {
    cursor.seek(record + 30);
    let field = "a record of the zip's central directory";
    let mut short = || cursor.array(cursor.file_len(), field).map(u16::from_le_bytes);
    let (extra, comment) = (short()?, short()?);
    let at = record + RECORD_LEN + member.name.len() as u64;
    let is_plain = comment == 0 && are_plain(cursor, at, extra.into())?;
    Ok(is_plain.then_some(at + u64::from(extra)))
}

/// Whether the end records follow the directory at once, and end the file.
fn ends_there(cursor: &mut Cursor<'_>, directory: Directory, len: u64) -> Result<bool, ReadError> {
    let Some(at) = len.checked_sub(END_LEN) else { return Ok(false) };
    cursor.seek(at);
    let is_end = cursor.u32("the zip's end record")? == END;
    Ok(is_end && matches!(at.checked_sub(directory.end), Some(0 | END64_LEN)))
}
