//! The checksums of an archive whose stored arrays get new values: the bytes under each, the fields that store each.
//!
//! Relies on the archive having been opened: the entries have the offset of each member's content.

use std::collections::HashMap;

use crc32fast::Hasher;

use crate::entry::Entry;
use crate::error::{FaultKind, ReadError, check_limit};
use crate::limits::Limit;
use crate::npz::zip::{self, Directory, ZipMember};
use crate::payload::member::PIECE;
use crate::wire::cursor::Cursor;
use crate::wire::source::{Source, read};

/// The offset of the CRC-32 in a record of the directory and in a local header.
const IN_RECORD: u64 = 16;
const IN_LOCAL: u64 = 14;
/// The optional signature of the descriptor that may follow a member's content: the CRC-32 and the sizes.
const DESCRIPTOR: u32 = 0x0807_4B50;

/// Flag bit 3: a descriptor follows the content.
const DESCRIBED: u8 = 1 << 3;
const IN_LOCAL_FLAGS: u64 = 6;

/// The checksum of one member.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    /// The CRC-32 of the member's bytes before the array's.
    head: u32,
    /// How many bytes the array has.
    len: u64,
    /// The CRC-32 and the number of the bytes after the array's.
    tail: (u32, u64),
    /// The offsets at which the archive stores the checksum.
    pub(crate) fields: Vec<u64>,
}

impl Sum {
    /// The member's CRC-32, from that of the array's bytes.
    pub(crate) fn of(&self, array: u32) -> u32 {
        let mut whole = Hasher::new_with_initial(self.head);
        whole.combine(&Hasher::new_with_initial_len(array, self.len));
        whole.combine(&Hasher::new_with_initial_len(self.tail.0, self.tail.1));
        whole.finalize()
    }
}

/// The checksums of these stored arrays; `None` for an array without bytes, whose member does not change.
pub(crate) fn of(source: &dyn Source, entries: &[&Entry]) -> Result<Vec<Option<Sum>>, ReadError> {
    let mut cursor = Cursor::new(source);
    let directory = zip::directory(&mut cursor)?;
    let begins = begins(&mut cursor, directory)?;
    let mut fields = HashMap::new();
    let mut record = directory.begin;
    for _ in 0..directory.count {
        cursor.seek(record);
        let member = zip::member(&mut cursor, directory.end)?;
        let next = cursor.pos();
        let content = zip::content(&mut cursor, &member, directory.begin)?;
        let room = begins.get(begins.partition_point(|begin| *begin <= member.local)).copied();
        let room = room.unwrap_or(directory.begin);
        if content + member.packed > room {
            let what = FaultKind::words("members that do not overlap", "one whose content reaches into the next");
            return Err(ReadError::fault(content, what));
        }
        let descriptor = descriptor(&mut cursor, &member, content)?;
        // A different value in the local header is not a checksum, such as the zeros of a writer that cannot seek.
        let mut known = vec![record + IN_RECORD];
        for at in [Some(member.local + IN_LOCAL), descriptor].into_iter().flatten() {
            cursor.seek(at);
            if at + 4 <= room && cursor.u32("a member's checksum")? == member.crc {
                known.push(at);
            }
        }
        fields.insert(content, known);
        record = next;
    }
    // Members that share bytes would read the file many times over.
    let mut left = source.len();
    entries.iter().map(|entry| sum(source, entry, &mut fields, &mut left)).collect()
}

/// Where the members' local headers begin, in ascending order.
fn begins(cursor: &mut Cursor<'_>, directory: Directory) -> Result<Vec<u64>, ReadError> {
    cursor.seek(directory.begin);
    let begins = (0..directory.count).map(|_| Ok(zip::member(cursor, directory.end)?.local));
    let mut begins: Vec<u64> = begins.collect::<Result<_, ReadError>>()?;
    begins.sort_unstable();
    Ok(begins)
}

/// The offset of the checksum in the descriptor after a content, if there is one.
fn descriptor(cursor: &mut Cursor<'_>, member: &ZipMember, content: u64) -> Result<Option<u64>, ReadError> {
    cursor.seek(member.local + IN_LOCAL_FLAGS);
    if cursor.u8(cursor.file_len(), "a member's flags")? & DESCRIBED == 0 {
        return Ok(None);
    }
    let end = content + member.packed;
    cursor.seek(end);
    let is_signed = cursor.left() >= 4 && cursor.u32("a member's descriptor")? == DESCRIPTOR;
    Ok(Some(if is_signed { end + 4 } else { end }))
}

fn sum(
    source: &dyn Source,
    entry: &Entry,
    fields: &mut HashMap<u64, Vec<u64>>,
    left: &mut u64,
) -> Result<Option<Sum>, ReadError> {
    let (Some(at), Some(member)) = (entry.offset(), entry.checksum.as_deref()) else { return Ok(None) };
    let (len, Some(fields)) = (entry.byte_len(), fields.remove(&member.offset)) else { return Ok(None) };
    let (after, end) = (at + len, member.offset + member.size);
    let head = crc(source, member.offset, at, left)?;
    let tail = (crc(source, after, end, left)?, end.saturating_sub(after));
    Ok(Some(Sum { head, len, tail, fields }))
}

/// The CRC-32 of the bytes between two offsets; `left` bounds the bytes read in total.
fn crc(source: &dyn Source, mut from: u64, end: u64, left: &mut u64) -> Result<u32, ReadError> {
    let len = end.saturating_sub(from);
    check_limit(from, Limit::Fixed, "the bytes around the arrays", len, *left)?;
    *left -= len;
    let mut hasher = Hasher::new();
    let mut piece = vec![0; len.min(PIECE as u64) as usize];
    while from < end {
        let bytes = &mut piece[..(end - from).min(PIECE as u64) as usize];
        read(source, from, bytes)?;
        hasher.update(bytes);
        from += bytes.len() as u64;
    }
    Ok(hasher.finalize())
}
