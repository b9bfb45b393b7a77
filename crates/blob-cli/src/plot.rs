//! `blob plot`: draws a tensor in the terminal or to a file.
//!
//! `heatmap` and `filters` turn values into a `raster`; `draw` prints the raster and encodes PNG, `vector` encodes SVG.

mod draw;
mod filters;
mod heatmap;
mod raster;
mod vector;

use std::path::Path;

use blob_convert::report::json::{
    DIMS, Document, FILE, Field, Fields, NAME, Type, field, nullable, number, optional, properties,
};
use blob_convert::stats::{Measured, measure};
use blob_io::{Checkpoint, Entry};
use serde_json::{Value, json};

use crate::args::{Plot, if_exists};
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::open::open;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::sink::Sink;
use crate::output::written::{Begun, Written};
use crate::render::Text;
use crate::render::svg::{self, Title};
use crate::select::select_one;
use crate::stats::Bins;
use crate::units;
use filters::ChannelOrder;
use raster::{Picture, Scale};

/// The bins of a histogram in a file; the maximum in a terminal.
const BINS: usize = 64;

/// The maximum width and height of a heat map in a PNG and in an SVG, whose points are text.
const MAX_PNG_SIDE: usize = 1024;
const MAX_SVG_SIDE: usize = 192;

/// The maximum rows of a picture in the terminal.
const MAX_ROWS: usize = 40;

/// The columns of a picture in a terminal of unknown width.
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

    fn noun(self) -> &'static str {
        ["histogram", "heat map", "filters", "image"][self as usize]
    }
}

pub(crate) fn run(args: &Plot, context: &Context) -> Result<Status, Failure> {
    let begun = Begun::now(args.dry_run);
    let kind = kind(args)?;
    let checkpoint = open(&args.file, &context.global)?;
    if let Some(output) = &args.output {
        blob_convert::check_source(&checkpoint, output, if_exists(args.force))?;
    }
    let entry = select_one(&checkpoint, &args.filter.of(args.tensor.as_slice()))?;
    let progress = Progress::begin(&context.terminal, 2 * entry.byte_len());
    let columns = context.terminal.width.unwrap_or(COLUMNS);
    let bins = if args.output.is_some() { BINS } else { columns.saturating_sub(2).clamp(8, BINS) };
    let measured = measure(&checkpoint, entry, (kind == Kind::Hist).then_some(bins), &progress)?;
    let most = match args.output.as_deref().map(extension).as_deref() {
        None => (columns.max(8), 2 * MAX_ROWS),
        Some("svg") => (MAX_SVG_SIDE, MAX_SVG_SIDE),
        Some(_) => (MAX_PNG_SIDE, MAX_PNG_SIDE),
    };
    let picture = match kind {
        Kind::Hist => None,
        Kind::Heatmap => Some(heatmap::heatmap(&checkpoint, entry, most, &progress)?),
        Kind::Filters => Some(filters::filters(&checkpoint, entry, order(args, &checkpoint))?),
        Kind::Image => Some(filters::image(&checkpoint, entry, order(args, &checkpoint))?),
    };
    progress.end();
    let mut drawn = Plotted { written: None, kind, checkpoint: &checkpoint, entry, measured, picture };
    if let Some(path) = &args.output {
        let bytes = drawn.encoded(&extension(path))?;
        let mut output = Sink::begin(path, args.force, args.dry_run)?;
        output.write_all(&bytes)?;
        let to = if extension(path) == "svg" { "svg" } else { "png" };
        drawn.written = Some(Written::new(path, to, output.finish()?, begun).tensors(1));
    }
    context.print(drawn)?;
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
        (Some("png"), Kind::Hist) => Err(Failure::new("a histogram is written as .svg, not as .png")),
        (None | Some("svg" | "png"), _) => Ok(kind),
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
    if args.bgr || !args.rgb && checkpoint.format().is_caffe() { ChannelOrder::Bgr } else { ChannelOrder::Rgb }
}

/// The result of the command.
pub(crate) struct Plotted<'a> {
    /// `None` for a picture in the terminal.
    written: Option<Written<'a>>,
    kind: Kind,
    checkpoint: &'a Checkpoint,
    entry: &'a Entry,
    /// With the histogram, if that is drawn.
    measured: Measured,
    /// `None` for a histogram.
    picture: Option<Picture>,
}

