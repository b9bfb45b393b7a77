//! `blob graph`: shows the layers of a net with shapes, parameters and multiply-adds.
//!
//! `blob_convert` makes the graph; here are counts of the layers' tensors and the forms of the output. `boxes` has the
//! graph as boxes and arrows, for programs that draw, and `drawing` draws them.

mod boxes;
mod drawing;

use std::io::Write;

use blob_convert::graph::{self as net, Node};
use blob_convert::recipe;
use blob_convert::report::json::{self, Document, FILE, Field, Fields, STRINGS, Type, field, nullable, properties};
use blob_io::{Checkpoint, Entry, Error, Reason};
use serde_json::json;

use crate::args::Graph;
use crate::args::onnx::inputs;
use crate::context::Context;
use crate::escape::escape_field;
use crate::failure::{Failure, Status};
use crate::open::open;
use crate::output::{Out, Terminal};
use crate::render::Render;
use crate::render::svg::{self, Title};
use crate::render::table::{Column, LAST, Table};
use crate::units;
use boxes::Boxes;

/// The types of layers whose multiply-adds are counted.
const CONVOLUTIONS: [&str; 4] = ["Convolution", "Convolution_v1", "ConvolutionDepthwise", "DepthwiseConvolution"];

pub(crate) fn run(args: &Graph, context: &Context) -> Result<Status, Failure> {
    let checkpoint = open(&args.file, &context.global).map_err(cut_off)?;
    let mut settings = recipe::Onnx::default();
    settings.inputs = inputs(&args.input_shape)?;
    let graph = blob_convert::graph::of(&checkpoint, args.nets.file().as_ref(), &settings)?;
    let layers = graph.nodes().iter().map(|node| LayerRow::of(node, &graph, &checkpoint)).collect();
    let shown = FileGraph { checkpoint: &checkpoint, graph: &graph, layers };
    let drawn = match args {
        Graph { dot: true, .. } => Boxes::of(&shown).dot(),
        Graph { mermaid: true, .. } => Boxes::of(&shown).mermaid(),
        Graph { svg: true, .. } => shown.svg()?,
        _ => {
            context.print(shown)?;
            return Ok(Status::Yes);
        }
    };
    let mut out = context.terminal.out();
    out.write_all(drawn.as_bytes())?;
    Ok(out.flush().map(|()| Status::Yes)?)
}

/// A graph of the layers before a break is seldom the wish: first see what the file lacks.
fn cut_off(error: Error) -> Failure {
    let is_cut = error.reason() == Reason::Truncated;
    let failure = Failure::from(error);
    let help = failure.problem().and_then(|problem| problem.help.clone()).filter(|_| is_cut);
    match help {
        Some(help) => failure.help(format!("{help}; `blob verify` says what is wrong with the file")),
        None => failure,
    }
}

/// One layer, with counts.
struct LayerRow<'a> {
    node: &'a Node,
    inputs: Vec<&'a str>,
    outputs: Vec<&'a net::Value>,
    parameters: u64,
    multiply_adds: Option<u64>,
}

impl<'a> LayerRow<'a> {
    fn of(node: &'a Node, graph: &'a net::Graph, checkpoint: &Checkpoint) -> Self {
        let value = |place: &usize| &graph.values()[*place];
        let outputs: Vec<&net::Value> = node.outputs.iter().map(value).collect();
        let stored: Vec<&Entry> = node.tensors.iter().filter_map(|tensor| net::entry(checkpoint, tensor)).collect();
        let count = |entry: &&Entry| entry.shape().count() as u64;
        let elements =
            |value: &net::Value| value.shape.iter().fold(1, |product: u64, extent| product.saturating_mul(*extent));
        let weight = stored.first().map(count);
        // A weight is used once for each place in the output that has the weight's channel, or for each vector.
        let uses = outputs.first().zip(node.inputs.first()).and_then(|(output, input)| match &*node.type_name {
            of if CONVOLUTIONS.contains(&of) => Some(elements(output) / output.shape.get(1).copied()?.max(1)),
            "Deconvolution" => {
                let input = value(input);
                Some(elements(input) / input.shape.get(1).copied()?.max(1))
            }
            "InnerProduct" | "FullyConnected" => Some(elements(output) / output.shape.last().copied()?.max(1)),
            _ => None,
        });
        let multiply_adds = weight.zip(uses).map(|(weight, uses)| weight.saturating_mul(uses));
        let inputs = node.inputs.iter().map(|place| &*value(place).name).collect();
        Self { node, inputs, outputs, parameters: stored.iter().map(count).sum(), multiply_adds }
    }

    /// The outputs' shapes for people.
    fn shapes(&self, between: &str) -> String {
        self.outputs.iter().map(|value| shape(value, between)).collect::<Vec<_>>().join(" ")
    }
}

/// The extents of a value; a `?` is one that only a run knows.
fn shape(value: &net::Value, between: &str) -> String {
    let extents = value.shape.iter();
    let extents = extents.map(|extent| if *extent == 0 { "?".to_owned() } else { extent.to_string() });
    extents.collect::<Vec<_>>().join(between)
}

/// The graph of a file.
pub(crate) struct FileGraph<'a> {
    checkpoint: &'a Checkpoint,
    graph: &'a net::Graph,
    layers: Vec<LayerRow<'a>>,
}

