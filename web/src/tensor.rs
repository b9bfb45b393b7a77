//! One tensor: its statistics, and some of its values.

use std::ops::ControlFlow::{Break, Continue};

use blob_convert::Silent;
use blob_convert::report::elements::{Elements, Value};
use blob_convert::report::json::Ordered;
use blob_convert::report::slice::{TensorRow, View};
use blob_convert::report::stats::Measurement;
use blob_convert::stats::{Measured, Measuring, measure, measure_channels};
use blob_io::{Checkpoint, Entry, Error};
use serde_json::json;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::{refused, said};

/// A tensor of as many bytes is worth a stream.
const STREAMED: u64 = 1 << 20;

fn entry(checkpoint: &Checkpoint, place: usize) -> Result<&Entry, Error> {
    checkpoint.entries().get(place).ok_or_else(|| refused(checkpoint.name(), "there is no such tensor"))
}

pub(crate) fn stats(checkpoint: &Checkpoint, place: usize, bins: usize) -> Result<String, Error> {
    let entry = entry(checkpoint, place)?;
    Ok(row(entry, place, measure(checkpoint, entry, wanted(bins), &Silent)?))
}

fn wanted(bins: usize) -> Option<usize> {
    Some(bins).filter(|bins| *bins > 0)
}

fn row(entry: &Entry, place: usize, measured: Measured) -> String {
    let row = Measurement { entry, place, channel: None, measured };
    serde_json::to_string(&Ordered(&row)).unwrap_or_default()
}

/// The statistics of a tensor whose bytes the worker hands over as they come: a stream is twice as fast as
/// [`Stored`](crate::host::Stored), and nothing in the module can wait for one.
#[wasm_bindgen]
pub struct Stream {
    entry: Entry,
    place: usize,
    /// Taken while a reading ends.
    measuring: Option<Measuring>,
}

impl Stream {
    /// None for bytes that do not lie in the file as they are, or are few.
    pub(crate) fn open(checkpoint: &Checkpoint, place: usize, bins: usize) -> Option<Self> {
        let entry = checkpoint.entries().get(place)?;
        let is_whole = entry.is_direct() && entry.segments().len() == 1 && !checkpoint.is_packed();
        let measuring =
            (is_whole && entry.byte_len() >= STREAMED).then(|| Measuring::new(checkpoint, entry, wanted(bins)).ok())?;
        Some(Self { entry: entry.clone(), place, measuring: Some(measuring?) })
    }
}

#[wasm_bindgen]
impl Stream {
    /// Where the bytes begin in the file.
    pub fn begin(&self) -> f64 {
        self.entry.offset().unwrap_or_default() as f64
    }

    /// How many there are.
    pub fn len(&self) -> f64 {
        self.entry.byte_len() as f64
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.measuring.iter_mut().for_each(|measuring| measuring.update(bytes));
    }

    /// Ends a reading: the statistics as [`stats`] has them, or nothing where all bytes are wanted once more.
    ///
    /// # Errors
    /// Bytes that were not the tensor's in number.
    pub fn end(&mut self) -> Result<Option<String>, String> {
        let Some(measuring) = self.measuring.take() else { return Ok(None) };
        match measuring.end().map_err(|e| said(&e))? {
            Break(measured) => Ok(Some(row(&self.entry, self.place, measured))),
            Continue(again) => {
                self.measuring = Some(again);
                Ok(None)
            }
        }
    }
}

/// The statistics of each index of an axis.
pub(crate) fn channels(checkpoint: &Checkpoint, place: usize, axis: i32) -> Result<String, Error> {
    let entry = entry(checkpoint, place)?;
    let all = measure_channels(checkpoint, entry, i64::from(axis), None, &Silent)?.into_iter().enumerate();
    let rows: Vec<String> = all
        .map(|(channel, measured)| Measurement { entry, place, channel: Some(channel), measured })
        .map(|row| serde_json::to_string(&Ordered(&row)).unwrap_or_default())
        .collect();
    Ok(format!("[{}]", rows.join(",")))
}

/// The first `most` values of a slice, as JSON has them, and the shape of the slice.
pub(crate) fn values(checkpoint: &Checkpoint, place: usize, slice: &str, most: usize) -> Result<String, Error> {
    let entry = entry(checkpoint, place)?;
    let mut elements = Elements::new(checkpoint, entry)?;
    let dims = entry.shape().dims();
    let view = match slice.trim() {
        "" => View::whole(dims),
        text => View::parse(text, dims).map_err(|why| refused(checkpoint.name(), &why))?,
    };
    let (bytes, dtype) = (fetched(&mut elements, view.head(most))?, elements.dtype());
    let mut values = String::from("[");
    for (i, element) in bytes.chunks_exact(dtype.size()).enumerate() {
        values.push_str(if i > 0 { "," } else { "" });
        Value::read(dtype, element).write(&mut values, "\"");
    }
    let head = json!({ "dtype": dtype.name(), "shape": view.dims, "count": view.count() }).to_string();
    Ok(format!("{},\"values\":{values}]}}", head.trim_end_matches('}')))
}

/// The first `most` values as numbers, for a picture.
pub(crate) fn numbers(checkpoint: &Checkpoint, place: usize, most: usize) -> Result<Vec<f32>, Error> {
    let entry = entry(checkpoint, place)?;
    let mut elements = Elements::new(checkpoint, entry)?;
    let bytes = fetched(&mut elements, View::whole(entry.shape().dims()).head(most))?;
    let dtype = elements.dtype();
    Ok(bytes
        .chunks_exact(dtype.size())
        .map(|element| Value::read(dtype, element).as_float().unwrap_or_default() as f32)
        .collect())
}

fn fetched(elements: &mut Elements<'_>, rows: impl Iterator<Item = TensorRow>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    for row in rows {
        elements.fetch(row, &mut bytes)?;
    }
    Ok(bytes)
}
