//! `blob extract`: one tensor to a file of its own, or to standard output.

use std::io::Write;
use std::path::Path;

use blob_convert::Watch;
use blob_io::{Checkpoint, Entry, Error, Layout, Output};

use crate::args::{Extract, ExtractFormat, if_exists};
use crate::context::Context;
use crate::convert::no_format;
use crate::elements::{Elements, csv_line};
use crate::escape::escape;
use crate::failure::{Failure, Status};
use crate::open::open;
use crate::output::progress::Progress;
use crate::render::json::{self, Object};
use crate::select::select_one;
use crate::slice::View;
use crate::source;

/// What goes to the output at once.
const PIECE: usize = 1 << 20;

pub(crate) fn run(args: &Extract, context: &Context) -> Result<Status, Failure> {
    let format = format_of(args)?;
    let is_stdout = args.output == Path::new("-");
    if context.global.json && is_stdout {
        return Err(Failure::new("--json and -o - would both write to standard output"));
    }
    source::keep(&args.file, &args.output, if_exists(args.force))?;
    let checkpoint = open(&args.file, &context.global)?;
    let entry = select_one(&checkpoint, args.tensor.as_deref())?;
    let progress = Progress::begin(&context.terminal, entry.byte_len());
    // A broken or empty entry is told before the output is touched.
    let elements = match format {
        ExtractFormat::Csv => {
            // Its elements are read one by one, past the checksum.
            checkpoint.check(entry, &mut |_| if progress.cancelled() { Err(Error::Interrupted) } else { Ok(()) })?;
            Some(Elements::new(&checkpoint, entry)?)
        }
        _ => None,
    };
    let header = match format {
        ExtractFormat::Npy => npy_header(&checkpoint, entry)?,
        _ => Vec::new(),
    };
    let mut output = match is_stdout {
        true => Output::stdout(),
        false => Output::create(&args.output, if_exists(args.force))?,
    };
    output.write_all(&header)?;
    match elements {
        Some(elements) => csv(elements, entry, &mut output, &progress)?,
        None => raw(&checkpoint, entry, &mut output, &progress)?,
    }
    output.finish()?;
    if context.global.json {
        let mut out = context.terminal.out();
        json::line(&mut out, &facts(args, format, &checkpoint, entry))?;
        out.flush()?;
    } else if !is_stdout {
        let (mark, arrow) = context.terminal.marks();
        context.terminal.note(format!(
            "{mark} {}  {} {arrow} {}",
            escape(entry.name()),
            context.terminal.shape(entry.shape()),
            escape(&args.output.to_string_lossy())
        ));
    }
    Ok(Status::Yes)
}

/// `blob.extract/1`.
fn facts(args: &Extract, format: ExtractFormat, checkpoint: &Checkpoint, entry: &Entry) -> Object {
    Object::of("blob.extract/1")
        .with("file", checkpoint.name())
        .with("output", args.output.to_string_lossy())
        .with(
            "to",
            match format {
                ExtractFormat::Npy => "npy",
                ExtractFormat::Raw => "raw",
                ExtractFormat::Csv => "csv",
            },
        )
        .with("name", entry.name())
        .with("dtype", entry.dtype().map(|d| d.name()))
        .with("shape", entry.shape().dims())
        .with("bytes", entry.byte_len())
}

fn format_of(args: &Extract) -> Result<ExtractFormat, Failure> {
    let name = args.output.to_string_lossy();
    if name.ends_with(std::path::is_separator) || args.output.is_dir() {
        let failure = Failure::new(format!("{name}: extract writes one file, and this is a folder"));
        return Err(failure.help("name a file in it; `blob convert` writes a folder of all tensors"));
    }
    if let Some(format) = args.to {
        return Ok(format);
    }
    if args.output == Path::new("-") {
        return Ok(ExtractFormat::Npy);
    }
    let extension = args.output.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("npy") => Ok(ExtractFormat::Npy),
        Some("raw" | "bin") => Ok(ExtractFormat::Raw),
        Some("csv") => Ok(ExtractFormat::Csv),
        _ => Err(Failure::new(no_format(&args.output)).help("name a format with --to: npy, raw or csv")),
    }
}

fn npy_header(checkpoint: &Checkpoint, entry: &Entry) -> Result<Vec<u8>, Error> {
    let spec = checkpoint.array(entry)?;
    let frame = Layout::npy(&spec)?.frame(&[], &[])?;
    Ok(frame.into_iter().flat_map(|(_, bytes)| bytes).collect())
}

fn raw(checkpoint: &Checkpoint, entry: &Entry, output: &mut Output, watch: &dyn Watch) -> Result<(), Error> {
    checkpoint.stream(entry, PIECE, &mut |bytes| {
        watch.step(bytes.len() as u64)?;
        output.write_all(bytes)
    })
}

fn csv(mut elements: Elements<'_>, entry: &Entry, output: &mut Output, watch: &dyn Watch) -> Result<(), Error> {
    let view = View::whole(entry.shape().dims());
    let (mut bytes, mut text) = (Vec::new(), String::new());
    for row in view.rows() {
        for (part, is_last) in row.parts(PIECE / elements.dtype().size()) {
            bytes.clear();
            elements.fetch(part, &mut bytes)?;
            watch.step(bytes.len() as u64)?;
            csv_line(elements.dtype(), &bytes, view.dims.len() > 1, &mut text);
            if view.dims.len() > 1 && !is_last {
                text.pop();
                text.push(',');
            }
            if text.len() >= PIECE {
                output.write_all(text.as_bytes())?;
                text.clear();
            }
        }
    }
    output.write_all(text.as_bytes())
}
