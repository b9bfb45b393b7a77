//! `blob show`: prints the values of tensors, as NumPy would, as CSV, or as JSON.

use std::io::Write;

use blob_convert::report::elements::{self, Elements, PIECE};
use blob_convert::report::json::{
    DIMS, Document, FILE, Field, Fields, Line, NAME, Type, field, nullable, properties, streamed,
};
use blob_convert::report::slice::{TensorRow, View};
use blob_core::Shape;
use blob_io::{Checkpoint, Entry};
use serde_json::{Value, json};

use crate::args::Show;
use crate::context::Context;
use crate::failure::{Failure, Problem, Status};
use crate::open::open;
use crate::output::{Out, Terminal, signals};
use crate::render::Render;
use crate::render::picture::Picture;
use crate::select::{select_some, too_many};

/// Of a tensor with more values than this, only the corners are shown: NumPy's `threshold`.
const THRESHOLD: usize = 1000;

/// The indices of the corners at each end of an axis: NumPy's `edgeitems`.
const EDGE: usize = 3;

pub(crate) fn run(args: &Show, context: &Context) -> Result<Status, Failure> {
    let checkpoint = open(&args.selection.file, &context.global)?;
    let selection = args.selection.selection();
    let places = select_some(&checkpoint, &selection)?;
    if args.csv && places.len() > 1 {
        return Err(too_many(&checkpoint, &selection, &places));
    }
    for (number, place) in places.iter().enumerate() {
        show(args, context, &checkpoint, &checkpoint.entries()[*place], number == 0)?;
    }
    Ok(Status::Yes)
}

/// Prints one tensor; a blank line comes before all but the first.
fn show(args: &Show, context: &Context, checkpoint: &Checkpoint, entry: &Entry, is_first: bool) -> Result<(), Failure> {
    // An array that is not read has no shape that a slice could fit.
    checkpoint.spec(entry)?;
    let view = match &args.slice {
        None => View::whole(entry.shape().dims()),
        Some(text) => View::parse(text, entry.shape().dims())
            .map_err(|e| Failure::new(format!("--slice {text:?} of {:?}, {}: {e}", entry.name(), entry.shape())))?,
    };
    if view.count().min(args.head.unwrap_or(usize::MAX)) == entry.shape().count() {
        // The checksum covers the whole tensor, and is verified only if all is shown.
        checkpoint.check(entry, &mut |_| Ok(()))?;
    }
    let elements = Elements::new(checkpoint, entry)?;
    let error = Value::Null;
    context.print(TensorValues { args, checkpoint, entry, elements, view: &view, is_first, error })
}

/// `conv1/0[0,:3]`: the tensor and the slice.
fn title(args: &Show, entry: &Entry, terminal: &Terminal) -> String {
    let slice = args.slice.as_deref();
    let slice = slice.map(|s| format!("[{}]", terminal.name(s)));
    format!("{}{}", terminal.name(entry.name()), slice.unwrap_or_default())
}

/// `3×3 of 20×1×3×3`: the shape of the values shown, and of the tensor if more than these.
fn heading(terminal: &Terminal, whole: &Shape, dims: &[usize]) -> String {
    match Shape::new(dims) {
        Ok(part) if part != *whole => {
            format!("{} of {}", terminal.shape(&part), terminal.shape(whole))
        }
        _ => terminal.shape(whole),
    }
}

/// A tensor and the view to print.
pub(crate) struct TensorValues<'a> {
    args: &'a Show,
    checkpoint: &'a Checkpoint,
    entry: &'a Entry,
    elements: Elements<'a>,
    view: &'a View,
    is_first: bool,
    /// The error that cut the values short, as JSON.
    error: Value,
}

impl Document for TensorValues<'_> {
    const SCHEMA: &'static str = "blob.show/1";
    const COMMAND: &'static str = "blob show --json FILE [PATTERN...]";
    const DESCRIPTION: &'static str = "the values of one tensor; a line for each that is chosen";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for TensorValues<'_> {
    fn fields() -> Vec<Field<Self>> {
        const VALUES: &str =
            "the values, as deep as the shape; NaN and Inf are strings. Cut short where `error` is set";
        vec![
            field("file", Type::String, FILE, |s| json!(s.checkpoint.name())),
            field("name", Type::String, NAME, |s| json!(s.entry.name())),
            field("dtype", Type::String, "the element type", |s| json!(s.elements.dtype().name())),
            field("stored_shape", DIMS, "the tensor's shape", |s| json!(s.entry.shape().dims())),
            nullable("slice", Type::String, "the slice that was asked for", |s| json!(s.args.slice)),
            field("shape", DIMS, "the shape of the values below", |s| json!(s.dims())),
            streamed("values", Type::Nested, VALUES),
            nullable("error", Type::Object(properties::<Problem>), "why the values end too early", |s| s.error.clone()),
        ]
    }
}

