//! `blob info`: prints a summary of a file, from headers and few values: the means of a mean image's channels, and
//! values that BatchNorms ignore.

mod receipt;

use std::io::Write;

use blob_convert::momentum;
pub(crate) use blob_convert::report::facts::{Facts, bytes_read, file_warnings};
use blob_convert::report::json;
use blob_io::words::{and_more, more_line};
use blob_io::{Checkpoint, TensorName};

use crate::args::Info;
use crate::context::Context;
use crate::escape::escape_message;
use crate::failure::{Failure, Status};
use crate::open::{name, only, open_to_list};
use crate::output::width::{cut, width, wrap};
use crate::output::{Out, Terminal, signals};
use crate::render::Render;
use crate::units;
use receipt::receipt;

/// At most this many names, warnings or metadata are printed; the others are counted.
const MAX_SHOWN: usize = 12;

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
        context.print(Summary { facts: Facts::of(&checkpoint), is_first: i == 0 })?;
        status = status.max(context.broken(checkpoint.name(), checkpoint.entries()));
        if let Err(e) = checkpoint.check_whole() {
            context.failed(None, &e.into());
            status = Status::Trouble;
        }
    }
    Ok(status)
}

/// The summary of a file, as printed.
struct Summary<'a> {
    facts: Facts<'a>,
    /// Whether this file is the first; a blank line precedes the others.
    is_first: bool,
}

impl Render for Summary<'_> {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        Ok(json::line(out, &self.facts)?)
    }

    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let (checkpoint, terminal) = (self.facts.checkpoint, &context.terminal);
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
        line("parameters", format!("{} in {}", units::grouped(self.facts.parameters), units::bytes(self.facts.bytes)))?;
        if let Some(layers) = layers(checkpoint, terminal) {
            line("layers", layers)?;
        }
        if let Some(largest) = self.facts.largest {
            let share = 100.0 * largest.byte_len() as f64 / self.facts.bytes as f64;
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
        for (i, mean) in self.facts.mean_values.iter().flatten().enumerate() {
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
        if checkpoint.check_whole().is_err() {
            line("warning", "the file breaks off behind these tensors".to_owned())?;
        }
        for warning in self.facts.warnings().take(MAX_SHOWN) {
            line("warning", terminal.text(&warning).into_owned())?;
        }
        let more = self.facts.warnings().skip(MAX_SHOWN).count() as u64;
        Ok(more_line(more).map_or(Ok(()), |more| line("", more))?)
    }
}

impl Summary<'_> {
    fn tensors_text(&self) -> String {
        let dtypes: Vec<String> = match &self.facts.dtypes[..] {
            [(only, n)] if *n == self.facts.tensors => vec![escape_message(only).into_owned()],
            several => several.iter().map(|(d, n)| format!("{} {}", units::grouped(*n), escape_message(d))).collect(),
        };
        let rest = [
            (self.facts.diffs, "diffs"),
            (self.facts.sparse, "sparse"),
            (self.facts.none, "without an array"),
            (self.facts.broken, "broken"),
            (self.facts.unread, "not read"),
        ];
        let rest = rest.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("; {} {what}", units::grouped(*n)));
        let comma = if dtypes.is_empty() { "" } else { ", " };
        format!("{}{comma}{}{}", units::grouped(self.facts.tensors), dtypes.join(", "), rest.collect::<String>())
    }
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
