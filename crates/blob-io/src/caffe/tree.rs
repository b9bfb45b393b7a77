//! Finds the blobs of an existing Caffe file and the layers around them, which changing a blob must rewrite.
//!
//! Relies on `layer`, which finds a layer's fields for the reader as well. Leaves the entries to `read`.

use crate::caffe::blob;
use crate::caffe::encode::BlobForm;
use crate::caffe::generation::Generation;
use crate::caffe::layer::{self, Draft};
use crate::caffe::proto_fields::{blob_proto_vector, solver_state};
use crate::error::ReadError;
use crate::format::Format;
use crate::limits::Limits;
use crate::names::NameTable;
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::{self, Field, Span, Wire};

/// A layer of a net, or a substitute in a message without layers.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// `None` if the blobs are fields of the file itself.
    pub(crate) field: Option<Field>,
    /// The nested layers of V0 that hold the blobs, in order; more than one count as one.
    pub(crate) nested: Vec<Field>,
    pub(crate) name: Option<Field>,
    /// The number of the field that holds the name, and whether the field belongs to the nested layer.
    pub(crate) name_number: (u32, bool),
    pub(crate) blobs: Vec<Field>,
    pub(crate) blob_number: u32,
    /// Where another blob goes: before the first field with a higher number.
    pub(crate) end: u64,
}

/// The layers of a net, in order; for a list one layer for each blob; one layer for a single blob.
pub(crate) fn layers(cursor: &mut Cursor<'_>, format: Format, limits: &Limits) -> Result<Vec<Layer>, ReadError> {
    let whole = Span { start: 0, end: cursor.file_len() };
    if !format.holds().many {
        let blob = Field { number: 0, whole, content: whole };
        return Ok(vec![layer_of_blob(blob)]);
    }
    let mut fields = Vec::new();
    each(cursor, whole, |field| {
        if is_part(format, field.number) {
            fields.push(field);
        }
    })?;
    if format != Format::CaffeModel {
        return Ok(fields.into_iter().map(layer_of_blob).collect());
    }
    // Limits count the blobs of one layer here; the reader has counted those of the file.
    let table = NameTable::new(limits);
    fields.into_iter().map(|field| layer(cursor, field, &table)).collect()
}

/// Whether a field of the whole file is a layer, or a blob of a file that has no layers.
fn is_part(format: Format, number: u32) -> bool {
    match format {
        Format::CaffeModel => Generation::of_field(number).is_some(),
        Format::BlobProtoVector => number == blob_proto_vector::BLOBS,
        _ => number == solver_state::HISTORY,
    }
}

fn layer_of_blob(blob: Field) -> Layer {
    let (number, end) = (blob.number, blob.whole.end);
    Layer {
        field: None,
        nested: Vec::new(),
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
        take_field(protobuf::field(cursor, tag, span.end, "a field")?);
    }
    Ok(())
}

fn layer(cursor: &mut Cursor<'_>, field: Field, table: &NameTable) -> Result<Layer, ReadError> {
    let Draft { generation, name, blobs, nested, higher, .. } =
        layer::draft(cursor, table, field.number, field.content)?;
    let numbers = generation.numbers();
    let content = nested.last().map_or(field.content, |nested| nested.content);
    let is_nested = !nested.is_empty() && name.is_none_or(|name| holder(&nested, name.whole).is_some());
    let after = blobs.last().map(|blob| blob.whole.end);
    Ok(Layer {
        field: Some(field),
        nested,
        name,
        name_number: (name.map_or(numbers.name, |name| name.number), is_nested),
        blob_number: blobs.last().map_or(numbers.blobs, |blob| blob.number),
        end: after.or(higher).unwrap_or(content.end),
        blobs,
    })
}

/// The place of the nested layer that a range lies in. `nested` are in ascending order.
pub(crate) fn holder(nested: &[Field], range: Span) -> Option<usize> {
    let place = nested.partition_point(|layer| layer.content.end < range.start);
    let layer = nested.get(place)?.content;
    (layer.start <= range.start && range.end <= layer.end).then_some(place)
}

/// The form of a stored blob, and the fields that no BlobProto has, as (offset, length).
#[derive(Clone, Debug)]
pub(crate) struct StoredBlob {
    pub(crate) form: BlobForm,
    pub(crate) unknown: Vec<(u64, u64)>,
}

pub(crate) fn stored(cursor: &mut Cursor<'_>, span: Span, limits: &Limits) -> Result<StoredBlob, ReadError> {
    let fields = blob::walk(cursor, span, limits)?;
    let form = BlobForm { legacy: fields.is_legacy(), raw: fields.is_raw(), v1: false };
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
    Ok(StoredBlob { form, unknown })
}
