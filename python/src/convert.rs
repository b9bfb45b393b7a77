//! Conversions: a recipe as JSON, made by `blob_io/_convert.py`, done to an open file.

use std::path::{Path, PathBuf};

use blob_convert::batch::{Job, Marks, Opener, Trust};
use blob_convert::change::Group;
use blob_convert::{Place, Plan, RECEIPT_KEY, Recipe, Silent};
use blob_io::{Checkpoint, Error, Format, IfExists, OpenOptions};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::error::Stop;
use crate::file::File;
use crate::work::{Progress, beside};

/// Opens the source of a job to hash it.
struct Opening;

impl Opener for Opening {
    fn open(&self, path: &Path, format: Option<Format>) -> Result<Checkpoint, Error> {
        format.into_iter().fold(OpenOptions::new(), OpenOptions::from).open(path)
    }
}

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
    beside(py, (&progress, total), move |watch| {
        let source = &opened.checkpoint;
        if recipe.target.if_exists == IfExists::Same {
            let job = Job::new(1, recipe, &Marks::new(salvage))?;
            if let Some(claim) = job.done(&Opening, Trust::Content, None, watch)? {
                return done(source, &job, &claim.blake3);
            }
            recipe = job.marked();
        }
        let into = recipe.target.into.as_ref().map(Checkpoint::open).transpose()?;
        check(&mut recipe, source, into.as_ref())?;
        let plan = recipe.plan_of(&[source], into.as_ref(), &Default::default())?;
        let mut changes = plan.changes();
        let mut said = described(&plan, source);
        if dry_run {
            plan.check(&Silent)?;
            changes.extend(plan.lost_values(watch)?);
        } else {
            let done = plan.run(watch)?;
            changes.extend(done.changes());
            said["bytes_out"] = json!(done.bytes_out);
            said["blake3"] = json!(done.blake3);
            said["sha256"] = json!(done.sha256);
            said["contradicted"] = json!(done.contradicted);
            if plan.has_receipt() {
                said["receipt"] = json!(receipt(&plan, &recipe)?);
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
    let receipt = output.metadata().iter().find(|(key, _)| key == RECEIPT_KEY).map(|(_, text)| text);
    let index = (path != job.output()).then(|| path.display().to_string());
    let mut said = facts(source);
    said["to"] = json!(output.format().name());
    said["index"] = json!(index);
    said["tensors"] = json!(output.entries().len());
    said["bytes_out"] = json!(output.file_len());
    said["blake3"] = json!(blake3);
    said["receipt"] = json!(receipt);
    said["changes"] = json!([]);
    said["done"] = json!(true);
    Ok(said.to_string())
}

/// Refuses options of other formats than the output's, as the tool does, and settles the format.
fn check(recipe: &mut Recipe, source: &Checkpoint, into: Option<&Checkpoint>) -> Result<(), Error> {
    let target = &mut recipe.target;
    let path = target.path.clone().unwrap_or_default();
    let refuse = |message: String| Err(Error::Request { file: path.display().to_string(), message });
    if !target.receipt && matches!(target.place()?, Place::Folder { .. }) {
        return refuse("the receipt of a folder names its files, and stays".to_owned());
    }
    let Some(to) = into.map(Checkpoint::format).or_else(|| target.format_from(source)) else {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        return refuse(format!("does not say which format to write; to= is one of {}", names.join(", ")));
    };
    let extension = path.extension().and_then(|extension| extension.to_str());
    if let (Some(base), Some(extension)) = (into, extension)
        && let Some(promised) = Format::from_extension(extension).filter(|_| !to.is_usual(extension))
    {
        return refuse(format!("would be {}, as {} is, not {}", to.name(), base.name(), promised.name()));
    }
    if into.is_none() {
        target.format = Some(to);
    }
    if target.params_version.is_some() && !to.is_mxnet() {
        return refuse(format!("params_version is of MXNet's files, and the output is {}", to.name()));
    }
    if target.onnx.is_some() && (to != Format::Onnx || into.is_some() || source.format() == Format::Onnx) {
        let options = "input, dynamic_batch, ssd and opset";
        return refuse(format!("{options} are for a new ONNX model, and the output is {}", to.name()));
    }
    if target.form.is_some() && !to.is_caffe() {
        return refuse(format!("form applies to Caffe's files, and the output is {}", to.name()));
    }
    Ok(())
}

/// The facts of a receipt about the source and the output, for formats without a receipt.
fn described(plan: &Plan<'_>, source: &Checkpoint) -> Value {
    let mut said = facts(source);
    said["to"] = json!(plan.to().name());
    said["index"] = json!(plan.index().map(|(index, _)| index.display().to_string()));
    said["tensors"] = json!(plan.tensors().len());
    said["bytes_out"] = json!(plan.output_len());
    said["fold_refused"] = json!(plan.fold().map(|fold| fold.refused().len()));
    said
}

fn facts(source: &Checkpoint) -> Value {
    json!({
        "name": source.file(),
        "bytes": source.stored().len(),
        "format": source.format().name(),
        "dialect": source.dialect(),
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

/// The receipt that was written.
fn receipt(plan: &Plan<'_>, recipe: &Recipe) -> Result<Option<String>, Error> {
    let output = recipe.target.path.as_deref().unwrap_or(Path::new(""));
    let path = plan.index().map_or(output, |(index, _)| index);
    let written = OpenOptions::new().open(path)?;
    let text = written.metadata().iter().find(|(key, _)| key == RECEIPT_KEY);
    Ok(text.map(|(_, text)| text.clone()))
}
