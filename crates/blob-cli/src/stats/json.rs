//! `blob.stats/1`: the statistics as JSON, one object a tensor or a channel, streamed.

use blob_convert::stats::{Binned, Measured};
use blob_core::DType;
use blob_io::{Checkpoint, Entry};
use serde_json::{Value, json};

use super::{Left, Sheet, left_out};
use crate::failure::{Failure, Problem};
use crate::json::{
    self, DIMS, DTYPE, Document, FILE, FORMAT, Field, Fields, Line, NAME, Ordered, Type, field, nullable, number,
    optional, properties, streamed,
};
use crate::output::Out;

/// The file whose tensors are measured.
pub(crate) struct Sums<'a> {
    checkpoint: &'a Checkpoint,
    axis: Option<i64>,
    /// What stopped the work, as JSON.
    stopped: Value,
}

impl Document for Sums<'_> {
    const SCHEMA: &'static str = "blob.stats/1";
    const COMMAND: &'static str = "blob stats --json FILE [PATTERN...]";
    const DESCRIPTION: &'static str = "what the values of tensors add up to";
}

impl Fields for Sums<'_> {
    fn fields() -> Vec<Field<Self>> {
        let row = &Type::Either(properties::<Row<'_>>, properties::<Unmeasured<'_>>);
        vec![
            field("file", Type::String, FILE, |s| json!(s.checkpoint.name())),
            field("format", Type::String, FORMAT, |s| json!(s.checkpoint.format().name())),
            nullable("axis", Type::Integer, "the axis of --per-channel", |s| json!(s.axis)),
            streamed("tensors", Type::Array(row), "each tensor, or each channel of it"),
            streamed(
                "skipped",
                Type::Array(&Type::Object(properties::<Skipped<'_>>)),
                "tensors with nothing to measure",
            ),
            nullable("error", Type::Object(properties::<Problem>), "what stopped the work before its end", |s| {
                s.stopped.clone()
            }),
        ]
    }
}

/// The statistics of a tensor or of one of its channels.
struct Row<'a> {
    entry: &'a Entry,
    channel: Option<usize>,
    measured: Measured,
}

impl Fields for Row<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, NAME, |r| json!(r.entry.name())),
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
            nullable("mean", Type::Number, "the mean of the finite values", |r| {
                json!(r.measured.stats.mean.map(number))
            }),
            nullable("std", Type::Number, "their standard deviation, the population's", |r| {
                json!(r.measured.stats.std.map(number))
            }),
            field("l1", Type::Number, "the sum of their sizes", |r| number(r.measured.stats.l1)),
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

impl Row<'_> {
    /// An extreme: an integer with all its digits.
    fn exact(&self, extreme: Option<(String, f64)>) -> Value {
        let is_float = self.entry.dtype().is_some_and(DType::is_float);
        extreme.map_or(Value::Null, |(text, value)| match is_float {
            true => number(value),
            false => serde_json::from_str(&text).unwrap_or(Value::Null),
        })
    }
}

/// A histogram, and how many values are in none of its bins.
pub(crate) struct Bins<'a> {
    bins: &'a Binned,
    left_out: u64,
}

impl Bins<'_> {
    /// The histogram of what was measured, as JSON.
    pub(crate) fn of(measured: &Measured) -> Value {
        let left_out = measured.stats.nan + measured.stats.inf;
        measured.histogram.as_ref().map_or(Value::Null, |bins| json::value(&Bins { bins, left_out }))
    }
}

impl Fields for Bins<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("min", Type::Number, "the smallest finite value", |b| number(b.bins.min)),
            field("max", Type::Number, "the largest one", |b| number(b.bins.max)),
            field("counts", DIMS, "values in bins of one width between the two", |b| json!(b.bins.counts)),
            field("left_out", Type::Integer, "values that are NaN or Inf, in no bin", |b| json!(b.left_out)),
        ]
    }
}

/// A tensor that cannot be measured.
struct Unmeasured<'a> {
    entry: &'a Entry,
    problem: &'a Problem,
}

impl Fields for Unmeasured<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, NAME, |u| json!(u.entry.name())),
            nullable("dtype", Type::String, DTYPE, |u| json!(u.entry.dtype().map(DType::name))),
            nullable("shape", DIMS, "the tensor's shape, where it is known", |u| {
                json!(u.entry.fault().is_none().then(|| u.entry.shape().dims()))
            }),
            field("error", Type::Object(properties::<Problem>), "why it cannot be measured", |u| {
                json::value(u.problem)
            }),
        ]
    }
}

/// A tensor with nothing to measure.
struct Skipped<'a> {
    entry: &'a Entry,
    why: Left,
}

impl Fields for Skipped<'_> {
    fn fields() -> Vec<Field<Self>> {
        const WHY: &str = "it has no array, a dtype that is not read, or not the axis";
        vec![
            field("name", Type::String, NAME, |s| json!(s.entry.name())),
            field("shape", DIMS, "its shape", |s| json!(s.entry.shape().dims())),
            field("reason", Type::Enum(&["no-array", "unsupported", "no-axis"]), WHY, |s| match s.why {
                Left::NoArray => "no-array".into(),
                Left::Foreign => "unsupported".into(),
                Left::NoAxis => "no-axis".into(),
            }),
        ]
    }
}

/// The objects of a JSON array.
pub(super) struct Objects<'a, 'o> {
    sums: Sums<'a>,
    line: Line<Sums<'a>>,
    out: &'o mut Out,
}

impl<'a, 'o> Objects<'a, 'o> {
    pub(super) fn begin(checkpoint: &'a Checkpoint, axis: Option<i64>, out: &'o mut Out) -> Result<Self, Failure> {
        let sums = Sums { checkpoint, axis, stopped: Value::Null };
        let line = Line::begin(out, &sums)?;
        Ok(Self { sums, line, out })
    }
}

impl<'a> Sheet<'a> for Objects<'a, '_> {
    fn add(&mut self, entry: &'a Entry, channel: Option<usize>, measured: Measured) -> Result<(), Failure> {
        Ok(self.line.push(self.out, &Ordered(&Row { entry, channel, measured }))?)
    }

    fn fail(&mut self, entry: &'a Entry, problem: &Problem) -> Result<(), Failure> {
        Ok(self.line.push(self.out, &Ordered(&Unmeasured { entry, problem }))?)
    }

    /// Writes the fields after the tensors: those that were skipped, and the error that stopped the work.
    fn end(mut self, chosen: &[usize], stopped: Option<&Problem>) -> Result<(), Failure> {
        let mut line = self.line.advance(self.out, &self.sums)?;
        for index in chosen {
            let entry = &self.sums.checkpoint.entries()[*index];
            if let Some(why) = left_out(entry, self.sums.axis) {
                line.push(self.out, &Ordered(&Skipped { entry, why }))?;
            }
        }
        self.sums.stopped = stopped.map_or(Value::Null, json::value);
        line.advance(self.out, &self.sums)?;
        Ok(())
    }
}
