//! A recipe for the file that is open: the plan in words, and the run.

use blob_convert::report::json::{self, Ordered};
use blob_convert::transform::Registry;
use blob_convert::{Plan, Recipe, Watch};
use blob_io::{Checkpoint, Error, Output, Sink};
use serde_json::{Value, json};

use crate::refused;

/// The plan in words: each tensor of the output, and all changes.
pub(crate) fn plan(checkpoint: &Checkpoint, recipe: &str) -> Result<String, Error> {
    let recipe = Recipe::read("the recipe", recipe)?;
    let plan = recipe.plan_of(&[checkpoint], None, &Registry::default())?;
    let tensor = |tensor: &blob_convert::Planned| {
        let changes: Vec<String> = tensor.changes.iter().map(ToString::to_string).collect();
        let spec = &tensor.spec;
        json!({ "name": spec.name, "dtype": spec.dtype.name(), "shape": spec.shape.dims(), "bytes": spec.byte_len(),
            "changes": changes })
    };
    let tensors: Vec<Value> = plan.tensors().iter().map(tensor).collect();
    let mut said = about(&plan);
    said["tensors"] = json!(tensors);
    Ok(said.to_string())
}

fn about(plan: &Plan<'_>) -> Value {
    let changes: Vec<Value> =
        plan.changes().iter().filter_map(|group| serde_json::to_value(Ordered(group)).ok()).collect();
    let left_out: Vec<Value> = plan.left_out().iter().map(json::value).collect();
    json!({
        "to": plan.to().name(),
        "bytes_out": plan.output_len(),
        "copy": plan.is_copy(),
        "receipt": plan.has_receipt(),
        "changes": changes,
        "left_out": left_out,
    })
}

/// Converts into a place.
pub(crate) fn run(
    checkpoint: &Checkpoint,
    recipe: &str,
    place: Box<dyn Sink>,
    watch: &dyn Watch,
) -> Result<String, Error> {
    let recipe = Recipe::read("the recipe", recipe)?;
    let name = recipe.target.path.as_deref().map(|path| path.to_string_lossy().into_owned());
    let output = Output::to_sink(name.ok_or_else(|| refused("the recipe", "it names no output"))?, place);
    let plan = recipe.plan_of(&[checkpoint], None, &Registry::default())?;
    let done = plan.run_into(output, watch)?;
    let mut said = about(&plan);
    let lost: Vec<Value> = done.changes().iter().map(json::value).collect();
    said["bytes_in"] = json!(done.bytes_in);
    said["bytes_out"] = json!(done.bytes_out);
    said["blake3"] = json!(done.blake3);
    said["lost"] = json!(lost);
    said["contradicted"] = json!(done.contradicted);
    Ok(said.to_string())
}
