//! Reads one layer of a net, of any generation: its name, its type, its blobs.
//!
//! First collects the layer's own fields, then walks its blobs, because the name may come after them.

use std::borrow::Cow;

use crate::caffe::blob;
use crate::caffe::protobuf::{self, Span, Tag, Wire};
use crate::caffe::types::{v0_type, v1_type};
use crate::entry::{Entry, Kind};
use crate::error::ReadError;
use crate::limits::LONGEST_NAME;
use crate::names::{NameTable, faulty, name_from_bytes};
use crate::warning::{Flag, Flags};
use crate::wire::cursor::Cursor;

/// Which message a layer is stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// `layers { layer { … } }`, 2013 to March 2014.
    V0,
    /// `layers { … }` with an enum as type, 2014.
    V1,
    /// `layer { … }`, since 2015.
    V2,
}

/// A layer's own fields, before its blobs are read.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) name: Option<Span>,
    pub(crate) type_name: Option<Span>,
    type_number: Option<u64>,
    pub(crate) blobs: Vec<Span>,
    /// Warnings about where the blobs or the name are stored.
    flags: Flags,
}

/// Walks one `layer` (field 100) or `layers` (field 2) message and adds its blobs.
pub(crate) fn walk(
    cursor: &mut Cursor<'_>,
    table: &mut NameTable,
    tag: Tag,
    span: Span,
) -> Result<Generation, ReadError> {
    let position = table.next_position(tag.offset)?;
    let (generation, mut draft) = draft(cursor, table, tag.number, span).map_err(|stop| {
        let subject = subject(cursor, tag, position);
        stop.within(subject)
    })?;
    let name = text(cursor, draft.name, "a layer's name")?;
    let name = name_from_bytes(&name);
    let layer_type = match (draft.type_number, draft.type_name) {
        (Some(number), _) => v1_type(number).map(str::to_owned),
        (None, None) => None,
        (None, span) => {
            let text = text(cursor, span, "a layer's type")?;
            let text = name_from_bytes(&text);
            Some(match generation {
                Generation::V0 => v0_type(&text).to_owned(),
                _ => text.into_owned(),
            })
        }
    };
    let layer_type = match layer_type {
        Some(text) => Some(table.intern(&text, tag.offset)?),
        None => None,
    };
    if draft.blobs.is_empty() {
        cursor.seek(span.end);
        return Ok(generation);
    }
    let base = table.layer_base(&name, position);
    if !name.is_empty() && matches!(base, Cow::Owned(_)) {
        draft.flags.set(Flag::RepeatedName);
    }
    for (index, span) in draft.blobs.iter().enumerate() {
        let index = index as u32;
        let (mut data, diff) = entries(cursor, table, *span, position, index)
            .map_err(|stop| stop.within(format!("layer #{position} {name:?}, blob {index}")))?;
        data.layer_type = layer_type.clone();
        data.flags = data.flags.with(draft.flags);
        let data_name = format!("{base}/{index}");
        table.push(data, &data_name, span.start)?;
        if let Some(mut diff) = diff {
            diff.layer_type = layer_type.clone();
            table.push(diff, &format!("{data_name}.diff"), span.start)?;
        }
    }
    cursor.seek(span.end);
    Ok(generation)
}

/// The name in errors of a layer that is cut or broken: its own name, if that comes before the break.
pub(crate) fn subject(cursor: &mut Cursor<'_>, tag: Tag, position: u32) -> String {
    match name_before_break(cursor, tag) {
        Some(name) => format!("layer #{position} {:?}", name_from_bytes(&name)),
        None => format!("layer #{position}"),
    }
}

fn name_before_break(cursor: &mut Cursor<'_>, layer: Tag) -> Option<Vec<u8>> {
    let whole = Span { start: 0, end: cursor.file_len() };
    cursor.seek(layer.offset);
    protobuf::tag(cursor, whole.end).ok()??;
    protobuf::varint(cursor, whole.end, "a layer").ok()?;
    let number = if layer.number == 100 { 1 } else { 4 };
    while let Some(tag) = protobuf::tag(cursor, whole.end).ok()? {
        if (tag.number, tag.wire) == (number, Wire::Len) {
            let span = take(cursor, whole, "a layer's name").ok()?;
            return text(cursor, Some(span), "a layer's name").ok();
        }
        protobuf::skip(cursor, tag, whole.end).ok()?;
    }
    None
}

