//! `blob.info/1`: what a file is, from headers and few values: the means of a mean image's channels, and values that
//! BatchNorms ignore.

use blob_core::DType;
use blob_io::{Checkpoint, Entry, Kind};
use serde_json::{Value, json};

use super::mean::mean_values;
use super::problem::Problem;
use crate::RECEIPT_KEY;
use crate::change::Group;
use crate::report::json::{
    self, DIALECT, DIMS, DTYPE, Document, FILE, FORMAT, Field, Fields, NAME, STRINGS, Type, field, nullable, properties,
};
use crate::transform::ignored;

/// At most this many unsupported dtypes are named; the others are counted together.
const MAX_FOREIGN: usize = 12;

/// At most this many warnings and errors are in the JSON.
const MAX_IN_JSON: usize = 20;

/// The summary of a file.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The file.
    pub checkpoint: &'a Checkpoint,
    /// The dtypes with numbers of tensors: those of `DType::ALL` in order, then unsupported ones.
    pub dtypes: Vec<(&'a str, u64)>,
    /// The number of tensors.
    pub tensors: u64,
    /// The number of values, without diffs and indices.
    pub parameters: u64,
    /// Their bytes once loaded.
    pub bytes: u64,
    /// Tensors that are diffs.
    pub diffs: u64,
    /// Places without an array.
    pub none: u64,
    /// Arrays that cannot be read.
    pub broken: u64,
    /// Sound arrays of a kind that is not read.
    pub unread: u64,
    /// Sparse arrays.
    pub sparse: u64,
    /// The largest tensor.
    pub largest: Option<&'a Entry>,
    /// The means of a mean image's channels, for the `transform_param` of a net.
    pub mean_values: Option<Vec<f64>>,
    /// The values that the file's own framework does not take as stored.
    pub ignored: Vec<Group>,
}

impl<'a> Facts<'a> {
    /// Reads the facts.
    #[must_use]
    pub fn of(checkpoint: &'a Checkpoint) -> Self {
        let entries = checkpoint.entries();
        let count = |test: &dyn Fn(&Entry) -> bool| entries.iter().filter(|e| test(e)).count() as u64;
        let dtypes = DType::ALL
            .iter()
            .map(|d| (d.name(), count(&|e| e.dtype() == Some(*d))))
            .filter(|(_, n)| *n > 0)
            .chain(foreign_dtypes(entries));
        Self {
            checkpoint,
            dtypes: dtypes.collect(),
            tensors: entries.len() as u64,
            // Diffs and the indices of sparse arrays are not parameters.
            parameters: checkpoint.parameters(),
            bytes: entries.iter().map(Entry::byte_len).sum(),
            diffs: count(&|e| checkpoint.kind_of(e) == Kind::Diff),
            none: count(&|e| e.kind() == Kind::None),
            broken: count(&|e| e.fault().is_some() && e.unread().is_none()),
            unread: count(&|e| e.unread().is_some()),
            sparse: count(&|e| checkpoint.kind_of(e) == Kind::Values),
            largest: entries.iter().rev().max_by_key(|e| e.byte_len()).filter(|e| e.byte_len() > 0),
            mean_values: mean_values(checkpoint),
            ignored: ignored(checkpoint, None),
        }
    }

    /// The warnings about the file, the arrays, and values that do not count.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.ignored.iter().map(ToString::to_string).chain(file_warnings(self.checkpoint))
    }
}

