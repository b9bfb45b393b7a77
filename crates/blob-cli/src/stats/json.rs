//! `blob.stats/1`: the statistics as JSON, one object a tensor or a channel, streamed.

use blob_convert::report::json::{
    self, DIMS, DTYPE, Document, FILE, FORMAT, Field, Fields, Line, NAME, Ordered, Type, field, nullable, properties,
    streamed,
};
pub(crate) use blob_convert::report::stats::Bins;
use blob_convert::report::stats::Measurement;
use blob_convert::stats::Measured;
use blob_core::DType;
use blob_io::{Checkpoint, Entry};
use serde_json::{Value, json};

use super::{Rows, SkipReason, skip_reason};
use crate::failure::{Failure, Problem};
use crate::output::Out;

/// The document: the statistics of a file's tensors.
pub(crate) struct Statistics<'a> {
    checkpoint: &'a Checkpoint,
    axis: Option<i64>,
    /// The error that stopped the measurement, as JSON.
    stopped: Value,
}

impl Document for Statistics<'_> {
    const SCHEMA: &'static str = "blob.stats/1";
    const COMMAND: &'static str = "blob stats --json FILE [PATTERN...]";
    const DESCRIPTION: &'static str = "what the values of tensors add up to";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for Statistics<'_> {
    fn fields() -> Vec<Field<Self>> {
        let row = &Type::Either(properties::<Measurement<'_>>, properties::<Unmeasured<'_>>);
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
    why: SkipReason,
}

impl Fields for Skipped<'_> {
    fn fields() -> Vec<Field<Self>> {
        const WHY: &str = "it has no array, a dtype or a form that is not read, or not the axis";
        vec![
            field("name", Type::String, NAME, |s| json!(s.entry.name())),
            nullable("shape", DIMS, "its shape, where it is known", |s| {
                json!(s.entry.fault().is_none().then(|| s.entry.shape().dims()))
            }),
            field("reason", Type::Enum(&["no-array", "unsupported", "no-axis"]), WHY, |s| match s.why {
                SkipReason::NoArray => "no-array".into(),
                SkipReason::Foreign | SkipReason::Unread => "unsupported".into(),
                SkipReason::NoAxis => "no-axis".into(),
            }),
        ]
    }
}

/// The rows as objects of a JSON array.
pub(super) struct JsonRows<'a, 'o> {
    statistics: Statistics<'a>,
    line: Line<Statistics<'a>>,
    out: &'o mut Out,
}

impl<'a, 'o> JsonRows<'a, 'o> {
    pub(super) fn begin(checkpoint: &'a Checkpoint, axis: Option<i64>, out: &'o mut Out) -> Result<Self, Failure> {
        let statistics = Statistics { checkpoint, axis, stopped: Value::Null };
        let line = Line::begin(out, &statistics)?;
        Ok(Self { statistics, line, out })
    }
}

impl Rows for JsonRows<'_, '_> {
    fn add(&mut self, place: usize, channel: Option<usize>, measured: Measured) -> Result<(), Failure> {
        let entry = &self.statistics.checkpoint.entries()[place];
        Ok(self.line.push(self.out, &Ordered(&Measurement { entry, place, channel, measured }))?)
    }

    fn fail(&mut self, place: usize, problem: &Problem) -> Result<(), Failure> {
        let entry = &self.statistics.checkpoint.entries()[place];
        Ok(self.line.push(self.out, &Ordered(&Unmeasured { entry, problem }))?)
    }

    /// Writes the fields after the tensors: the skipped tensors, and the error that stopped the measurement.
    fn end(mut self, chosen: &[usize], stopped: Option<&Failure>) -> Result<(), Failure> {
        let mut line = self.line.advance(self.out, &self.statistics)?;
        for index in chosen {
            let entry = &self.statistics.checkpoint.entries()[*index];
            if let Some(why) = skip_reason(entry, self.statistics.axis) {
                line.push(self.out, &Ordered(&Skipped { entry, why }))?;
            }
        }
        self.statistics.stopped = stopped.map_or(Value::Null, Failure::as_json);
        line.advance(self.out, &self.statistics)?;
        Ok(())
    }
}
