//! Protobuf's wire format over a [`Cursor`]: tags, varints, lengths and groups, with offsets.
//!
//! Strict where protobuf's own parser is: field 0, wire types 6 and 7, varints over ten bytes and keys over 32 bits
//! are faults. Knows no message.

use crate::error::{FaultKind, ReadError};
use crate::wire::cursor::Cursor;

/// Protobuf's own limit on nested groups.
const MAX_DEPTH: u32 = 100;

/// How a field's value is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Varint,
    Fixed64,
    Len,
    StartGroup,
    EndGroup,
    Fixed32,
}

/// One field's key, and the key's offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub(crate) offset: u64,
    pub(crate) number: u32,
    pub(crate) wire: Wire,
}

/// The bytes of a length-delimited field: from `start` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A length-delimited field: the whole range with the key, and the range of the content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) whole: Span,
    pub(crate) content: Span,
}

impl Span {
    /// The whole file.
    pub(crate) fn whole(cursor: &Cursor<'_>) -> Self {
        Self { start: 0, end: cursor.file_len() }
    }

    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }
}

/// Reads the next tag of a message that ends at `end`; `None` at the end. An END_GROUP is valid only inside a group, so
/// here it is a fault.
pub(crate) fn tag(cursor: &mut Cursor<'_>, end: u64) -> Result<Option<Tag>, ReadError> {
    match any_tag(cursor, end)? {
        Some(Tag { offset, number, wire: Wire::EndGroup }) => {
            Err(ReadError::fault(offset, FaultKind::EndGroup { number }))
        }
        other => Ok(other),
    }
}

fn any_tag(cursor: &mut Cursor<'_>, end: u64) -> Result<Option<Tag>, ReadError> {
    let offset = cursor.pos();
    if offset >= end {
        return Ok(None);
    }
    let key = varint(cursor, end, "a field's key")?;
    let Ok(key) = u32::try_from(key) else {
        return Err(ReadError::fault(offset, FaultKind::Varint { field: "a field's key" }));
    };
    let wire = match key & 7 {
        0 => Wire::Varint,
        1 => Wire::Fixed64,
        2 => Wire::Len,
        3 => Wire::StartGroup,
        4 => Wire::EndGroup,
        5 => Wire::Fixed32,
        found => {
            let found = found as u8;
            return Err(ReadError::fault(offset, FaultKind::WireType { found }));
        }
    };
    let number = key >> 3;
    if number == 0 {
        return Err(ReadError::fault(offset, FaultKind::FieldZero));
    }
    Ok(Some(Tag { offset, number, wire }))
}

/// A varint of at most ten bytes whose value fits 64 bits. Protobuf's own parser drops bits beyond the 64th. No writer
/// makes such bits, so here, as in prost, they are a fault.
pub(crate) fn varint(cursor: &mut Cursor<'_>, end: u64, field: &'static str) -> Result<u64, ReadError> {
    let offset = cursor.pos();
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = cursor.u8(end, field)?;
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            if shift == 63 && byte > 1 {
                break;
            }
            return Ok(value);
        }
    }
    Err(ReadError::fault(offset, FaultKind::Varint { field }))
}

/// The span of a length-delimited field, which must lie within `end`. The cursor is then at the span's start.
pub(crate) fn span(cursor: &mut Cursor<'_>, end: u64, field: &'static str) -> Result<Span, ReadError> {
    let len = varint(cursor, end, field)?;
    cursor.need(len, end, field)?;
    let start = cursor.pos();
    Ok(Span { start, end: start + len })
}

/// Reads a length-delimited field's length, and moves behind the content. `name` stands for the field in errors.
pub(crate) fn field(cursor: &mut Cursor<'_>, tag: Tag, end: u64, name: &'static str) -> Result<Field, ReadError> {
    let content = span(cursor, end, name)?;
    cursor.seek(content.end);
    Ok(Field { number: tag.number, whole: Span { start: tag.offset, end: content.end }, content })
}

/// Skips a field's value.
pub(crate) fn skip(cursor: &mut Cursor<'_>, tag: Tag, end: u64) -> Result<(), ReadError> {
    match tag.wire {
        Wire::StartGroup => skip_group(cursor, tag, end),
        _ => skip_plain(cursor, tag, end),
    }
}

fn skip_plain(cursor: &mut Cursor<'_>, tag: Tag, end: u64) -> Result<(), ReadError> {
    const FIELD: &str = "an unknown field";
    match tag.wire {
        Wire::Varint => varint(cursor, end, FIELD).map(drop),
        Wire::Fixed64 => cursor.array::<8>(end, FIELD).map(drop),
        Wire::Fixed32 => cursor.array::<4>(end, FIELD).map(drop),
        Wire::Len => {
            let span = span(cursor, end, FIELD)?;
            cursor.seek(span.end);
            Ok(())
        }
        Wire::StartGroup | Wire::EndGroup => Ok(()),
    }
}

/// Skips to the END_GROUP that matches, without recursion.
fn skip_group(cursor: &mut Cursor<'_>, open: Tag, end: u64) -> Result<(), ReadError> {
    let mut numbers = vec![open.number];
    while let Some(innermost) = numbers.last().copied() {
        let Some(tag) = any_tag(cursor, end)? else {
            return Err(ReadError::fault(
                end,
                FaultKind::words("END_GROUP of an open group", "the end of the message"),
            ));
        };
        match tag.wire {
            Wire::StartGroup => {
                if numbers.len() as u32 >= MAX_DEPTH {
                    return Err(ReadError::fault(tag.offset, FaultKind::Depth { limit: MAX_DEPTH }));
                }
                numbers.push(tag.number);
            }
            Wire::EndGroup if tag.number == innermost => {
                numbers.pop();
            }
            Wire::EndGroup => {
                let number = tag.number;
                return Err(ReadError::fault(tag.offset, FaultKind::EndGroup { number }));
            }
            _ => skip_plain(cursor, tag, end)?,
        }
    }
    Ok(())
}
