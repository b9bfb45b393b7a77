//! Prints the statistics as lines for programs: a row a tensor or a channel, with exact numbers.

use std::io::Write;

use blob_convert::stats::Measured;
use blob_core::DType;
use blob_io::{Checkpoint, Entry};

use super::Rows;
use crate::args::Stats;
use crate::context::Context;
use crate::escape::escape_field;
use crate::failure::{Failure, Problem};
use crate::output::{Out, ascii_shape};

/// The columns, which the help of `stats` explains; they stay stable.
static COLUMNS: [&str; 15] = [
    "name", "dtype", "shape", "channel", "count", "min", "max", "mean", "std", "l1", "l2", "zeros", "nan", "inf",
    "histogram",
];

/// How many of the columns are about the tensor, not about the values.
const OF_TENSOR: usize = 4;

/// The rows as lines between tabs.
pub(super) struct LineRows<'a, 'o> {
    checkpoint: &'a Checkpoint,
    context: &'a Context,
    /// All columns, without the histogram unless asked for.
    columns: &'static [&'static str],
    out: &'o mut Out,
}

impl<'a, 'o> LineRows<'a, 'o> {
    pub(super) fn new(args: &Stats, checkpoint: &'a Checkpoint, context: &'a Context, out: &'o mut Out) -> Self {
        let columns = &COLUMNS[..COLUMNS.len() - usize::from(!args.hist)];
        Self { checkpoint, context, columns, out }
    }

    fn line(&mut self, place: usize, dtype: &str, channel: Option<usize>, facts: &[String]) -> Result<(), Failure> {
        let entry = &self.checkpoint.entries()[place];
        self.context.header(self.out, self.columns)?;
        let name = escape_field(entry.name(), self.context.global.ascii);
        let shape = if entry.fault().is_some() { "-".to_owned() } else { ascii_shape(entry.shape()) };
        let channel = channel.map_or("-".to_owned(), |channel| channel.to_string());
        Ok(writeln!(self.out, "{name}\t{dtype}\t{shape}\t{channel}\t{}", facts.join("\t"))?)
    }
}

impl Rows for LineRows<'_, '_> {
    fn add(&mut self, place: usize, channel: Option<usize>, measured: Measured) -> Result<(), Failure> {
        let entry = &self.checkpoint.entries()[place];
        let (stats, none) = (&measured.stats, || "-".to_owned());
        let float = |value: Option<f64>| value.map_or_else(none, |value| format!("{value:e}"));
        let mut facts = vec![
            stats.count.to_string(),
            stats.min.map_or_else(none, |s| exact(entry, s.to_string(), s.as_f64())),
            stats.max.map_or_else(none, |s| exact(entry, s.to_string(), s.as_f64())),
            float(stats.mean),
            float(stats.std),
            float(Some(stats.l1)),
            float(Some(stats.l2)),
            stats.zeros.to_string(),
            stats.nan.to_string(),
            stats.inf.to_string(),
        ];
        if self.columns.len() == COLUMNS.len() {
            let counts = measured.histogram.as_ref().map(|bins| bins.counts.iter().map(u64::to_string));
            facts.push(counts.map_or_else(none, |counts| counts.collect::<Vec<_>>().join(",")));
        }
        self.line(place, entry.dtype().map_or("-", DType::name), channel, &facts)
    }

    fn fail(&mut self, place: usize, _: &Problem) -> Result<(), Failure> {
        let facts = vec!["-".to_owned(); self.columns.len() - OF_TENSOR];
        self.line(place, "error", None, &facts)
    }

    fn end(self, _: &[usize], _: Option<&Failure>) -> Result<(), Failure> {
        Ok(())
    }
}

/// An integer exactly, a float as the shortest number that is read back as the same f64.
fn exact(entry: &Entry, digits: String, value: f64) -> String {
    if entry.dtype().is_some_and(DType::is_float) { format!("{value:e}") } else { digits }
}
