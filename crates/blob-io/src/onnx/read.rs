//! An ONNX model as entries: the walk over the model and the graph, and how a model is told from other messages.
//!
//! The walk reads tags, lengths, names and metadata; payloads and nodes are passed over. A model that is cut off gives
//! the tensors before the cut. Leaves one tensor's fields to `tensor`.

use std::collections::HashMap;

use crate::entry::Kind;
use crate::error::{Fault, FaultKind, ReadError};
use crate::limits::LONGEST_NAME;
use crate::metadata::{LEFT_OUT, MetadataSize};
use crate::names::{NameTable, faulty, name_from_bytes};
use crate::onnx::numbers::{
    graph_proto as graph, model_proto as model, node_proto as node, operator_set_id_proto as opset, tensor_proto,
};
use crate::onnx::place::Outside;
use crate::onnx::tensor::{self, Pair};
use crate::wire::cursor::Cursor;
use crate::wire::protobuf::{self, Span, Tag, Wire};

/// No IR version is near this one.
const MAX_IR_VERSION: u64 = 1 << 10;
/// So many fields of a graph are looked at for a first node or tensor.
const MAX_LOOKED_AT: usize = 64;
/// The longest operator that counts as a sign of a node.
const LONGEST_OPERATOR: u64 = 256;

/// ONNX's `checksum`: neither onnx 1.23 nor onnxruntime 1.32 compares one, and onnx writes none of its own accord.
const UNCHECKED: &str = "the model states a SHA-1 of a file of its values, which is not compared";

/// A model, as far as `codec` needs it.
pub(crate) struct Model {
    /// The versions and the number of nodes, in words.
    pub(crate) dialect: String,
    /// The entries whose values are in other files.
    pub(crate) outside: Vec<Outside>,
}

/// The state of the walk over a model.
#[derive(Default)]
struct Walk {
    ir_version: Option<u64>,
    /// The version of ONNX's own operators, and the other sets by domain.
    opset: Option<u64>,
    others: Vec<String>,
    nodes: u64,
    graphs: u32,
    metadata: Metadata,
    outside: Vec<Outside>,
}

/// The pairs of metadata so far, within the limit on all; a key that comes again keeps its place.
#[derive(Default)]
struct Metadata {
    size: MetadataSize,
    pairs: Vec<(String, String)>,
    places: HashMap<String, usize>,
}