impl FileGraph<'_> {
    /// The values of the graph's inputs or outputs.
    fn values(&self, places: &[usize]) -> impl Iterator<Item = &net::Value> {
        places.iter().map(|place| &self.graph.values()[*place])
    }

    fn multiply_adds(&self) -> u64 {
        self.layers.iter().filter_map(|row| row.multiply_adds).fold(0, u64::saturating_add)
    }

    fn parameters(&self) -> u64 {
        self.layers.iter().map(|row| row.parameters).fold(0, u64::saturating_add)
    }

    /// How many layers, parameters and multiply-adds there are.
    fn sums(&self) -> String {
        let (layers, parameters) = (units::plural(self.layers.len() as u64, "layer"), units::count(self.parameters()));
        format!("{layers}, {parameters} parameters, {} multiply-adds", units::count(self.multiply_adds()))
    }

    /// The graph as a drawing.
    fn svg(&self) -> Result<String, Failure> {
        let drawing = drawing::drawing(&Boxes::of(self))?;
        let title = Title { name: self.checkpoint.name().to_owned(), about: self.sums() };
        Ok(svg::page(&title, &drawing, &[]))
    }

    fn table(&self, terminal: &Terminal, out: &mut Out) -> Result<(), Failure> {
        let columns = vec![
            Column::name("LAYER", 24).of(|row: &LayerRow<'_>, terminal| terminal.name(&row.node.name).into_owned()),
            Column::left("TYPE").drop_order(LAST).of(|row, terminal| terminal.name(&row.node.type_name).into_owned()),
            Column::left("OUTPUT").drop_order(LAST + 1).of(|row, terminal| row.shapes(terminal.times())),
            Column::right("PARAMS").drop_order(2).of(|row, _| units::count(row.parameters)),
            Column::right("MULT-ADDS")
                .drop_order(1)
                .of(|row, _| row.multiply_adds.map_or("-".to_owned(), units::count)),
        ];
        let mut table = Table::new(terminal, columns)
            .named(|each| self.layers.iter().for_each(|row| each(&terminal.name(&row.node.name))));
        for row in &self.layers {
            table.row(out, row)?;
        }
        Ok(table.finish(out)?)
    }
}

impl Render for FileGraph<'_> {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        Ok(json::line(out, &self)?)
    }

    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        self.table(terminal, out)?;
        for (what, places) in [("input ", self.graph.inputs()), ("output", self.graph.outputs())] {
            for value in self.values(places) {
                writeln!(out, "{what} {}: {}", terminal.name(&value.name), shape(value, terminal.times()))?;
            }
        }
        Ok(writeln!(out, "{}", self.sums())?)
    }

    fn lines(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let escaped = |text| escape_field(text, context.global.ascii);
        context.header(out, &["layer", "type", "shape", "parameters", "multiply_adds"])?;
        for row in &self.layers {
            let adds = row.multiply_adds.map_or("-".to_owned(), |count| count.to_string());
            let (name, of, shape) = (escaped(&row.node.name), escaped(&row.node.type_name), row.shapes("x"));
            writeln!(out, "{name}\t{of}\t{shape}\t{}\t{adds}", row.parameters)?;
        }
        Ok(())
    }
}

impl Document for FileGraph<'_> {
    const SCHEMA: &'static str = "blob.graph/1";
    const COMMAND: &'static str = "blob graph --json FILE";
    const DESCRIPTION: &'static str = "the graph of a net";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for FileGraph<'_> {
    fn fields() -> Vec<Field<Self>> {
        const VALUES: Type = Type::Array(&Type::Object(properties::<net::Value>));
        vec![
            field("file", Type::String, FILE, |s| json!(s.checkpoint.name())),
            field("inputs", VALUES, "the values that a caller gives", |s| {
                s.values(s.graph.inputs()).map(json::value).collect()
            }),
            field("outputs", VALUES, "the values that a caller gets", |s| {
                s.values(s.graph.outputs()).map(json::value).collect()
            }),
            field(
                "layers",
                Type::Array(&Type::Object(properties::<LayerRow<'_>>)),
                "the layers, each behind those that it reads",
                |s| s.layers.iter().map(json::value).collect(),
            ),
            field("dropped", STRINGS, "the layers that inference does without", |s| {
                s.graph.dropped().iter().map(|dropped| json!(dropped.layer)).collect()
            }),
            field("parameters", Type::Integer, "how many values the layers' tensors have", |s| json!(s.parameters())),
            field("multiply_adds", Type::Integer, "those of all layers that have a count", |s| {
                json!(s.multiply_adds())
            }),
        ]
    }
}

impl Fields for LayerRow<'_> {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, "the layer's name", |r| json!(r.node.name)),
            field("type", Type::String, "the framework's name of its type", |r| json!(r.node.type_name)),
            field("inputs", STRINGS, "the values that it reads", |r| json!(r.inputs)),
            field("outputs", Type::Array(&Type::Object(properties::<net::Value>)), "the values that it writes", |r| {
                r.outputs.iter().map(|value| json::value(*value)).collect()
            }),
            field("tensors", STRINGS, "its tensors, by their names in the net", |r| json!(r.node.tensors)),
            field("parameters", Type::Integer, "how many values its tensors have in the file", |r| json!(r.parameters)),
            nullable("multiply_adds", Type::Integer, "how many it needs; `null` where they are not counted", |r| {
                json!(r.multiply_adds)
            }),
        ]
    }
}
