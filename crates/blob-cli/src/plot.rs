//! `blob plot`: draws a tensor in the terminal or to a file.
//!
//! `raster` and `heatmap` turn values into pixels, `draw` prints and encodes them.

mod draw;
mod heatmap;
mod raster;

use std::path::Path;

use blob_convert::stats::{Measured, measure};
use blob_io::{Checkpoint, Entry};
use serde_json::{Value, json};

use crate::args::{Plot, if_exists};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::json::{DIMS, Document, FILE, Field, Fields, NAME, Type, field, nullable, optional, properties};
use crate::open::open;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::sink::Sink;
use crate::output::written::{Begun, Written};
use crate::render::{Text, svg};
use crate::select::select_one;
use crate::source;
use crate::stats::Bins;
use raster::{ChannelOrder, Raster};

/// The bins of a histogram in a file; the maximum in a terminal.
const BINS: usize = 64;

/// The maximum width and height of a heat map in a file.
const MAX_SIDE: usize = 1024;

/// The maximum rows of a picture in the terminal.
const MAX_ROWS: usize = 40;

/// The columns of a picture in the terminal if its width is not known.
const COLUMNS: usize = 80;

/// The kind of picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hist,
    Heatmap,
    Filters,
    Image,
}

impl Kind {
    const NAMES: &[&str] = &["hist", "heatmap", "filters", "image"];

    fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

pub(crate) fn run(args: &Plot, context: &Context) -> Result<Status, Failure> {
    let begun = Begun::now(args.dry_run);
    let kind = kind(args)?;
    if let Some(output) = &args.output {
        source::check_output(&args.file, output, if_exists(args.force))?;
    }
    let checkpoint = open(&args.file, &context.global)?;
    if let Some(output) = &args.output {
        source::check_shards(&checkpoint, output)?;
    }
    let entry = select_one(&checkpoint, args.tensor.as_deref())?;
    let progress = Progress::begin(&context.terminal, if kind == Kind::Hist { 2 } else { 1 } * entry.byte_len());
    let drawn = match kind {
        Kind::Hist => {
            let columns = context.terminal.width.unwrap_or(COLUMNS).saturating_sub(2).clamp(8, BINS);
            let bins = if args.output.is_some() { BINS } else { columns };
            Drawn::Histogram(measure(&checkpoint, entry, Some(bins), &progress)?)
        }
        Kind::Heatmap => {
            let (width, height) = match args.output {
                Some(_) => (MAX_SIDE, MAX_SIDE),
                None => (context.terminal.width.unwrap_or(COLUMNS).max(8), 2 * MAX_ROWS),
            };
            Drawn::Picture(heatmap::heatmap(&checkpoint, entry, (width, height), &progress)?)
        }
        Kind::Filters => Drawn::Picture(raster::filters(&checkpoint, entry, order(args, &checkpoint))?),
        Kind::Image => Drawn::Picture(raster::image(&checkpoint, entry, order(args, &checkpoint))?),
    };
    progress.end();
    let mut written = None;
    if let Some(path) = &args.output {
        let bytes = match &drawn {
            Drawn::Histogram(measured) => svg::page(&title(entry, measured), measured.histogram.as_ref()).into_bytes(),
            Drawn::Picture(raster) => draw::png(raster)?,
        };
        let mut output = Sink::begin(path, args.force, args.dry_run)?;
        output.write_all(&bytes)?;
        let to = if kind == Kind::Hist { "svg" } else { "png" };
        written = Some(Written::new(path, to, output.finish()?, begun).tensors(1));
    }
    context.print(Plotted { written, kind, file: checkpoint.name(), entry, drawn })?;
    Ok(Status::Yes)
}

/// The requested kind, or the one implied by the output's extension.
fn kind(args: &Plot) -> Result<Kind, Failure> {
    let extension = args.output.as_deref().map(extension);
    let requested = [
        (args.hist, Kind::Hist),
        (args.heatmap, Kind::Heatmap),
        (args.filters, Kind::Filters),
        (args.image, Kind::Image),
    ];
    let requested = requested.iter().find(|(is_requested, _)| *is_requested).map(|(_, kind)| *kind);
    let kind = requested.unwrap_or(if extension.as_deref() == Some("png") { Kind::Heatmap } else { Kind::Hist });
    match (extension.as_deref(), kind) {
        (None, _) | (Some("svg"), Kind::Hist) | (Some("png"), Kind::Heatmap | Kind::Filters | Kind::Image) => Ok(kind),
        (Some("png" | "svg"), _) => {
            Err(Failure::new("a histogram is written as .svg, a heat map, filters and an image as .png"))
        }
        (Some(_), _) => {
            let path = args.output.as_deref().unwrap_or(Path::new(""));
            Err(Failure::new(format!("{}: pictures are written as .png or .svg", path.display())))
        }
    }
}

fn extension(path: &Path) -> String {
    path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase()
}

fn order(args: &Plot, checkpoint: &Checkpoint) -> ChannelOrder {
    match args.bgr || !args.rgb && checkpoint.format().is_caffe() {
        true => ChannelOrder::Bgr,
        false => ChannelOrder::Rgb,
    }
}

/// `conv1/0  4×3×3×3 f32`, with a summary of its values.
fn title(entry: &Entry, measured: &Measured) -> svg::Title {
    let stats = &measured.stats;
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), crate::units::number);
    let dtype = entry.dtype().map_or("none", |dtype| dtype.name());
    svg::Title {
        name: entry.name().to_owned(),
        about: format!(
            "{} {dtype}, {} values, mean {}, std {}",
            entry.shape(),
            crate::units::grouped(stats.count),
            figure(stats.mean),
            figure(stats.std)
        ),
    }
}

