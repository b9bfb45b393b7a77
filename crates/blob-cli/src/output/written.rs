//! The output of a writing command: one line for people, and the same fields in the JSON of every such command.
//!
//! `✔ net.npz: npz, 4 tensors, 1.64 KiB → 3.93 KiB, in 12.4 ms; 2 BatchNorms folded`

use std::path::Path;
use std::time::{Duration, Instant};

use blob_convert::report::json::{Field, Type, field, nullable, optional};
use serde_json::json;

use super::Terminal;
use super::sink::is_stdout;
use crate::units;

/// The output of a command, or with -n the output that would be written.
#[derive(Clone, Debug)]
pub(crate) struct Written<'a> {
    /// The output as the user named it: a file, a folder, a pattern of names, or `-`; `None` in a dry run without one.
    pub(crate) output: Option<&'a Path>,
    /// The file that opens the output, if `output` itself does not: the index of shards.
    pub(crate) index: Option<&'a Path>,
    /// The format's short name.
    pub(crate) to: &'static str,
    /// The number of tensors; `None` for output that is not about tensors.
    pub(crate) tensors: Option<u64>,
    /// The number of files that the output consists of.
    pub(crate) files: u64,
    /// The size of the input, for a command that takes a whole file.
    pub(crate) bytes_in: Option<u64>,
    /// The size of the output.
    pub(crate) bytes_out: u64,
    /// How long the command took; `None` in a dry run.
    pub(crate) took: Option<Duration>,
    /// Whether something of the input could not be read, which was reported.
    pub(crate) lacks: bool,
}

impl<'a> Written<'a> {
    /// One file of this format. `start` is when the command began.
    pub(crate) fn new(output: &'a Path, to: &'static str, bytes_out: u64, begun: Begun) -> Self {
        let took = begun.took();
        Self {
            output: Some(output),
            index: None,
            to,
            tensors: None,
            files: 1,
            bytes_in: None,
            bytes_out,
            took,
            lacks: false,
        }
    }

    pub(crate) fn tensors(mut self, count: usize) -> Self {
        self.tensors = Some(count as u64);
        self
    }

    pub(crate) fn of_bytes(mut self, bytes_in: u64) -> Self {
        self.bytes_in = Some(bytes_in);
        self
    }

    /// The line for people; `details` follow.
    fn line(&self, terminal: &Terminal, details: &[String]) -> String {
        let (mark, arrow) = terminal.marks();
        let lead = match (self.took, self.lacks) {
            (None, _) => "would write",
            (Some(_), true) => "wrote",
            (Some(_), false) => mark,
        };
        let output = match self.index.or(self.output) {
            Some(path) if is_stdout(path) => " standard output:".to_owned(),
            Some(path) => format!(" {}:", terminal.name(&path.to_string_lossy())),
            None => ":".to_owned(),
        };
        let count = match (self.tensors, self.files) {
            (Some(tensors), 1) => units::plural(tensors, "tensor"),
            (Some(tensors), files) => {
                format!("{} in {}", units::plural(tensors, "tensor"), units::plural(files, "file"))
            }
            (None, files) => units::plural(files, "file"),
        };
        let size = units::bytes(self.bytes_out);
        let sizes = self.bytes_in.map_or(size.clone(), |bytes| format!("{} {arrow} {size}", units::bytes(bytes)));
        let took = self.took.map(|took| format!(", in {}", units::seconds(took.as_secs_f64()))).unwrap_or_default();
        let details: String = details.iter().map(|detail| format!("; {detail}")).collect();
        format!("{lead}{output} {}, {count}, {sizes}{took}{details}", self.to)
    }
}

impl Terminal {
    /// Reports a command's output on standard error.
    pub(crate) fn written(&self, written: &Written<'_>, details: &[String]) {
        self.note(written.line(self, details));
    }
}

/// When a writing command began, and whether anything is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    at: Instant,
    is_dry: bool,
}

impl Begun {
    pub(crate) fn now(dry_run: bool) -> Self {
        Self { at: Instant::now(), is_dry: dry_run }
    }

    /// How long it took; `None` in a dry run.
    pub(crate) fn took(self) -> Option<Duration> {
        (!self.is_dry).then(|| self.at.elapsed())
    }
}

/// The result of a command that writes.
pub(crate) trait Writes {
    fn written(&self) -> &Written<'_>;
}

/// The fields that the JSON of every writing command has.
pub(crate) fn written_fields<T: Writes>() -> Vec<Field<T>> {
    vec![
        nullable("output", Type::String, "the path that was named with -o", |w: &T| {
            json!(w.written().output.map(Path::to_string_lossy))
        }),
        field("to", Type::String, "the format that was written", |w| json!(w.written().to)),
        field("dry_run", Type::Boolean, "whether nothing was written", |w| json!(w.written().took.is_none())),
        field("tensors", Type::Integer, "how many tensors", |w| json!(w.written().tensors.unwrap_or_default())),
        nullable("bytes_in", Type::Integer, "the size of the input, where all of it is taken", |w| {
            json!(w.written().bytes_in)
        }),
        field("bytes_out", Type::Integer, "the size of the output", |w| json!(w.written().bytes_out)),
        optional("seconds", Type::Number, "how long it took; not in a dry run", |w| {
            json!(w.written().took.map(|took| took.as_secs_f64()))
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Global;

    #[test]
    fn the_line_names_the_output_its_kind_and_sizes() {
        let terminal = Terminal::new(&Global { ascii: true, ..Global::default() });
        let took = Some(Duration::from_millis(20));
        let base = Written { took, ..Written::new(Path::new("a\n.npz"), "npz", 2048, Begun::now(true)) };
        let index = Some(Path::new("a.index.json"));
        for (written, details, line) in [
            (base.clone().tensors(1), &[][..], r"ok a\n.npz: npz, 1 tensor, 2.00 KiB, in 20.0 ms"),
            (
                base.clone().tensors(4).of_bytes(7),
                &["x"],
                r"ok a\n.npz: npz, 4 tensors, 7 B -> 2.00 KiB, in 20.0 ms; x",
            ),
            (
                Written { index, files: 3, ..base.clone().tensors(4) },
                &[],
                "ok a.index.json: npz, 4 tensors in 3 files, 2.00 KiB, in 20.0 ms",
            ),
            (Written { lacks: true, ..base.clone() }, &[], r"wrote a\n.npz: npz, 1 file, 2.00 KiB, in 20.0 ms"),
            (Written { took: None, files: 2, ..base.clone() }, &[], r"would write a\n.npz: npz, 2 files, 2.00 KiB"),
            (Written { output: None, took: None, ..base.clone() }, &[], "would write: npz, 1 file, 2.00 KiB"),
            (
                Written { output: Some(Path::new("-")), ..base },
                &[],
                "ok standard output: npz, 1 file, 2.00 KiB, in 20.0 ms",
            ),
        ] {
            let details: Vec<String> = details.iter().map(|detail: &&str| (*detail).to_owned()).collect();
            assert_eq!(written.line(&terminal, &details), line);
        }
    }
}
