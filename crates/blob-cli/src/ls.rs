//! `blob ls`: the tensors of a file, from its headers alone.

use std::borrow::Cow;
use std::io::Write;
use std::time::Instant;

use blob_io::{Checkpoint, Entry};
use serde::Serialize;
use serde_json::Value;

use crate::args::{Ls, SortKey};
use crate::context::Context;
use crate::escape::{escape, escape_ascii, tame};
use crate::failure::{Failure, Problem, Status};
use crate::open::open_to_list;
use crate::output::width::wrap;
use crate::output::{Out, Terminal, ascii_shape};
use crate::render::json::{self, Streamed};
use crate::render::table::{Column, Table};
use crate::render::{Render, tree};
use crate::select::select;
use crate::units;

pub(crate) fn run(args: &Ls, context: &Context) -> Result<Status, Failure> {
    let start = Instant::now();
    let selection = &args.selection;
    let checkpoint = open_to_list(&selection.file, &context.global)?;
    let chosen = select(&checkpoint, &selection.patterns, selection.regex);
    if chosen.is_err() {
        // What is not among the first tensors may stand behind the break.
        checkpoint.whole()?;
    }
    let mut chosen = chosen?;
    sort(&mut chosen, args.sort, checkpoint.entries());
    let seconds = start.elapsed().as_secs_f64();
    context.say(List { args, checkpoint: &checkpoint, chosen: &chosen, seconds })?;
    let entries = chosen.iter().map(|i| &checkpoint.entries()[*i]);
    let status = context.broken(checkpoint.name(), entries);
    checkpoint.whole()?;
    Ok(status)
}

/// What is listed, and how long that took.
struct List<'a> {
    args: &'a Ls,
    checkpoint: &'a Checkpoint,
    chosen: &'a [usize],
    seconds: f64,
}

impl Render for List<'_> {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        Ok(json::line(out, &listing(self.checkpoint, self.chosen))?)
    }

    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        match self.args.tree {
            true => tree::print(self.checkpoint, self.chosen, terminal, out)?,
            false => self.table(terminal, out)?,
        }
        let summary = summary(self.checkpoint, self.chosen, self.seconds);
        for line in wrap(&summary, terminal.width.unwrap_or(usize::MAX)) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    /// The fields are documented in the help of `ls`; they do not change.
    fn lines(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        if self.args.tree {
            return tree::print(self.checkpoint, self.chosen, &context.terminal, out);
        }
        // No locale changes these lines; --ascii does, in the names alone.
        let spelled = if context.global.ascii { escape_ascii } else { escape };
        for index in self.chosen {
            let entry = &self.checkpoint.entries()[*index];
            let shape = match is_readable(entry) {
                true => ascii_shape(entry.shape()),
                false => "-".to_owned(),
            };
            let name = spelled(entry.name());
            write!(out, "{name}\t{}\t{shape}\t{}\t", dtype_word(entry), entry.byte_len())?;
            match entry.offset() {
                Some(offset) => write!(out, "{offset}")?,
                None => write!(out, "-")?,
            }
            if self.args.long {
                let layer_type = spelled(entry.layer_type().unwrap_or("-"));
                let pieces = entry.segments().len();
                write!(out, "\t{}\t{layer_type}\t{pieces}\t{}", kind_word(entry), tame(&warnings(entry)))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

fn sort(chosen: &mut [usize], key: Option<SortKey>, entries: &[Entry]) {
    match key {
        None => {}
        Some(SortKey::Name) => chosen.sort_by(|a, b| entries[*a].name().cmp(entries[*b].name())),
        Some(SortKey::Size) => chosen.sort_by_key(|i| std::cmp::Reverse(entries[*i].byte_len())),
        Some(SortKey::Offset) => chosen.sort_by_key(|i| entries[*i].offset().unwrap_or(u64::MAX)),
    }
}

impl List<'_> {
    fn table(&self, terminal: &Terminal, out: &mut Out) -> Result<(), Failure> {
        let has_types = self.chosen.iter().any(|i| self.checkpoint.entries()[*i].layer_type().is_some());
        let mut columns = vec![Column::right("#"), Column::name("NAME", 24)];
        if has_types {
            columns.push(Column::left("LAYER TYPE").leaves(3));
        }
        columns.extend([
            Column::left("DTYPE"),
            Column::left("SHAPE"),
            Column::right("PARAMS").leaves(4),
            Column::right("BYTES").leaves(6),
            Column::right("OFFSET").leaves(1),
        ]);
        if self.args.long {
            columns.extend([
                Column::left("KIND").leaves(5),
                Column::right("PIECES").leaves(2),
                Column::text("WARNINGS"),
            ]);
        }
        let mut table = Table::new(terminal, columns);
        for index in self.chosen {
            let entry = &self.checkpoint.entries()[*index];
            let has_array = is_readable(entry);
            let mut cells = vec![index.to_string(), terminal.name(entry.name()).into_owned()];
            if has_types {
                cells.push(terminal.name(entry.layer_type().unwrap_or("")).into_owned());
            }
            let dash = || "-".to_owned();
            cells.extend([
                dtype_word(entry).to_owned(),
                if has_array { terminal.shape(entry.shape()) } else { dash() },
                if has_array { units::count(entry.shape().count() as u64) } else { dash() },
                units::bytes(entry.byte_len()),
                entry.offset().map_or_else(dash, units::grouped),
            ]);
            if self.args.long {
                let pieces = units::grouped(entry.segments().len() as u64);
                cells.extend([kind_word(entry), pieces, terminal.text(&warnings(entry)).into_owned()]);
            }
            table.row(out, cells)?;
        }
        Ok(table.finish(out)?)
    }
}

fn is_readable(entry: &Entry) -> bool {
    (entry.dtype().is_some() || entry.foreign_dtype().is_some()) && entry.fault().is_none()
}

fn dtype_word(entry: &Entry) -> &str {
    match (entry.fault(), entry.dtype()) {
        (Some(_), _) => "error",
        (None, Some(dtype)) => dtype.name(),
        (None, None) => entry.foreign_dtype().unwrap_or("none"),
    }
}

/// `data`, `diff`; for a part of a sparse array its kind too: `csr indptr`.
fn kind_word(entry: &Entry) -> String {
    match entry.sparse() {
        Some(sparse) => format!("{} {}", sparse.kind().name(), entry.kind().name()),
        None => entry.kind().name().to_owned(),
    }
}

fn warnings(entry: &Entry) -> Cow<'static, str> {
    let all: Vec<String> = entry.warnings().map(|w| w.to_string()).collect();
    match all.is_empty() {
        true => Cow::Borrowed("-"),
        false => Cow::Owned(all.join("; ")),
    }
}

/// `6 of 32 tensors, 494.4 MiB  (read 4.1 KiB of 527.8 MiB in 0.6 ms)`
fn summary(checkpoint: &Checkpoint, chosen: &[usize], seconds: f64) -> String {
    let entries = checkpoint.entries();
    let bytes: u64 = chosen.iter().map(|i| entries[*i].byte_len()).sum();
    let all = units::plural(entries.len() as u64, "tensor");
    let count = match chosen.len() == entries.len() {
        true => all,
        false => format!("{} of {all}", units::grouped(chosen.len() as u64)),
    };
    format!(
        "{count}, {}  (read {} of {} in {})",
        units::bytes(bytes),
        // Headers may be read twice; more than the file is never news.
        units::bytes(checkpoint.bytes_read().min(checkpoint.file_len())),
        units::bytes(checkpoint.file_len()),
        units::seconds(seconds)
    )
}

/// `blob.ls/1`.
#[derive(Serialize)]
struct Listing<'a, T> {
    schema: &'static str,
    file: &'a str,
    format: &'static str,
    dialect: &'a str,
    file_bytes: u64,
    tensors_in_file: usize,
    warnings: Vec<String>,
    tensors: T,
    bytes_read: u64,
}

