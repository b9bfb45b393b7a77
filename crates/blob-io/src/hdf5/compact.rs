//! Finds a compact dataset's values within its layout message: `hdf5-reader` returns their bytes, but not their offset.
//!
//! Walks the object's header again, by the HDF5 File Format Specification 3.0, IV.A.1; the message that it finds must
//! hold the known bytes.

use std::ops::Range;

use super::structure::{MAX_HEADER, Structure};
use crate::error::{FaultKind, ReadError, check_limit};
use crate::limits::Limit;
use crate::wire::cursor::Cursor;

/// The numbers of the two messages that matter.
const LAYOUT: u16 = 8;
const CONTINUATION: u16 = 16;
/// Version, class and length precede the values since version 3 of the message, from 2004.
const HEAD: u64 = 4;
/// The name of a header in errors.
const HEADER: &str = "an object's header";

/// The offset of `values` in the layout message of the object at `at`.
pub(super) fn find(structure: &Structure, at: u64, values: &[u8]) -> Result<u64, ReadError> {
    let mut header = Header { structure, cursor: structure.cursor(), is_v2: false, flags: 0 };
    let mut blocks = vec![header.first(at)?];
    let mut walked = 0;
    while let Some(block) = blocks.pop() {
        walked += block.end.saturating_sub(block.start);
        check_limit(block.start, Limit::Fixed, "the bytes of a header", walked, MAX_HEADER as u64)?;
        let mut next = block.start;
        while let Some((kind, body)) = header.message(next, block.end)? {
            next = body.end;
            match kind {
                CONTINUATION => blocks.push(header.continued(&body)?),
                LAYOUT if header.holds(&body, values)? => return Ok(body.start + HEAD),
                _ => {}
            }
        }
    }
    Err(ReadError::fault(at, FaultKind::words("a dataset's compact values", "a header without them")))
}

/// An object's header, of version 1 or 2.
struct Header<'s> {
    structure: &'s Structure,
    cursor: Cursor<'s>,
    is_v2: bool,
    flags: u8,
}

impl Header<'_> {
    /// The first block of messages.
    fn first(&mut self, at: u64) -> Result<Range<u64>, ReadError> {
        self.cursor.seek(at);
        let file_end = self.cursor.file_len();
        self.is_v2 = &self.cursor.array::<4>(file_end, HEADER)? == b"OHDR";
        if !self.is_v2 {
            // Version, a zero, the number of messages; then the number of links.
            self.cursor.skip(4, HEADER)?;
            let len = u64::from(self.cursor.u32(HEADER)?);
            let begin = at.saturating_add(16);
            return Ok(begin..begin.saturating_add(len));
        }
        let [_version, flags] = self.cursor.array(file_end, HEADER)?;
        self.flags = flags;
        let times = if flags & 0x20 == 0 { 0 } else { 16 };
        let phases = if flags & 0x10 == 0 { 0 } else { 4 };
        self.cursor.skip(times + phases, HEADER)?;
        let len = self.number(1 << (flags & 3))?;
        let begin = self.cursor.pos();
        Ok(begin..begin.saturating_add(len))
    }

    /// A little-endian number of up to eight bytes.
    fn number(&mut self, width: u8) -> Result<u64, ReadError> {
        let mut number = 0;
        for byte in 0..u32::from(width.min(8)) {
            number |= u64::from(self.cursor.u8(self.cursor.file_len(), HEADER)?) << (8 * byte);
        }
        Ok(number)
    }

    /// The message at `at` in a block: its type, and the range of its body. `None` if no whole message fits
    /// before `end`.
    fn message(&mut self, at: u64, end: u64) -> Result<Option<(u16, Range<u64>)>, ReadError> {
        let head = match (self.is_v2, self.flags & 4) {
            (false, _) => 8,
            (true, 0) => 4,
            // With the creation order.
            (true, _) => 6,
        };
        if at.saturating_add(head) > end {
            return Ok(None);
        }
        self.cursor.seek(at);
        let kind = self.number(if self.is_v2 { 1 } else { 2 })? as u16;
        let len = self.number(2)?;
        let begin = at + head;
        Ok(Some((kind, begin..begin + len)).filter(|(_, body)| body.end <= end))
    }

    /// The block that a continuation message leads to.
    fn continued(&mut self, body: &Range<u64>) -> Result<Range<u64>, ReadError> {
        let (offsets, lengths) = self.structure.sizes();
        self.cursor.seek(body.start);
        let begin = self.number(offsets)?.saturating_add(self.structure.begin());
        let end = begin.saturating_add(self.number(lengths)?);
        // In version 2 it has a signature and a checksum.
        Ok(if self.is_v2 { begin.saturating_add(4)..end.saturating_sub(4) } else { begin..end })
    }

    /// Whether these values lie in a layout message.
    fn holds(&mut self, body: &Range<u64>, values: &[u8]) -> Result<bool, ReadError> {
        let (begin, len) = (body.start + HEAD, values.len() as u64);
        if begin + len > body.end {
            return Ok(false);
        }
        self.cursor.seek(begin);
        Ok(self.cursor.bytes(len, body.end, len, "compact values")? == values)
    }
}
