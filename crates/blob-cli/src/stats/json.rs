//! `blob.stats/1`: the statistics as JSON, one object a tensor or a channel, streamed.

use std::io::{self, Write};

use blob_convert::stats::Measured;
use blob_io::{Checkpoint, Entry};
use serde_json::{Value, json};

use super::{Left, left_out};
use crate::failure::Problem;
use crate::render::json::{self, Object, Rows};

/// What stands before the tensors.
pub(super) fn head(checkpoint: &Checkpoint, axis: Option<i64>) -> Object {
    Object::of("blob.stats/1")
        .with("file", checkpoint.name())
        .with("format", checkpoint.format().name())
        .with("axis", axis)
}

/// What stands behind them: the tensors that have nothing to measure, and what stopped the work.
pub(super) fn tail(
    rows: Rows,
    out: &mut dyn Write,
    checkpoint: &Checkpoint,
    chosen: &[usize],
    axis: Option<i64>,
    error: Option<&Problem>,
) -> io::Result<()> {
    let mut skipped = rows.then(out, "skipped")?;
    for index in chosen {
        let entry = &checkpoint.entries()[*index];
        if let Some(why) = left_out(entry, axis) {
            let reason = match why {
                Left::NoArray => "no-array",
                Left::Foreign => "unsupported",
                Left::NoAxis => "no-axis",
            };
            let row =
                Object::new().with("name", entry.name()).with("shape", entry.shape().dims()).with("reason", reason);
            skipped.push(out, &row)?;
        }
    }
    let tail = Object::new().with("error", error.map(json::error));
    skipped.end(out, &tail)
}

/// A tensor that could not be measured.
pub(super) fn failed(entry: &Entry, problem: &Problem) -> Object {
    named(entry, None).with("error", json::error(problem))
}

pub(super) fn measured(entry: &Entry, channel: Option<usize>, measured: &Measured) -> Object {
    let stats = measured.stats();
    let is_float = entry.dtype().is_some_and(|d| d.is_float());
    let exact = |text: String, value: f64| match is_float {
        true => real(value),
        false => serde_json::from_str(&text).unwrap_or(Value::Null),
    };
    let object = named(entry, channel)
        .with("count", stats.count())
        .with("min", stats.min().map(|s| exact(s.to_string(), s.as_f64())))
        .with("max", stats.max().map(|s| exact(s.to_string(), s.as_f64())))
        .with("mean", stats.mean().map(real))
        .with("std", stats.std().map(real))
        .with("l1", real(stats.l1()))
        .with("l2", real(stats.l2()))
        .with("zeros", stats.zeros())
        .with("nan", stats.nan())
        .with("inf", stats.inf());
    match measured.histogram() {
        Some(histogram) => object.with(
            "histogram",
            json!({
                "min": real(histogram.min()),
                "max": real(histogram.max()),
                "counts": histogram.counts(),
                "left_out": stats.nan() + stats.inf(),
            }),
        ),
        None => object,
    }
}

/// What every row begins with.
fn named(entry: &Entry, channel: Option<usize>) -> Object {
    let is_whole = entry.fault().is_none();
    let object = Object::new()
        .with("name", entry.name())
        .with("dtype", entry.dtype().map(|d| d.name()))
        .with("shape", is_whole.then(|| entry.shape().dims()));
    match channel {
        Some(channel) => object.with("channel", channel),
        None => object,
    }
}

/// A number in JSON; what JSON has no number for is a string: "Infinity", "-Infinity", "NaN".
fn real(value: f64) -> Value {
    match serde_json::Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => json!("NaN"),
        None if value > 0.0 => json!("Infinity"),
        None => json!("-Infinity"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_words_for_what_it_has_no_numbers_for() {
        assert_eq!(real(1.5), json!(1.5));
        assert_eq!(real(f64::NAN), json!("NaN"));
        assert_eq!(real(f64::NEG_INFINITY), json!("-Infinity"));
    }
}
