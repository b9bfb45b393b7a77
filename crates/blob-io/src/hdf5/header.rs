//! Reads an object's header as messages: the type, the bytes and the offset of each.
//!
//! HDF5 File Format Specification 3.0, IV.A.1. Follows continuations; leaves shared messages to `shared`, and the
//! meaning of a message to the callers.

use std::ops::Range;

use hdf5_reader::checksum::jenkins_lookup3;

use super::structure::{MAX_HEADER, Structure};
use crate::error::{FaultKind, ReadError, check_limit};
use crate::limits::Limit;

/// The types of messages that are read.
pub(super) const DATASPACE: u16 = 1;
pub(super) const LINK_INFO: u16 = 2;
pub(super) const DATATYPE: u16 = 3;
pub(super) const OLD_FILL: u16 = 4;
pub(super) const FILL: u16 = 5;
pub(super) const LINK: u16 = 6;
pub(super) const EXTERNAL_FILES: u16 = 7;
pub(super) const LAYOUT: u16 = 8;
pub(super) const GROUP_INFO: u16 = 10;
pub(super) const FILTERS: u16 = 11;
pub(super) const ATTRIBUTE: u16 = 12;
pub(super) const SHARED_TABLE: u16 = 15;
pub(super) const SYMBOL_TABLE: u16 = 17;
pub(super) const ATTRIBUTE_INFO: u16 = 21;
const PADDING: u16 = 0;
const CONTINUATION: u16 = 16;

/// The name of a header in errors.
const HEADER: &str = "an object's header";

/// One message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: u16,
    /// The offset of the body in the file.
    pub(super) at: u64,
    /// The message's bytes; of a shared message the reference, which `shared` follows.
    pub(super) body: Vec<u8>,
    pub(super) is_shared: bool,
}

/// An object's messages.
#[derive(Debug)]
pub(super) struct Header {
    /// Where the header lies in the file.
    pub(super) at: u64,
    pub(super) messages: Vec<Message>,
}

/// The kind of an object, told by the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Group,
    Dataset,
    /// A named datatype.
    Other,
}

impl Header {
    /// Reads the header of the object at this address.
    pub(super) fn read(structure: &Structure, address: u64) -> Result<Self, ReadError> {
        let at = structure.begin().saturating_add(address);
        let mut messages = Vec::new();
        let (first, form) = first_block(structure, at)?;
        let (mut blocks, mut total) = (vec![(at, first)], 0);
        while let Some((start, block)) = blocks.pop() {
            let len = block.end.saturating_sub(start);
            total = len.saturating_add(total);
            check_limit(at, Limit::Fixed, "the bytes of a header", total, MAX_HEADER as u64)?;
            let bytes = structure.bytes(start, len, HEADER)?;
            let begin = (block.start - start) as usize;
            form.check(start, &bytes)?;
            let behind = bytes.len() - form.checksum_len();
            let body = bytes.get(begin..behind).unwrap_or_default();
            form.messages(body, block.start, &mut |message| {
                if message.kind == CONTINUATION {
                    blocks.push(form.continued(structure, &message)?);
                } else if message.kind != PADDING {
                    messages.push(message);
                }
                Ok(())
            })?;
        }
        Ok(Self { at, messages })
    }

    /// The kind of the object.
    pub(super) fn kind(&self) -> ObjectKind {
        let has = |kinds: &[u16]| self.messages.iter().any(|message| kinds.contains(&message.kind));
        if has(&[SYMBOL_TABLE, LINK, LINK_INFO, GROUP_INFO]) {
            ObjectKind::Group
        } else if has(&[DATASPACE, LAYOUT, FILL, OLD_FILL, FILTERS]) {
            ObjectKind::Dataset
        } else if has(&[ATTRIBUTE, ATTRIBUTE_INFO]) {
            ObjectKind::Group
        } else {
            ObjectKind::Other
        }
    }

    /// The messages of this type.
    pub(super) fn of_kind(&self, kind: u16) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(move |message| message.kind == kind)
    }
}

/// How a header's blocks are encoded.
#[derive(Clone, Copy)]
struct Encoding {
    is_v2: bool,
    /// Whether each message has a creation order.
    is_ordered: bool,
}

