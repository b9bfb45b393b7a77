//! `blob info`: prints a summary of a file, from headers and few values: the means of a mean image's channels, and
//! values that BatchNorms ignore.

mod mean;
mod receipt;

use std::io::Write;

use blob_convert::change::Group;
use blob_convert::transform::ignored;
use blob_convert::{RECEIPT_KEY, momentum};
use blob_core::DType;
use blob_io::words::and_more;
use blob_io::{Checkpoint, Entry, Kind, TensorName};
use serde_json::{Value, json};

use crate::args::Info;
use crate::context::Context;
use crate::escape::escape_message;
use crate::failure::{Failure, Problem, Status};
use crate::json::{
    self, DIALECT, DIMS, DTYPE, Document, FILE, FORMAT, Field, Fields, NAME, STRINGS, Type, field, nullable, properties,
};
use crate::open::{name, only, open_to_list};
use crate::output::width::{cut, width, wrap};
use crate::output::{Out, Terminal, signals};
use crate::render::Text;
use crate::units;
use mean::mean_values;
use receipt::receipt;

/// At most this many names, warnings or metadata are printed; the others are counted.
const MAX_SHOWN: usize = 12;

/// At most this many warnings and errors are in the JSON.
const MAX_IN_JSON: usize = 20;

pub(crate) fn run(args: &Info, context: &Context) -> Result<Status, Failure> {
    let mut status = Status::Yes;
    for (i, path) in args.files.iter().enumerate() {
        signals::check()?;
        let opened = open_to_list(path, &context.global).map_err(Failure::from);
        let checkpoint = match opened.and_then(|checkpoint| only(checkpoint, &args.only.selection())) {
            Ok(checkpoint) => checkpoint,
            Err(failure) => {
                context.failed(Some(&name(path)), &failure);
                status = status.max(failure.status());
                continue;
            }
        };
        context.print(Facts::of(&checkpoint, i == 0))?;
        status = status.max(context.broken(checkpoint.name(), checkpoint.entries()));
        if let Err(e) = checkpoint.whole() {
            context.failed(None, &e.into());
            status = Status::Trouble;
        }
    }
    Ok(status)
}

/// The summary of a file.
pub(crate) struct Facts<'a> {
    checkpoint: &'a Checkpoint,
    /// Whether this file is the first; a blank line precedes the others.
    is_first: bool,
    /// The dtypes with numbers of tensors: those of `DType::ALL` in order, then unsupported ones.
    dtypes: Vec<(&'a str, u64)>,
    tensors: u64,
    parameters: u64,
    bytes: u64,
    diffs: u64,
    none: u64,
    broken: u64,
    unread: u64,
    sparse: u64,
    largest: Option<&'a Entry>,
    /// The means of a mean image's channels, for the `transform_param` of a net.
    mean_values: Option<Vec<f64>>,
    /// The values that the file's own framework does not take as stored.
    ignored: Vec<Group>,
}

impl Text for Facts<'_> {
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let (checkpoint, terminal) = (self.checkpoint, &context.terminal);
        if !self.is_first {
            writeln!(out)?;
        }
        let kind = kind_of(checkpoint);
        let (name, kind) = (terminal.name(checkpoint.name()), terminal.text(&kind));
        let fits = terminal.width.is_none_or(|most| width(&name) + "   ".len() + width(&kind) <= most);
        writeln!(out, "{}{}{kind}", terminal.strong(&name), if fits { "   " } else { "\n  " })?;
        let mut line = |key: &str, value: String| fact(terminal, out, key, &value);
        for (key, value) in sizes(checkpoint) {
            line(key, value)?;
        }
        line("tensors", self.tensors_text())?;
        line("parameters", format!("{} in {}", units::grouped(self.parameters), units::bytes(self.bytes)))?;
        if let Some(layers) = layers(checkpoint, terminal) {
            line("layers", layers)?;
        }
        if let Some(largest) = self.largest {
            let share = 100.0 * largest.byte_len() as f64 / self.bytes as f64;
            line(
                "largest",
                format!(
                    "{}  {}  {} ({share:.1} %)",
                    short(terminal, largest.name()),
                    terminal.shape(largest.shape()),
                    units::bytes(largest.byte_len())
                ),
            )?;
        }
        for (i, mean) in self.mean_values.iter().flatten().enumerate() {
            line(if i == 0 { "mean" } else { "" }, format!("mean_value: {mean:.4}"))?;
        }
        for (key, value) in checkpoint.metadata().iter().take(MAX_SHOWN) {
            let (key, value) = match (receipt(key, value, terminal), value.as_str()) {
                (Some(source), _) => ("receipt", source),
                (None, "") => ("metadata", format!("{}: (empty)", short(terminal, key))),
                (None, value) => ("metadata", format!("{}: {}", short(terminal, key), short(terminal, value))),
            };
            line(key, value)?;
        }
        if let Some(momentum) = momentum(checkpoint) {
            line("note", terminal.text(&momentum).into_owned())?;
        }
        if checkpoint.whole().is_err() {
            line("warning", "the file breaks off behind these tensors".to_owned())?;
        }
        for warning in self.warnings().take(MAX_SHOWN) {
            line("warning", terminal.text(&warning).into_owned())?;
        }
        let more = self.warnings().skip(MAX_SHOWN).count() as u64;
        if more > 0 {
            line("", format!("and {} more", units::grouped(more)))?;
        }
        Ok(())
    }
}

