//! `names`: renames tensors. `chain` refuses duplicate names, and lists all of these.

use blob_io::{Kind, TensorName};
use serde_json::{Value, json};

use super::{Names, torch};
use crate::transform::f64_io::Places;
use crate::transform::step::{Context, Fact, Made, Misfit, Outcome, Spec, Transform, Undone};

impl Transform for Names {
    fn name(&self) -> &'static str {
        "names"
    }

    fn settings(&self) -> Value {
        json!(self)
    }

    fn keeps_values(&self) -> bool {
        true
    }

    fn undone(&self) -> Undone<'_> {
        Undone::Renamed(self)
    }

    fn relies_on(&self) -> &'static [Fact] {
        if self.torch { &[Fact::Axes, Fact::Eps] } else { &[] }
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let old = &spec.tensor.name;
            let same = Made::same(place, spec);
            // A diff follows the data's name, and a part of a sparse array the array's name.
            let name = TensorName::of(old);
            let follows = name.kind == Kind::Diff || spec.entry.sparse().is_some();
            let whole = self.map.get(name.array).filter(|_| follows);
            let part = whole.map(|whole| TensorName::new(whole, name.kind).to_string());
            match self.map.get(old).cloned().or(part) {
                Some(new) if new != *old => same.renamed(new),
                _ => same,
            }
        });
        let mut outcome: Outcome = made.collect();
        outcome.notes.clone_from(&self.notes);
        outcome.lacking.extend(torch::of_lacking(&self.lacking));
        let places = Places::of(tensors);
        let merged = |scales: &[String], how| {
            let count = scales.iter().filter(|scale| places.find(scale).is_some()).count();
            (count > 0).then(|| format!("names: {count} Scale merged with their BatchNorm, found by {how}"))
        };
        outcome.notices.extend(merged(&self.merged.by_topology, "topology"));
        outcome.notes.extend(merged(&self.merged.by_name, "name"));
        outcome.notes.extend(torch::of_eps(&self.eps));
        Ok(outcome)
    }

    fn follows_net(&self) -> bool {
        self.follows_net
    }

    fn is_idle(&self) -> bool {
        self.map.is_empty() && self.notes.is_empty() && self.lacking.is_empty()
    }
}
