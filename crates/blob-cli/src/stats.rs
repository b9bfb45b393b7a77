//! `blob stats`: statistics of the values of tensors, measured by `blob_convert::stats`.

mod json;
mod lines;
mod text;

use blob_convert::stats::{Measured, measure_all, measure_channels};
use blob_io::words::Listed;
use blob_io::{Checkpoint, Entry, Error};

use crate::args::Stats;
use crate::broken::Broken;
use crate::context::Context;
use crate::failure::{Failure, Problem, Status};
use crate::open::open;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::render::Render;
use crate::select::{select, sort};
use crate::units;
use json::JsonRows;
pub(crate) use json::{Bins, Statistics};
use lines::LineRows;
use text::TableRows;

/// The bins of a histogram, few enough to fit beside the numbers.
const BINS: usize = 16;

pub(crate) fn run(args: &Stats, context: &Context) -> Result<Status, Failure> {
    let selection = &args.selection;
    let checkpoint = open(&selection.file, &context.global)?;
    let mut chosen = select(&checkpoint, &selection.selection())?;
    sort(&mut chosen, &args.order, checkpoint.entries());
    let entry = |i: &usize| &checkpoint.entries()[*i];
    let measured = chosen.iter().copied().filter(|i| skip_reason(entry(i), args.per_channel).is_none());
    let measured: Vec<usize> = measured.collect();
    let skipped = report_skipped(args, &checkpoint, &chosen, measured.len(), context)?;
    let passes = if args.hist { 2 } else { 1 };
    let work: u64 = measured.iter().map(|i| entry(i).byte_len() * passes).sum();
    context.note_solver(&checkpoint);
    let progress = Progress::begin(&context.terminal, work);
    let mut status = skipped;
    context.print(Work {
        args,
        checkpoint: &checkpoint,
        chosen: &chosen,
        measured: &measured,
        progress,
        status: &mut status,
    })?;
    Ok(status)
}

/// Statistics that are measured during the printing.
struct Work<'a> {
    args: &'a Stats,
    checkpoint: &'a Checkpoint,
    /// The chosen tensors, and those among them that can be measured.
    chosen: &'a [usize],
    measured: &'a [usize],
    progress: Progress,
    status: &'a mut Status,
}

/// The output's rows, one per tensor or channel, as a table or as JSON. A tensor is given by the place in the file.
trait Rows: Sized {
    fn add(&mut self, place: usize, channel: Option<usize>, measured: Measured) -> Result<(), Failure>;

    /// Adds a tensor that cannot be measured.
    fn fail(&mut self, place: usize, problem: &Problem) -> Result<(), Failure>;

    /// Completes the output, also after an error.
    fn end(self, chosen: &[usize], stopped: Option<&Failure>) -> Result<(), Failure>;
}

impl Render for Work<'_> {
    fn json(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let rows = JsonRows::begin(self.checkpoint, self.args.per_channel, out)?;
        self.fill(context, rows)
    }

    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let rows = TableRows::new(self.args, self.checkpoint, self.measured, &context.terminal, out);
        self.fill(context, rows)
    }

    /// The fields are documented in the help of `stats` and stay stable.
    fn lines(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let rows = LineRows::new(self.args, self.checkpoint, context, out);
        self.fill(context, rows)
    }
}

impl<'a> Work<'a> {
    fn fill(self, context: &'a Context, mut rows: impl Rows) -> Result<(), Failure> {
        let mut broken = Broken::new(&context.terminal, self.checkpoint.name());
        let done = self.measure(&mut rows, &mut broken);
        self.progress.end();
        rows.end(self.chosen, done.as_ref().err())?;
        done.map_err(Failure::in_json)?;
        *self.status = broken.finish().max(*self.status);
        Ok(())
    }

    /// Measures all tensors that can be measured. One that cannot be read is reported and skipped.
    ///
    /// # Errors
    /// The end of the work alone: a signal, or standard output.
    fn measure(&self, rows: &mut impl Rows, broken: &mut Broken<'_>) -> Result<(), Failure> {
        let bins = self.args.hist.then_some(BINS);
        let mut add = |place: usize, channels: Result<Vec<Measured>, Error>, numbered: bool| match channels {
            Ok(channels) => channels
                .into_iter()
                .enumerate()
                .try_for_each(|(channel, measured)| rows.add(place, numbered.then_some(channel), measured)),
            Err(error) => {
                let Failure::Trouble(problem) = Failure::from(error) else {
                    return Err(Failure::interrupted());
                };
                rows.fail(place, &problem)?;
                broken.report(*problem);
                Ok(())
            }
        };
        if let Some(axis) = self.args.per_channel {
            return self.measured.iter().try_for_each(|index| {
                let entry = &self.checkpoint.entries()[*index];
                add(*index, measure_channels(self.checkpoint, entry, axis, bins, &self.progress), true)
            });
        }
        measure_all(self.checkpoint, self.measured, bins, &self.progress, &mut |index, measured| {
            add(index, measured.map(|one| vec![one]), false)
        })
    }
}

/// Why a tensor is skipped although it is not broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SkipReason {
    /// A place without an array.
    NoArray,
    /// The dtype is not supported.
    Foreign,
    /// The values are stored in a way that is not read.
    Unread,
    /// The axis of --per-channel is missing.
    NoAxis,
}

fn skip_reason(entry: &Entry, axis: Option<i64>) -> Option<SkipReason> {
    if entry.fault().is_some() {
        return entry.unread().map(|_| SkipReason::Unread);
    }
    if entry.foreign_dtype().is_some() {
        return Some(SkipReason::Foreign);
    }
    if entry.dtype().is_none() {
        return Some(SkipReason::NoArray);
    }
    let axis = i32::try_from(axis?).unwrap_or(i32::MAX);
    entry.shape().axis(axis).is_err().then_some(SkipReason::NoAxis)
}

/// Warns about the tensors that are not read and those without the axis. If no tensor at all can be measured,
/// the answer is no.
fn report_skipped(
    args: &Stats,
    checkpoint: &Checkpoint,
    chosen: &[usize],
    measured: usize,
    context: &Context,
) -> Result<Status, Failure> {
    let axis = args.per_channel;
    let without = axis.map_or(String::new(), |axis| format!("without an axis {axis}"));
    let mut status = Status::Yes;
    for (reason, what) in [
        (SkipReason::Foreign, "of a dtype that is not read"),
        (SkipReason::Unread, "stored in a way that is not read"),
        (SkipReason::NoAxis, &without),
    ] {
        let entries = chosen.iter().map(|i| &checkpoint.entries()[*i]);
        let skipped = entries.filter(|e| skip_reason(e, axis) == Some(reason));
        let Some((count, names)) = count_and_names(skipped) else { continue };
        let text = format!("{}: {count} {what}: {names}", checkpoint.name());
        if measured == 0 && !context.global.json {
            return Err(Failure::no(text));
        }
        context.terminal.warning(format!("{text} (skipped)"));
        if measured == 0 {
            status = Status::No;
        }
    }
    Ok(status)
}

/// The number of entries and the first names, in words; `None` without any entry.
fn count_and_names<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<(String, String)> {
    let mut names: Listed<String, 3> = Listed::default();
    for entry in entries {
        names.push(|| {
            let why = entry.foreign_dtype().map(str::to_owned).or_else(|| entry.unread());
            let why = why.map(|why| format!(" ({why})"));
            format!("{:?}{}", entry.name(), why.unwrap_or_default())
        });
    }
    let dots = if names.more() > 0 { ", …" } else { "" };
    (names.count > 0).then(|| (units::plural(names.count, "tensor"), names.first.join(", ") + dots))
}
