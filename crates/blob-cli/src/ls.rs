//! `blob ls`: lists the tensors of a file, from the headers.

mod folder;
pub(crate) use folder::Files;

use std::borrow::Cow;
use std::io::Write;
use std::time::Instant;

use blob_core::Shape;
use blob_io::{Checkpoint, Entry, Sparse};
use serde_json::{Value, json};

use crate::args::Ls;
use crate::context::Context;
use crate::escape::{escape_field, escape_message};
use crate::failure::{Failure, Problem, Status};
use crate::info::bytes_read;
use crate::json::{
    self, DIALECT, DIMS, DTYPE, Document, FILE, FORMAT, Field, Fields, Line, NAME, Ordered, STRINGS, Type, field,
    nullable, optional, properties, streamed,
};
use crate::open::open_to_list;
use crate::output::signals;
use crate::output::width::wrap;
use crate::output::{Out, Terminal, ascii_shape};
use crate::render::table::{Column, LAST, Table};
use crate::render::{Render, tree};
use crate::select::{select, sort};
use crate::units;

const KINDS: &[&str] = &["data", "diff", "values", "indices", "indptr", "none"];

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
        checkpoint.whole()?;
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
    context.print(List { args, checkpoint, chosen: &chosen, seconds, error: Value::Null })?;
    let entries = chosen.iter().map(|i| &checkpoint.entries()[*i]);
    let status = context.broken(checkpoint.name(), entries);
    checkpoint.whole()?;
    Ok(status)
}

/// The chosen tensors of a file, and the seconds of the reading.
pub(crate) struct List<'a> {
    args: &'a Ls,
    checkpoint: &'a Checkpoint,
    chosen: &'a [usize],
    seconds: f64,
    /// The error that ended the list early, as JSON.
    error: Value,
}

impl Render for List<'_> {
    fn json(mut self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        let mut line = Line::begin(out, &self)?;
        let done = self.listed().try_for_each(|listed| {
            signals::check()?;
            Ok(line.push(out, &Ordered(&listed))?)
        });
        self.error = done.as_ref().err().map_or(Value::Null, Failure::as_json);
        line.advance(out, &self)?;
        done.map_err(Failure::in_json)
    }

    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        if self.args.recursive {
            writeln!(out, "{}", terminal.strong(terminal.name(self.checkpoint.name())))?;
        }
        if self.args.tree {
            tree::print(self.checkpoint, self.chosen, terminal, out)?
        } else {
            self.table(terminal, out)?
        }
        let summary = summary(self.checkpoint, self.chosen, self.seconds);
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
            return tree::print(self.checkpoint, self.chosen, &context.terminal, out);
        }
        // These lines do not depend on the locale; --ascii affects only the names.
        let escaped = |text| escape_field(text, context.global.ascii);
        let (short, long) = (["name", "dtype", "shape", "bytes", "offset"], ["kind", "type", "pieces", "warnings"]);
        let file = self.args.recursive.then_some("file");
        let long = long.iter().filter(|_| self.args.long);
        let columns: Vec<&str> = file.iter().chain(&short).chain(long).copied().collect();
        for listed in self.listed() {
            context.header(out, &columns)?;
            let entry = listed.entry;
            let (name, shape) = (escaped(entry.name()), listed.array(ascii_shape));
            let offset = entry.offset().map_or("-".to_owned(), |offset| offset.to_string());
            if self.args.recursive {
                write!(out, "{}\t", escaped(self.checkpoint.name()))?;
            }
            write!(out, "{name}\t{}\t{shape}\t{}\t{offset}", dtype_word(entry), entry.byte_len())?;
            if self.args.long {
                let layer_type = escaped(entry.layer_type().unwrap_or("-"));
                let pieces = entry.segments().len();
                write!(out, "\t{}\t{layer_type}\t{pieces}\t{}", kind_word(entry), escape_message(&warnings(entry)))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

impl List<'_> {
    fn listed(&self) -> impl Iterator<Item = Listed<'_>> {
        let (file, entries) = (self.checkpoint.name(), self.checkpoint.entries());
        self.chosen.iter().map(move |index| Listed { file, index: *index, entry: &entries[*index] })
    }

    fn table(&self, terminal: &Terminal, out: &mut Out) -> Result<(), Failure> {
        let has_types = self.chosen.iter().any(|i| self.checkpoint.entries()[*i].layer_type().is_some());
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
                Column::left("KIND").drop_order(5).of(|l: &Listed<'_>, _| kind_word(l.entry)),
                Column::right("PIECES").drop_order(2).of(|l, _| units::grouped(l.entry.segments().len() as u64)),
                Column::text("WARNINGS").of(|l, terminal| terminal.text(&warnings(l.entry)).into_owned()),
            ]);
        }
        let mut table = Table::new(terminal, columns)
            .named(|each| self.listed().for_each(|listed| each(&terminal.name(listed.entry.name()))));
        for listed in self.listed() {
            table.row(out, &listed)?;
        }
        Ok(table.finish(out)?)
    }
}

