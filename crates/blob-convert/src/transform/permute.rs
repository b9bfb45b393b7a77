//! `permute`: permutes the axes of the named tensors.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::reorder::permuted;
use super::step::{Context, Left, Made, Misfit, Outcome, Spec, Transform, Undone};

/// Permutes the axes of tensors, as `numpy.transpose` does.
#[derive(Clone, Debug)]
pub struct Permute {
    tensors: Vec<String>,
    axes: Vec<usize>,
}

impl Permute {
    /// Axis `i` of the result is axis `axes[i]`; `None` if `axes` is not a permutation.
    #[must_use]
    pub fn new(tensors: Vec<String>, axes: Vec<usize>) -> Option<Self> {
        let each: HashSet<usize> = axes.iter().copied().filter(|axis| *axis < axes.len()).collect();
        (each.len() == axes.len()).then_some(Self { tensors, axes })
    }

    pub(super) fn read(settings: &Value) -> Option<Self> {
        let axes = settings["axes"].as_array()?.iter().map(|axis| usize::try_from(axis.as_u64()?).ok());
        Self::new(names(&settings["tensors"])?, axes.collect::<Option<_>>()?)
    }
}

/// The names of a transform's tensors.
pub(super) fn names(settings: &Value) -> Option<Vec<String>> {
    settings.as_array()?.iter().map(|name| name.as_str().map(str::to_owned)).collect()
}

/// A misfit for each name that is not among the tensors.
pub(super) fn lacking(names: &[String], tensors: &[Spec<'_>]) -> Vec<Misfit> {
    let there: HashSet<&str> = tensors.iter().map(|spec| &*spec.tensor.name).collect();
    names.iter().filter(|name| !there.contains(&***name)).map(|name| Misfit::new(name, "is not there")).collect()
}

impl Transform for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn settings(&self) -> Value {
        json!({ "tensors": self.tensors, "axes": self.axes })
    }

    fn undone(&self) -> Undone<'_> {
        Undone::Reordered
    }

    fn left(&self) -> Left<'_> {
        Left::Permuted { tensors: &self.tensors, axes: &self.axes }
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let wanted: HashSet<&str> = self.tensors.iter().map(|name| &**name).collect();
        let mut misfits = lacking(&self.tensors, tensors);
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let dims = spec.tensor.shape.dims();
            let same = Made::same(place, spec);
            if !wanted.contains(&*spec.tensor.name) {
                return same;
            }
            if dims.len() != self.axes.len() {
                let problem = format!("has {} axes, and {} are permuted", dims.len(), self.axes.len());
                misfits.push(Misfit::new(&spec.tensor.name, problem));
                return same;
            }
            let axes: Vec<String> = self.axes.iter().map(usize::to_string).collect();
            permuted(place, spec, dims, &self.axes).with_change(format!("axes permuted to {}", axes.join(",")))
        });
        let outcome = made.collect();
        if misfits.is_empty() { Ok(outcome) } else { Err(misfits) }
    }
}