impl Plotted<'_> {
    /// `conv1/0  4×3×3×3 f32`, with a summary of the values.
    fn title(&self) -> Title {
        let stats = &self.measured.stats;
        let figure = |value: Option<f64>| value.map_or("-".to_owned(), units::number);
        let dtype = self.entry.dtype().map_or("none", |dtype| dtype.name());
        let odd = [(stats.nan, "NaN"), (stats.inf, "Inf")];
        let odd = odd.iter().filter(|(count, _)| *count > 0);
        let odd: String = odd.map(|(count, what)| format!(", {} {what}", units::grouped(*count))).collect();
        let about = format!(
            "{} {dtype}, {}{odd}, mean {}, std {}",
            self.entry.shape(),
            units::plural(stats.count, "value"),
            figure(stats.mean),
            figure(stats.std)
        );
        Title { name: self.entry.name().to_owned(), about }
    }

    /// The picture as the bytes of a file of this extension.
    fn encoded(&self, extension: &str) -> Result<Vec<u8>, Failure> {
        let title = self.title();
        let Some(picture) = &self.picture else {
            return Ok(svg::page(&title, &svg::histogram(self.measured.histogram.as_ref()), &[]).into_bytes());
        };
        if extension == "svg" {
            return Ok(svg::page(&title, &vector::drawing(picture)?, &picture.notes).into_bytes());
        }
        let (across, down) = if self.kind == Kind::Image { (1, 1) } else { draw::enlargement(&picture.raster) };
        draw::png(&picture.raster.enlarged(across, down), &title, &self.remarks())
    }

    /// The scale of a picture, if a value is finite.
    fn scale(&self) -> Option<&Scale> {
        self.picture.as_ref().map(|picture| &picture.scale).filter(|scale| scale.low <= scale.high)
    }

    /// Notes about the values and the colours, for people.
    fn remarks(&self) -> Vec<String> {
        let scale = self
            .scale()
            .map(|scale| format!("colours from {} to {}", units::number(scale.low), units::number(scale.high)));
        let stats = &self.measured.stats;
        let odd = [(stats.nan, "NaN"), (stats.inf, "Inf")].into_iter().filter(|(count, _)| *count > 0);
        let odd = odd.map(|(count, what)| format!("{} {what}", units::grouped(count)));
        let notes = self.picture.iter().flat_map(|picture| picture.notes.iter().cloned());
        odd.chain(scale).chain(notes).collect()
    }
}

impl Text for Plotted<'_> {
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        if let Some(written) = &self.written {
            let what = format!("{} of {}", self.kind.noun(), terminal.name(self.entry.name()));
            let details: Vec<String> = std::iter::once(what).chain(self.remarks()).collect();
            terminal.written(written, &details);
            return Ok(());
        }
        let title = self.title();
        match &self.picture {
            None => draw::bars(terminal, &title, self.measured.histogram.as_ref(), out),
            Some(picture) => draw::picture(terminal, &title, picture, terminal.width.unwrap_or(COLUMNS), MAX_ROWS, out),
        }
    }
}

impl Document for Plotted<'_> {
    const SCHEMA: &'static str = "blob.plot/1";
    const COMMAND: &'static str = "blob plot --json FILE [TENSOR]";
    const DESCRIPTION: &'static str = "what was drawn";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for Plotted<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("file", Type::String, FILE, |p| json!(p.checkpoint.name())),
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
            field("nan", Type::Integer, "how many values are NaN", |p| json!(p.measured.stats.nan)),
            field("inf", Type::Integer, "how many values are infinite", |p| json!(p.measured.stats.inf)),
            optional("width", Type::Integer, "of a picture, how many points are in a row", |p| {
                json!(p.picture.as_ref().map(|picture| picture.raster.width))
            }),
            optional("height", Type::Integer, "of a picture, how many rows there are", |p| {
                json!(p.picture.as_ref().map(|picture| picture.raster.height()))
            }),
            optional("low", Type::Number, "of a picture, the value of the scale's first colour", |p| {
                p.scale().map_or(Value::Null, |scale| number(scale.low))
            }),
            optional("high", Type::Number, "of a picture, the value of the scale's last colour", |p| {
                p.scale().map_or(Value::Null, |scale| number(scale.high))
            }),
            optional("beyond", Type::Integer, "of a picture, how many points are beyond the scale", |p| {
                json!(p.picture.as_ref().map(|picture| picture.beyond))
            }),
            optional(
                "histogram",
                Type::Object(properties::<Bins<'_>>),
                "of a histogram, where a value is finite",
                |p| Bins::of(&p.measured),
            ),
        ]
    }
}
