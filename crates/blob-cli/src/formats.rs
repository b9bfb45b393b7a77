//! `blob formats`: lists the formats with names, extensions and the programs of the tests.

use blob_convert::report::json::{self, Document, Field, Fields, STRINGS, Type, field, properties};
use blob_io::{Checkpoint, Format};
use serde_json::json;

use crate::args::is_written;
use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::output::Out;
use crate::render::Text;
use crate::render::table::{Column, LAST, Table};

pub(crate) fn run(context: &Context) -> Result<Status, Failure> {
    context.print(Formats)?;
    Ok(Status::Yes)
}

pub(crate) struct Formats;

impl Document for Formats {
    const SCHEMA: &'static str = "blob.formats/1";
    const COMMAND: &'static str = "blob formats --json";
    const DESCRIPTION: &'static str = "what is read and written";
    const IS_OF_FILES: bool = false;

    fn sources(&self) -> Vec<&Checkpoint> {
        Vec::new()
    }
}

impl Fields for Formats {
    fn fields() -> Vec<Field<Self>> {
        vec![field("formats", Type::Array(&Type::Object(properties::<FormatRow>)), "each format", |_| {
            Format::ALL.iter().map(|format| json::value(&FormatRow(*format))).collect()
        })]
    }
}

/// A format.
struct FormatRow(Format);

impl Fields for FormatRow {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("name", Type::String, "its short name, for --from and --to", |f| json!(f.0.name())),
            field("title", Type::String, "what it is", |f| json!(f.0.title())),
            field("extensions", STRINGS, "the extensions of its files", |f| json!(f.0.extensions())),
            field("read", Type::Boolean, "whether it is read", |_| json!(true)),
            field(
                "write",
                Type::Boolean,
                "whether it is written from tensors alone; a NeoML net and an ONNX model are with --into",
                |f| json!(is_written(f.0)),
            ),
            field("tested_against", Type::String, "the programs whose files were read, and that read ours", |f| {
                json!(tested_against(f.0))
            }),
        ]
    }
}

impl Text for Formats {
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let columns = vec![
            Column::left("NAME").of(|f: &Format, _| f.name().to_owned()),
            Column::left("WHAT").drop_order(1).of(|f, _| f.title().to_owned()),
            Column::left("EXTENSIONS").drop_order(LAST + 1).of(|f, _| match f.extensions() {
                [] => "-".to_owned(),
                extensions => format!(".{}", extensions.join(" .")),
            }),
            Column::left("READ").drop_order(2).of(|_, _| "yes".to_owned()),
            Column::left("WRITE").drop_order(LAST).of(|f, _| {
                let words = if is_written(*f) { "yes" } else { "--into" };
                words.to_owned()
            }),
            Column::text("TESTED AGAINST").of(|f, _| tested_against(*f).to_owned()),
        ];
        let mut table = Table::new(&context.terminal, columns);
        for format in Format::ALL {
            table.row(out, format)?;
        }
        Ok(table.finish(out)?)
    }
}

/// The programs whose files the tests read (see `tests/data`). "Both ways": the programs also read our files.
fn tested_against(format: Format) -> &'static str {
    match format {
        Format::CaffeModel => "files of BVLC Caffe: V2, and V0 and V1 made from them; both ways",
        Format::BlobProto => "files of BVLC Caffe, both ways; NVCaffe's and OpenCL Caffe's fields by hand",
        Format::BlobProtoVector | Format::SolverState | Format::Datum => "files of BVLC Caffe, both ways",
        Format::MxnetList => "files of MXNet 0.9.5, 0.11, 1.0, 1.5, 1.6, 1.9.1, 2.0 beta, both ways",
        Format::MxnetRecord => "files of MXNet 0.9.5 to 1.9.1, both ways",
        Format::NeomlBlob | Format::NeomlArray => "files of NeoML 2.0.210 and 84259c51, both ways",
        Format::NeomlNet => "nets of NeoML 2.0.210 and its own tests; written again around other values",
        Format::Onnx => "files of onnx 1.23 and PyTorch 1.12; written again around other values",
        Format::Npy => "the npyz crate",
        Format::Npz => "files of MXNet 2.0 beta; the npyz and zip crates",
        Format::Hdf5 => "files of BVLC Caffe and h5py, both ways",
        Format::Safetensors => "the safetensors crate",
        _ => "-",
    }
}
