//! `strip-diff`: leaves out the diffs of Caffe's blobs.

use std::collections::HashSet;

use blob_io::{Kind, TensorName};
use serde_json::{Value, json};

use super::step::{Context, Made, Misfit, Outcome, Spec, Transform, Undone};

/// Leaves out the diffs that training stores beside the data of Caffe's blobs; in formats without diffs, tensors called
/// like another one plus `.diff`.
#[derive(Clone, Copy, Debug)]
pub struct StripDiff;

impl Transform for StripDiff {
    fn name(&self) -> &'static str {
        "strip-diff"
    }

    fn settings(&self) -> Value {
        json!({})
    }

    fn fits_net(&self) -> bool {
        true
    }

    fn keeps_values(&self) -> bool {
        true
    }

    fn strips_diffs(&self) -> bool {
        true
    }

    fn undone(&self) -> Undone<'_> {
        Undone::AsItWas
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let names: HashSet<&str> = tensors.iter().map(|spec| &*spec.tensor.name).collect();
        let is_caffe = context.checkpoint().format().is_caffe();
        let mut outcome = Outcome::default();
        for (place, spec) in tensors.iter().enumerate() {
            let data = TensorName::of(&spec.tensor.name).diffed().filter(|_| !is_caffe);
            if spec.entry.kind() == Kind::Diff || data.is_some_and(|data| names.contains(data)) {
                outcome.left_out.push((place, "a diff".to_owned()));
            } else {
                outcome.made.push(Made::same(place, spec));
            }
        }
        Ok(outcome)
    }
}
