//! What shows that bytes are one of Caffe's messages, besides the numbers of its fields: a value, or a layer.
//!
//! Used where no file name suggests it: TensorFlow, ONNX and Core ML use the same numbers for other things.

use crate::caffe::protobuf::Span;
use crate::caffe::read::{self, whole};
use crate::caffe::{blob, layer};
use crate::error::{FaultKind, ReadError};
use crate::format::Format;
use crate::limits::Limits;
use crate::names::NameTable;
use crate::warning::Flag;
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
        _ => match (layer, first[1]) {
            (Some(span), _) => self::layer(cursor, span, 100),
            (None, Some(span)) => self::layer(cursor, span, 2),
            (None, None) => Ok(false),
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
    let mut table = NameTable::new(&Limits::default());
    read::datum(cursor, &mut table)?;
    let [entry] = &table.into_entries()[..] else { return Ok(false) };
    let Some(at) = entry.offset().filter(|_| entry.fault.is_none()) else { return Ok(false) };
    cursor.seek(at);
    let is_image = matches!(cursor.at_hand(at + 2)?, [0xFF, 0xD8, ..] | [0x89, b'P', ..]);
    Ok(is_image || !entry.flags.has(Flag::Encoded))
}

/// A layer with a name or a type; one of before 2015 also with a blob that has values.
fn layer(cursor: &mut Cursor<'_>, span: Span, number: u32) -> Result<bool, ReadError> {
    let mut table = NameTable::new(&Limits::default());
    let (_, draft) = layer::draft(cursor, &mut table, number, span)?;
    for span in [draft.name, draft.type_name].into_iter().flatten() {
        if text(cursor, span)? {
            return Ok(true);
        }
    }
    for span in draft.blobs.iter().filter(|_| number != 100) {
        if blob(cursor, Some(*span))? {
            return Ok(true);
        }
    }
    Ok(false)
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
