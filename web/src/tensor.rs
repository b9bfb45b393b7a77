//! One tensor: its statistics, and some of its values.

use blob_convert::report::elements::{Elements, Value};
use blob_convert::report::json::Ordered;
use blob_convert::report::slice::{Row, View};
use blob_convert::report::stats::Measurement;
use blob_convert::stats::{measure, measure_channels};
use blob_io::{Checkpoint, Entry, Error};
use serde_json::json;

use crate::host::Told;
use crate::refused;

fn entry(checkpoint: &Checkpoint, place: usize) -> Result<&Entry, Error> {
    checkpoint.entries().get(place).ok_or_else(|| refused(checkpoint.name(), "there is no such tensor"))
}

pub(crate) fn stats(checkpoint: &Checkpoint, place: usize, bins: usize) -> Result<String, Error> {
    let entry = entry(checkpoint, place)?;
    let measured = measure(checkpoint, entry, Some(bins).filter(|bins| *bins > 0), &Told::default())?;
    let row = Measurement { entry, place, channel: None, measured };
    Ok(serde_json::to_string(&Ordered(&row)).unwrap_or_default())
}

/// The statistics of each index of an axis.
pub(crate) fn channels(checkpoint: &Checkpoint, place: usize, axis: i32) -> Result<String, Error> {
    let entry = entry(checkpoint, place)?;
    let all = measure_channels(checkpoint, entry, i64::from(axis), None, &Told::default())?.into_iter().enumerate();
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
    let number = |element| Value::read(dtype, element).as_float().unwrap_or_default() as f32;
    Ok(bytes.chunks_exact(dtype.size()).map(number).collect())
}

fn fetched(elements: &mut Elements<'_>, rows: impl Iterator<Item = Row>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    for row in rows {
        elements.fetch(row, &mut bytes)?;
    }
    Ok(bytes)
}