/// The listing as JSON; the tensors become text one by one.
fn listing<'a>(checkpoint: &'a Checkpoint, chosen: &'a [usize]) -> impl Serialize + use<'a> {
    let warnings = checkpoint.warnings().iter().map(ToString::to_string);
    let tensor = |i: &usize| Tensor::new(checkpoint.name(), *i, &checkpoint.entries()[*i]);
    Listing {
        schema: "blob.ls/1",
        file: checkpoint.name(),
        format: checkpoint.format().name(),
        dialect: checkpoint.dialect(),
        file_bytes: checkpoint.file_len(),
        tensors_in_file: checkpoint.entries().len(),
        warnings: warnings.collect(),
        tensors: Streamed(move || chosen.iter().map(tensor)),
        bytes_read: checkpoint.bytes_read(),
    }
}

/// One tensor of `blob.ls/1`. A place without an array has no dtype; a broken one has none either, and an error.
#[derive(Serialize)]
struct Tensor<'a> {
    index: usize,
    name: &'a str,
    kind: &'static str,
    layer_type: Option<&'a str>,
    position: usize,
    dtype: Option<&'a str>,
    shape: Option<&'a [usize]>,
    elements: u64,
    bytes: u64,
    offset: Option<u64>,
    pieces: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    sparse: Option<Sparse<'a>>,
    warnings: Vec<String>,
    error: Option<Value>,
}

#[derive(Serialize)]
struct Sparse<'a> {
    kind: &'static str,
    name: &'a str,
    shape: &'a [usize],
}

impl<'a> Tensor<'a> {
    fn new(file: &str, index: usize, entry: &'a Entry) -> Self {
        let has_array = is_readable(entry);
        Self {
            index,
            name: entry.name(),
            kind: entry.kind().name(),
            layer_type: entry.layer_type(),
            position: entry.position(),
            dtype: has_array.then(|| dtype_word(entry)),
            shape: has_array.then(|| entry.shape().dims()),
            elements: if has_array { entry.shape().count() as u64 } else { 0 },
            bytes: entry.byte_len(),
            offset: entry.offset(),
            pieces: entry.segments().len(),
            sparse: entry.sparse().map(|s| Sparse { kind: s.kind().name(), name: s.name(), shape: s.shape().dims() }),
            warnings: entry.warnings().map(|w| w.to_string()).collect(),
            error: entry.fault().map(|fault| json::error(&Problem::of_fault(file, entry, fault))),
        }
    }
}
