//! The statistics as a table: the columns, and numbers as people read them.

use blob_convert::stats::Measured;
use blob_core::Shape;
use blob_io::Entry;

use super::Sheet;
use crate::args::Stats;
use crate::failure::{Failure, Problem};
use crate::output::{Out, Terminal};
use crate::render::table::{Column, Table};
use crate::units;

/// The rows of a table.
pub(super) struct Cells<'a, 'o> {
    terminal: &'a Terminal,
    args: &'a Stats,
    table: Table<'a>,
    out: &'o mut Out,
}

impl<'a, 'o> Cells<'a, 'o> {
    pub(super) fn new(args: &'a Stats, terminal: &'a Terminal, out: &'o mut Out) -> Self {
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
        Self { terminal, args, table: Table::new(terminal, columns), out }
    }
}

impl Sheet for Cells<'_, '_> {
    fn add(&mut self, entry: &Entry, channel: Option<usize>, measured: &Measured) -> Result<(), Failure> {
        let (terminal, axis) = (self.terminal, self.args.per_channel);
        let stats = measured.stats();
        let name = terminal.name(entry.name());
        let exact = |s: Option<String>| s.unwrap_or_else(|| "-".to_owned());
        let (min, max) = match entry.dtype().is_some_and(|d| d.is_float()) {
            true => (stats.min().map(|s| number(s.as_f64())), stats.max().map(|s| number(s.as_f64()))),
            false => (stats.min().map(|s| s.to_string()), stats.max().map(|s| s.to_string())),
        };
        let shape = match channel.and_then(|_| inner(axis, entry)) {
            Some(inner) => terminal.shape(&inner),
            None => terminal.shape(entry.shape()),
        };
        let mut cells = vec![
            match channel {
                Some(channel) => format!("{name}[{}]", place(axis, entry, channel)),
                None => name.into_owned(),
            },
            shape,
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
        if self.args.hist {
            // Of the finite values; the columns before it count the others.
            let bars = measured.histogram().map(|h| bars(h.counts(), terminal.ascii));
            cells.push(bars.unwrap_or_else(|| "-".to_owned()));
        }
        Ok(self.table.row(self.out, cells)?)
    }

    fn fail(&mut self, entry: &Entry, _: &Problem) -> Result<(), Failure> {
        let shape = match entry.fault() {
            Some(_) => "-".to_owned(),
            None => self.terminal.shape(entry.shape()),
        };
        let name = self.terminal.name(entry.name()).into_owned();
        let mut cells = vec![name, shape, "error".to_owned()];
        cells.resize(if self.args.hist { 13 } else { 12 }, "-".to_owned());
        Ok(self.table.row(self.out, cells)?)
    }

    fn end(self, _: &[usize], _: Option<&Problem>) -> Result<(), Failure> {
        Ok(self.table.finish(self.out)?)
    }
}

/// The axis of the channels, counted from the first.
fn axis_of(axis: Option<i64>, entry: &Entry) -> i64 {
    let n = entry.shape().num_axes() as i64;
    axis.map_or(0, |a| if a < 0 { a + n } else { a })
}

/// The shape of one channel: all axes but its own.
fn inner(axis: Option<i64>, entry: &Entry) -> Option<Shape> {
    let mut dims = entry.shape().dims().to_vec();
    let axis = usize::try_from(axis_of(axis, entry)).ok()?;
    (axis < dims.len()).then(|| dims.remove(axis))?;
    Shape::new(&dims).ok()
}

/// `:,3,:` for channel 3 of axis 1.
fn place(axis: Option<i64>, entry: &Entry, channel: usize) -> String {
    let n = entry.shape().num_axes() as i64;
    let axis = axis_of(axis, entry);
    let parts: Vec<String> = (0..n).map(|i| if i == axis { channel.to_string() } else { ":".to_owned() }).collect();
    parts.join(",")
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
    let exponent = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
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
    let level = |n: u64, levels: u64| (u128::from(n) * u128::from(levels)).div_ceil(u128::from(most)) as usize;
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
                assert_eq!(mantissa.trim_start_matches('0').len(), 4, "{value} as {printed}");
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
}
