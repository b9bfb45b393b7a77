//! The bytes of an ONNX model around the values of its tensors: the graph with the versions, and the metadata.
//!
//! Relies on the reader, which has found the tensors.

use std::ops::Range;

use crate::checkpoint::Checkpoint;
use crate::entry::Entry;
use crate::error::Error;
use crate::format::Nets;
use crate::onnx::{fields, without};
use crate::wire::cursor::Cursor;
use crate::work;

/// The bytes of an ONNX model around the values of its tensors, as ranges of the file in ascending order. Of a model
/// with values in other files the ranges are those of the model's own file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Around {
    /// All fields but the metadata, without the values of the initializers.
    pub model: Vec<Range<u64>>,
    /// The pairs of metadata.
    pub metadata: Vec<Range<u64>>,
}

impl Around {
    /// The bytes of a model, without the pairs of metadata under `key`.
    ///
    /// # Errors
    /// [`Error::Request`] for another file than a model; the fault of a model that is cut off.
    pub fn of(file: &Checkpoint, key: &str) -> Result<Self, Error> {
        if file.format().holds().net != Nets::Graph {
            let message = "is no ONNX model".to_owned();
            return Err(Error::Request { file: file.name().to_owned(), message });
        }
        let (mut cursor, end) = (Cursor::new(file.source()), file.first_len());
        let found = fields(&mut cursor, end, key.as_bytes());
        let [model, metadata] = found.map_err(|stop| stop.into_error(file.name()))?;
        let mut values: Vec<Range<u64>> = file.entries().iter().flat_map(values).collect();
        values.sort_unstable_by_key(|run| run.start);
        work::visit(0, values.len() as u64);
        Ok(Self { model: without(model, values), metadata })
    }
}

/// The runs of a tensor's values that lie one behind the other.
fn values(entry: &Entry) -> impl Iterator<Item = Range<u64>> {
    let width = entry.dtype().map_or(0, |dtype| dtype.size() as u64);
    let runs = entry.segments().iter().filter(move |run| run.count > 0 && run.stride == width);
    runs.map(|run| run.offset..run.offset + run.count * run.stride)
}
