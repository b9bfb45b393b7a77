//! `blob fold`: folds BatchNorms into the layers before them: the recipe of one step. `blob_convert` decides which ones
//! can be folded.

use std::io::Write;

use blob_convert::change::Group;
use blob_convert::report::json::{self, Document, FILE, Field, Fields, STRINGS, Type, field, nullable, properties};
use blob_convert::transform::{Amount, Fold as Folding, Found, NetOrigin, Refusal};
use blob_convert::{Plan, Step};
use blob_io::Checkpoint;
use serde_json::json;

use crate::args::Fold;
use crate::context::Context;
use crate::convert::{Conversion, changes_field, listed_changes, note_symbol, recipe_of};
use crate::failure::{Failure, Status};
use crate::output::Out;
use crate::output::format::format_of;
use crate::output::written::{Writes, Written, written_fields};
use crate::render::Text;
use crate::units;

pub(crate) fn run(args: &Fold, context: &Context) -> Result<Status, Failure> {
    let mut recipe = recipe_of(&args.input, Some(&args.output), context).selecting(args.only.selection());
    recipe = recipe.step(Step::fold());
    recipe.net = args.nets.file();
    args.writing.set(Some(format_of(&args.output, args.to)?), args.skip, &mut recipe.target);
    recipe.target.anew = true;
    let conversion = Conversion::begin(recipe, args.writing.dry_run, context)?;
    // Why nothing can be folded; a plan says so among its changes.
    let plan = conversion.plan(context).inspect_err(|_| context.note_solver(conversion.source()))?;
    let Some(fold) = plan.fold() else { return Err(Failure::new("there is nothing to fold")) };
    let notices = plan.changes();
    let notices = notices.iter().filter(|group| group.change.is_notice());
    notices.for_each(|group| context.terminal.note(context.terminal.text(&group.to_string())));
    let found = conversion.run(&plan, context)?;
    let done = found.done.as_ref().map_or(&[][..], |done| &done.found);
    let written = conversion.written(&plan, &found);
    context.print(Folded {
        written,
        checkpoint: conversion.source(),
        plan: &plan,
        fold,
        changes: &found.changes,
        found: done,
    })?;
    Ok(Status::Yes)
}

/// The result of the command.
pub(crate) struct Folded<'a> {
    written: Written<'a>,
    checkpoint: &'a Checkpoint,
    plan: &'a Plan<'a>,
    fold: &'a Folding,
    changes: &'a [Group],
    found: &'a [Found],
}

impl Folded<'_> {
    /// The tensor with the largest change, and that change.
    fn largest_change(&self) -> Option<(&str, f64)> {
        let changes = self.found.iter().filter_map(|found| match found.amount {
            Amount::Most(value) => Some((&*found.tensor, value)),
            _ => None,
        });
        changes.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

impl Writes for Folded<'_> {
    fn written(&self) -> &Written<'_> {
        &self.written
    }
}

impl Text for Folded<'_> {
    fn text(self, context: &Context, out: &mut Out) -> Result<(), Failure> {
        out.flush()?;
        let terminal = &context.terminal;
        let (layers, scales) = (self.fold.count(), self.fold.scales());
        let counts = [(layers - scales, "BatchNorm"), (scales, "Scale")];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let layers: Vec<String> = counts.map(|(count, what)| units::plural(*count as u64, what)).collect();
        terminal.written(&self.written, &[format!("{} folded", layers.join(" and "))]);
        note_symbol(self.plan, self.written.took.is_some(), context);
        if let Some((name, value)) = self.largest_change() {
            terminal.note(format!("the largest change of a weight is {value:.4} in {}", terminal.name(name)));
        }
        Ok(())
    }
}

impl Document for Folded<'_> {
    const SCHEMA: &'static str = "blob.fold/1";
    const COMMAND: &'static str = "blob fold --json FILE -o OUT";
    const DESCRIPTION: &'static str = "what was folded";

    fn sources(&self) -> Vec<&Checkpoint> {
        vec![self.checkpoint]
    }
}

impl Fields for Folded<'_> {
    fn fields() -> Vec<Field<Self>> {
        let own = vec![
            field("file", Type::String, FILE, |f: &Self| json!(f.checkpoint.name())),
            field("layers", Type::Integer, "how many normalisations were folded, a Scale alone among them", |f| {
                json!(f.fold.count())
            }),
            nullable("net", Type::Object(properties::<NetOrigin>), "the net that was followed", |f| {
                f.plan.net().map_or(json!(null), json::value)
            }),
            nullable("symbol", Type::String, "the new symbol of MXNet's, without the layers that were folded", |f| {
                json!(f.plan.symbol().map(|path| path.to_string_lossy()))
            }),
            field("left_out", STRINGS, "the tensors that were folded into others", |f| {
                f.plan.left_out().iter().map(|left| json!(left.name)).collect()
            }),
            field("refused", Type::Array(&Type::Object(properties::<Refusal>)), "what was not folded", |f| {
                f.fold.refused().iter().map(json::value).collect()
            }),
            changes_field(|f| listed_changes(f.changes)),
            field("notes", STRINGS, "further remarks, such as new biases", |f| json!(f.plan.notes())),
            nullable("change", Type::Number, "the largest change of a weight; not in a dry run", |f| {
                json!(f.largest_change().map(|(_, value)| value))
            }),
            nullable("changed", Type::String, "the tensor that it is in", |f| {
                json!(f.largest_change().map(|(name, _)| name))
            }),
        ];
        own.into_iter().chain(written_fields()).collect()
    }
}