impl Render for TensorValues<'_> {
    /// Writes the values during the reading. After an error, open brackets are closed.
    fn json(mut self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        let dims = self.dims();
        let line = Line::begin(out, &self)?;
        // An empty tensor can have another axis of any length, so the nested brackets are not written.
        let done = if dims.contains(&0) {
            Ok(out.write_all(b"[]")?)
        } else {
            let mut rows = self.rows();
            self.nested(&mut *rows, &dims, out)
        };
        if done.is_err() && dims.is_empty() {
            out.write_all(b"null")?;
        }
        self.error = done.as_ref().err().map_or(Value::Null, Failure::as_json);
        line.advance(out, &self)?;
        done.map_err(Failure::in_json)
    }

    fn text(mut self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let (terminal, dims) = (&context.terminal, self.dims());
        if self.args.csv {
            let rows = self.rows();
            return self.elements.csv(rows, dims.len() > 1, |text, _| Ok(out.write_all(text.as_bytes())?));
        }
        let is_cut = self.args.head.is_none() && !self.args.full && self.view.count() > THRESHOLD;
        let dtype = self.elements.dtype();
        let (name, shape) = (title(self.args, self.entry, terminal), heading(terminal, self.entry.shape(), &dims));
        write!(out, "{}", if self.is_first { "" } else { "\n" })?;
        writeln!(out, "{}  {dtype}  {shape}", terminal.strong(name))?;
        let rows = if is_cut { Box::new(self.view.corners(EDGE).into_iter()) } else { self.rows() };
        let mut bytes = Vec::new();
        for row in rows {
            self.elements.fetch(row, &mut bytes)?;
        }
        let (edge, precision) = (is_cut.then_some(EDGE), usize::from(self.args.precision));
        let picture = Picture::new(dtype, &bytes, &dims, edge, precision);
        Ok(picture.fitted(terminal.width).print(out)?)
    }
}

impl<'a> TensorValues<'a> {
    fn dims(&self) -> Vec<usize> {
        match self.args.head {
            None => self.view.dims.clone(),
            Some(n) => vec![n.min(self.view.count())],
        }
    }

    fn rows(&self) -> Box<dyn Iterator<Item = TensorRow> + 'a> {
        match self.args.head {
            None => Box::new(self.view.rows()),
            Some(n) => Box::new(self.view.head(n)),
        }
    }

    /// Writes the values as nested arrays.
    fn nested(
        &mut self,
        rows: &mut dyn Iterator<Item = TensorRow>,
        dims: &[usize],
        out: &mut Out,
    ) -> Result<(), Failure> {
        let Some((extent, inner)) = dims.split_first() else {
            return self.values(rows, 1, out);
        };
        out.write_all(b"[")?;
        let done = if inner.is_empty() {
            self.values(rows, *extent, out)
        } else {
            (0..*extent).try_for_each(|i| {
                out.write_all(if i > 0 { b"," } else { b"" })?;
                self.nested(rows, inner, out)
            })
        };
        // The bracket is closed even if a value could not be read.
        out.write_all(b"]")?;
        done
    }

    /// Writes the next `n` values, separated by commas: one row, or several rows with --head.
    fn values(&mut self, rows: &mut dyn Iterator<Item = TensorRow>, n: usize, out: &mut Out) -> Result<(), Failure> {
        let (mut bytes, mut text, mut done) = (Vec::new(), String::new(), 0);
        let size = self.elements.dtype().size();
        while done < n {
            let Some(row) = rows.next() else { break };
            for (part, _) in row.parts(PIECE) {
                signals::check()?;
                bytes.clear();
                text.clear();
                self.elements.fetch(part, &mut bytes)?;
                for element in bytes.chunks_exact(size) {
                    if done > 0 {
                        text.push(',');
                    }
                    elements::Value::read(self.elements.dtype(), element).write(&mut text, "\"");
                    done += 1;
                }
                out.write_all(text.as_bytes())?;
            }
        }
        Ok(())
    }
}