impl Document for Facts<'_> {
    const SCHEMA: &'static str = "blob.info/1";
    const COMMAND: &'static str = "blob info --json FILE...";
    const DESCRIPTION: &'static str = "what a file is, from its headers and the values of mean images and BatchNorms";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for Facts<'_> {
    fn fields() -> Vec<Field<Self>> {
        const GZIP: &str =
            "the length of a gzip file as it is stored; file_bytes and offsets are those of what it unpacks to";
        const MEMBER: &str =
            "the file of the archive that was opened, also the end of file; file_bytes and offsets are its";
        let errors = Type::Array(&Type::Object(properties::<Problem>));
        vec![
            field("file", Type::String, FILE, |f| json!(f.checkpoint.name())),
            nullable("member", Type::String, MEMBER, |f| json!(f.checkpoint.member())),
            field("format", Type::String, FORMAT, |f| json!(f.checkpoint.format().name())),
            field("dialect", Type::String, DIALECT, |f| json!(f.checkpoint.dialect())),
            field("file_bytes", Type::Integer, "the file's size", |f| json!(f.checkpoint.file_len())),
            nullable("gzip_bytes", Type::Integer, GZIP, |f| {
                json!(f.checkpoint.is_gzip().then(|| f.checkpoint.stored().len()))
            }),
            field("tensors", Type::Integer, "how many tensors it lists", |f| json!(f.tensors)),
            field("parameters", Type::Integer, "their values, without diffs and indices", |f| json!(f.parameters)),
            field("tensor_bytes", Type::Integer, "their bytes once loaded", |f| json!(f.bytes)),
            field("dtypes", Type::Map(&Type::Integer), "how many tensors of each dtype", |f| {
                f.dtypes.iter().map(|(dtype, n)| ((*dtype).to_owned(), json!(n))).collect()
            }),
            field("layers", Type::Integer, "layers or records, with tensors or without", |f| {
                json!(f.checkpoint.positions())
            }),
            field("diffs", Type::Integer, "tensors that are diffs", |f| json!(f.diffs)),
            field("sparse", Type::Integer, "sparse arrays", |f| json!(f.sparse)),
            field("none", Type::Integer, "places without an array", |f| json!(f.none)),
            field("broken", Type::Integer, "arrays that cannot be read", |f| json!(f.broken)),
            field("unread", Type::Integer, "sound arrays of a kind that is not read", |f| json!(f.unread)),
            nullable("largest", Type::Object(properties::<Largest<'_>>), "the largest tensor", |f| {
                f.largest.map_or(Value::Null, |entry| json::value(&Largest(entry)))
            }),
            nullable(
                "mean_values",
                Type::Array(&Type::Number),
                "of a mean image of Caffe's: the mean of each channel",
                |f| json!(f.mean_values),
            ),
            field(
                "metadata",
                Type::Map(&Type::String),
                "what the file says of itself beside tensors and receipt",
                |f| {
                    let others = f.checkpoint.metadata().iter().filter(|(key, _)| key != RECEIPT_KEY);
                    others.map(|(key, text)| (key.clone(), json!(text))).collect()
                },
            ),
            nullable("receipt", Type::Foreign, "the receipt of the conversion: docs/receipt.md", |f| {
                let mut metadata = f.checkpoint.metadata().iter();
                let receipt = metadata.find(|(key, _)| key == RECEIPT_KEY);
                let receipt = receipt.and_then(|(_, text)| serde_json::from_str(text).ok());
                receipt.filter(Value::is_object).unwrap_or(Value::Null)
            }),
            field("warnings", STRINGS, "what is odd, the first 20", |f| {
                f.warnings().take(MAX_IN_JSON).map(Value::String).collect()
            }),
            field("warning_count", Type::Integer, "how many there are", |f| json!(f.warnings().count())),
            field("errors", errors, "why arrays cannot be read, the first 20", |f| errors_of(f.checkpoint)),
            field("bytes_read", Type::Integer, "how much of it was read so far", |f| json!(bytes_read(f.checkpoint))),
        ]
    }
}

/// The largest tensor.
struct Largest<'a>(&'a Entry);

impl Fields for Largest<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, NAME, |l| json!(l.0.name())),
            nullable("dtype", Type::String, DTYPE, |l| json!(l.0.dtype().map(DType::name).or(l.0.foreign_dtype()))),
            field("shape", DIMS, "its shape", |l| json!(l.0.shape().dims())),
            field("bytes", Type::Integer, "its bytes", |l| json!(l.0.byte_len())),
        ]
    }
}

/// The unsupported dtypes with numbers of tensors. A hostile file can name a different one for each array, so
/// only the first few are listed and the rest are counted as "other".
fn foreign_dtypes(entries: &[Entry]) -> Vec<(&str, u64)> {
    let mut found: Vec<(&str, u64)> = Vec::new();
    let mut other = 0;
    for name in entries.iter().filter_map(Entry::foreign_dtype) {
        match found.iter().position(|(known, _)| *known == name) {
            Some(at) => found[at].1 += 1,
            None if found.len() < MAX_FOREIGN => found.push((name, 1)),
            None => other += 1,
        }
    }
    found.extend((other > 0).then_some(("other", other)));
    found
}

/// The problems of the first broken arrays.
fn errors_of(checkpoint: &Checkpoint) -> Value {
    let faults = checkpoint.entries().iter().filter_map(|e| Some((e, e.fault()?)));
    let errors = faults.map(|(entry, fault)| json::value(&Problem::of_fault(checkpoint.name(), entry, fault)));
    errors.take(MAX_IN_JSON).collect()
}

/// How much of the file was read: headers that were read twice count once, as far as the file is long.
#[must_use]
pub fn bytes_read(checkpoint: &Checkpoint) -> u64 {
    checkpoint.bytes_read().min(checkpoint.file_len())
}

/// The warnings about the file and the arrays. An iterator, because a hostile file can have a million.
pub fn file_warnings(checkpoint: &Checkpoint) -> impl Iterator<Item = String> {
    checkpoint.warnings().iter().map(ToString::to_string).chain(array_warnings(checkpoint))
}

/// The warnings about the arrays.
pub fn array_warnings(checkpoint: &Checkpoint) -> impl Iterator<Item = String> {
    checkpoint.entries().iter().flat_map(|entry| {
        let name = entry.name();
        entry.warnings().map(move |w| format!("{name:?}: {w}"))
    })
}
