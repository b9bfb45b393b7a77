//! `blob ls`: lists the tensors of a file, from the headers.

mod folder;
pub(crate) use folder::Files;

use std::borrow::Cow;
use std::io::Write;
use std::time::Instant;

use blob_convert::report::json::{Line, Ordered};
pub(crate) use blob_convert::report::list::List;
use blob_convert::report::list::{Listed, dtype_word};
use blob_io::{Checkpoint, Entry};
use serde_json::Value;

use crate::args::Ls;
use crate::context::Context;
use crate::escape::{escape_field, escape_message};
use crate::failure::{Failure, Status};
use crate::info::bytes_read;
use crate::open::open_to_list;
use crate::output::signals;
use crate::output::width::wrap;
use crate::output::{Out, Terminal, ascii_shape};
use crate::render::table::{Column, LAST, Table};
use crate::render::{Render, tree};
use crate::select::{select, sort};
use crate::units;

pub(crate) fn run(args: &Ls, context: &Context) -> Result<Status, Failure> {
    let selection = &args.selection;
    if args.recursive {
        return folder::run(args, context);
    }
    let start = Instant::now();
    let checkpoint = open_to_list(&selection.file, &context.global)?;
    let chosen = select(&checkpoint, &selection.selection());
    if chosen.is_err() {
        // If the file is truncated, the tensor may be missing because of that, and that is the better error.
        checkpoint.check_whole()?;
    }
    list(args, context, &checkpoint, chosen?, start)
}

/// Lists the chosen tensors of a file that was opened at `start`.
fn list(
    args: &Ls,
    context: &Context,
    checkpoint: &Checkpoint,
    mut chosen: Vec<usize>,
    start: Instant,
) -> Result<Status, Failure> {
    sort(&mut chosen, &args.order, checkpoint.entries());
    let seconds = start.elapsed().as_secs_f64();
    context.print(Listing { args, list: List { checkpoint, chosen: &chosen, error: Value::Null }, seconds })?;
    let entries = chosen.iter().map(|i| &checkpoint.entries()[*i]);
    context.note_solver(checkpoint);
    let status = context.broken(checkpoint.name(), entries);
    checkpoint.check_whole()?;
    Ok(status)
}

/// The list as printed, and the seconds of the reading.
struct Listing<'a> {
    args: &'a Ls,
    list: List<'a>,
    seconds: f64,
}

