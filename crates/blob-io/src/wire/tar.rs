//! Reads a tar archive (V7, ustar, pax, GNU): the members in order, from the headers alone.
//!
//! Follows no link and makes no file: a member has a name and a range of bytes. Sources: POSIX.1-2017, "pax", and the
//! GNU tar manual, "Basic Tar Format".

use std::borrow::Cow;

use crate::error::{FaultKind, ReadError};
use crate::wire::cursor::Cursor;

const BLOCK: u64 = 512;
/// The offset and the length of a link's target in a header.
pub(crate) const LINK: (u64, usize) = (157, 100);
/// The longest name that is read, and the longest list of pax records, which also hold access rights and other
/// metadata.
const LONGEST_NAME: u64 = 1 << 16;
const LONGEST_RECORDS: u64 = 1 << 20;

/// One file of the archive, or something else that has a name.
#[derive(Debug)]
pub(crate) struct TarMember {
    pub(crate) name: Vec<u8>,
    /// The offset of the header, the offset of the content, and the content's length.
    pub(crate) header: u64,
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) kind: MemberKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberKind {
    File,
    /// A file whose zeros are not stored.
    Sparse,
    /// A hard or a symbolic link.
    Link,
    /// A folder, a device.
    Other,
}

/// Whether bytes look like the beginning of a tar archive: by the magic, which values may have by chance, or by the
/// checksum.
pub(crate) fn has_mark(head: &[u8]) -> bool {
    head.get(257..).is_some_and(|mark| mark.starts_with(b"ustar")) || is_tar(head)
}

/// Whether bytes begin with a tar header that has both the magic and the checksum.
pub(crate) fn is_certain(head: &[u8]) -> bool {
    head.get(257..).is_some_and(|mark| mark.starts_with(b"ustar")) && is_tar(head)
}

/// Whether bytes begin with a tar header, decided by the checksum, because V7 has no magic.
pub(crate) fn is_tar(head: &[u8]) -> bool {
    head.first_chunk().is_some_and(|block| block[0] != 0 && has_checksum(block))
}

/// The members from the cursor on.
pub(crate) struct Members<'c, 's> {
    cursor: &'c mut Cursor<'s>,
    /// Whether the zeros that end an archive were reached. Some writers omit the zeros, and a cut file has none.
    pub(crate) has_end: bool,
}

/// The member's properties in the records before the header.
#[derive(Default)]
struct Properties {
    name: Option<Vec<u8>>,
    len: Option<u64>,
    is_sparse: bool,
}

impl<'c, 's> Members<'c, 's> {
    pub(crate) fn new(cursor: &'c mut Cursor<'s>) -> Self {
        Self { cursor, has_end: false }
    }

    /// The next member; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<TarMember>, ReadError> {
        let mut before = Properties::default();
        loop {
            let header = self.cursor.pos();
            let Some(block) = self.block()? else {
                return Ok(None);
            };
            let kind = block[156];
            let len = match kind {
                // The length of links and folders does not count, because neither has content.
                b'1'..=b'6' => 0,
                _ => match before.len.filter(|_| is_file(kind)) {
                    Some(len) => len,
                    None => number(&block[124..136]).map_err(|what| ReadError::fault(header + 124, what))?,
                },
            };
            match kind {
                b'L' => {
                    before.name = Some(without_nul(&self.content(len, LONGEST_NAME, "a member's long name")?).to_vec())
                }
                b'x' => self.records(len, &mut before)?,
                // A link's long name, or records for all members, as in git's archives.
                b'K' | b'g' => self.skip_content(len)?,
                _ => return self.member(header, &block, len, before).map(Some),
            }
        }
    }

    /// The member with this header.
    fn member(
        &mut self,
        header: u64,
        block: &[u8; BLOCK as usize],
        len: u64,
        before: Properties,
    ) -> Result<TarMember, ReadError> {
        let name = before.name.unwrap_or_else(|| own_name(block));
        let mut kind = match block[156] {
            b'S' => MemberKind::Sparse,
            _ if before.is_sparse => MemberKind::Sparse,
            // V7 has no type for folders.
            0 if name.ends_with(b"/") => MemberKind::Other,
            flag if is_file(flag) => MemberKind::File,
            b'1' | b'2' => MemberKind::Link,
            _ => MemberKind::Other,
        };
        if block[156] == b'S' {
            kind = MemberKind::Sparse;
            // The rest of a sparse file's map precedes the content.
            let mut more = block[482] != 0;
            while more {
                more = self.cursor.array::<{ BLOCK as usize }>(self.cursor.file_len(), "the map of a sparse member")?
                    [504]
                    != 0;
            }
        }
        let at = self.cursor.pos();
        self.skip_content(len).map_err(|stop| stop.within(format!("member {:?}", String::from_utf8_lossy(&name))))?;
        Ok(TarMember { name, header, at, len, kind })
    }

    /// The next header; `None` at the end: at a block of zeros, or, if that is missing, at the end of the file.
    fn block(&mut self) -> Result<Option<[u8; BLOCK as usize]>, ReadError> {
        if self.cursor.left() == 0 {
            return Ok(None);
        }
        let at = self.cursor.pos();
        let block: [u8; BLOCK as usize] = self.cursor.array(self.cursor.file_len(), "a tar header")?;
        if block.iter().all(|byte| *byte == 0) {
            self.has_end = true;
            return Ok(None);
        }
        if has_checksum(&block) {
            Ok(Some(block))
        } else {
            let found = FaultKind::words("a tar header with its checksum", "bytes that do not have it");
            Err(ReadError::fault(at, found))
        }
    }

    /// The content of a header that describes the next member.
    fn content(&mut self, len: u64, limit: u64, field: &'static str) -> Result<Vec<u8>, ReadError> {
        let content = self.cursor.bytes(len, self.cursor.file_len(), limit, field)?;
        self.cursor.skip(padding(len), "a tar member's last block")?;
        Ok(content)
    }

    /// Skips a content and the padding of the last block.
    fn skip_content(&mut self, len: u64) -> Result<(), ReadError> {
        self.cursor.skip(len, "a tar member")?;
        self.cursor.skip(padding(len), "a tar member's last block")
    }

    /// Reads pax records: `LENGTH KEY=VALUE\n`, where the length is that of the whole record.
    fn records(&mut self, len: u64, before: &mut Properties) -> Result<(), ReadError> {
        let at = self.cursor.pos();
        let content = self.content(len, LONGEST_RECORDS, "the pax records of a member")?;
        let mut rest = &content[..];
        while !without_nul(rest).is_empty() {
            let broken = || ReadError::fault(at, FaultKind::words("pax records", "inconsistent ones"));
            let (key, value, more) = record(rest).ok_or_else(broken)?;
            match key {
                b"path" => before.name = Some(value.to_vec()),
                b"size" => before.len = Some(decimal(value).ok_or_else(broken)?),
                _ => before.is_sparse |= key.starts_with(b"GNU.sparse."),
            }
            rest = more;
        }
        Ok(())
    }
}