impl<'a> Facts<'a> {
    fn of(checkpoint: &'a Checkpoint, is_first: bool) -> Self {
        let entries = checkpoint.entries();
        let count = |test: &dyn Fn(&Entry) -> bool| entries.iter().filter(|e| test(e)).count() as u64;
        let dtypes = DType::ALL
            .iter()
            .map(|d| (d.name(), count(&|e| e.dtype() == Some(*d))))
            .filter(|(_, n)| *n > 0)
            .chain(foreign_dtypes(entries));
        Self {
            checkpoint,
            is_first,
            dtypes: dtypes.collect(),
            tensors: entries.len() as u64,
            // Diffs and the indices of sparse arrays are not parameters.
            parameters: checkpoint.parameters(),
            bytes: entries.iter().map(Entry::byte_len).sum(),
            diffs: count(&|e| e.kind() == Kind::Diff),
            none: count(&|e| e.kind() == Kind::None),
            broken: count(&|e| e.fault().is_some() && e.unread().is_none()),
            unread: count(&|e| e.unread().is_some()),
            sparse: count(&|e| e.kind() == Kind::Values),
            largest: entries.iter().rev().max_by_key(|e| e.byte_len()).filter(|e| e.byte_len() > 0),
            mean_values: mean_values(checkpoint),
            ignored: ignored(checkpoint, None),
        }
    }

    /// The warnings about the file, the arrays, and values that do not count.
    fn warnings(&self) -> impl Iterator<Item = String> {
        self.ignored.iter().map(ToString::to_string).chain(file_warnings(self.checkpoint))
    }

    fn tensors_text(&self) -> String {
        let dtypes: Vec<String> = match &self.dtypes[..] {
            [(only, n)] if *n == self.tensors => vec![escape_message(only).into_owned()],
            several => several.iter().map(|(d, n)| format!("{} {}", units::grouped(*n), escape_message(d))).collect(),
        };
        let rest = [
            (self.diffs, "diffs"),
            (self.sparse, "sparse"),
            (self.none, "without an array"),
            (self.broken, "broken"),
            (self.unread, "not read"),
        ];
        let rest = rest.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("; {} {what}", units::grouped(*n)));
        let comma = if dtypes.is_empty() { "" } else { ", " };
        format!("{}{comma}{}{}", units::grouped(self.tensors), dtypes.join(", "), rest.collect::<String>())
    }
}

