//! `blob stats`: what the values of tensors add up to. `blob_convert::stats` measures; here are the columns.

use std::io::Write;

use blob_convert::stats::{Measured, measure_all, measure_channels};
use blob_io::{Checkpoint, Entry, Error};
use serde_json::{Value, json};

use crate::Context;
use crate::args::Stats;
use crate::escape::escape;
use crate::failure::{Failure, Status};
use crate::open::open;
use crate::output::Out;
use crate::output::json::{Object, Rows};
use crate::output::progress::Progress;
use crate::output::table::{Column, Table};
use crate::select::select;
use crate::units;

/// As many as fit beside the numbers.
const BINS: usize = 16;

pub(crate) fn run(args: &Stats, context: &Context) -> Result<Status, Failure> {
    let selection = &args.selection;
    let checkpoint = open(&selection.file, &context.global)?;
    let mut chosen = select(&checkpoint, &selection.patterns, selection.regex)?;
    let status = context.broken(chosen.iter().map(|i| &checkpoint.entries()[*i]));
    chosen.retain(|i| {
        let entry = &checkpoint.entries()[*i];
        entry.dtype().is_some() && entry.fault().is_none()
    });
    let passes = if args.hist { 2 } else { 1 };
    let work: u64 = chosen
        .iter()
        .map(|i| checkpoint.entries()[*i].byte_len() * passes)
        .sum();
    let progress = Progress::begin(&context.terminal, work);
    let mut report = Report::new(args, &checkpoint, context)?;
    let bins = args.hist.then_some(BINS);
    if let Some(axis) = args.per_channel {
        for index in &chosen {
            let entry = &checkpoint.entries()[*index];
            let channels = measure_channels(&checkpoint, entry, axis, bins, &progress)?;
            for (channel, measured) in channels.iter().enumerate() {
                report.add(entry, Some(channel), measured)?;
            }
        }
    } else {
        let mut failure = None;
        let done = measure_all(
            &checkpoint,
            &chosen,
            bins,
            &progress,
            &mut |index, measured| {
                let added = report.add(&checkpoint.entries()[index], None, &measured);
                added.map_err(|e| {
                    failure = Some(e);
                    Error::Interrupted
                })
            },
        );
        if let Some(failure) = failure {
            return Err(failure);
        }
        done?;
    }
    progress.end();
    report.finish()?;
    Ok(status)
}

/// The output in the making: rows of a table or objects of a JSON array.
struct Report<'a> {
    context: &'a Context,
    per_channel: Option<i64>,
    has_histogram: bool,
    out: Out,
    table: Table<'a>,
    rows: Option<Rows>,
}

impl<'a> Report<'a> {
    fn new(args: &Stats, checkpoint: &Checkpoint, context: &'a Context) -> Result<Self, Failure> {
        let mut columns = vec![
            Column::left("NAME"),
            Column::left("SHAPE"),
            Column::left("DTYPE"),
        ];
        columns.extend(
            [
                "MIN", "MAX", "MEAN", "STD", "L1", "L2", "ZERO", "NaN", "Inf",
            ]
            .map(Column::right),
        );
        if args.hist {
            columns.push(Column::left("HISTOGRAM"));
        }
        let mut out = context.terminal.out();
        let head = Object::of("blob.stats/1")
            .with("file", checkpoint.name())
            .with("format", checkpoint.format().name())
            .with("axis", args.per_channel);
        let rows = match context.global.json {
            true => Some(Rows::begin(&mut out, &head, "tensors")?),
            false => None,
        };
        Ok(Self {
            context,
            per_channel: args.per_channel,
            has_histogram: args.hist,
            out,
            table: Table::new(&context.terminal, columns),
            rows,
        })
    }

    fn add(
        &mut self,
        entry: &Entry,
        channel: Option<usize>,
        measured: &Measured,
    ) -> Result<(), Failure> {
        if let Some(rows) = &mut self.rows {
            return Ok(rows.push(&mut self.out, &object(entry, channel, measured))?);
        }
        let terminal = &self.context.terminal;
        let stats = measured.stats();
        let name = escape(entry.name());
        let exact = |s: Option<String>| s.unwrap_or_else(|| "-".to_owned());
        let (min, max) = match entry.dtype().is_some_and(|d| d.is_float()) {
            true => (
                stats.min().map(|s| number(s.as_f64())),
                stats.max().map(|s| number(s.as_f64())),
            ),
            false => (
                stats.min().map(|s| s.to_string()),
                stats.max().map(|s| s.to_string()),
            ),
        };
        let mut cells = vec![
            match channel {
                Some(channel) => format!("{name}[{}]", place(self.per_channel, entry, channel)),
                None => name.into_owned(),
            },
            terminal.shape(entry.shape()),
            entry.dtype().map_or("-", |d| d.name()).to_owned(),
            exact(min),
            exact(max),
            exact(stats.mean().map(number)),
            exact(stats.std().map(number)),
            number(stats.l1()),
            number(stats.l2()),
            share(stats.zeros(), stats.count()),
            units::grouped(stats.nan()),
            units::grouped(stats.inf()),
        ];
        if self.has_histogram {
            cells.push(
                measured
                    .histogram()
                    .map_or("-".to_owned(), |h| bars(h, terminal.ascii)),
            );
        }
        Ok(self.table.row(&mut self.out, cells)?)
    }

