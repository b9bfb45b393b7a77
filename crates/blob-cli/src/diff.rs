//! `blob diff`: prints the differences that `blob_convert::diff` finds, as a table, lines or JSON.

use std::io::Write;

use blob_convert::diff::{Comparison, Distance, Row, Tally, Tensor, diff};
pub(crate) use blob_convert::report::difference::Difference;
use blob_convert::report::json::{Line, Ordered};
pub(crate) use blob_convert::report::own::{distance, names, word};
use blob_core::DType;
use blob_io::Checkpoint;
use serde_json::Value;

use crate::args::{Diff, Global};
use crate::broken::Broken;
use crate::context::Context;
use crate::escape::escape_field;
use crate::failure::{Failure, Problem, Status};
use crate::open::{open, open_some};
use crate::output::progress::Progress;
use crate::output::width::wrap;
use crate::output::{Out, Terminal};
use crate::render::Render;
use crate::render::table::{Column, Table};
use crate::select::{by_names, found};
use crate::units;

pub(crate) fn run(args: &Diff, context: &Context) -> Result<Status, Failure> {
    let selection = args.only.selection();
    let ours = open_some(&args.file, &selection, &context.global)?;
    // --from is about the first file; the format of the other one is detected. A tensor that is chosen may be missing
    // in it.
    let theirs = open(&args.other, &Global { from: None, ..context.global.clone() })?;
    let chosen = found(&theirs, &by_names(&theirs, &selection)?)?;
    let theirs = theirs.only(&chosen.places);
    [&ours, &theirs].into_iter().for_each(|file| context.note_solver(file));
    let mut tally = Tally::default();
    let broken = Broken::new(&context.terminal, ours.name());
    let said = Difference { ours: &ours, theirs: &theirs, tally: &mut tally, notes: Vec::new(), error: Value::Null };
    context.print(Pair { args, said, broken })?;
    Ok(match (tally.unread, tally.is_same()) {
        (0, true) => Status::Yes,
        (0, false) => Status::No,
        _ => Status::Trouble,
    })
}

/// Two files, which are compared while the rows are printed.
pub(crate) struct Pair<'a> {
    args: &'a Diff,
    said: Difference<'a>,
    /// Says on standard error why tensors were not read; the JSON has that in the rows.
    broken: Broken<'a>,
}

impl Pair<'_> {
    /// Calls `print` with each row to print.
    fn compare(
        &mut self,
        context: &Context,
        mut print: impl FnMut(&Row) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let work = |file: &Checkpoint| file.entries().iter().map(blob_io::Entry::byte_len).sum::<u64>();
        let (ours, theirs) = (self.said.ours, self.said.theirs);
        let progress = Progress::begin(&context.terminal, work(ours) + work(theirs));
        let (broken, all) = (&mut self.broken, self.args.all);
        let (tolerance, notes) = (self.args.tolerance(), &mut self.said.notes);
        let done = diff(ours, theirs, tolerance, &progress, &mut |text| notes.push(text), &mut |row: Row| {
            if let (Comparison::Unread(why), false) = (&row.change, context.global.json) {
                broken.report(Problem::unread(names(&row).0, why));
            }
            if !all && matches!(row.change, Comparison::Equal(_)) {
                return Ok(());
            }
            print(&row)
        });
        progress.end();
        *self.said.tally = done?;
        self.broken.finish();
        Ok(())
    }
}

/// `1 changed (1 in dtype alone), 1 added, 0 removed, 14 equal (2 renamed)`
pub(crate) fn summary(tally: &Tally) -> String {
    let Tally { equal, renamed, changed, recast, removed, added, unread, .. } = *tally;
    let some = |n: u64, text: &str| if n > 0 { text.replace('#', &units::grouped(n)) } else { String::new() };
    let named = [
        (changed, "changed", some(recast, " (# in dtype alone)")),
        (added, "added", String::new()),
        (removed, "removed", String::new()),
        (equal, "equal", some(renamed, " (# renamed)")),
    ];
    let named: Vec<String> = named.iter().map(|(n, what, of)| format!("{} {what}{of}", units::grouped(*n))).collect();
    named.join(", ") + &some(unread, ", # not read")
}

/// `1/6`: how many values changed, or the word for a change that is not in the values.
pub(crate) fn changed(row: &Row) -> String {
    match (&row.change, distance(row)) {
        (Comparison::DType(_) | Comparison::Shape | Comparison::Unread(_), _) => word(&row.change).to_owned(),
        (_, Some(d)) => format!("{}/{}", units::grouped(d.changed), units::grouped(d.elements)),
        (_, None) => "-".to_owned(),
    }
}

