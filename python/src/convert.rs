//! Conversions: a recipe as JSON, made by `blob_io/_convert.py`, done to an open file.

use std::path::{Path, PathBuf};

use blob_convert::batch::{Job, Marks, Trust};
use blob_convert::change::Group;
use blob_convert::{Recipe, Silent};
use blob_io::{Checkpoint, Error, Format, IfExists, OpenOptions};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::error::Stop;
use crate::file::{File, receipt};
use crate::work::{Progress, beside};

/// Does a recipe to an open file, unless it is done. Returns JSON: the output, and the changes that a user should know.
#[pyfunction]
#[pyo3(signature = (source, target, recipe, *, into=None, salvage=false, dry_run=false, progress=None))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn run_recipe(
    py: Python<'_>,
    source: &File,
    target: PathBuf,
    recipe: &str,
    into: Option<PathBuf>,
    salvage: bool,
    dry_run: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> Result<String, Stop> {
    let mut recipe = Recipe::read("the options", recipe)?;
    recipe.target.path = Some(target);
    recipe.target.into = into;
    let opened = source.opened()?;
    let (progress, total) = (Progress::new(progress)?, opened.checkpoint.file_len());
    beside(py, &progress, total, move |watch| {
        let source = &opened.checkpoint;
        if recipe.target.if_exists == IfExists::Same {
            let job = Job::new(1, recipe, &Marks::new(salvage))?;
            if let Some(claim) = job.done(&OpenOptions::new(), Trust::Content, None, watch)? {
                return done(source, &job, &claim.blake3);
            }
            recipe = job.marked(source);
        }
        let into = recipe.target.into.as_ref().map(Checkpoint::open).transpose()?;
        let plan = recipe.plan_of(&[source], into.as_ref(), &Default::default())?;
        let index = plan.index().map(|(index, _)| index);
        let mut changes = plan.changes();
        let mut said = facts(source, plan.to(), index, plan.tensors().len());
        said["bytes_out"] = json!(plan.output_len());
        if dry_run {
            plan.check(&Silent)?;
            changes.extend(plan.lost_values(watch)?);
        } else {
            let done = plan.run(watch)?;
            changes.extend(done.changes());
            said["bytes_out"] = json!(done.bytes_out);
            said["blake3"] = json!(done.blake3);
            said["sha256"] = json!(done.sha256);
            if let Some(path) = index.or(recipe.target.path.as_deref()).filter(|_| plan.has_receipt()) {
                said["receipt"] = json!(receipt(&OpenOptions::new().open(path)?));
            }
        }
        said["changes"] = changes.iter().map(change).collect();
        Ok(said.to_string())
    })
}

/// What is known of an output that an earlier call wrote.
fn done(source: &Checkpoint, job: &Job, blake3: &str) -> Result<String, Error> {
    let path = job.opening();
    let output = Checkpoint::open(&path)?;
    let index = (path != job.output()).then_some(&*path);
    let mut said = facts(source, output.format(), index, output.entries().len());
    said["bytes_out"] = json!(output.file_len());
    said["blake3"] = json!(blake3);
    said["receipt"] = json!(receipt(&output));
    said["done"] = json!(true);
    Ok(said.to_string())
}

/// The facts of a receipt about the source and the output, for formats without a receipt.
fn facts(source: &Checkpoint, to: Format, index: Option<&Path>, tensors: usize) -> Value {
    json!({
        "name": source.file(),
        "bytes": source.stored().len(),
        "format": source.format().name(),
        "dialect": source.dialect(),
        "to": to.name(),
        "index": index.map(|index| index.display().to_string()),
        "tensors": tensors,
        "changes": [],
    })
}

fn change(group: &Group) -> Value {
    let change = &group.change;
    json!({
        "change": change.effect.name(),
        "tensors": group.tensors,
        "text": group.to_string(),
        "is_loss": change.is_loss(),
        "is_warned": change.is_warned(),
    })
}
