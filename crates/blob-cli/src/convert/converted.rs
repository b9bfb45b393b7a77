//! The result of a conversion: a line for people, or a table in a dry run, and the same in JSON.

use std::io::Write;

use blob_convert::report::json::{
    self, Document, FILE, Field, Fields, STRINGS, Type, field, nullable, optional, properties,
};
use blob_convert::transform::NetOrigin;
use blob_convert::{LeftOut, Plan, Planned};
use blob_io::Checkpoint;
use blob_io::onnx::Model;
use serde_json::{Value, json};

use super::Ran;
use super::model::note_model;
use super::said::{Warnings, asked, changes_field, listed_changes, notices, warnings};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::written::{Writes, Written, written_fields};
use crate::output::{Out, Terminal};
use crate::render::Text;
use crate::render::table::{Column, Table};
use crate::units;

/// The note if the format stays the same and the output is a copy.
const KEPT: &str = "same format: the bytes are kept, no receipt is added; --anew writes it anew";

/// The result of a conversion, or of a dry run.
pub(crate) struct Converted<'a> {
    pub(super) written: Written<'a>,
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) plan: &'a Plan<'a>,
    pub(super) found: &'a Ran,
}

impl Writes for Converted<'_> {
    fn written(&self) -> &Written<'_> {
        &self.written
    }
}

impl Document for Converted<'_> {
    const SCHEMA: &'static str = "blob.convert/1";
    const COMMAND: &'static str = "blob convert --json IN -o OUT";
    const DESCRIPTION: &'static str = "what was written";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for Converted<'_> {
    fn fields() -> Vec<Field<Self>> {
        const BLAKE3: &str =
            "the input's BLAKE3, of an ONNX model with its values beside it that of both, joined; not in a dry run";
        let own = vec![
            field("file", Type::String, FILE, |f: &Self| json!(f.checkpoint.name())),
            nullable(
                "index",
                Type::String,
                "the index that opens the output, with --shard-size where it is in shards",
                |f| json!(f.plan.index().map(|(index, _)| index.to_string_lossy())),
            ),
            field("from", Type::String, "the format that was read", |f| json!(f.checkpoint.format().name())),
            field(
                "copy",
                Type::Boolean,
                "whether the output is the input, byte for byte, as formats with a receipt are kept",
                |f| json!(f.plan.is_copy()),
            ),
            changes_field(|f| listed_changes(&f.found.changes)),
            field("left_out", Type::Array(&Type::Object(properties::<LeftOut>)), "what was not written", |f| {
                f.plan.left_out().iter().map(json::value).collect()
            }),
            nullable("model", Type::Object(properties::<Model>), "the ONNX model that was made of the net", |f| {
                f.plan.model().map_or(Value::Null, json::value)
            }),
            nullable("net", Type::Object(properties::<NetOrigin>), "the net that was followed", |f| {
                f.plan.net().map_or(Value::Null, json::value)
            }),
            field("warnings", STRINGS, "what is odd about the input, and changes that nobody asked for", |f| {
                let source =
                    Warnings { checkpoint: f.checkpoint, changes: &f.found.changes, is_copy: f.plan.is_copy() };
                let whole = source.of_file().map(ToString::to_string);
                whole
                    .chain(source.of_arrays().map(|(name, w)| format!("{name:?}: {w}")))
                    .chain(f.found.reports.iter().cloned())
                    .chain(warnings(&f.found.changes))
                    .collect()
            }),
            field(
                "frame_bytes",
                Type::Integer,
                "how many bytes come from the receipt of the input, which had the file around its tensors",
                |f| json!(f.plan.frame_bytes().unwrap_or(0)),
            ),
            optional(
                "recognised",
                Type::Boolean,
                "whether the output's content shows its format; otherwise `--from` reads it",
                |f| json!(f.found.done.as_ref().map(|done| done.is_recognised)),
            ),
            optional("blake3", Type::String, BLAKE3, |f| json!(f.found.done.as_ref().map(|done| &done.blake3))),
            optional("sha256", Type::String, "the input's SHA-256, likewise, with --sha256", |f| {
                json!(f.found.done.as_ref().and_then(|done| done.sha256.as_ref()))
            }),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}

impl Text for Converted<'_> {
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        let terminal = &context.terminal;
        if self.found.done.is_none() {
            self.table(terminal, out)?;
            // The table comes before the message on standard error.
            out.flush()?;
        }
        terminal.written(&self.written, &asked(&self.found.changes));
        if self.plan.is_copy() {
            terminal.note(KEPT);
        }
        note_symbol(self.plan, self.found.done.is_some(), context);
        note_model(self.plan, context);
        notices(&self.found.changes, context);
        if let Some(bytes) = self.plan.frame_bytes() {
            let bytes = units::bytes(bytes);
            terminal.note(format!("  {bytes} around the tensors come from the receipt of the input"));
        }
        Ok(())
    }
}

/// Says that the description of the net is written beside the weights.
pub(crate) fn note_symbol(plan: &Plan<'_>, is_done: bool, context: &Context) {
    let Some(path) = plan.symbol() else { return };
    let path = path.display();
    context.terminal.note(if is_done {
        format!("the net without what is folded is in {path}")
    } else {
        format!("would write {path} too, the net without what is folded")
    });
}

impl Converted<'_> {
    fn table(&self, terminal: &Terminal, out: &mut Out) -> Result<(), Failure> {
        let columns = vec![
            Column::name("NAME", 24).of(|t: &Planned, terminal| terminal.name(&t.spec.name).into_owned()),
            Column::left("DTYPE").drop_order(1).of(|t, _| t.spec.dtype.to_string()),
            Column::left("SHAPE").drop_order(2).of(|t, terminal| terminal.shape(&t.spec.shape)),
            Column::right("BYTES").drop_order(3).of(|t, _| units::bytes(t.spec.byte_len())),
            Column::text("CHANGES").of(|t, terminal| match &t.changes[..] {
                [] => "-".to_owned(),
                changes => {
                    let words: Vec<String> = changes.iter().map(ToString::to_string).collect();
                    terminal.text(&words.join("; ")).into_owned()
                }
            }),
        ];
        let mut table = Table::new(terminal, columns).named(|each| {
            self.plan.tensors().iter().for_each(|tensor| each(&terminal.name(&tensor.spec.name)));
        });
        for tensor in self.plan.tensors() {
            table.row(out, tensor)?;
        }
        Ok(table.finish(out)?)
    }
}