/// Lists the initializers of a model, in the order of the file.
pub(crate) fn read(cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<Model, ReadError> {
    let mut walk = Walk::default();
    let walked = walk.run(cursor, table);
    table.metadata = walk.metadata.pairs;
    walked?;
    if walk.graphs == 0 || !is_model(cursor)? {
        return Err(ReadError::fault(0, FaultKind::words("an ONNX model with a graph", "none")));
    }
    let mut words = Vec::new();
    words.extend(walk.opset.map(|version| format!("opset {version}")));
    words.extend(walk.others);
    words.extend(walk.ir_version.map(|version| format!("IR {version}")));
    let plural = if walk.nodes == 1 { "" } else { "s" };
    words.push(format!("{} node{plural}", walk.nodes));
    Ok(Model { dialect: words.join(", "), outside: walk.outside })
}

impl Walk {
    fn run(&mut self, cursor: &mut Cursor<'_>, table: &mut NameTable) -> Result<(), ReadError> {
        let end = cursor.file_len();
        cursor.seek(0);
        while let Some(tag) = protobuf::tag(cursor, end)? {
            match (tag.number, tag.wire) {
                (model::IR_VERSION, Wire::Varint) => {
                    self.ir_version = Some(protobuf::varint(cursor, end, "ir_version")?);
                }
                (model::MODEL_VERSION, Wire::Varint) => {
                    let version = protobuf::varint(cursor, end, "model_version")? as i64;
                    if version != 0 {
                        self.metadata.set("model_version", version.to_string(), table, tag.offset);
                    }
                }
                (model::PRODUCER_NAME | model::PRODUCER_VERSION | model::DOMAIN | model::DOC_STRING, Wire::Len) => {
                    self.words(cursor, tag, end, table)?
                }
                (model::GRAPH, Wire::Len) => self.graph(cursor, end, table)?,
                (model::OPSET_IMPORT, Wire::Len) => self.opset(cursor, end)?,
                (model::METADATA_PROPS, Wire::Len) => {
                    let span = protobuf::field(cursor, tag, end, "metadata")?.content;
                    self.pair(cursor, span, table)?;
                    cursor.seek(span.end);
                }
                _ => protobuf::skip(cursor, tag, end)?,
            }
        }
        Ok(())
    }

    /// One of the model's own texts, under its name in the format. A pair of the metadata with this key counts more.
    fn words(&mut self, cursor: &mut Cursor<'_>, tag: Tag, end: u64, table: &mut NameTable) -> Result<(), ReadError> {
        let key = match tag.number {
            model::PRODUCER_NAME => "producer_name",
            model::PRODUCER_VERSION => "producer_version",
            model::DOMAIN => "domain",
            _ => "doc_string",
        };
        let span = protobuf::field(cursor, tag, end, key)?.content;
        if span.len() > 0 && !self.metadata.places.contains_key(key) {
            match text(cursor, span, self.metadata.size.left_for(key))? {
                Some(value) => self.metadata.set(key, value, table, span.start),
                None => table.warn_of_loss(Some(span.start), LEFT_OUT),
            }
        }
        cursor.seek(span.end);
        Ok(())
    }

    fn pair(&mut self, cursor: &mut Cursor<'_>, span: Span, table: &mut NameTable) -> Result<(), ReadError> {
        let Pair { key, value } = Pair::read(cursor, span)?;
        let empty = Span { start: span.end, end: span.end };
        let key = text(cursor, key.unwrap_or(empty), LONGEST_NAME)?;
        let Some(key) = key else {
            table.warn_of_loss(Some(span.start), LEFT_OUT);
            return Ok(());
        };
        match text(cursor, value.unwrap_or(empty), self.metadata.size.left_for(&key))? {
            Some(value) => self.metadata.set(&key, value, table, span.start),
            None => table.warn_of_loss(Some(span.start), LEFT_OUT),
        }
        Ok(())
    }

    fn opset(&mut self, cursor: &mut Cursor<'_>, end: u64) -> Result<(), ReadError> {
        let span = protobuf::span(cursor, end, "opset_import")?;
        let (mut domain, mut version) = (None, 0);
        while let Some(tag) = protobuf::tag(cursor, span.end)? {
            match (tag.number, tag.wire) {
                (opset::DOMAIN, Wire::Len) => {
                    domain = Some(protobuf::field(cursor, tag, span.end, "a domain")?.content);
                }
                (opset::VERSION, Wire::Varint) => version = protobuf::varint(cursor, span.end, "a version")?,
                _ => protobuf::skip(cursor, tag, span.end)?,
            }
        }
        let domain = match domain {
            Some(domain) => text(cursor, domain, 64)?.unwrap_or_else(|| "?".to_owned()),
            None => String::new(),
        };
        cursor.seek(span.end);
        match &*domain {
            "" | "ai.onnx" => self.opset = Some(version),
            other if self.others.len() < 4 => self.others.push(format!("{other} {version}")),
            _ => {}
        }
        Ok(())
    }

    /// The graph; one that ends behind the file is listed up to there, and is an error.
    fn graph(&mut self, cursor: &mut Cursor<'_>, file_end: u64, table: &mut NameTable) -> Result<(), ReadError> {
        self.graphs += 1;
        let len = protobuf::varint(cursor, file_end, "the graph")?;
        let cut = cursor.need(len, file_end, "the graph");
        let end = cursor.pos().saturating_add(len).min(file_end);
        while let Some(tag) = protobuf::tag(cursor, end)? {
            match (tag.number, tag.wire) {
                (graph::INITIALIZER, Wire::Len) => self.initializer(cursor, end, table)?,
                (graph::SPARSE_INITIALIZER, Wire::Len) => {
                    table.warn_of_loss(Some(tag.offset), "sparse initializers are not read, and are left out");
                    protobuf::skip(cursor, tag, end)?;
                }
                (graph::NAME, Wire::Len) => {
                    let span = protobuf::field(cursor, tag, end, "the graph's name")?.content;
                    let name = text(cursor, span, LONGEST_NAME)?.filter(|name| !name.is_empty());
                    if let Some(name) = name.filter(|_| !self.metadata.places.contains_key("name")) {
                        self.metadata.set("name", name, table, span.start);
                    }
                    cursor.seek(span.end);
                }
                _ => {
                    self.nodes += u64::from(tag.number == graph::NODE && tag.wire == Wire::Len);
                    protobuf::skip(cursor, tag, end)?;
                }
            }
        }
        cut
    }

    fn initializer(&mut self, cursor: &mut Cursor<'_>, end: u64, table: &mut NameTable) -> Result<(), ReadError> {
        let at = cursor.pos();
        let position = table.next_position(at)?;
        let span = protobuf::span(cursor, end, "an initializer").map_err(|stop| {
            cursor.seek(at);
            let start = protobuf::varint(cursor, end, "an initializer").map_or(end, |_| cursor.pos());
            let name = tensor::name_before_cut(cursor, Span { start, end });
            let name = name.and_then(|name| text(cursor, name, LONGEST_NAME).ok().flatten());
            let name = name.map_or_else(String::new, |name| format!(" {name:?}"));
            stop.within(format!("initializer #{position}{name}"))
        })?;
        let read = tensor::walk(cursor, span, table.limits()).and_then(|fields| {
            let name = fields.name(cursor)?;
            Ok((name, fields.into_entry(cursor, position)?))
        });
        let (name, entry, place) = match read {
            Ok((name, read)) => (name, read.entry, read.place),
            // The length was sound, so the next tensor is found.
            Err(ReadError::Fault(fault)) => (Vec::new(), faulty(position, 0, Kind::Data, fault), None),
            Err(stop) => return Err(stop),
        };
        if let Some(place) = place {
            if place.has_checksum {
                table.warn(Some(span.start), UNCHECKED);
            }
            let location = table.intern(&place.location, span.start)?;
            self.outside.push(Outside {
                entry: table.len(),
                location,
                offset: place.offset,
                length: place.length,
                dtype: place.dtype,
                at: span.start,
            });
        }
        let name = if name.is_empty() { format!("@{position}").into() } else { name_from_bytes(&name) };
        table.push(entry, &name, span.start)?;
        cursor.seek(span.end);
        Ok(())
    }
}

impl Metadata {
    /// Sets a pair, within the limit on all.
    fn set(&mut self, key: &str, value: String, table: &mut NameTable, at: u64) {
        if !self.size.take(key, value.len() as u64) {
            return table.warn_of_loss(Some(at), LEFT_OUT);
        }
        match self.places.get(key) {
            Some(place) => self.pairs[*place].1 = value,
            None => {
                self.places.insert(key.to_owned(), self.pairs.len());
                self.pairs.push((key.to_owned(), value));
            }
        }
    }
}

/// A text; `None` for one of more than `most` bytes.
fn text(cursor: &mut Cursor<'_>, span: Span, most: u64) -> Result<Option<String>, ReadError> {
    if span.len() > most {
        return Ok(None);
    }
    cursor.seek(span.start);
    let bytes = cursor.bytes(span.len(), span.end, most, "a text")?;
    Ok(Some(name_from_bytes(&bytes).into_owned()))
}

/// Whether the bytes are a model, whole or cut off, by fields that no other known message has together: an IR version,
/// and a graph that has a node with an operator, a tensor with an element type, or a value; an empty graph only beside
/// an operator set.
pub(crate) fn is_model(cursor: &mut Cursor<'_>) -> Result<bool, ReadError> {
    match signs(cursor) {
        Err(ReadError::Fault(_)) => Ok(false),
        other => other,
    }
}

fn signs(cursor: &mut Cursor<'_>) -> Result<bool, ReadError> {
    let end = cursor.file_len();
    let (mut has_version, mut has_graph, mut is_shown, mut has_opset) = (false, false, false, false);
    cursor.seek(0);
    while let Some(tag) = protobuf::tag(cursor, end)? {
        match (tag.number, tag.wire) {
            (model::IR_VERSION, Wire::Varint) => {
                has_version = (1..MAX_IR_VERSION).contains(&protobuf::varint(cursor, end, "ir_version")?);
                if !has_version {
                    return Ok(false);
                }
                continue;
            }
            (model::GRAPH, Wire::Len) => {
                has_graph = true;
                let len = protobuf::varint(cursor, end, "the graph")?;
                let (start, is_cut) = (cursor.pos(), cursor.need(len, end, "the graph").is_err());
                let span = Span { start, end: start.saturating_add(len).min(end) };
                is_shown |= is_graph(cursor, span)?;
                if is_cut || has_version && is_shown {
                    break;
                }
                cursor.seek(span.end);
                continue;
            }
            (model::OPSET_IMPORT, Wire::Len) => has_opset = true,
            (model::IR_VERSION | model::GRAPH | model::OPSET_IMPORT, _) => return Ok(false),
            (model::PRODUCER_NAME | model::PRODUCER_VERSION | model::DOMAIN | model::DOC_STRING, Wire::Len)
            | (model::MODEL_VERSION, Wire::Varint) => {}
            (2..=8, _) => return Ok(false),
            _ => {}
        }
        if has_version && is_shown {
            break;
        }
        if let Err(stop) = protobuf::skip(cursor, tag, end) {
            // The file may be cut off in any field behind the graph.
            return if has_graph { Ok(has_version && is_shown) } else { Err(stop) };
        }
    }
    Ok(has_version && (is_shown || has_graph && has_opset))
}

/// Whether a message shows itself a graph. Where the file ends within the message, all that is there must be a graph's.
fn is_graph(cursor: &mut Cursor<'_>, span: Span) -> Result<bool, ReadError> {
    cursor.seek(span.start);
    for _ in 0..MAX_LOOKED_AT {
        let Some(tag) = protobuf::tag(cursor, span.end)? else { break };
        let is_text = matches!(tag.number, graph::NAME | graph::DOC_STRING);
        if tag.wire != Wire::Len || !(is_text || matches!(tag.number, 1 | 5 | 11..=16)) {
            return Ok(false);
        }
        let len = protobuf::varint(cursor, span.end, "a field of a graph")?;
        let start = cursor.pos();
        let inner = Span { start, end: start.saturating_add(len).min(span.end) };
        match tag.number {
            graph::NODE => return is_node(cursor, inner),
            graph::INITIALIZER => return is_tensor(cursor, inner),
            graph::INPUT | graph::OUTPUT | graph::VALUE_INFO => return is_value(cursor, inner),
            _ => cursor.seek(inner.end),
        }
    }
    Ok(false)
}

/// A node has an operator: letters, digits and underscores.
fn is_node(cursor: &mut Cursor<'_>, span: Span) -> Result<bool, ReadError> {
    cursor.seek(span.start);
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        if tag.wire != Wire::Len {
            return Ok(false);
        }
        let content = protobuf::span(cursor, span.end, "a field of a node")?;
        if tag.number == node::OP_TYPE {
            let Some(operator) = text(cursor, content, LONGEST_OPERATOR)? else { return Ok(false) };
            let is_word = operator.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            return Ok(is_word && !operator.is_empty());
        }
        cursor.seek(content.end);
    }
    Ok(false)
}

/// A tensor has an element type before any values.
fn is_tensor(cursor: &mut Cursor<'_>, span: Span) -> Result<bool, ReadError> {
    cursor.seek(span.start);
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        match (tag.number, tag.wire) {
            (tensor_proto::DATA_TYPE, Wire::Varint) => return Ok(true),
            (tensor_proto::DATA_TYPE, _) => return Ok(false),
            _ => protobuf::skip(cursor, tag, span.end)?,
        }
    }
    Ok(false)
}

/// A value has a name and a type, both messages or texts.
fn is_value(cursor: &mut Cursor<'_>, span: Span) -> Result<bool, ReadError> {
    cursor.seek(span.start);
    let mut count = 0;
    while let Some(tag) = protobuf::tag(cursor, span.end)? {
        if tag.wire != Wire::Len || !matches!(tag.number, 1..=4) {
            return Ok(false);
        }
        protobuf::skip(cursor, tag, span.end)?;
        count += 1;
    }
    Ok(count > 0)
}

/// The fault of an entry whose file is not there.
pub(super) fn without(at: u64, location: &str, found: &str) -> Fault {
    Fault::new(at, FaultKind::words("the file of the values beside the model", format!("{location:?}, {found}")))
}
