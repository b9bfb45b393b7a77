//! `blob extract`: writes one tensor to a file or to standard output, or several to files of a folder.

use std::path::{Path, PathBuf};

use blob_convert::change::{Effect, Group, refuse_losses};
use blob_convert::report::elements::Elements;
use blob_convert::report::json::{DIMS, Document, FILE, Field, Fields, NAME, Type, field, nullable};
use blob_convert::report::slice::View;
use blob_convert::{Alone, Folders, Selection, Together, Watch, Watched, alone};
use blob_core::DType;
use blob_io::layout::{Frame, Layout, file_names};
use blob_io::{Checkpoint, Complete, Entry, Error, Format, Nets, Output};
use serde_json::json;

use crate::args::{Extract, ExtractFormat, Writing};
use crate::context::Context;
use crate::convert::{changes_field, listed_changes, notices, warn_of_changes};
use crate::failure::{Failure, Status};
use crate::open::open;
use crate::output::Out;
use crate::output::format::no_format;
use crate::output::progress::Progress;
use crate::output::sink::{Content, Sink, check_stdout, is_stdout};
use crate::output::written::{Begun, Writes, Written, written_fields};
use crate::render::Text;
use crate::select::{select_some, too_many};

/// The bytes of one write.
const PIECE: usize = 1 << 20;

pub(crate) fn run(args: &Extract, context: &Context) -> Result<Status, Failure> {
    let format = format_of(args)?;
    check_stdout(&args.output, format.content(), args.writing.dry_run, &context.global)?;
    let checkpoint = open(&args.file, &context.global)?;
    blob_convert::check_source(&checkpoint, &args.output, args.writing.if_exists())?;
    let selection = args.filter.of(&args.tensors);
    let places = select_some(&checkpoint, &selection)?;
    let outputs = outputs(args, format, &checkpoint, &selection, &places)?;
    let tensors = alone(&checkpoint, &places, (format == ExtractFormat::Npy).then_some(Format::Npy))?;
    let changes = Alone::changes(&checkpoint, &tensors);
    if args.writing.strict {
        refuse_losses(checkpoint.name(), &changes)?;
    }
    warn_of_changes(&changes, context);
    let entries = places.iter().map(|place| &checkpoint.entries()[*place]);
    let progress = Progress::begin(&context.terminal, entries.clone().map(Entry::byte_len).sum());
    let is_in_folder = is_folder(&args.output) && !args.writing.dry_run;
    let folders = Folders::of(outputs.iter().map(|output| &**output).filter(|_| is_in_folder))?;
    let mut together = Together::of(outputs.iter().map(|output| &**output))?;
    let mut extracted = Vec::new();
    for ((entry, output), tensor) in entries.zip(&outputs).zip(&tensors) {
        let begun = Begun::now(args.writing.dry_run);
        let (complete, bytes_out) = extract(args, format, &checkpoint, entry, output, &progress)?;
        complete.into_iter().try_for_each(|complete| together.add(output, complete))?;
        let written = Written::new(output, format.name(), bytes_out, begun).tensors(1);
        let changes = Alone::changes(&checkpoint, [tensor]);
        extracted.push(Extracted { written, checkpoint: &checkpoint, entry, changes });
    }
    checkpoint.unchanged()?;
    together.publish()?;
    folders.keep();
    progress.end();
    extracted.into_iter().try_for_each(|one| context.print(one))?;
    notices(&changes, context);
    Ok(Status::Yes)
}

/// The file of each tensor; those of a folder have the tensors' names.
fn outputs(
    args: &Extract,
    format: ExtractFormat,
    checkpoint: &Checkpoint,
    selection: &Selection,
    places: &[usize],
) -> Result<Vec<PathBuf>, Failure> {
    if !is_folder(&args.output) {
        return match places {
            [_] => Ok(vec![args.output.clone()]),
            _ => Err(too_many(checkpoint, selection, places).help("-o DIR/ writes a file for each of them")),
        };
    }
    let names: Vec<&str> = places.iter().map(|place| checkpoint.entries()[*place].name()).collect();
    let file = |name: &String| args.output.join(format!("{name}.{}", format.name()));
    let files: Vec<PathBuf> = file_names(&names).iter().map(file).collect();
    // Of several files none is written where one is there already.
    for file in files.iter().filter(|file| file.exists()) {
        Output::check(file, args.writing.if_exists())?;
    }
    Ok(files)
}