enum Drawn {
    Histogram(Measured),
    Picture(Raster),
}

/// The result of the command.
pub(crate) struct Plotted<'a> {
    /// `None` if it is drawn in the terminal.
    written: Option<Written<'a>>,
    kind: Kind,
    file: &'a str,
    entry: &'a Entry,
    drawn: Drawn,
}

impl Text for Plotted<'_> {
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        if let Some(written) = &self.written {
            terminal.written(written, &[format!("{}  {}", terminal.name(self.entry.name()), self.kind.name())]);
            return Ok(());
        }
        match &self.drawn {
            Drawn::Histogram(measured) => {
                let title = title(self.entry, measured);
                draw::bars(terminal, &title, measured.histogram.as_ref(), out)
            }
            Drawn::Picture(raster) => {
                let columns = terminal.width.unwrap_or(COLUMNS);
                draw::blocks(terminal, &raster.shrunk(columns, 2 * MAX_ROWS), out)
            }
        }
    }
}

impl Document for Plotted<'_> {
    const SCHEMA: &'static str = "blob.plot/1";
    const COMMAND: &'static str = "blob plot --json FILE [TENSOR]";
    const DESCRIPTION: &'static str = "what was drawn";
}

impl Fields for Plotted<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("file", Type::String, FILE, |p| json!(p.file)),
            field("name", Type::String, NAME, |p| json!(p.entry.name())),
            field("dtype", Type::String, "the element type", |p| json!(p.entry.dtype().map(|dtype| dtype.name()))),
            field("shape", DIMS, "its shape", |p| json!(p.entry.shape().dims())),
            field("kind", Type::Enum(Kind::NAMES), "what is drawn", |p| json!(p.kind.name())),
            nullable("output", Type::String, "the picture's file", |p| {
                json!(p.written.as_ref().and_then(|written| written.output).map(Path::to_string_lossy))
            }),
            field("dry_run", Type::Boolean, "whether nothing was written", |p| {
                json!(p.written.as_ref().is_some_and(|written| written.took.is_none()))
            }),
            optional("bytes_out", Type::Integer, "the size of the picture's file", |p| {
                json!(p.written.as_ref().map(|written| written.bytes_out))
            }),
            optional("width", Type::Integer, "the picture's width in pixels", |p| match &p.drawn {
                Drawn::Picture(raster) => json!(raster.width),
                Drawn::Histogram(_) => Value::Null,
            }),
            optional("height", Type::Integer, "its height", |p| match &p.drawn {
                Drawn::Picture(raster) => json!(raster.height()),
                Drawn::Histogram(_) => Value::Null,
            }),
            optional(
                "histogram",
                Type::Object(properties::<Bins<'_>>),
                "of a histogram, where a value is finite",
                |p| match &p.drawn {
                    Drawn::Histogram(measured) => Bins::of(measured),
                    Drawn::Picture(_) => Value::Null,
                },
            ),
        ]
    }
}
