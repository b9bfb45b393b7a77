//! Reads one layer of a net, of any generation: name, type and blobs.
//!
//! First collects the layer's own fields, then walks the blobs, because the name may come after them.

use std::borrow::Cow;

use crate::caffe::blob;
use crate::caffe::generation::Generation;
use crate::caffe::types::{v0_type, v1_type};
use crate::entry::{Entry, Kind};
use crate::error::ReadError;
use crate::limits::LONGEST_NAME;
use crate::names::{NameTable, faulty, name_from_bytes};
use crate::tensor_name::TensorName;
use crate::warning::{Flag, Flags};
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::{self, Field, Span, Tag, Wire};

/// A layer's own fields, before the blobs are read.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) generation: Generation,
    pub(crate) name: Option<Field>,
    pub(crate) type_name: Option<Field>,
    type_number: Option<u64>,
    pub(crate) blobs: Vec<Field>,
    /// Blobs of the shell that count for nothing, because the V0 layer inside has blobs too.
    unused: Vec<Field>,
    /// The V0 layers in a shell, and their fields. Several V0 layers in a shell count as one, as protobuf merges
    /// messages.
    pub(crate) nested: Vec<Field>,
    inner: Option<Box<Self>>,
    /// Where the first field with a higher number than the blobs begins.
    pub(crate) higher: Option<u64>,
    /// Warnings about where the blobs or the name are stored.
    flags: Flags,
}