impl Render for Listing<'_> {
    fn json(mut self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        let mut line = Line::begin(out, &self.list)?;
        let done = self.list.listed().try_for_each(|listed| {
            signals::check()?;
            Ok(line.push(out, &Ordered(&listed))?)
        });
        self.list.error = done.as_ref().err().map_or(Value::Null, Failure::as_json);
        line.advance(out, &self.list)?;
        done.map_err(Failure::in_json)
    }

    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        if self.args.recursive {
            writeln!(out, "{}", terminal.strong(terminal.name(self.list.checkpoint.name())))?;
        }
        if self.args.tree {
            tree::print(self.list.checkpoint, self.list.chosen, terminal, out)?
        } else {
            self.table(terminal, out)?
        }
        let summary = summary(self.list.checkpoint, self.list.chosen, self.seconds);
        for line in wrap(&summary, terminal.width.unwrap_or(usize::MAX)) {
            writeln!(out, "{line}")?;
        }
        if self.args.recursive {
            writeln!(out)?;
        }
        Ok(())
    }

    /// The fields are documented in the help of `ls` and stay stable.
    fn lines(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        if self.args.tree {
            return tree::print(self.list.checkpoint, self.list.chosen, &context.terminal, out);
        }
        // These lines do not depend on the locale; --ascii affects only the names.
        let escaped = |text| escape_field(text, context.global.ascii);
        let (short, long) = (["name", "dtype", "shape", "bytes", "offset"], ["kind", "type", "pieces", "warnings"]);
        let file = self.args.recursive.then_some("file");
        let long = long.iter().filter(|_| self.args.long);
        let columns: Vec<&str> = file.iter().chain(&short).chain(long).copied().collect();
        for listed in self.list.listed() {
            context.header(out, &columns)?;
            let entry = listed.entry;
            let (name, shape) = (escaped(entry.name()), listed.array(ascii_shape));
            let offset = entry.offset().map_or("-".to_owned(), |offset| offset.to_string());
            if self.args.recursive {
                write!(out, "{}\t", escaped(self.list.checkpoint.name()))?;
            }
            write!(out, "{name}\t{}\t{shape}\t{}\t{offset}", dtype_word(entry), entry.byte_len())?;
            if self.args.long {
                let layer_type = escaped(entry.layer_type().unwrap_or("-"));
                let pieces = entry.segments().len();
                write!(out, "\t{}\t{layer_type}\t{pieces}\t{}", kind_word(&listed), escape_message(&warnings(entry)))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

impl Listing<'_> {
    fn table(&self, terminal: &Terminal, out: &mut Out) -> Result<(), Failure> {
        let has_types = self.list.chosen.iter().any(|i| self.list.checkpoint.entries()[*i].layer_type().is_some());
        let mut columns = vec![
            Column::right("#").of(|l: &Listed<'_>, _| l.index.to_string()),
            Column::name("NAME", 24).of(|l, terminal| terminal.name(l.entry.name()).into_owned()),
        ];
        if has_types {
            let layer = Column::left("LAYER TYPE").drop_order(3);
            columns.push(layer.of(|l, terminal| terminal.name(l.entry.layer_type().unwrap_or("")).into_owned()));
        }
        columns.extend([
            Column::left("DTYPE").drop_order(LAST).of(|l: &Listed<'_>, _| dtype_word(l.entry).to_owned()),
            Column::left("SHAPE").drop_order(LAST + 1).of(|l, terminal| l.array(|shape| terminal.shape(shape))),
            Column::right("PARAMS").drop_order(4).of(|l, _| l.array(|shape| units::count(shape.count() as u64))),
            Column::right("BYTES").drop_order(6).of(|l, _| units::bytes(l.entry.byte_len())),
            Column::right("OFFSET").drop_order(1).of(|l, _| l.entry.offset().map_or("-".to_owned(), units::grouped)),
        ]);
        if self.args.long {
            columns.extend([
                Column::left("KIND").drop_order(5).of(|l: &Listed<'_>, _| kind_word(l)),
                Column::right("PIECES").drop_order(2).of(|l, _| units::grouped(l.entry.segments().len() as u64)),
                Column::text("WARNINGS").of(|l, terminal| terminal.text(&warnings(l.entry)).into_owned()),
            ]);
        }
        let mut table = Table::new(terminal, columns)
            .named(|each| self.list.listed().for_each(|listed| each(&terminal.name(listed.entry.name()))));
        for listed in self.list.listed() {
            table.row(out, &listed)?;
        }
        Ok(table.finish(out)?)
    }
}

/// `data`, `diff`; for a part of a sparse array the kind too: `csr indptr`.
fn kind_word(listed: &Listed<'_>) -> String {
    match listed.entry.sparse() {
        Some(sparse) => format!("{} {}", sparse.kind.name(), listed.kind.name()),
        None => listed.kind.name().to_owned(),
    }
}

fn warnings(entry: &Entry) -> Cow<'static, str> {
    let all: Vec<String> = entry.warnings().map(|w| w.to_string()).collect();
    if all.is_empty() { Cow::Borrowed("-") } else { Cow::Owned(all.join("; ")) }
}

/// `6 of 32 tensors, 494.4 MiB  (read 4.1 KiB of 527.8 MiB in 0.6 ms)`
fn summary(checkpoint: &Checkpoint, chosen: &[usize], seconds: f64) -> String {
    let entries = checkpoint.entries();
    let bytes: u64 = chosen.iter().map(|i| entries[*i].byte_len()).sum();
    let all = units::plural(entries.len() as u64, "tensor");
    let count =
        if chosen.len() == entries.len() { all } else { format!("{} of {all}", units::grouped(chosen.len() as u64)) };
    format!(
        "{count}, {}  (read {} of {} in {})",
        units::bytes(bytes),
        units::bytes(bytes_read(checkpoint)),
        units::bytes(checkpoint.file_len()),
        units::seconds(seconds)
    )
}
