//! `blob show`: the values of one tensor, for people, as CSV, or as JSON.

use std::io::Write;

use blob_core::Shape;
use blob_io::Entry;

use crate::Context;
use crate::args::Show;
use crate::elements::{Elements, Value, csv_line};
use crate::failure::{Failure, Status};
use crate::open::open;
use crate::output::{Out, Terminal};
use crate::render::json::{self, Object};
use crate::render::picture::Picture;
use crate::select::select_one;
use crate::slice::{Row, View};

/// More values than this are shown by their corners, as NumPy's `threshold`.
const THRESHOLD: usize = 1000;

/// How many from each end of an axis then, as NumPy's `edgeitems`.
const EDGE: usize = 3;

/// Elements fetched at once for CSV and JSON.
const PIECE: usize = 64 << 10;

pub(crate) fn run(args: &Show, context: &Context) -> Result<Status, Failure> {
    let checkpoint = open(&args.file, &context.global)?;
    let entry = select_one(&checkpoint, args.tensor.as_deref())?;
    if args.slice.is_none() && args.head.is_none() {
        // Of a part nothing is claimed; the whole is shown only where it is what its checksum says.
        checkpoint.check(entry, &mut |_| Ok(()))?;
    }
    let elements = Elements::new(&checkpoint, entry)?;
    let view = match &args.slice {
        None => View::whole(entry.shape().dims()),
        Some(text) => View::parse(text, entry.shape().dims())
            .map_err(|e| Failure::new(format!("--slice {text:?} of {:?}, {}: {e}", entry.name(), entry.shape())))?,
    };
    let mut shower = Shower { elements, out: context.terminal.out() };
    let rows: Box<dyn Iterator<Item = Row>> = match args.head {
        None => Box::new(view.rows()),
        Some(n) => Box::new(view.head(n)),
    };
    let dims = match args.head {
        None => view.dims.clone(),
        Some(n) => vec![n.min(view.count())],
    };
    if args.csv {
        shower.csv(rows, dims.len() > 1)?;
    } else if context.global.json {
        let head = Object::of("blob.show/1")
            .with("file", checkpoint.name())
            .with("name", entry.name())
            .with("dtype", shower.elements.dtype().name())
            .with("stored_shape", entry.shape().dims())
            .with("slice", args.slice.clone())
            .with("shape", dims.clone());
        shower.json(&head, rows, &dims)?;
    } else {
        let is_cut = args.head.is_none() && !args.full && view.count() > THRESHOLD;
        let edge = is_cut.then_some(EDGE);
        let terminal = &context.terminal;
        let dtype = shower.elements.dtype();
        let (name, shape) = (title(args, entry, terminal), heading(terminal, entry.shape(), &dims));
        writeln!(shower.out, "{}  {dtype}  {shape}", terminal.strong(name))?;
        let rows: Box<dyn Iterator<Item = Row>> = if is_cut { Box::new(view.corners(EDGE).into_iter()) } else { rows };
        shower.text(rows, &dims, edge, usize::from(args.precision), terminal.width)?;
    }
    shower.out.flush()?;
    Ok(Status::Yes)
}

/// `conv1/0[0,:3]`: the tensor and what of it was asked for.
fn title(args: &Show, entry: &Entry, terminal: &Terminal) -> String {
    let slice = args.slice.as_deref();
    let slice = slice.map(|s| format!("[{}]", terminal.name(s)));
    format!("{}{}", terminal.name(entry.name()), slice.unwrap_or_default())
}

/// The shape of what is shown, and of what it is a part.
fn heading(terminal: &Terminal, whole: &Shape, dims: &[usize]) -> String {
    match Shape::new(dims) {
        Ok(part) if part != *whole => {
            format!("{} of {}", terminal.shape(&part), terminal.shape(whole))
        }
        _ => terminal.shape(whole),
    }
}

/// Where the values come from and go to.
struct Shower<'a> {
    elements: Elements<'a>,
    out: Out,
}

impl Shower<'_> {
    fn csv(&mut self, rows: impl Iterator<Item = Row>, is_table: bool) -> Result<(), Failure> {
        let (mut bytes, mut text) = (Vec::new(), String::new());
        for row in rows {
            for (part, is_last) in row.parts(PIECE) {
                bytes.clear();
                text.clear();
                self.elements.fetch(part, &mut bytes)?;
                csv_line(self.elements.dtype(), &bytes, is_table, &mut text);
                if is_table && !is_last {
                    text.pop();
                    text.push(',');
                }
                self.out.write_all(text.as_bytes())?;
            }
        }
        Ok(())
    }

    /// An object whose last field, the values, is written while it is read.
    fn json(&mut self, head: &Object, mut rows: impl Iterator<Item = Row>, dims: &[usize]) -> Result<(), Failure> {
        json::open(&mut self.out, head)?;
        self.out.write_all(b",\"values\":")?;
        // A shape of no elements can have axes of any length beside the empty one: they are not spelled out.
        let done = match dims.contains(&0) {
            true => Ok(self.out.write_all(b"[]")?),
            false => self.nested(&mut rows, dims),
        };
        if done.is_err() && dims.is_empty() {
            self.out.write_all(b"null")?;
        }
        let error = done.as_ref().err().map(|e| json::error(&e.as_problem()));
        json::close(&mut self.out, &Object::new().with("error", error))?;
        self.out.flush()?;
        done.map_err(Failure::told)
    }

    fn nested(&mut self, rows: &mut dyn Iterator<Item = Row>, dims: &[usize]) -> Result<(), Failure> {
        let Some((extent, inner)) = dims.split_first() else {
            return self.values(rows, 1);
        };
        self.out.write_all(b"[")?;
        let done = match inner.is_empty() {
            true => self.values(rows, *extent),
            false => (0..*extent).try_for_each(|i| {
                self.out.write_all(if i > 0 { b"," } else { b"" })?;
                self.nested(rows, inner)
            }),
        };
        // Also where a value could not be read: what is open gets closed.
        self.out.write_all(b"]")?;
        done
    }

    /// The next `n` values with commas between them: one row, or several where only the first values are shown.
    fn values(&mut self, rows: &mut dyn Iterator<Item = Row>, n: usize) -> Result<(), Failure> {
        let (mut bytes, mut text, mut done) = (Vec::new(), String::new(), 0);
        let size = self.elements.dtype().size();
        while done < n {
            let Some(row) = rows.next() else { break };
            for (part, _) in row.parts(PIECE) {
                bytes.clear();
                text.clear();
                self.elements.fetch(part, &mut bytes)?;
                for element in bytes.chunks_exact(size) {
                    if done > 0 {
                        text.push(',');
                    }
                    Value::read(self.elements.dtype(), element).write(&mut text, "\"");
                    done += 1;
                }
                self.out.write_all(text.as_bytes())?;
            }
        }
        Ok(())
    }

    fn text(
        &mut self,
        rows: impl Iterator<Item = Row>,
        dims: &[usize],
        edge: Option<usize>,
        precision: usize,
        width: Option<usize>,
    ) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        for row in rows {
            self.elements.fetch(row, &mut bytes)?;
        }
        let picture = Picture::new(self.elements.dtype(), &bytes, dims, edge, precision);
        Ok(picture.within(width).print(&mut self.out)?)
    }
}