/// Old tars mark files with a zero byte; 7 is a contiguous file.
fn is_file(kind: u8) -> bool {
    matches!(kind, 0 | b'0' | b'7')
}

/// How many bytes pad the last block.
fn padding(len: u64) -> u64 {
    len.next_multiple_of(BLOCK) - len
}

/// The name in the header itself; ustar has the folder in a separate field.
fn own_name(block: &[u8; BLOCK as usize]) -> Vec<u8> {
    let (name, folder) = (without_nul(&block[..100]), without_nul(&block[345..500]));
    if block[257..].starts_with(b"ustar\0") && !folder.is_empty() {
        [folder, b"/", name].concat()
    } else {
        name.to_vec()
    }
}

fn without_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or(text)
}

/// Whether the header stores the sum of the header's bytes, with the eight bytes of the sum counted as blanks. Old tars
/// summed signed bytes.
fn has_checksum(block: &[u8; BLOCK as usize]) -> bool {
    let of = |byte: fn(u8) -> i64| -> i64 {
        let blanks = 8 * i64::from(b' ');
        block[..148].iter().chain(&block[156..]).map(|b| byte(*b)).sum::<i64>() + blanks
    };
    // Eight zeros are no sum: values that add up to 0 as signed bytes may have zeros here by chance.
    let stored = octal(&block[148..156]).and_then(|sum| i64::try_from(sum).ok()).filter(|sum| *sum > 0);
    stored.is_some_and(|sum| sum == of(i64::from) || sum == of(|b| i64::from(b as i8)))
}

/// Parses a length: octal digits, or, if the first bit is set, a big-endian number.
fn number(field: &[u8]) -> Result<u64, FaultKind> {
    let words = |found: &str| FaultKind::words("the length of a member", Cow::Owned(found.to_owned()));
    let (first, rest) = (field[0], &field[1..]);
    if first & 0x80 == 0 {
        return octal(field).ok_or_else(|| words("something other than octal digits"));
    }
    let zeros = rest.len() - 8;
    if first != 0x80 || rest[..zeros].iter().any(|byte| *byte != 0) {
        return Err(words("one that is negative or over 64 bits"));
    }
    let value = rest[zeros..].iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    // The sum of an offset and a length must not overflow.
    if value > i64::MAX as u64 { Err(words("one over 63 bits")) } else { Ok(value) }
}

/// Octal digits between blanks and zeros.
fn octal(field: &[u8]) -> Option<u64> {
    let digits = without_nul(field).trim_ascii();
    digits.iter().try_fold(0u64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (number <= i64::MAX as u64).then_some(number)
}

/// A record's key and value, and the bytes after the record.
fn record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = records.iter().take(20).position(|byte| *byte == b' ')?;
    let len = usize::try_from(decimal(&records[..blank])?).ok()?;
    let (record, rest) = records.split_at_checked(len)?;
    let record = record.get(blank + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], rest))
}