impl Document for Facts<'_> {
    const SCHEMA: &'static str = "blob.info/1";
    const COMMAND: &'static str = "blob info --json FILE...";
    const DESCRIPTION: &'static str = "what a file is, from its headers and the values of mean images and BatchNorms";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for Facts<'_> {
    fn fields() -> Vec<Field<Self>> {
        const GZIP: &str =
            "the length of a gzip file as it is stored; file_bytes and offsets are those of what it unpacks to";
        const MEMBER: &str =
            "the file of the archive that was opened, also the end of file; file_bytes and offsets are its";
        let errors = Type::Array(&Type::Object(properties::<Problem>));
        vec![
            field("file", Type::String, FILE, |f| json!(f.checkpoint.name())),
            nullable("member", Type::String, MEMBER, |f| json!(f.checkpoint.member())),
            field("format", Type::String, FORMAT, |f| json!(f.checkpoint.format().name())),
            field("dialect", Type::String, DIALECT, |f| json!(f.checkpoint.dialect())),
            field("file_bytes", Type::Integer, "the file's size", |f| json!(f.checkpoint.file_len())),
            nullable("gzip_bytes", Type::Integer, GZIP, |f| {
                json!(f.checkpoint.is_gzip().then(|| f.checkpoint.stored().len()))
            }),
            field("tensors", Type::Integer, "how many tensors it lists", |f| json!(f.tensors)),
            field("parameters", Type::Integer, "their values, without diffs and indices", |f| json!(f.parameters)),
            field("tensor_bytes", Type::Integer, "their bytes once loaded", |f| json!(f.bytes)),
            field("dtypes", Type::Map(&Type::Integer), "how many tensors of each dtype", |f| {
                f.dtypes.iter().map(|(dtype, n)| ((*dtype).to_owned(), json!(n))).collect()
            }),
            field("layers", Type::Integer, "layers or records, with tensors or without", |f| {
                json!(f.checkpoint.positions())
            }),
            field("diffs", Type::Integer, "tensors that are diffs", |f| json!(f.diffs)),
            field("sparse", Type::Integer, "sparse arrays", |f| json!(f.sparse)),
            field("none", Type::Integer, "places without an array", |f| json!(f.none)),
            field("broken", Type::Integer, "arrays that cannot be read", |f| json!(f.broken)),
            field("unread", Type::Integer, "sound arrays of a kind that is not read", |f| json!(f.unread)),
            nullable("largest", Type::Object(properties::<Largest<'_>>), "the largest tensor", |f| {
                f.largest.map_or(Value::Null, |entry| json::value(&Largest(entry)))
            }),
            nullable(
                "mean_values",
                Type::Array(&Type::Number),
                "of a mean image of Caffe's: the mean of each channel",
                |f| json!(f.mean_values),
            ),
            field(
                "metadata",
                Type::Map(&Type::String),
                "what the file says of itself beside tensors and receipt",
                |f| {
                    let others = f.checkpoint.metadata().iter().filter(|(key, _)| key != RECEIPT_KEY);
                    others.map(|(key, text)| (key.clone(), json!(text))).collect()
                },
            ),
            nullable("receipt", Type::Foreign, "the receipt of the conversion: docs/receipt.md", |f| {
                let mut metadata = f.checkpoint.metadata().iter();
                let receipt = metadata.find(|(key, _)| key == RECEIPT_KEY);
                let receipt = receipt.and_then(|(_, text)| serde_json::from_str(text).ok());
                receipt.filter(Value::is_object).unwrap_or(Value::Null)
            }),
            field("warnings", STRINGS, "what is odd, the first 20", |f| {
                f.warnings().take(MAX_IN_JSON).map(Value::String).collect()
            }),
            field("warning_count", Type::Integer, "how many there are", |f| json!(f.warnings().count())),
            field("errors", errors, "why arrays cannot be read, the first 20", |f| errors_of(f.checkpoint)),
            field("bytes_read", Type::Integer, "how much of it was read so far", |f| json!(bytes_read(f.checkpoint))),
        ]
    }
}

/// The largest tensor.
struct Largest<'a>(&'a Entry);

impl Fields for Largest<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, NAME, |l| json!(l.0.name())),
            nullable("dtype", Type::String, DTYPE, |l| json!(l.0.dtype().map(DType::name).or(l.0.foreign_dtype()))),
            field("shape", DIMS, "its shape", |l| json!(l.0.shape().dims())),
            field("bytes", Type::Integer, "its bytes", |l| json!(l.0.byte_len())),
        ]
    }
}

/// The unsupported dtypes with numbers of tensors. A hostile file can name a different one for each array, so
/// only the first few are listed and the rest are counted as "other".
fn foreign_dtypes(entries: &[Entry]) -> Vec<(&str, u64)> {
    let mut found: Vec<(&str, u64)> = Vec::new();
    let mut other = 0;
    for name in entries.iter().filter_map(Entry::foreign_dtype) {
        match found.iter().position(|(known, _)| *known == name) {
            Some(at) => found[at].1 += 1,
            None if found.len() < MAX_SHOWN => found.push((name, 1)),
            None => other += 1,
        }
    }
    found.extend((other > 0).then_some(("other", other)));
    found
}

/// The problems of the first broken arrays.
fn errors_of(checkpoint: &Checkpoint) -> Value {
    let faults = checkpoint.entries().iter().filter_map(|e| Some((e, e.fault()?)));
    let errors = faults.map(|(entry, fault)| json::value(&Problem::of_fault(checkpoint.name(), entry, fault)));
    errors.take(MAX_IN_JSON).collect()
}