fn is_readable(entry: &Entry) -> bool {
    (entry.dtype().is_some() || entry.foreign_dtype().is_some()) && entry.fault().is_none()
}

fn dtype_word(entry: &Entry) -> &str {
    match (entry.fault(), entry.dtype()) {
        (Some(_), _) if entry.unread().is_some() => "unread",
        (Some(_), _) => "error",
        (None, Some(dtype)) => dtype.name(),
        (None, None) => entry.foreign_dtype().unwrap_or("none"),
    }
}

/// `data`, `diff`; for a part of a sparse array the kind too: `csr indptr`.
fn kind_word(entry: &Entry) -> String {
    match entry.sparse() {
        Some(sparse) => format!("{} {}", sparse.kind.name(), entry.kind().name()),
        None => entry.kind().name().to_owned(),
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

impl Document for List<'_> {
    const SCHEMA: &'static str = "blob.ls/1";
    const COMMAND: &'static str = "blob ls --json FILE [PATTERN...]";
    const DESCRIPTION: &'static str = "the tensors of a file, from its headers";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for List<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("file", Type::String, FILE, |l| json!(l.checkpoint.name())),
            field("format", Type::String, FORMAT, |l| json!(l.checkpoint.format().name())),
            field("dialect", Type::String, DIALECT, |l| json!(l.checkpoint.dialect())),
            field("file_bytes", Type::Integer, "the file's size", |l| json!(l.checkpoint.file_len())),
            field("tensors_in_file", Type::Integer, "how many there are, chosen or not", |l| {
                json!(l.checkpoint.entries().len())
            }),
            field("warnings", STRINGS, "what is odd about the file as a whole", |l| {
                l.checkpoint.warnings().iter().map(ToString::to_string).collect()
            }),
            streamed("tensors", Type::Array(&Type::Object(properties::<Listed<'_>>)), "the tensors that were chosen"),
            field("bytes_read", Type::Integer, "how much of it was read so far", |l| json!(bytes_read(l.checkpoint))),
            nullable("error", Type::Object(properties::<Problem>), "why the list ends too early", |l| l.error.clone()),
        ]
    }
}

/// One tensor. An absent array has no dtype; a broken one has no dtype either, and an error.
struct Listed<'a> {
    file: &'a str,
    index: usize,
    entry: &'a Entry,
}

impl Listed<'_> {
    /// A property of the tensor's shape; `-` if there is no readable array.
    fn array(&self, fact: impl Fn(&Shape) -> String) -> String {
        if is_readable(self.entry) { fact(self.entry.shape()) } else { "-".to_owned() }
    }
}

impl Fields for Listed<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("index", Type::Integer, "its place in the file: `#3`", |l| json!(l.index)),
            field("name", Type::String, NAME, |l| json!(l.entry.name())),
            field("kind", Type::Enum(KINDS), "what it is", |l| json!(l.entry.kind().name())),
            nullable("layer_type", Type::String, "the type of its layer, where it has one", |l| {
                json!(l.entry.layer_type())
            }),
            field("position", Type::Integer, "the place of its layer or record", |l| json!(l.entry.position())),
            nullable("dtype", Type::String, DTYPE, |l| json!(is_readable(l.entry).then(|| dtype_word(l.entry)))),
            nullable("shape", DIMS, "its shape; `null` without an array that can be read", |l| {
                json!(is_readable(l.entry).then(|| l.entry.shape().dims()))
            }),
            field("elements", Type::Integer, "how many values", |l| {
                json!(if is_readable(l.entry) { l.entry.shape().count() } else { 0 })
            }),
            field("bytes", Type::Integer, "how many bytes once loaded", |l| json!(l.entry.byte_len())),
            nullable("offset", Type::Integer, "where its bytes begin in the file", |l| json!(l.entry.offset())),
            field("pieces", Type::Integer, "in how many runs of bytes it lies; 0 where it is compressed", |l| {
                json!(l.entry.segments().len())
            }),
            optional("sparse", Type::Object(properties::<Sparse>), "the sparse array that it is a part of", |l| {
                l.entry.sparse().map_or(Value::Null, json::value)
            }),
            field("warnings", STRINGS, "what is odd about it", |l| l.entry.warnings().map(|w| w.to_string()).collect()),
            nullable("error", Type::Object(properties::<Problem>), "why it cannot be read", |l| {
                l.entry.fault().map_or(Value::Null, |f| json::value(&Problem::of_fault(l.file, l.entry, f)))
            }),
        ]
    }
}

impl Fields for Sparse {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("kind", Type::Enum(&["row_sparse", "csr"]), "how it is stored", |s| json!(s.kind.name())),
            field("name", Type::String, "the whole array's name", |s| json!(*s.name)),
            field("shape", DIMS, "its dense shape", |s| json!(s.shape.dims())),
        ]
    }
}