/// The mark before a row.
fn mark(change: &Comparison) -> &'static str {
    match change {
        Comparison::Equal(_) => "=",
        Comparison::Renamed => ">",
        Comparison::Removed => "-",
        Comparison::Added => "+",
        Comparison::Values(_) | Comparison::DType(_) | Comparison::Shape => "~",
        Comparison::Unread(_) => "!",
    }
}

/// `3×4 f32`, or both where different: `3×4 f32 → 12 f16`.
fn kind(row: &Row, terminal: &Terminal) -> String {
    let text = |tensor: &Tensor| {
        let dtype = tensor.dtype.map_or("none", DType::name);
        format!("{} {dtype}", terminal.shape(&tensor.shape))
    };
    match (row.ours.as_ref().map(text), row.theirs.as_ref().map(text)) {
        (Some(a), Some(b)) if a != b => format!("{a} {} {b}", terminal.marks().1),
        (one, other) => one.or(other).unwrap_or_default(),
    }
}

/// `[0,3] 1.200 → 1.300`
fn worst(row: &Row, terminal: &Terminal) -> String {
    let Some((distance, ours)) = distance(row).zip(row.ours.as_ref()) else { return String::new() };
    let Some(worst) = distance.worst else { return String::new() };
    let index = ours.shape.index(worst.element as usize).unwrap_or_default();
    let index: Vec<String> = index.iter().map(usize::to_string).collect();
    format!(
        "[{}] {} {} {}",
        index.join(","),
        units::number(worst.ours),
        terminal.marks().1,
        units::number(worst.theirs)
    )
}

impl Render for Pair<'_> {
    fn json(mut self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let mut line = Line::begin(out, &self.said)?;
        let done = self.compare(context, |row| Ok(line.push(out, &Ordered(row))?));
        self.said.error = done.as_ref().err().map_or(Value::Null, Failure::as_json);
        line.advance(out, &self.said)?;
        done.map_err(Failure::in_json)
    }

    fn text(mut self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        let columns = vec![
            Column::left("").of(|row: &Row, _| mark(&row.change).to_owned()),
            Column::name("TENSOR", 12).of(|row, terminal| match names(row) {
                (name, None) => terminal.name(name).into_owned(),
                (name, Some(other)) => {
                    format!("{} {} {}", terminal.name(name), terminal.marks().1, terminal.name(other))
                }
            }),
            Column::left("SHAPE").drop_order(5).of(kind),
            Column::right("CHANGED").of(|row, _| changed(row)),
            Column::point("MAX ABS").of(|row, _| figure(row, |d| d.max_abs)),
            Column::point("MAX REL").drop_order(3).of(|row, _| figure(row, |d| d.max_rel)),
            Column::point("RMS").drop_order(2).of(|row, _| figure(row, Distance::rms)),
            Column::left("FURTHEST").drop_order(1).of(worst),
        ];
        let mut table = Table::new(terminal, columns);
        let mut any = false;
        let done = self.compare(context, |row| {
            any = true;
            Ok(table.row(out, row)?)
        });
        if any {
            table.finish(out)?;
        }
        done?;
        for note in &self.said.notes {
            terminal.note(format!("note: {note}"));
        }
        for line in wrap(&summary(self.said.tally), terminal.width.unwrap_or(usize::MAX)) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    /// The fields are documented in the help of `diff` and stay stable.
    fn lines(mut self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let ascii = context.global.ascii;
        self.compare(context, |row| {
            context.header(out, &COLUMNS)?;
            let (name, other) = names(row);
            write!(
                out,
                "{}\t{}\t{}",
                mark(&row.change),
                escape_field(name, ascii),
                other.map_or("-".into(), |other| escape_field(other, ascii))
            )?;
            match distance(row) {
                Some(d) => {
                    let (abs, rel, rms) = (d.max_abs, d.max_rel, d.rms());
                    write!(out, "\t{}\t{}\t{abs:e}\t{rel:e}\t{rms:e}", d.changed, d.elements)?;
                }
                None => write!(out, "\t-\t-\t-\t-\t-")?,
            }
            let what = if let Comparison::Unread(why) = &row.change { why } else { word(&row.change) };
            Ok(writeln!(out, "\t{}", escape_field(what, ascii))?)
        })
    }
}

fn figure(row: &Row, of: fn(&Distance) -> f64) -> String {
    distance(row).map_or_else(|| "-".to_owned(), |distance| units::number(of(distance)))
}

/// The columns of the lines for programs.
const COLUMNS: [&str; 9] = ["change", "name", "other", "changed", "elements", "max_abs", "max_rel", "rms", "why"];
