//! `blob devices`: lists the GPUs that the library can use, or explains why there is none; either is success.
//!
//! No command computes on a GPU: each file is read once, and the bus is slower than the processor.

use blob_io::Checkpoint;
use serde_json::json;

use crate::context::Context;
use crate::failure::{Failure, Status};
use crate::json::{self, Document, Field, Fields, Type, field, nullable, properties};
use crate::output::Out;
use crate::output::width::paragraph;
use crate::render::Text;
use crate::render::table::{Column, Table};
use crate::units;

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
use cuda as driver;

#[cfg(not(feature = "cuda"))]
mod none;
#[cfg(not(feature = "cuda"))]
use none as driver;

pub(crate) fn run(context: &Context) -> Result<Status, Failure> {
    context.print(Devices(driver::list()))?;
    Ok(Status::Yes)
}

pub(crate) struct Devices(Result<Vec<Gpu>, Absence>);

/// A GPU that the driver lists.
struct Gpu {
    ordinal: usize,
    name: String,
    capability: (u32, u32),
    total: u64,
    free: Option<u64>,
    /// The newest CUDA that the driver knows: 12040 for 12.4.
    cuda: u32,
}

/// The reason why no GPU is usable.
struct Absence {
    reason: &'static str,
    message: String,
    help: &'static str,
}

const REASONS: &[&str] = &["no-driver", "static", "stub", "no-device", "too-old", "incomplete", "failed", "not-built"];

impl Gpu {
    fn capability(&self) -> String {
        format!("{}.{}", self.capability.0, self.capability.1)
    }

    fn cuda(&self) -> String {
        format!("{}.{}", self.cuda / 1000, self.cuda % 1000 / 10)
    }
}

impl Document for Devices {
    const SCHEMA: &'static str = "blob.devices/1";
    const COMMAND: &'static str = "blob devices --json";
    const DESCRIPTION: &'static str = "the GPUs, or why there is none";
    const IS_OF_FILES: bool = false;

    fn sources(&self) -> Vec<&Checkpoint> {
        Vec::new()
    }
}

impl Fields for Devices {
    fn fields() -> Vec<Field<Self>> {
        let gpus = |d: &Self| d.0.iter().flatten().map(json::value).collect();
        let absent = |d: &Self| json!(d.0.as_ref().err().map(json::value));
        vec![
            field("gpus", Type::Array(&Type::Object(properties::<Gpu>)), "each GPU", gpus),
            nullable("absent", Type::Object(properties::<Absence>), "why there is none", absent),
        ]
    }
}

impl Fields for Gpu {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("ordinal", Type::Integer, "its number, from 0", |g| json!(g.ordinal)),
            field("name", Type::String, "what its maker calls it", |g| json!(g.name)),
            field("capability", Type::String, "its compute capability: `9.0`", |g| json!(g.capability())),
            field("bytes", Type::Integer, "the size of its memory", |g| json!(g.total)),
            nullable("free_bytes", Type::Integer, "how many of them are free, where it can be asked", |g| {
                json!(g.free)
            }),
            field("cuda", Type::String, "the newest CUDA that the driver knows: `12.4`", |g| json!(g.cuda())),
        ]
    }
}

impl Fields for Absence {
    fn fields() -> Vec<Field<Self>> {
        vec![
            field("reason", Type::Enum(REASONS), "why, as a stable code", |a| json!(a.reason)),
            field("message", Type::String, "why, in words", |a| json!(a.message)),
            field("help", Type::String, "what can be done about it", |a| json!(a.help)),
        ]
    }
}

impl Text for Devices {
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        match self.0 {
            Ok(gpus) => table(&gpus, context, out),
            Err(absence) => explain(&absence, context, out),
        }
    }
}

fn table(gpus: &[Gpu], context: &Context, out: &mut Out) -> Result<(), Failure> {
    let columns = vec![
        Column::right("GPU").of(|g: &Gpu, _| g.ordinal.to_string()),
        Column::name("NAME", 8).of(|g, terminal| terminal.name(&g.name).into_owned()),
        Column::left("CAPABILITY").of(|g, _| g.capability()),
        Column::right("MEMORY").of(|g, _| units::bytes(g.total)),
        Column::right("FREE").of(|g, _| g.free.map_or_else(|| "-".to_owned(), units::bytes)),
        Column::left("DRIVER").of(|g, _| format!("CUDA {}", g.cuda())),
    ];
    let mut table = Table::new(&context.terminal, columns);
    for gpu in gpus {
        table.row(out, gpu)?;
    }
    Ok(table.finish(out)?)
}

fn explain(absence: &Absence, context: &Context, out: &mut Out) -> Result<(), Failure> {
    use std::io::Write;

    let width = context.terminal.width;
    writeln!(out, "{}", paragraph(&absence.message, width, 2))?;
    Ok(writeln!(out, "{}", paragraph(&format!("  help: {}", absence.help), width, 4))?)
}