/// One blob's entries. A broken blob is a fault of its entry; an error of the operating system ends the walk.
pub(crate) fn entries(
    cursor: &mut Cursor<'_>,
    table: &NameTable,
    span: Span,
    position: u32,
    index: u32,
) -> Result<(Entry, Option<Entry>), ReadError> {
    match blob::walk(cursor, span, table.limits()) {
        Ok(fields) => Ok(fields.into_entries(position, index)),
        Err(ReadError::Fault(fault)) => Ok((faulty(position, index, Kind::Data, fault), None)),
        Err(stop) => Err(stop),
    }
}

/// Reads the fields of a layer in field 100 or 2 of the net.
pub(crate) fn draft(
    cursor: &mut Cursor<'_>,
    table: &mut NameTable,
    number: u32,
    span: Span,
) -> Result<(Generation, Draft), ReadError> {
    cursor.seek(span.start);
    if number != 100 {
        return v0_or_v1(cursor, table, span);
    }
    let mut draft = Draft::default();
    typed_by_name(cursor, table, span, 7, &mut draft)?;
    Ok((Generation::V2, draft))
}

/// A `layers` entry: V0 if it has a nested layer, else V1. A field that only one of the two layers
/// has is taken from there, one that both have from the nested layer, as Caffe does.
fn v0_or_v1(cursor: &mut Cursor<'_>, table: &mut NameTable, span: Span) -> Result<(Generation, Draft), ReadError> {
    let mut outer = Draft::default();
    let mut nested: Option<Draft> = None;
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        match (tag.number, tag.wire) {
            (1, Wire::Len) => {
                let inner = take(cursor, span, "a V0 layer")?;
                cursor.seek(inner.start);
                typed_by_name(cursor, table, inner, 50, nested.get_or_insert_default())?;
                cursor.seek(inner.end);
            }
            (4, Wire::Len) => outer.name = Some(take(cursor, span, "a layer's name")?),
            (5, Wire::Varint) => {
                outer.type_number = Some(protobuf::varint(cursor, span.end, "a layer's type")?);
            }
            (6, Wire::Len) => outer.add(take(cursor, span, "a blob")?, table)?,
            _ => protobuf::skip(cursor, tag, span.end)?,
        }
    }
    let Some(mut nested) = nested else {
        return Ok((Generation::V1, outer));
    };
    if !outer.blobs.is_empty() {
        let flag = if nested.blobs.is_empty() { Flag::FromOuter } else { Flag::NestedAndOuter };
        nested.flags.set(flag);
    }
    if nested.blobs.is_empty() {
        nested.blobs = outer.blobs;
    } else {
        // Caffe ignores these, but one that is not a message is still a fault.
        for unused in outer.blobs {
            match blob::walk(cursor, unused, table.limits()) {
                Err(ReadError::Fault(fault)) => table.fault(fault),
                walked => drop(walked?),
            }
        }
        cursor.seek(span.end);
    }
    if nested.name.is_none() && outer.name.is_some() {
        nested.flags.set(Flag::FromOuter);
        nested.name = outer.name;
    }
    if nested.type_name.is_none() {
        nested.type_number = outer.type_number;
    }
    Ok((Generation::V0, nested))
}

/// Reads a V0 or V2 layer: its name (field 1), its type's name (2) and its blobs (field `blobs`).
fn typed_by_name(
    cursor: &mut Cursor<'_>,
    table: &NameTable,
    span: Span,
    blobs: u32,
    draft: &mut Draft,
) -> Result<(), ReadError> {
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        match (tag.number, tag.wire) {
            (1, Wire::Len) => draft.name = Some(take(cursor, span, "a layer's name")?),
            (2, Wire::Len) => draft.type_name = Some(take(cursor, span, "a layer's type")?),
            (n, Wire::Len) if n == blobs => draft.add(take(cursor, span, "a blob")?, table)?,
            _ => protobuf::skip(cursor, tag, span.end)?,
        }
    }
    Ok(())
}

impl Draft {
    fn add(&mut self, blob: Span, table: &NameTable) -> Result<(), ReadError> {
        table.check_count((table.len() + self.blobs.len() + 1) as u64, blob.start)?;
        self.blobs.push(blob);
        Ok(())
    }
}

/// A length-delimited field's span; the cursor moves past it.
pub(crate) fn take(cursor: &mut Cursor<'_>, within: Span, field: &'static str) -> Result<Span, ReadError> {
    let span = protobuf::span(cursor, within.end, field)?;
    cursor.seek(span.end);
    Ok(span)
}

/// A string field's bytes; empty where the field is absent.
pub(crate) fn text(cursor: &mut Cursor<'_>, span: Option<Span>, field: &'static str) -> Result<Vec<u8>, ReadError> {
    let Some(span) = span else {
        return Ok(Vec::new());
    };
    cursor.seek(span.start);
    cursor.bytes(span.len(), span.end, LONGEST_NAME, field)
}
