//! The statistics as a table: the columns, and numbers as people read them.

use blob_convert::stats::Measured;
use blob_core::{DType, Shape};
use blob_io::Entry;

use super::Sheet;
use crate::args::Stats;
use crate::failure::{Failure, Problem};
use crate::output::{Out, Terminal};
use crate::render::table::{Column, Table};
use crate::units;

/// The rows of a table.
pub(super) struct Cells<'a, 'o> {
    axis: Option<i64>,
    table: Table<'a, Row<'a>>,
    out: &'o mut Out,
}

/// A tensor or a channel of it, and what was measured, unless it cannot be read.
struct Row<'a> {
    entry: &'a Entry,
    /// The axis, and the index on it.
    channel: Option<(usize, usize)>,
    measured: Option<Measured>,
}

impl<'a, 'o> Cells<'a, 'o> {
    pub(super) fn new(args: &Stats, terminal: &'a Terminal, out: &'o mut Out) -> Self {
        let mut columns = vec![
            Column::name("NAME", 16).of(Row::name),
            Column::left("SHAPE").leaves(4).of(Row::shape),
            Column::left("DTYPE").leaves(3).of(|r: &Row<'_>, _| match r.measured {
                Some(_) => r.entry.dtype().map_or("-", DType::name).to_owned(),
                None => "error".to_owned(),
            }),
            Column::point("MIN").of(|r, _| r.fact(|m| m.stats.min.map(|s| r.extreme(s.to_string(), s.as_f64())))),
            Column::point("MAX").of(|r, _| r.fact(|m| m.stats.max.map(|s| r.extreme(s.to_string(), s.as_f64())))),
            Column::point("MEAN").leaves(7).of(|r, _| r.fact(|m| m.stats.mean.map(number))),
            Column::point("STD").leaves(6).of(|r, _| r.fact(|m| m.stats.std.map(number))),
            Column::point("L1").leaves(1).of(|r, _| r.fact(|m| Some(number(m.stats.l1)))),
            Column::point("L2").leaves(2).of(|r, _| r.fact(|m| Some(number(m.stats.l2)))),
            Column::right("ZERO").leaves(5).of(|r, _| r.fact(|m| Some(share(m.stats.zeros, m.stats.count)))),
            Column::right("NaN").of(|r, _| r.fact(|m| Some(units::grouped(m.stats.nan)))),
            Column::right("Inf").of(|r, _| r.fact(|m| Some(units::grouped(m.stats.inf)))),
        ];
        if args.hist {
            // Of the finite values; the columns before it count the others.
            columns.push(
                Column::left("HISTOGRAM").of(|r: &Row<'_>, terminal| {
                    r.fact(|m| m.histogram.as_ref().map(|h| bars(&h.counts, terminal.ascii)))
                }),
            );
        }
        Self { axis: args.per_channel, table: Table::new(terminal, columns), out }
    }
}

impl<'a> Sheet<'a> for Cells<'a, '_> {
    fn add(&mut self, entry: &'a Entry, channel: Option<usize>, measured: Measured) -> Result<(), Failure> {
        let axis = self.axis.and_then(|axis| entry.shape().axis(i32::try_from(axis).ok()?).ok());
        let row = Row { entry, channel: axis.zip(channel), measured: Some(measured) };
        Ok(self.table.row(self.out, &row)?)
    }

    fn fail(&mut self, entry: &'a Entry, _: &Problem) -> Result<(), Failure> {
        Ok(self.table.row(self.out, &Row { entry, channel: None, measured: None })?)
    }

    fn end(self, _: &[usize], _: Option<&Problem>) -> Result<(), Failure> {
        Ok(self.table.finish(self.out)?)
    }
}

impl Row<'_> {
    /// `conv1/0`, and `conv1/0[:,3,:]` for channel 3 of axis 1.
    fn name(&self, terminal: &Terminal) -> String {
        let name = terminal.name(self.entry.name());
        let Some((axis, channel)) = self.channel else {
            return name.into_owned();
        };
        let axes = 0..self.entry.shape().num_axes();
        let index: Vec<String> = axes.map(|i| if i == axis { channel.to_string() } else { ":".to_owned() }).collect();
        format!("{name}[{}]", index.join(","))
    }

    /// The tensor's shape, or that of one channel: all axes but its own.
    fn shape(&self, terminal: &Terminal) -> String {
        let mut dims = self.entry.shape().dims().to_vec();
        match self.channel {
            _ if self.entry.fault().is_some() => return "-".to_owned(),
            Some((axis, _)) => drop(dims.remove(axis)),
            None => {}
        }
        Shape::new(&dims).map_or("-".to_owned(), |shape| terminal.shape(&shape))
    }

    /// An extreme: an integer with all its digits.
    fn extreme(&self, digits: String, value: f64) -> String {
        if self.entry.dtype().is_some_and(DType::is_float) { number(value) } else { digits }
    }

    fn fact(&self, fact: impl Fn(&Measured) -> Option<String>) -> String {
        self.measured.as_ref().and_then(fact).unwrap_or_else(|| "-".to_owned())
    }
}

/// A number with four significant digits, as C's `%#.4g` has them: `0.008979`, `1.500`, `1235`, `5.052e4`.
pub(crate) fn number(value: f64) -> String {
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
pub(crate) fn share(part: u64, whole: u64) -> String {
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