/// Walks one `layer` (field 100) or `layers` (field 2) message and adds the layer's blobs.
pub(crate) fn walk(
    cursor: &mut Cursor<'_>,
    table: &mut NameTable,
    tag: Tag,
    span: Span,
) -> Result<Generation, ReadError> {
    let position = table.next_position(tag.offset)?;
    let mut draft = draft(cursor, table, tag.number, span).map_err(|stop| {
        let subject = subject(cursor, tag, position);
        stop.within(subject)
    })?;
    // Caffe ignores these, but one that is not a message is still a fault.
    for unused in std::mem::take(&mut draft.unused) {
        match blob::walk(cursor, unused.content, table.limits()) {
            Err(ReadError::Fault(fault)) => table.fault(fault),
            walked => drop(walked?),
        }
    }
    let generation = draft.generation;
    let name = text(cursor, draft.name, "a layer's name")?;
    let name = name_from_bytes(&name);
    let layer_type = match (draft.type_number, draft.type_name) {
        (Some(number), _) => v1_type(number).map(str::to_owned),
        (None, None) => None,
        (None, field) => {
            let text = text(cursor, field, "a layer's type")?;
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
    for (index, blob) in draft.blobs.iter().enumerate() {
        let (index, span) = (index as u32, blob.content);
        let (mut data, diff) = entries(cursor, table, span, position, index)
            .map_err(|stop| stop.within(format!("layer #{position} {name:?}, blob {index}")))?;
        data.layer_type = layer_type.clone();
        data.flags = data.flags.with(draft.flags);
        let data_name = format!("{base}/{index}");
        table.push(data, &data_name, span.start)?;
        if let Some(mut diff) = diff {
            diff.layer_type = layer_type.clone();
            table.push(diff, &TensorName::diff_of(&data_name), span.start)?;
        }
    }
    cursor.seek(span.end);
    Ok(generation)
}

/// Adds the whole blobs of a layer that reaches beyond the file's end, where the layer's name comes before the break.
/// The blobs of a V0 layer, which is cut together with its shell, are not looked for.
pub(crate) fn walk_cut(cursor: &mut Cursor<'_>, table: &mut NameTable, layer: Tag) -> Result<(), ReadError> {
    if name_before_break(cursor, layer).is_none() {
        return Ok(());
    }
    let file_end = cursor.file_len();
    cursor.seek(layer.offset);
    protobuf::tag(cursor, file_end)?;
    protobuf::varint(cursor, file_end, "a layer")?;
    let mut whole = Span { start: cursor.pos(), end: cursor.pos() };
    loop {
        let field = protobuf::tag(cursor, file_end);
        match field.and_then(|field| field.map(|tag| protobuf::skip(cursor, tag, file_end)).transpose()) {
            Ok(Some(())) => whole.end = cursor.pos(),
            Ok(None) | Err(ReadError::Fault(_)) => break,
            Err(stop) => return Err(stop),
        }
    }
    let walked = draft(cursor, table, layer.number, whole).and_then(|draft| match &draft.blobs[..] {
        [] => Ok(()),
        _ => walk(cursor, table, layer, whole).map(drop),
    });
    match walked {
        // The break is the fault to tell.
        Err(ReadError::Fault(_)) => Ok(()),
        walked => walked,
    }
}

/// The name in errors of a layer that is cut or broken: the layer's own name, if the name comes before the break.
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
    let number = Generation::of_field(layer.number)?.numbers().name;
    while let Some(tag) = protobuf::tag(cursor, whole.end).ok()? {
        if (tag.number, tag.wire) == (number, Wire::Len) {
            let name = protobuf::field(cursor, tag, whole.end, "a layer's name").ok()?;
            return text(cursor, Some(name), "a layer's name").ok();
        }
        protobuf::skip(cursor, tag, whole.end).ok()?;
    }
    None
}

/// One blob's entries. A broken blob becomes an entry with a fault; an error of the operating system ends the walk.
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

/// Reads the fields of a layer in this field of the net.
pub(crate) fn draft(cursor: &mut Cursor<'_>, table: &NameTable, number: u32, span: Span) -> Result<Draft, ReadError> {
    let generation = Generation::of_field(number).unwrap_or(Generation::V1);
    let mut outer = Draft::new(generation);
    outer.read(cursor, span, table)?;
    let Some(mut inner) = outer.inner.take() else { return Ok(outer) };
    // A field that only one of the two layers has is taken from there, one that both have from the nested layer, as
    // Caffe does.
    inner.nested = outer.nested;
    if inner.name.is_none() && outer.name.is_some() {
        inner.flags.set(Flag::FromOuter);
        inner.name = outer.name;
    }
    if inner.type_name.is_none() {
        inner.type_number = outer.type_number;
    }
    match (inner.blobs.is_empty(), outer.blobs.is_empty()) {
        (_, true) => {}
        (true, false) => {
            inner.flags.set(Flag::FromOuter);
            (inner.blobs, inner.higher) = (outer.blobs, outer.higher);
        }
        (false, false) => {
            inner.flags.set(Flag::NestedAndOuter);
            inner.unused = outer.blobs;
        }
    }
    Ok(*inner)
}

impl Draft {
    fn new(generation: Generation) -> Self {
        Self {
            generation,
            name: None,
            type_name: None,
            type_number: None,
            blobs: Vec::new(),
            unused: Vec::new(),
            nested: Vec::new(),
            inner: None,
            higher: None,
            flags: Flags::default(),
        }
    }

    /// Reads the fields of one message.
    fn read(&mut self, cursor: &mut Cursor<'_>, span: Span, table: &NameTable) -> Result<(), ReadError> {
        let numbers = self.generation.numbers();
        let nested = Generation::V0.numbers().layer;
        cursor.seek(span.start);
        while let Some(tag) = protobuf::tag(cursor, span.end)? {
            if tag.number > numbers.blobs {
                self.higher.get_or_insert(tag.offset);
            }
            match (tag.number, tag.wire, self.generation) {
                (number, Wire::Len, _) if number == numbers.name => {
                    self.name = Some(protobuf::field(cursor, tag, span.end, "a layer's name")?);
                }
                (number, Wire::Varint, Generation::V1) if number == numbers.layer_type => {
                    self.type_number = Some(protobuf::varint(cursor, span.end, "a layer's type")?);
                }
                (number, Wire::Len, Generation::V0 | Generation::V2) if number == numbers.layer_type => {
                    self.type_name = Some(protobuf::field(cursor, tag, span.end, "a layer's type")?);
                }
                (number, Wire::Len, _) if number == numbers.blobs => {
                    let blob = protobuf::field(cursor, tag, span.end, "a blob")?;
                    table.check_count((table.len() + self.blobs.len() + 1) as u64, blob.content.start)?;
                    self.blobs.push(blob);
                }
                (number, Wire::Len, Generation::V1) if number == nested => {
                    let field = protobuf::field(cursor, tag, span.end, "a V0 layer")?;
                    let inner = self.inner.get_or_insert_with(|| Box::new(Self::new(Generation::V0)));
                    inner.read(cursor, field.content, table)?;
                    cursor.seek(field.content.end);
                    self.nested.push(field);
                }
                _ => protobuf::skip(cursor, tag, span.end)?,
            }
        }
        Ok(())
    }
}

/// A length-delimited field's span; the cursor moves past the field.
pub(crate) fn take(cursor: &mut Cursor<'_>, within: Span, field: &'static str) -> Result<Span, ReadError> {
    let span = protobuf::span(cursor, within.end, field)?;
    cursor.seek(span.end);
    Ok(span)
}

/// A string field's bytes; empty where the field is absent.
pub(crate) fn text(cursor: &mut Cursor<'_>, field: Option<Field>, name: &'static str) -> Result<Vec<u8>, ReadError> {
    let Some(Field { content, .. }) = field else { return Ok(Vec::new()) };
    cursor.seek(content.start);
    cursor.bytes(content.len(), content.end, LONGEST_NAME, name)
}
