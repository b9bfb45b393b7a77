//! Finds the blobs of an existing Caffe file and the layers around them, which changing a blob must rewrite.
//!
//! Reads the same fields as `read` again, with the range of every field that may change. Leaves the entries to `read`.

use crate::caffe::blob;
use crate::caffe::encode::Form;
use crate::caffe::layer::take;
use crate::caffe::protobuf::{self, Span, Wire};
use crate::error::ReadError;
use crate::format::Format;
use crate::limits::Limits;
use crate::wire::cursor::Cursor;

/// A length-delimited field: its whole range with its key, and the range of its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) whole: Span,
    pub(crate) content: Span,
}

/// A layer of a net, or its substitute in a message without layers.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// `None` if the blobs are fields of the file itself.
    pub(crate) field: Option<Field>,
    /// The nested layer of V0 that holds the blobs.
    pub(crate) nested: Option<Field>,
    pub(crate) name: Option<Field>,
    /// The number of the field that holds the name, and whether the nested layer has it.
    pub(crate) name_number: (u32, bool),
    pub(crate) blobs: Vec<Field>,
    pub(crate) blob_number: u32,
    /// Where another blob goes: before the first field with a higher number.
    pub(crate) end: u64,
}

/// The layers of a net, in their order; for a list one layer for each blob; one layer for a single blob.
pub(crate) fn layers(cursor: &mut Cursor<'_>, format: Format, limits: &Limits) -> Result<Vec<Layer>, ReadError> {
    let whole = Span { start: 0, end: cursor.file_len() };
    if matches!(format, Format::BlobProto | Format::Datum) {
        let blob = Field { number: 0, whole, content: whole };
        return Ok(vec![layer_of_blob(blob)]);
    }
    let wanted: &[u32] = match format {
        Format::CaffeModel => &[2, 100],
        Format::BlobProtoVector => &[1],
        _ => &[3],
    };
    let mut fields = Vec::new();
    each(cursor, whole, |field| {
        if wanted.contains(&field.number) {
            fields.push(field);
        }
    })?;
    if format != Format::CaffeModel {
        return Ok(fields.into_iter().map(layer_of_blob).collect());
    }
    fields.into_iter().map(|field| layer(cursor, field, limits)).collect()
}

fn layer_of_blob(blob: Field) -> Layer {
    let (number, end) = (blob.number, blob.whole.end);
    Layer {
        field: None,
        nested: None,
        name: None,
        name_number: (0, false),
        blobs: vec![blob],
        blob_number: number,
        end,
    }
}

/// Calls `take_field` with the length-delimited fields of a message.
pub(crate) fn each(cursor: &mut Cursor<'_>, span: Span, mut take_field: impl FnMut(Field)) -> Result<(), ReadError> {
    cursor.seek(span.start);
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        if tag.wire != Wire::Len {
            protobuf::skip(cursor, tag, span.end)?;
            continue;
        }
        let content = take(cursor, span, "a field")?;
        let whole = Span { start: tag.offset, end: content.end };
        take_field(Field { number: tag.number, whole, content });
    }
    Ok(())
}

/// The fields of a layer's message that a change may touch.
#[derive(Default)]
struct Found {
    name: Option<Field>,
    blobs: Vec<Field>,
    /// Where the first field with a higher number than the blobs begins.
    higher: Option<u64>,
    nested: Option<Field>,
}

fn find(cursor: &mut Cursor<'_>, span: Span, name: u32, blobs: u32) -> Result<Found, ReadError> {
    let mut found = Found::default();
    cursor.seek(span.start);
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        if tag.number > blobs {
            found.higher.get_or_insert(tag.offset);
        }
        if tag.wire != Wire::Len {
            protobuf::skip(cursor, tag, span.end)?;
            continue;
        }
        let content = take(cursor, span, "a field")?;
        let whole = Span { start: tag.offset, end: content.end };
        let field = Field { number: tag.number, whole, content };
        match tag.number {
            number if number == blobs => found.blobs.push(field),
            number if number == name => found.name = Some(field),
            1 => found.nested = Some(field),
            _ => {}
        }
    }
    Ok(found)
}

fn layer(cursor: &mut Cursor<'_>, field: Field, limits: &Limits) -> Result<Layer, ReadError> {
    let numbers = if field.number == 100 { (1, 7) } else { (4, 6) };
    let outer = find(cursor, field.content, numbers.0, numbers.1)?;
    let inner = match outer.nested.filter(|_| field.number == 2) {
        Some(nested) => Some((nested, find(cursor, nested.content, 1, 50)?)),
        None => None,
    };
    // As in the reader: what only one of the two layers has is taken from it, what both have from the nested one.
    let mut made = Layer {
        field: Some(field),
        nested: None,
        name: outer.name,
        name_number: (numbers.0, false),
        end: end(&outer, field.content),
        blobs: outer.blobs,
        blob_number: numbers.1,
    };
    if let Some((nested, inner)) = inner {
        made.nested = Some(nested);
        if inner.name.is_some() || made.name.is_none() {
            (made.name, made.name_number) = (inner.name, (1, true));
        }
        if !inner.blobs.is_empty() || made.blobs.is_empty() {
            made.end = end(&inner, nested.content);
            (made.blobs, made.blob_number) = (inner.blobs, 50);
        }
    }
    let count = made.blobs.len() as u64;
    crate::error::check_limit(
        field.whole.start,
        crate::limits::Limit::Arrays,
        "the number of arrays",
        count,
        limits.max_arrays,
    )?;
    Ok(made)
}

fn end(found: &Found, content: Span) -> u64 {
    let after = found.blobs.last().map(|blob| blob.whole.end);
    after.or(found.higher).unwrap_or(content.end)
}

/// The form of a stored blob, and its fields that no BlobProto has, as (offset, length).
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) form: Form,
    pub(crate) unknown: Vec<(u64, u64)>,
}

pub(crate) fn stored(cursor: &mut Cursor<'_>, span: Span, limits: &Limits) -> Result<Stored, ReadError> {
    let fields = blob::walk(cursor, span, limits)?;
    let form = Form { legacy: fields.is_legacy(), raw: fields.is_raw(), v1: false };
    let mut unknown: Vec<(u64, u64)> = Vec::new();
    cursor.seek(span.start);
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        protobuf::skip(cursor, tag, span.end)?;
        // Fields 10 to 13 are the forks' values.
        if tag.number > 13 {
            match unknown.last_mut() {
                Some((at, len)) if *at + *len == tag.offset => *len = cursor.pos() - *at,
                _ => unknown.push((tag.offset, cursor.pos() - tag.offset)),
            }
        }
    }
    Ok(Stored { form, unknown })
}
