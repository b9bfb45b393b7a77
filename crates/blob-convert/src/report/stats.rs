//! The objects of `blob.stats/1`: the statistics of a tensor or of a channel, and the histogram.

use blob_core::DType;
use blob_io::Entry;
use serde_json::{Value, json};

use crate::report::json::{self, DIMS, Field, Fields, NAME, Type, field, nullable, number, optional, properties};
use crate::stats::{Binned, Measured};

/// The statistics of a tensor or of a channel.
#[derive(Debug)]
pub struct Measurement<'a> {
    /// The tensor.
    pub entry: &'a Entry,
    /// Its place in the file.
    pub place: usize,
    /// The index on the axis, of a channel.
    pub channel: Option<usize>,
    /// The statistics.
    pub measured: Measured,
}

impl Fields for Measurement<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, NAME, |r| json!(r.entry.name())),
            field("index", Type::Integer, "its place in the file: `#3`", |r| json!(r.place)),
            field("dtype", Type::String, "the element type", |r| json!(r.entry.dtype().map(DType::name))),
            field("shape", DIMS, "the whole tensor's shape", |r| json!(r.entry.shape().dims())),
            optional("channel", Type::Integer, "the index on the axis of --per-channel", |r| json!(r.channel)),
            field("count", Type::Integer, "values, NaN and Inf among them", |r| json!(r.measured.stats.count)),
            nullable("min", Type::Number, "the smallest value but NaN; exact for integers", |r| {
                r.exact(r.measured.stats.min.map(|s| (s.to_string(), s.as_f64())))
            }),
            nullable("max", Type::Number, "the largest one", |r| {
                r.exact(r.measured.stats.max.map(|s| (s.to_string(), s.as_f64())))
            }),
            nullable(
                "mean",
                Type::Number,
                "the mean of the finite values, each as an f64: integers beyond 2\u{2075}\u{b3} are rounded",
                |r| json!(r.measured.stats.mean.map(number)),
            ),
            nullable("std", Type::Number, "the standard deviation of the same f64, the population's", |r| {
                json!(r.measured.stats.std.map(number))
            }),
            field("l1", Type::Number, "the sum of their magnitudes", |r| number(r.measured.stats.l1)),
            field("l2", Type::Number, "the root of the sum of their squares", |r| number(r.measured.stats.l2)),
            field("zeros", Type::Integer, "how many are 0", |r| json!(r.measured.stats.zeros)),
            field("nan", Type::Integer, "how many are NaN", |r| json!(r.measured.stats.nan)),
            field("inf", Type::Integer, "how many are infinite", |r| json!(r.measured.stats.inf)),
            optional("histogram", Type::Object(properties::<Bins<'_>>), "with --hist, where a value is finite", |r| {
                Bins::of(&r.measured)
            }),
        ]
    }
}

impl Measurement<'_> {
    /// A minimum or maximum; an integer exactly, not rounded through f64.
    fn exact(&self, extreme: Option<(String, f64)>) -> Value {
        let is_float = self.entry.dtype().is_some_and(DType::is_float);
        extreme.map_or(Value::Null, |(text, value)| {
            if is_float { number(value) } else { serde_json::from_str(&text).unwrap_or(Value::Null) }
        })
    }
}

/// A histogram, and the number of values outside all bins.
#[derive(Debug)]
pub struct Bins<'a> {
    bins: &'a Binned,
    left_out: u64,
}

impl Bins<'_> {
    /// The histogram as JSON; null if there is none.
    pub fn of(measured: &Measured) -> Value {
        let left_out = measured.stats.nan + measured.stats.inf;
        measured.histogram.as_ref().map_or(Value::Null, |bins| json::value(&Bins { bins, left_out }))
    }
}

impl Fields for Bins<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("min", Type::Number, "the smallest finite value", |b| number(b.bins.min)),
            field("max", Type::Number, "the largest one", |b| number(b.bins.max)),
            field("counts", DIMS, "values in bins of one width between the two, each value as an f64", |b| {
                json!(b.bins.counts)
            }),
            field("left_out", Type::Integer, "values that are NaN or Inf, in no bin", |b| json!(b.left_out)),
        ]
    }
}