/// The size of the file, and of the gzip file or archive around the file.
fn sizes(checkpoint: &Checkpoint) -> Vec<(&'static str, String)> {
    let len = checkpoint.file_len();
    let size = match len {
        0..1024 => units::plural(len, "byte"),
        _ => format!("{} ({})", units::bytes(len), units::plural(len, "byte")),
    };
    let mut all = vec![("size", size)];
    let stored = units::bytes(checkpoint.stored().len());
    if checkpoint.member().is_some() {
        let gzip = if checkpoint.is_gzip() { " (gzip)" } else { "" };
        all.push(("archive", format!("{stored} as stored{gzip}; the size and all offsets are those of the member")));
    } else if checkpoint.is_gzip() {
        let of = "the size and all offsets are those of what it unpacks to";
        all.push(("gzip", format!("{stored} as stored; {of}")));
    }
    all
}

/// How much of the file was read: headers that were read twice count once, as far as the file is long.
pub(crate) fn bytes_read(checkpoint: &Checkpoint) -> u64 {
    checkpoint.bytes_read().min(checkpoint.file_len())
}

/// The format and the dialect: `Caffe NetParameter, V2 layers`.
pub(crate) fn kind_of(checkpoint: &Checkpoint) -> String {
    let packed = match checkpoint.member() {
        Some(_) => "archive with ",
        None if checkpoint.is_gzip() => "gzip of ",
        None => "",
    };
    let title = format!("{packed}{}", checkpoint.format().title());
    match checkpoint.dialect() {
        "" => title,
        dialect => format!("{title}, {}", escape_message(dialect)),
    }
}

/// The warnings about the file and the arrays. An iterator, because a hostile file can have a million.
pub(crate) fn file_warnings(checkpoint: &Checkpoint) -> impl Iterator<Item = String> {
    checkpoint.warnings().iter().map(ToString::to_string).chain(array_warnings(checkpoint))
}

/// The warnings about the arrays.
pub(crate) fn array_warnings(checkpoint: &Checkpoint) -> impl Iterator<Item = String> {
    checkpoint.entries().iter().flat_map(|entry| {
        let name = entry.name();
        entry.warnings().map(move |w| format!("{name:?}: {w}"))
    })
}

/// `16 (4 with tensors: conv1 conv2 ip1 ip2)`, if the file has layers.
fn layers(checkpoint: &Checkpoint, terminal: &Terminal) -> Option<String> {
    let names = layer_names(checkpoint);
    let (all, with) = (checkpoint.positions() as u64, names.len() as u64);
    let (all, with) = (units::grouped(all), units::grouped(with));
    (!names.is_empty()).then(|| format!("{all} ({with} with tensors: {})", abridged(&names, terminal)))
}

/// The names of the layers that have tensors: the tensors' names before the last slash.
fn layer_names(checkpoint: &Checkpoint) -> Vec<&str> {
    let mut last = None;
    let mut names = Vec::new();
    for entry in checkpoint.entries() {
        if entry.layer_type().is_some() && last != Some(entry.position()) {
            last = Some(entry.position());
            let name = TensorName::of(entry.name()).layer().unwrap_or(entry.name());
            names.push(name);
        }
    }
    names
}

/// The first names, then the number of the others.
fn abridged(names: &[&str], terminal: &Terminal) -> String {
    let shown: Vec<_> = names.iter().take(MAX_SHOWN).map(|n| short(terminal, n)).collect();
    shown.join(" ") + &and_more(names.len() - shown.len())
}

/// A name or value, cut to a readable length; the JSON has the whole.
fn short(terminal: &Terminal, text: &str) -> String {
    const COLUMNS: usize = 120;
    cut(&terminal.name(text), COLUMNS, terminal.ascii).into_owned()
}

/// Prints a key and a value, wrapped and indented on a terminal.
fn fact(terminal: &Terminal, out: &mut dyn Write, key: &str, value: &str) -> std::io::Result<()> {
    const INDENT: usize = 14;
    let room = terminal.width.map_or(usize::MAX, |w| w.saturating_sub(INDENT).max(20));
    for (i, line) in wrap(value, room).iter().enumerate() {
        writeln!(out, "  {:<11} {line}", if i == 0 { key } else { "" })?;
    }
    Ok(())
}
