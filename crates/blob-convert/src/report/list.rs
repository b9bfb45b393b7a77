//! `blob.ls/1`: the tensors of a file, from its headers.

use std::io::{self, Write};

use blob_core::Shape;
use blob_io::{Checkpoint, Entry, Kind, Sparse};
use serde_json::{Value, json};

use super::facts::bytes_read;
use super::problem::Problem;
use crate::report::json::{
    self, DIALECT, DIMS, DTYPE, Document, FILE, FORMAT, Field, Fields, Line, NAME, Ordered, STRINGS, Type, field,
    nullable, optional, properties, streamed,
};

const KINDS: &[&str] = &["data", "diff", "values", "indices", "indptr", "none"];

/// The chosen tensors of a file.
#[derive(Clone, Debug)]
pub struct List<'a> {
    /// The file.
    pub checkpoint: &'a Checkpoint,
    /// The places of the tensors.
    pub chosen: &'a [usize],
    /// The error that ended the list early, as JSON.
    pub error: Value,
}

impl List<'_> {
    /// The tensors.
    pub fn listed(&self) -> impl Iterator<Item = Listed<'_>> {
        self.chosen.iter().map(|index| Listed::of(self.checkpoint, *index))
    }

    /// Writes the document as a line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut line = Line::begin(out, self)?;
        self.listed().try_for_each(|listed| line.push(out, &Ordered(&listed)))?;
        line.advance(out, self).map(drop)
    }
}

impl Document for List<'_> {
    const SCHEMA: &'static str = "blob.ls/1";
    const COMMAND: &'static str = "blob ls --json FILE [PATTERN...]";
    const DESCRIPTION: &'static str = "the tensors of a file, from its headers";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for List<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("file", Type::String, FILE, |l| json!(l.checkpoint.name())),
            field("format", Type::String, FORMAT, |l| json!(l.checkpoint.format().name())),
            field("dialect", Type::String, DIALECT, |l| json!(l.checkpoint.dialect())),
            field("file_bytes", Type::Integer, "the file's size", |l| json!(l.checkpoint.file_len())),
            field("tensors_in_file", Type::Integer, "how many there are, chosen or not", |l| {
                json!(l.checkpoint.entries().len())
            }),
            field("warnings", STRINGS, "what is odd about the file as a whole", |l| {
                l.checkpoint.warnings().iter().map(ToString::to_string).collect()
            }),
            streamed("tensors", Type::Array(&Type::Object(properties::<Listed<'_>>)), "the tensors that were chosen"),
            field("bytes_read", Type::Integer, "how much of it was read so far", |l| json!(bytes_read(l.checkpoint))),
            nullable("error", Type::Object(properties::<Problem>), "why the list ends too early", |l| l.error.clone()),
        ]
    }
}

/// One tensor. An absent array has no dtype; a broken one has no dtype either, and an error.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    file: &'a str,
    /// The place in the file.
    pub index: usize,
    /// The tensor.
    pub entry: &'a Entry,
    /// What it is, as [`Checkpoint::kind_of`] says.
    pub kind: Kind,
}

impl<'a> Listed<'a> {
    fn of(checkpoint: &'a Checkpoint, index: usize) -> Self {
        let entry = &checkpoint.entries()[index];
        Self { file: checkpoint.name(), index, entry, kind: checkpoint.kind_of(entry) }
    }
}

impl Listed<'_> {
    /// A property of the tensor's shape; `-` if there is no readable array.
    pub fn array(&self, fact: impl Fn(&Shape) -> String) -> String {
        if is_readable(self.entry) { fact(self.entry.shape()) } else { "-".to_owned() }
    }
}

impl Fields for Listed<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("index", Type::Integer, "its place in the file: `#3`", |l| json!(l.index)),
            field("name", Type::String, NAME, |l| json!(l.entry.name())),
            field("kind", Type::Enum(KINDS), "what it is", |l| json!(l.kind.name())),
            nullable("layer_type", Type::String, "the type of its layer, where it has one", |l| {
                json!(l.entry.layer_type())
            }),
            field("position", Type::Integer, "the place of its layer or record", |l| json!(l.entry.position())),
            nullable("dtype", Type::String, DTYPE, |l| json!(is_readable(l.entry).then(|| dtype_word(l.entry)))),
            nullable("shape", DIMS, "its shape; `null` without an array that can be read", |l| {
                json!(is_readable(l.entry).then(|| l.entry.shape().dims()))
            }),
            field("elements", Type::Integer, "how many values", |l| {
                json!(if is_readable(l.entry) { l.entry.shape().count() } else { 0 })
            }),
            field("bytes", Type::Integer, "how many bytes once loaded", |l| json!(l.entry.byte_len())),
            nullable("offset", Type::Integer, "where its bytes begin in the file", |l| json!(l.entry.offset())),
            field("pieces", Type::Integer, "in how many runs of bytes it lies; 0 where it is compressed", |l| {
                json!(l.entry.segments().len())
            }),
            optional("sparse", Type::Object(properties::<Sparse>), "the sparse array that it is a part of", |l| {
                l.entry.sparse().map_or(Value::Null, json::value)
            }),
            field("warnings", STRINGS, "what is odd about it", |l| l.entry.warnings().map(|w| w.to_string()).collect()),
            nullable("error", Type::Object(properties::<Problem>), "why it cannot be read", |l| {
                l.entry.fault().map_or(Value::Null, |f| json::value(&Problem::of_fault(l.file, l.entry, f)))
            }),
        ]
    }
}

/// Whether an array can be read, its dtype known or not.
#[must_use]
pub fn is_readable(entry: &Entry) -> bool {
    (entry.dtype().is_some() || entry.foreign_dtype().is_some()) && entry.fault().is_none()
}

/// The dtype in a word, or why there is none.
#[must_use]
pub fn dtype_word(entry: &Entry) -> &str {
    match (entry.fault(), entry.dtype()) {
        (Some(_), _) if entry.unread().is_some() => "unread",
        (Some(_), _) => "error",
        (None, Some(dtype)) => dtype.name(),
        (None, None) => entry.foreign_dtype().unwrap_or("none"),
    }
}
