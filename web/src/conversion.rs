//! A recipe for the file that is open: the plan in words, and the run.

use blob_convert::report::json::{self, Ordered};
use blob_convert::transform::Registry;
use blob_convert::{Plan, Planned, Recipe, Watch};
use blob_io::{Checkpoint, Error, Output, Sink};
use serde_json::{Value, json};

use crate::refused;

/// A recipe, and the files that the page has opened for it.
pub(crate) struct Conversion<'a> {
    pub(crate) source: &'a Checkpoint,
    pub(crate) recipe: &'a str,
    /// The text of the file that describes the net.
    pub(crate) net: Option<Vec<u8>>,
    /// The model that the tensors go into, where the recipe names one.
    pub(crate) into: &'a Checkpoint,
}

impl Conversion<'_> {
    fn recipe(&self) -> Result<Recipe, Error> {
        let recipe = Recipe::read("the recipe", self.recipe)?;
        Ok(match &self.net {
            Some(text) => recipe.net_text(text.clone()),
            None => recipe,
        })
    }

    fn planned<'p>(&'p self, recipe: &'p Recipe) -> Result<Plan<'p>, Error> {
        let into = recipe.target.into.is_some().then_some(self.into);
        recipe.plan_of(&[self.source], into, &Registry::default())
    }

    /// The plan in words: each tensor of the output, and all changes.
    pub(crate) fn plan(&self) -> Result<String, Error> {
        let recipe = self.recipe()?;
        let plan = self.planned(&recipe)?;
        let mut said = about(&plan);
        said["tensors"] = plan.tensors().iter().map(tensor).collect();
        Ok(said.to_string())
    }

    /// Converts into a place.
    pub(crate) fn run(&self, place: Box<dyn Sink>, watch: &dyn Watch) -> Result<String, Error> {
        let recipe = self.recipe()?;
        let name = recipe.target.path.as_deref().map(|path| path.to_string_lossy().into_owned());
        let output = Output::to_sink(name.ok_or_else(|| refused("the recipe", "it names no output"))?, place);
        let plan = self.planned(&recipe)?;
        let done = plan.run_into(output, watch)?;
        let mut said = about(&plan);
        said["bytes_in"] = json!(done.bytes_in);
        said["bytes_out"] = json!(done.bytes_out);
        said["blake3"] = json!(done.blake3);
        said["sha256"] = json!(done.sha256);
        said["lost"] = done.changes().iter().map(json::value).collect();
        said["contradicted"] = json!(done.contradicted);
        said["symbol_text"] = json!(plan.symbol_text());
        Ok(said.to_string())
    }
}

fn tensor(tensor: &Planned) -> Value {
    let changes: Vec<String> = tensor.changes.iter().map(ToString::to_string).collect();
    let spec = &tensor.spec;
    json!({ "name": spec.name, "dtype": spec.dtype.name(), "shape": spec.shape.dims(), "bytes": spec.byte_len(),
        "changes": changes })
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
        "net": plan.net().map(json::value),
        "symbol": plan.symbol().map(|path| path.to_string_lossy()),
    })
}
