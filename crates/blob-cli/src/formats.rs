//! `blob formats`: what is read and written, by which name and extension, and what it was tested against.

use blob_io::Format;
use serde_json::{Value, json};

use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::output::Out;
use crate::render::Render;
use crate::render::json::{self, Object};
use crate::render::table::{Column, LAST, Table};

pub(crate) fn run(context: &Context) -> Result<Status, Failure> {
    context.say(Formats)?;
    Ok(Status::Yes)
}

struct Formats;

impl Render for Formats {
    fn json(self, _: &Context, out: &mut Out) -> Result<(), Failure> {
        let formats: Vec<Value> = Format::ALL.iter().map(|f| row(*f)).collect();
        Ok(json::line(out, &Object::of("blob.formats/1").with("formats", formats))?)
    }

    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let columns = vec![
            Column::left("NAME"),
            Column::left("WHAT").leaves(1),
            Column::left("EXTENSIONS").leaves(LAST + 1),
            Column::left("READ").leaves(2),
            Column::left("WRITE").leaves(LAST),
            Column::text("TESTED AGAINST"),
        ];
        let mut table = Table::new(&context.terminal, columns);
        for format in Format::ALL {
            let extensions: Vec<String> = format.extensions().iter().map(|e| format!(".{e}")).collect();
            table.row(
                out,
                vec![
                    format.name().to_owned(),
                    format.title().to_owned(),
                    if extensions.is_empty() { "-".to_owned() } else { extensions.join(" ") },
                    "yes".to_owned(),
                    if format.is_written() { "yes" } else { "-" }.to_owned(),
                    tested_against(*format).to_owned(),
                ],
            )?;
        }
        Ok(table.finish(out)?)
    }
}

fn row(format: Format) -> Value {
    json!({
        "name": format.name(),
        "title": format.title(),
        "extensions": format.extensions(),
        "read": true,
        "write": format.is_written(),
        "tested_against": tested_against(format),
    })
}

/// Whose files the tests read (`tests/data` says more), and whose reader reads ours.
fn tested_against(format: Format) -> &'static str {
    match format {
        Format::CaffeModel => "files of BVLC Caffe: V2, and V0 and V1 made from them",
        Format::BlobProto => "files of BVLC Caffe; NVCaffe's and OpenCL Caffe's fields by hand",
        Format::BlobProtoVector | Format::SolverState | Format::Datum => "files of BVLC Caffe",
        Format::MxnetList => "files of MXNet 0.9.5, 0.11, 1.0, 1.5, 1.6, 1.9.1, 2.0 beta",
        Format::MxnetRecord => "files of MXNet 0.9.5 to 1.9.1",
        Format::Npy => "the npyz crate",
        Format::Npz => "files of MXNet 2.0 beta; the npyz and zip crates",
        Format::Safetensors => "the safetensors crate",
        _ => "-",
    }
}
