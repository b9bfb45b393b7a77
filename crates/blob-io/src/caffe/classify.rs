//! Which Caffe message a file is: messages carry no mark, so their top-level fields must tell.

use crate::caffe::evidence;
use crate::caffe::protobuf::{self, Span, Wire};
use crate::caffe::read::whole;
use crate::error::{FaultKind, ReadError};
use crate::format::Format;
use crate::limits::Limits;
use crate::wire::cursor::Cursor;

/// Which top-level fields a message has, by number and wire type.
#[derive(Default)]
struct Seen {
    varint: u64,
    len: u64,
    fixed: u64,
    hundred: bool,
    /// How many length-delimited fields 1 there are.
    ones: u32,
    /// The first length-delimited field 1, 2 and 3.
    first: [Option<Span>; 3],
    /// The first layer of a net of today.
    layer: Option<Span>,
    /// Whether the walk ended at bytes that are not protobuf, rather than at the end of a cut file.
    damaged: bool,
}

impl Seen {
    fn varint(&self, numbers: &[u32]) -> bool {
        numbers.iter().any(|n| self.varint & 1 << n != 0)
    }

    fn len(&self, numbers: &[u32]) -> bool {
        numbers.iter().any(|n| self.len & 1 << n != 0)
    }

    fn any(&self, numbers: &[u32]) -> bool {
        self.len(numbers) || numbers.iter().any(|n| self.fixed & 1 << n != 0)
    }
}

/// Tells which Caffe message the bytes are, by the fields at its top; `hint` decides where they leave it open.
/// `None` for other bytes. Reading stops at the first broken field, which the walk will report.
pub(crate) fn classify(cursor: &mut Cursor<'_>, hint: Option<Format>) -> Result<Option<Format>, ReadError> {
    let seen = survey(cursor)?;
    let hint = hint.filter(|format| format.is_caffe());
    // Any bytes begin with something like a field: unless the file's name suggests Caffe, all of them must be fields.
    if seen.damaged && hint.is_none() {
        return Ok(None);
    }
    let Some(format) = by_fields(cursor, &seen, hint)? else {
        return Ok(None);
    };
    // Other frameworks use the same numbers: unless the file's name suggests Caffe, the content must.
    let is_clear = hint.is_some() || evidence::shows(cursor, format, seen.first, seen.layer)?;
    Ok(is_clear.then_some(format))
}

/// The message that has such fields.
fn by_fields(cursor: &mut Cursor<'_>, seen: &Seen, hint: Option<Format>) -> Result<Option<Format>, ReadError> {
    let values = seen.any(&[5, 8, 9]) || seen.len(&[7, 10, 11, 12, 13]);
    Ok(if seen.hundred {
        Some(Format::CaffeModel)
    } else if seen.varint(&[1]) {
        if seen.len(&[7]) && seen.len(&[2, 8]) {
            None // ONNX: ir_version, producer_name, graph, opset_import
        } else if seen.len(&[2, 3]) {
            Some(Format::SolverState)
        } else if values {
            Some(Format::BlobProto)
        } else if seen.len(&[4]) || seen.varint(&[5, 7]) {
            Some(Format::Datum)
        } else if seen.any(&[6]) {
            hint.or(Some(Format::Datum))
        } else if seen.varint(&[2, 3]) {
            hint.or(Some(Format::BlobProto))
        } else {
            hint.or(Some(Format::SolverState))
        }
    } else if seen.len(&[2]) {
        Some(Format::CaffeModel)
    } else if seen.ones > 0 {
        let vector = seen.ones > 1 || looks_like_blob(cursor, seen.first[0])?;
        Some(if vector && !seen.len(&[3]) { Format::BlobProtoVector } else { Format::CaffeModel })
    } else if values || seen.any(&[6]) {
        Some(Format::BlobProto)
    } else if seen.len(&[4]) {
        Some(Format::Datum)
    } else if seen.len(&[3]) {
        Some(Format::CaffeModel)
    } else {
        hint
    })
}

/// Whether the bytes break off being protobuf before their end, which may be too early.
pub(crate) fn is_damaged(cursor: &mut Cursor<'_>) -> bool {
    survey(cursor).is_ok_and(|seen| seen.damaged)
}

fn survey(cursor: &mut Cursor<'_>) -> Result<Seen, ReadError> {
    let mut seen = Seen::default();
    let whole = whole(cursor);
    cursor.seek(0);
    loop {
        let step = protobuf::tag(cursor, whole.end).and_then(|tag| {
            let Some(tag) = tag else { return Ok(None) };
            let at = cursor.pos();
            protobuf::skip(cursor, tag, whole.end)?;
            Ok(Some((tag, at)))
        });
        let (tag, at) = match step {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(seen),
            Err(ReadError::Fault(fault)) => {
                seen.damaged = !matches!(fault.kind, FaultKind::Truncated { .. });
                return Ok(seen);
            }
            Err(stop) => return Err(stop),
        };
        let bit = if tag.number < 64 { 1 << tag.number } else { 0 };
        match tag.wire {
            Wire::Varint => seen.varint |= bit,
            Wire::Len => seen.len |= bit,
            _ => seen.fixed |= bit,
        }
        seen.ones += u32::from(tag.number == 1 && tag.wire == Wire::Len);
        if let (1..=3 | 100, Wire::Len) = (tag.number, tag.wire) {
            let end = cursor.pos();
            cursor.seek(at);
            let span = protobuf::span(cursor, whole.end, "a field")?;
            cursor.seek(end);
            let slot = match tag.number {
                100 => &mut seen.layer,
                n => &mut seen.first[n as usize - 1],
            };
            slot.get_or_insert(span);
        }
        // One layer is proof enough, and a large model has many.
        if tag.number == 100 && tag.wire == Wire::Len {
            seen.hundred = true;
            return Ok(seen);
        }
    }
}

/// Whether the bytes of a field 1 are a blob and not a net's name.
fn looks_like_blob(cursor: &mut Cursor<'_>, span: Option<Span>) -> Result<bool, ReadError> {
    let Some(span) = span else { return Ok(false) };
    match crate::caffe::blob::walk(cursor, span, &Limits::default()) {
        Ok(fields) => Ok(fields.has_values()),
        Err(ReadError::Fault(_)) => Ok(false),
        Err(stop) => Err(stop),
    }
}
