//! `blob stats`: what the values of tensors add up to. `blob_convert::stats` measures; here are the columns.

use std::io::Write;

use blob_convert::stats::{Measured, measure_all, measure_channels};
use blob_io::{Checkpoint, Entry, Error};
use serde_json::{Value, json};

use crate::Context;
use crate::args::Stats;
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
            Column::name("NAME", 16),
            Column::left("SHAPE").leaves(4),
            Column::left("DTYPE").leaves(3),
            Column::point("MIN"),
            Column::point("MAX"),
            Column::point("MEAN").leaves(7),
            Column::point("STD").leaves(6),
            Column::point("L1").leaves(1),
            Column::point("L2").leaves(2),
            Column::right("ZERO").leaves(5),
            Column::right("NaN"),
            Column::right("Inf"),
        ];
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
        let name = terminal.name(entry.name());
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

/// A number with four significant digits, as C's `%#.4g` has them: `0.008979`, `1.500`, `1235`, `5.052e4`.
fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        let text = if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        return text.to_owned();
    }
    // Rounded first: 9999.6 has the exponent 4.
    let rounded = format!("{value:.3e}");
    let exponent = rounded
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    match exponent {
        Some(e @ -4..=3) => format!("{value:.0$}", (3 - e) as usize),
        _ => rounded,
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

    /// The texts are those of C's `printf("%#.4g")`, with our shorter exponents.
    #[test]
    fn numbers_have_four_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (-0.01234567, "-0.01235"),
            (0.008979, "0.008979"),
            (0.0017, "0.001700"),
            (3.405e-4, "0.0003405"),
            (1.5, "1.500"),
            (-99.999, "-100.0"),
            (999.96, "1000"),
            (1234.56, "1235"),
            (9999.4, "9999"),
            (9999.6, "1.000e4"),
            (50516.3, "5.052e4"),
            (1e-4, "0.0001000"),
            (9.9999e-5, "0.0001000"),
            (9.9994e-5, "9.999e-5"),
            (123456.0, "1.235e5"),
            (-2.5e-310, "-2.500e-310"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn what_is_printed_is_within_half_of_the_fourth_digit() {
        for exponent in -12..13 {
            for digits in [1.0, 1.00049, 1.2345, 4.9995, 9.9994, 9.9996] {
                let value = digits * 10f64.powi(exponent);
                let printed = number(value);
                let error = (printed.parse::<f64>().unwrap() - value).abs();
                assert!(error <= value * 0.0005001, "{value} as {printed}");
                let mantissa = printed.split('e').next().unwrap().replace('.', "");
                assert_eq!(
                    mantissa.trim_start_matches('0').len(),
                    4,
                    "{value} as {printed}"
                );
            }
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
