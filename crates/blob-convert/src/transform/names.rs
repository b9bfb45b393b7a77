//! `names`: renames tensors.
//!
//! Tensors that the map does not contain keep their names. `chain` refuses duplicate names and lists them all.

mod file;
mod torch;
mod wished;

use blob_io::{Kind, TensorName};
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::step::{Context, Fact, Made, Misfit, Outcome, Spec, Transform, Undone};
pub(crate) use wished::{Given, Wished};

/// Renames tensors.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Names {
    map: BTreeMap<String, String>,
    /// The modules of normalisations that need another eps than PyTorch gives them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    eps: Vec<OfEps>,
    /// Whether these are the names that PyTorch gives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    torch: bool,
    #[serde(skip)]
    follows_net: bool,
    #[serde(skip)]
    notes: Vec<String>,
    #[serde(skip)]
    notices: Vec<String>,
}

/// The modules that have an eps.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct OfEps {
    eps: f64,
    modules: Vec<String>,
}

impl Names {
    /// Its name in receipts.
    pub(crate) const NAME: &str = "names";

    /// A map from old names to new ones.
    pub fn new(map: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { map: map.into_iter().collect(), ..Self::default() }
    }

    /// Whether it renames nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Whether these are the names that PyTorch gives.
    pub(crate) fn is_torch(&self) -> bool {
        self.torch
    }

    /// The new name of a tensor; its own where the map has none.
    pub(crate) fn of<'n>(&'n self, name: &'n str) -> &'n str {
        self.map.get(name).map_or(name, String::as_str)
    }

    /// The old names, each with its new one.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.map.iter().map(|(old, new)| (&**old, &**new))
    }
}

impl Transform for Names {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> Value {
        json!(self)
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
            // A diff follows its data's name, and a part of a sparse array the array's name.
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
        outcome.notices.clone_from(&self.notices);
        outcome.notes.extend(self.eps.iter().map(torch::of_eps));
        Ok(outcome)
    }

    fn follows_net(&self) -> bool {
        self.follows_net
    }

    fn is_idle(&self) -> bool {
        self.map.is_empty() && self.notes.is_empty() && self.notices.is_empty()
    }
}
