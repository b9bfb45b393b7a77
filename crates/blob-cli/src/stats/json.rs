//! `blob.stats/1`: the statistics as JSON, one object a tensor or a channel, streamed.

use blob_convert::stats::Measured;
use blob_io::{Checkpoint, Entry};
use serde_json::{Value, json};

use super::{Left, Sheet, left_out};
use crate::failure::{Failure, Problem};
use crate::output::Out;
use crate::render::json::{self, Object, Rows};

/// The objects of a JSON array.
pub(super) struct Objects<'o> {
    axis: Option<i64>,
    rows: Rows,
    out: &'o mut Out,
}

impl<'o> Objects<'o> {
    pub(super) fn begin(checkpoint: &Checkpoint, axis: Option<i64>, out: &'o mut Out) -> Result<Self, Failure> {
        let head = Object::of("blob.stats/1")
            .with("file", checkpoint.name())
            .with("format", checkpoint.format().name())
            .with("axis", axis);
        let rows = Rows::begin(out, &head, "tensors")?;
        Ok(Self { axis, rows, out })
    }
}

impl Sheet for Objects<'_> {
    fn add(&mut self, entry: &Entry, channel: Option<usize>, measured: &Measured) -> Result<(), Failure> {
        Ok(self.rows.push(self.out, &object(entry, channel, measured))?)
    }

    fn fail(&mut self, entry: &Entry, problem: &Problem) -> Result<(), Failure> {
        Ok(self.rows.push(self.out, &named(entry, None).with("error", json::error(problem)))?)
    }

    /// What stands behind the tensors: those that have nothing to measure, and what stopped the work.
    fn end(self, checkpoint: &Checkpoint, chosen: &[usize], stopped: Option<&Problem>) -> Result<(), Failure> {
        let mut skipped = self.rows.then(self.out, "skipped")?;
        for index in chosen {
            let entry = &checkpoint.entries()[*index];
            if let Some(why) = left_out(entry, self.axis) {
                let reason = match why {
                    Left::NoArray => "no-array",
                    Left::Foreign => "unsupported",
                    Left::NoAxis => "no-axis",
                };
                let row =
                    Object::new().with("name", entry.name()).with("shape", entry.shape().dims()).with("reason", reason);
                skipped.push(self.out, &row)?;
            }
        }
        let tail = Object::new().with("error", stopped.map(json::error));
        Ok(skipped.end(self.out, &tail)?)
    }
}

fn object(entry: &Entry, channel: Option<usize>, measured: &Measured) -> Object {
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
