//! A map from the names of tensors to new ones.
//!
//! A tensor that the map does not contain keeps the old name.

mod file;
mod renamed;
mod room;
mod torch;
pub(super) mod wished;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use room::Room;

/// PyTorch's name of a BatchNorm's variance in the module.
const VARIANCE: &str = "running_var";

/// Renames tensors.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Names {
    map: BTreeMap<String, String>,
    /// The modules of normalisations with another eps than PyTorch's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    eps: Vec<OfEps>,
    /// Whether the new names are PyTorch's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    torch: bool,
    #[serde(skip)]
    follows_net: bool,
    #[serde(skip)]
    notes: Vec<String>,
    /// The parameters, by PyTorch's names, that the net needs and the file lacks.
    #[serde(skip)]
    lacking: Vec<String>,
    #[serde(skip)]
    merged: Merged,
}

/// The factors of the Scales that are merged with their BatchNorms, by how these were found.
#[derive(Clone, Debug, Default)]
struct Merged {
    by_topology: Vec<String>,
    by_name: Vec<String>,
}

/// An eps, and the modules with this eps.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct OfEps {
    eps: f64,
    modules: Vec<String>,
    /// Whether the modules compute the variance of their input, so that no stored variance could take another eps.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    by_input: bool,
}

impl Names {
    /// A map from old names to new ones.
    pub fn new(map: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { map: map.into_iter().collect(), ..Self::default() }
    }

    /// Reads the settings of a receipt. These have the net where the step followed one.
    pub(super) fn read(settings: &Value) -> Option<Self> {
        let names = Self::deserialize(settings).ok()?;
        Some(Self { follows_net: settings["net"].is_object(), ..names })
    }

    /// Whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Whether the new names are PyTorch's.
    pub(crate) fn is_torch(&self) -> bool {
        self.torch
    }

    /// The eps that the settings state: for each variance by the new name, or for all of them.
    pub(crate) fn stated_eps(&self) -> impl Iterator<Item = (Option<String>, f64)> {
        self.eps.iter().filter(|of| !of.by_input).flat_map(|OfEps { eps, modules, .. }| {
            let each = modules.iter().map(|module| Some(format!("{module}.{VARIANCE}")));
            each.chain(modules.is_empty().then_some(None)).map(|variance| (variance, *eps))
        })
    }

    /// The new name of a tensor; the same name where the map has no new one.
    pub(crate) fn of<'n>(&'n self, name: &'n str) -> &'n str {
        self.map.get(name).map_or(name, String::as_str)
    }

    /// Each old name with the new name.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.map.iter().map(|(old, new)| (&**old, &**new))
    }
}
