//! Prints the statistics as a table.

use blob_convert::stats::Measured;
use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Entry};

use super::Rows;
use crate::args::Stats;
use crate::failure::{Failure, Problem};
use crate::output::{Out, Terminal};
use crate::render::table::{Column, LAST, Table};
use crate::units;

/// The rows as those of a table.
pub(super) struct TableRows<'a, 'o> {
    checkpoint: &'a Checkpoint,
    axis: Option<i64>,
    table: Table<'a, TensorRow<'a>>,
    out: &'o mut Out,
}

/// A tensor or a channel, with statistics if the values can be read.
struct TensorRow<'a> {
    place: usize,
    entry: &'a Entry,
    /// The axis, and the index there.
    channel: Option<(usize, usize)>,
    measured: Option<Measured>,
}

impl<'a, 'o> TableRows<'a, 'o> {
    /// A table for the tensors at these places.
    pub(super) fn new(
        args: &Stats,
        checkpoint: &'a Checkpoint,
        places: &'a [usize],
        terminal: &'a Terminal,
        out: &'o mut Out,
    ) -> Self {
        let mut columns = vec![
            Column::right("#").of(|r: &TensorRow<'_>, _| r.place.to_string()),
            Column::name("NAME", 16).of(TensorRow::name),
            Column::left("SHAPE").drop_order(4).of(TensorRow::shape),
            Column::left("DTYPE").drop_order(3).of(|r: &TensorRow<'_>, _| match r.measured {
                Some(_) => r.entry.dtype().map_or("-", DType::name).to_owned(),
                None => "error".to_owned(),
            }),
            Column::point("MIN")
                .drop_order(LAST + 1)
                .of(|r, _| r.fact(|m| m.stats.min.map(|s| r.extreme(s.to_string(), s.as_f64())))),
            Column::point("MAX")
                .drop_order(LAST + 2)
                .of(|r, _| r.fact(|m| m.stats.max.map(|s| r.extreme(s.to_string(), s.as_f64())))),
            Column::point("MEAN").drop_order(7).of(|r, _| r.fact(|m| m.stats.mean.map(units::number))),
            Column::point("STD").drop_order(6).of(|r, _| r.fact(|m| m.stats.std.map(units::number))),
            Column::point("L1").drop_order(1).of(|r, _| r.fact(|m| Some(units::number(m.stats.l1)))),
            Column::point("L2").drop_order(2).of(|r, _| r.fact(|m| Some(units::number(m.stats.l2)))),
            Column::right("ZERO").drop_order(5).of(|r, _| r.fact(|m| Some(units::share(m.stats.zeros, m.stats.count)))),
            Column::right("NaN").drop_order(LAST + 3).of(|r, _| r.fact(|m| Some(units::grouped(m.stats.nan)))),
            Column::right("Inf").drop_order(LAST + 4).of(|r, _| r.fact(|m| Some(units::grouped(m.stats.inf)))),
        ];
        if args.hist {
            // The histogram covers the finite values; the columns before it count NaN and Inf.
            columns.push(Column::left("HISTOGRAM").drop_order(LAST + 5).of(|r: &TensorRow<'_>, terminal| {
                r.fact(|m| m.histogram.as_ref().map(|h| bars(&h.counts, terminal.ascii)))
            }));
        }
        let (axis, mut table) = (args.per_channel, Table::new(terminal, columns));
        if axis.is_none() {
            let entries = checkpoint.entries();
            table = table.named(move |each| places.iter().for_each(|at| each(&terminal.name(entries[*at].name()))));
        }
        Self { checkpoint, axis, table, out }
    }
}

impl Rows for TableRows<'_, '_> {
    fn add(&mut self, place: usize, channel: Option<usize>, measured: Measured) -> Result<(), Failure> {
        let entry = &self.checkpoint.entries()[place];
        let axis = self.axis.and_then(|axis| entry.shape().axis(i32::try_from(axis).ok()?).ok());
        let row = TensorRow { place, entry, channel: axis.zip(channel), measured: Some(measured) };
        Ok(self.table.row(self.out, &row)?)
    }

    fn fail(&mut self, place: usize, _: &Problem) -> Result<(), Failure> {
        let entry = &self.checkpoint.entries()[place];
        Ok(self.table.row(self.out, &TensorRow { place, entry, channel: None, measured: None })?)
    }

    fn end(self, _: &[usize], _: Option<&Failure>) -> Result<(), Failure> {
        Ok(self.table.finish(self.out)?)
    }
}

impl TensorRow<'_> {
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

    /// The tensor's shape, or that of one channel: without the channel's axis.
    fn shape(&self, terminal: &Terminal) -> String {
        let mut dims = self.entry.shape().dims().to_vec();
        match self.channel {
            _ if self.entry.fault().is_some() => return "-".to_owned(),
            Some((axis, _)) => drop(dims.remove(axis)),
            None => {}
        }
        Shape::new(&dims).map_or("-".to_owned(), |shape| terminal.shape(&shape))
    }

    /// A minimum or maximum; an integer exactly, not rounded through f64.
    fn extreme(&self, digits: String, value: f64) -> String {
        if self.entry.dtype().is_some_and(DType::is_float) { units::number(value) } else { digits }
    }

    fn fact(&self, fact: impl Fn(&Measured) -> Option<String>) -> String {
        self.measured.as_ref().and_then(fact).unwrap_or_else(|| "-".to_owned())
    }
}

/// A histogram as one bar per bin; in ASCII as digits 1 to 9. An empty bin is a space, in ASCII a `.`.
fn bars(counts: &[u64], ascii: bool) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let level = |n: u64, levels: u64| (u128::from(n) * u128::from(levels)).div_ceil(u128::from(most)) as usize;
    let bars = counts.iter().map(|n| match (*n, ascii) {
        (0, true) => '.',
        (0, false) => ' ',
        (n, true) => char::from(b'0' + level(n, 9) as u8),
        (n, false) => BLOCKS[level(n, 8) - 1],
    });
    bars.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_every_bin_that_is_not_empty() {
        assert_eq!(bars(&[0, 1, 500, 1000], false), " ▁▄█");
        assert_eq!(bars(&[0, 1, 500, 1000], true), ".159");
        assert_eq!(bars(&[0, 0], false), "  ");
        assert_eq!(bars(&[u64::MAX, 1], false), "█▁");
    }
}