/// The range of the messages of the first block, which ends with the checksum, and the form of all blocks.
fn first_block(structure: &Structure, at: u64) -> Result<(Range<u64>, Encoding), ReadError> {
    let head = structure.bytes(at, 6, HEADER)?;
    if !head.starts_with(b"OHDR") {
        if head[0] != 1 {
            let found = format!("one that begins with {:#04x}", head[0]);
            return Err(ReadError::fault(at, FaultKind::words("an object's header of version 1 or 2", found)));
        }
        // Version, a zero, the numbers of messages and of links, then the length.
        let len = structure.bytes(at.saturating_add(8), 4, HEADER)?;
        let begin = at.saturating_add(16);
        return Ok((begin..begin.saturating_add(number(&len)), Encoding { is_v2: false, is_ordered: false }));
    }
    if head[4] != 2 {
        let found = format!("version {}", head[4]);
        return Err(ReadError::fault(at, FaultKind::words("an object's header of version 1 or 2", found)));
    }
    let flags = head[5];
    let times = if flags & 0x20 == 0 { 0 } else { 16 };
    let phases = if flags & 0x10 == 0 { 0 } else { 4 };
    let width = 1 << (flags & 3);
    let len_at = at.saturating_add(6 + times + phases);
    let len = number(&structure.bytes(len_at, width, HEADER)?);
    let begin = len_at.saturating_add(width);
    let end = begin.saturating_add(len).saturating_add(CHECKSUM as u64);
    Ok((begin..end, Encoding { is_v2: true, is_ordered: flags & 4 != 0 }))
}

/// The bytes of a checksum at the end of a block of version 2.
const CHECKSUM: usize = 4;

impl Encoding {
    fn checksum_len(self) -> usize {
        if self.is_v2 { CHECKSUM } else { 0 }
    }

    /// Compares a block with the checksum at the end; blocks of version 1 have none.
    fn check(self, at: u64, block: &[u8]) -> Result<(), ReadError> {
        let Some((covered, stored)) = block.split_last_chunk::<CHECKSUM>().filter(|_| self.is_v2) else {
            return Ok(());
        };
        let (expected, found) = (u32::from_le_bytes(*stored), jenkins_lookup3(covered));
        if expected == found {
            return Ok(());
        }
        let field = "the checksum of an object's header";
        Err(ReadError::fault(at, FaultKind::Trailer { field, expected, found }))
    }

    /// Calls `take` with each message of a block whose messages begin at `at`, up to the first that does not fit.
    fn messages(
        self,
        block: &[u8],
        at: u64,
        take: &mut dyn FnMut(Message) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let (head, flags_at) = match (self.is_v2, self.is_ordered) {
            (false, _) => (8, 4),
            (true, false) => (4, 3),
            (true, true) => (6, 3),
        };
        let mut next = 0;
        while let Some(bytes) = block.get(next..next + head) {
            let kind = if self.is_v2 { bytes[0].into() } else { u16::from_le_bytes([bytes[0], bytes[1]]) };
            let len_at = if self.is_v2 { 1 } else { 2 };
            let len = usize::from(u16::from_le_bytes([bytes[len_at], bytes[len_at + 1]]));
            let begin = next + head;
            let Some(body) = block.get(begin..begin + len) else {
                let (needed, left) = (len as u64, (block.len() - begin) as u64);
                let what = FaultKind::Truncated { field: "a message of an object's header", needed, left };
                return Err(ReadError::fault(at + next as u64, what));
            };
            let is_shared = bytes[flags_at] & 2 != 0;
            let body = if kind == PADDING { Vec::new() } else { body.to_vec() };
            take(Message { kind, at: at + begin as u64, body, is_shared })?;
            next = begin + len;
        }
        Ok(())
    }

    /// The block that a continuation leads to: the block's offset, and the range of the messages and the checksum.
    fn continued(self, structure: &Structure, message: &Message) -> Result<(u64, Range<u64>), ReadError> {
        let (offsets, lengths) = structure.sizes();
        let (offsets, lengths) = (usize::from(offsets), usize::from(lengths));
        let Some((to, len)) = message.body.get(..offsets + lengths).map(|body| body.split_at(offsets)) else {
            let (needed, left) = ((offsets + lengths) as u64, message.body.len() as u64);
            let what = FaultKind::Truncated { field: "a continuation of an object's header", needed, left };
            return Err(ReadError::fault(message.at, what));
        };
        let start = structure.begin().saturating_add(number(to));
        let end = start.saturating_add(number(len));
        // A block of version 2 begins with a signature.
        let begin = if self.is_v2 { start.saturating_add(4) } else { start };
        Ok((start, begin.min(end)..end))
    }
}

/// A little-endian number of up to eight bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