    fn finish(mut self) -> Result<(), Failure> {
        match self.rows {
            Some(rows) => rows.end(&mut self.out)?,
            None => self.table.finish(&mut self.out)?,
        }
        Ok(self.out.flush()?)
    }
}

/// `:,3,:` for channel 3 of axis 1.
fn place(axis: Option<i64>, entry: &Entry, channel: usize) -> String {
    let n = entry.shape().num_axes() as i64;
    let axis = axis.map_or(0, |a| if a < 0 { a + n } else { a });
    let parts: Vec<String> = (0..n)
        .map(|i| {
            if i == axis {
                channel.to_string()
            } else {
                ":".to_owned()
            }
        })
        .collect();
    parts.join(",")
}

fn object(entry: &Entry, channel: Option<usize>, measured: &Measured) -> Object {
    let stats = measured.stats();
    let is_float = entry.dtype().is_some_and(|d| d.is_float());
    let exact = |text: String, value: f64| match is_float {
        true => real(value),
        false => serde_json::from_str(&text).unwrap_or(Value::Null),
    };
    let mut object = Object::new()
        .with("name", entry.name())
        .with("dtype", entry.dtype().map(|d| d.name()))
        .with("shape", entry.shape().dims());
    if let Some(channel) = channel {
        object = object.with("channel", channel);
    }
    object = object
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
        Some(histogram) => object.with("histogram", histogram),
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

/// A number in eight characters or so: `0.1234`, `-1.234e-5`, `12345`.
fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return match (value.is_nan(), value > 0.0) {
            (true, _) => "nan".to_owned(),
            (_, true) => "inf".to_owned(),
            _ => "-inf".to_owned(),
        };
    }
    match size {
        0.0 => "0".to_owned(),
        s if (0.001..1.0).contains(&s) => format!("{value:.4}"),
        s if (1.0..10.0).contains(&s) => format!("{value:.3}"),
        s if (10.0..100.0).contains(&s) => format!("{value:.2}"),
        s if (100.0..1e5).contains(&s) => format!("{value:.1}"),
        _ => format!("{value:.3e}"),
    }
}

/// A share in percent that is 0 or 100 only where it is exactly that.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let percent = 100.0 * part as f64 / whole as f64;
    match part {
        0 => "0%".to_owned(),
        p if p == whole => "100%".to_owned(),
        _ if percent < 0.1 => "<0.1%".to_owned(),
        _ if percent > 99.9 => ">99.9%".to_owned(),
        _ => format!("{percent:.1}%"),
    }
}

/// A histogram as bars, or as digits 0 to 9 in ASCII. Only an empty bin is a space or a `.`.
fn bars(counts: &[u64], ascii: bool) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let level = |n: u64, levels: u64| {
        (u128::from(n) * u128::from(levels)).div_ceil(u128::from(most)) as usize
    };
    let bar = |n: &u64| match (*n, ascii) {
        (0, true) => '.',
        (0, false) => ' ',
        (n, true) => char::from(b'0' + level(n, 9) as u8),
        (n, false) => BLOCKS[level(n, 8) - 1],
    };
    counts.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (-0.01234567, "-0.0123"),
            (1.5, "1.500"),
            (-99.999, "-100.00"),
            (1234.56, "1234.6"),
            (1e-4, "1.000e-4"),
            (123456.0, "1.235e5"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_share_is_never_rounded_to_all_or_nothing() {
        let shares = [(0, 9), (9, 9), (1, 10_000), (9_999, 10_000), (1, 3), (0, 0)];
        let texts = shares.map(|(part, whole)| share(part, whole));
        assert_eq!(texts, ["0%", "100%", "<0.1%", ">99.9%", "33.3%", "-"]);
    }

    #[test]
    fn bars_show_every_bin_that_is_not_empty() {
        assert_eq!(bars(&[0, 1, 500, 1000], false), " ▁▄█");
        assert_eq!(bars(&[0, 1, 500, 1000], true), ".159");
        assert_eq!(bars(&[0, 0], false), "  ");
        assert_eq!(bars(&[u64::MAX, 1], false), "█▁");
    }

    #[test]
    fn json_has_words_for_what_it_has_no_numbers_for() {
        assert_eq!(real(1.5), json!(1.5));
        assert_eq!(real(f64::NAN), json!("NaN"));
        assert_eq!(real(f64::NEG_INFINITY), json!("-Infinity"));
    }
}
