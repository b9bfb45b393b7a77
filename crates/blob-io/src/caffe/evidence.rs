//! What shows that bytes are one of Caffe's messages, beside the numbers of its fields: a value, or a layer.
//!
//! Used where no file name speaks for them: TensorFlow, ONNX and Core ML use the same numbers for other things.

use crate::caffe::blob;
use crate::caffe::protobuf::{self, Span, Wire};
use crate::caffe::read::whole;
use crate::error::{FaultKind, ReadError};
use crate::format::Format;
use crate::limits::Limits;
use crate::wire::cursor::Cursor;

/// A name or a type is not longer than this.
const LONGEST_TEXT: u64 = 1 << 10;

/// Whether the message has an array with values, or a layer. `first` are the first fields 1 to 3, `layer` is field 100.
pub(crate) fn shows(
    cursor: &mut Cursor<'_>,
    format: Format,
    first: [Option<Span>; 3],
    layer: Option<Span>,
) -> Result<bool, ReadError> {
    let all = whole(cursor);
    let shown = match format {
        Format::BlobProto => blob(cursor, Some(all)),
        Format::BlobProtoVector => blob(cursor, first[0]),
        Format::SolverState => blob(cursor, first[2]),
        Format::Datum => datum(cursor),
        _ => match layer {
            Some(span) => texts(cursor, span, &[1, 2]),
            None => first[1].map_or(Ok(false), |span| old_layer(cursor, span)),
        },
    };
    match shown {
        Err(ReadError::Fault(_)) => Ok(false),
        other => other,
    }
}

/// A BlobProto with a shape and as many values.
fn blob(cursor: &mut Cursor<'_>, span: Option<Span>) -> Result<bool, ReadError> {
    let Some(span) = span else { return Ok(false) };
    let fields = match blob::walk(cursor, span, &Limits::default()) {
        Ok(fields) => fields,
        // Values in more pieces than are allowed are values.
        Err(ReadError::Fault(fault)) => return Ok(matches!(fault.kind, FaultKind::Limit { .. })),
        Err(stop) => return Err(stop),
    };
    if !fields.has_shape() {
        return Ok(false);
    }
    let (data, _) = fields.into_entries(0, 0);
    Ok(data.fault.is_none() && data.byte_len() > 0)
}

/// A Datum whose values are as many as its dimensions say, or that is an encoded image.
fn datum(cursor: &mut Cursor<'_>) -> Result<bool, ReadError> {
    let whole = whole(cursor);
    let (mut dims, mut count, mut encoded, mut image) = ([0_u64; 3], 0, false, false);
    cursor.seek(0);
    while let Some(tag) = protobuf::tag(cursor, whole.end)? {
        match (tag.number, tag.wire) {
            (n @ 1..=3, Wire::Varint) => {
                dims[n as usize - 1] = protobuf::varint(cursor, whole.end, "a dimension")?;
            }
            (4, Wire::Len) => {
                let span = protobuf::span(cursor, whole.end, "data")?;
                count = span.len();
                image = matches!(cursor.at_hand(span.end)?, [0xFF, 0xD8, ..] | [0x89, b'P', ..]);
                cursor.seek(span.end);
            }
            (6, Wire::Len) => {
                let span = protobuf::span(cursor, whole.end, "float_data")?;
                count = span.len() / 4;
                cursor.seek(span.end);
            }
            (6, Wire::Fixed32) => {
                count += 1;
                protobuf::skip(cursor, tag, whole.end)?;
            }
            (7, Wire::Varint) => encoded = protobuf::varint(cursor, whole.end, "encoded")? != 0,
            _ => protobuf::skip(cursor, tag, whole.end)?,
        }
    }
    let values = dims.iter().try_fold(1, |n: u64, d| n.checked_mul(*d));
    Ok(count > 0 && (values == Some(count) || encoded && image))
}

/// A `layers` entry: a name (4), a blob (6) with values, or a V0 layer (1) with a name or a type.
fn old_layer(cursor: &mut Cursor<'_>, span: Span) -> Result<bool, ReadError> {
    cursor.seek(span.start);
    let mut shown = false;
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        let at = cursor.pos();
        protobuf::skip(cursor, tag, span.end)?;
        let end = cursor.pos();
        if shown || tag.wire != Wire::Len || !matches!(tag.number, 1 | 4 | 6) {
            continue;
        }
        cursor.seek(at);
        let field = protobuf::span(cursor, span.end, "a field")?;
        shown = match tag.number {
            1 => texts(cursor, field, &[1, 2]).or_else(unfit)?,
            4 => text(cursor, field)?,
            _ => blob(cursor, Some(field))?,
        };
        cursor.seek(end);
    }
    Ok(shown)
}

/// What is no message shows nothing.
fn unfit(stop: ReadError) -> Result<bool, ReadError> {
    match stop {
        ReadError::Fault(_) => Ok(false),
        io => Err(io),
    }
}

/// Whether a message has a text in one of these fields.
fn texts(cursor: &mut Cursor<'_>, span: Span, numbers: &[u32]) -> Result<bool, ReadError> {
    cursor.seek(span.start);
    let mut found = false;
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        let at = cursor.pos();
        protobuf::skip(cursor, tag, span.end)?;
        let end = cursor.pos();
        if !found && tag.wire == Wire::Len && numbers.contains(&tag.number) {
            cursor.seek(at);
            let field = protobuf::span(cursor, span.end, "a text")?;
            found = text(cursor, field)?;
        }
        cursor.seek(end);
    }
    Ok(found)
}

/// A text of a character or more, none of which controls a terminal.
fn text(cursor: &mut Cursor<'_>, span: Span) -> Result<bool, ReadError> {
    if span.len() == 0 || span.len() > LONGEST_TEXT {
        return Ok(false);
    }
    cursor.seek(span.start);
    let bytes = cursor.bytes(span.len(), span.end, LONGEST_TEXT, "a text")?;
    let text = std::str::from_utf8(&bytes);
    Ok(text.is_ok_and(|text| !text.chars().any(char::is_control)))
}