/// Writes one tensor to a file, which gets its name later, or to standard output; returns the output's length.
fn extract(
    args: &Extract,
    format: ExtractFormat,
    checkpoint: &Checkpoint,
    entry: &Entry,
    path: &Path,
    progress: &Progress,
) -> Result<(Option<Complete>, u64), Failure> {
    // A broken or empty entry is an error before the output is created.
    let elements = match format {
        ExtractFormat::Csv => {
            // Reading single elements does not verify the checksum.
            checkpoint.check(entry, &mut |_| progress.step(0))?;
            Some(Elements::new(checkpoint, entry)?)
        }
        _ => None,
    };
    let layout = match format {
        ExtractFormat::Npy => Some(Layout::new(&[checkpoint.spec(entry)?], Frame::Npy)?),
        _ => None,
    };
    // With -n the folder is not made either.
    let Writing { force, dry_run, .. } = args.writing;
    let is_counted = dry_run && is_folder(&args.output);
    let mut output = if is_counted { Sink::counting() } else { Sink::begin(path, force, dry_run)? };
    let bytes =
        |put: &mut dyn FnMut(&[u8]) -> Result<(), Error>| Watched::open(checkpoint, entry, progress)?.each(PIECE, put);
    match (elements, layout) {
        (Some(mut elements), _) => {
            let view = View::whole(entry.shape().dims());
            elements.csv(view.rows(), view.dims.len() > 1, |text, bytes| {
                progress.step(bytes)?;
                output.write_all(text.as_bytes())
            })?;
        }
        (None, Some(layout)) => {
            let frame = layout.frame(&[], &[])?;
            layout.in_order(frame, |bytes| output.write_all(bytes), |_, put| bytes(put), |_, _| Ok(()))?;
        }
        (None, None) => bytes(&mut |bytes| output.write_all(bytes))?,
    }
    Ok(output.complete()?)
}

/// The result of the command.
pub(crate) struct Extracted<'a> {
    written: Written<'a>,
    checkpoint: &'a Checkpoint,
    entry: &'a Entry,
    changes: Vec<Group>,
}

impl Extracted<'_> {
    /// The dtype that a reader of the output finds.
    fn stored(&self) -> Option<DType> {
        let stored = self.changes.iter().find_map(|group| match group.change.effect {
            Effect::BitsStored { stored, .. } => Some(stored),
            _ => None,
        });
        stored.or(self.entry.dtype())
    }
}

impl Writes for Extracted<'_> {
    fn written(&self) -> &Written<'_> {
        &self.written
    }
}

impl Document for Extracted<'_> {
    const SCHEMA: &'static str = "blob.extract/1";
    const COMMAND: &'static str = "blob extract --json FILE [TENSOR...] -o OUT";
    const DESCRIPTION: &'static str = "which tensor was written; a line for each";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for Extracted<'_> {
    fn fields() -> Vec<Field<Self>> {
        let own = vec![
            field("file", Type::String, FILE, |e: &Self| json!(e.checkpoint.name())),
            field("name", Type::String, NAME, |e| json!(e.entry.name())),
            field("dtype", Type::String, "the element type", |e| json!(e.entry.dtype().map(DType::name))),
            nullable("stored", Type::String, "the element type in the output: u16 for bits of bf16 in npy", |e| {
                json!(e.stored().map(DType::name))
            }),
            field("shape", DIMS, "its shape", |e| json!(e.entry.shape().dims())),
            field("bytes", Type::Integer, "its bytes, without a header", |e| json!(e.entry.byte_len())),
            changes_field(|e| listed_changes(&e.changes)),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}

impl Text for Extracted<'_> {
    fn text(self, context: &Context, _: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        let name = terminal.name(self.entry.name());
        terminal.written(&self.written, &[format!("{name}  {}", terminal.shape(self.entry.shape()))]);
        Ok(())
    }
}

impl ExtractFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Raw => "raw",
            Self::Csv => "csv",
        }
    }

    fn content(self) -> Content {
        match self {
            Self::Csv => Content::Text,
            Self::Npy | Self::Raw => Content::Binary,
        }
    }
}

/// Whether the output is a folder of files.
fn is_folder(output: &Path) -> bool {
    output.to_string_lossy().ends_with(std::path::is_separator) || output.is_dir()
}

fn format_of(args: &Extract) -> Result<ExtractFormat, Failure> {
    if let Some(format) = args.to {
        return Ok(format);
    }
    if is_stdout(&args.output) || is_folder(&args.output) {
        return Ok(ExtractFormat::Npy);
    }
    let extension = args.output.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("npy") => Ok(ExtractFormat::Npy),
        Some("raw" | "bin") => Ok(ExtractFormat::Raw),
        Some("csv") => Ok(ExtractFormat::Csv),
        _ => match Format::of_path(&args.output) {
            Some(format) => {
                let output = args.output.display();
                let failure = Failure::new(format!("{output}: `blob extract` writes a tensor alone: npy, raw, csv"));
                Err(failure.help(match format.holds().net {
                    // A model is made of the whole net.
                    Nets::Graph => format!("blob convert FILE --net deploy.prototxt -o {output}"),
                    _ => format!("blob convert FILE --only TENSOR -o {output}"),
                }))
            }
            None => Err(no_format(&args.output, &["npy", "raw", "csv"])),
        },
    }
}
