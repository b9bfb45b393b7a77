//! `merge`: concatenates tensors along an axis, and with them their diffs.

use std::collections::HashSet;

use blob_core::Shape;
use blob_io::TensorName;
use blob_io::layout::TensorSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::f64_io::Places;
use super::runs::{Gather, Indices};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};

/// Concatenates tensors of one dtype, whose shapes differ only in one axis.
///
/// The result stands where the first of them stood. If each of them has a diff, as Caffe's blobs can, the diffs are
/// concatenated too; else they are left out.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Merge {
    tensors: Vec<String>,
    axis: i64,
    into: String,
}

impl Merge {
    /// These tensors, in this order, along this axis, which counts from the last one if it is negative, as `into`.
    pub fn new(tensors: Vec<String>, axis: i64, into: impl Into<String>) -> Self {
        Self { tensors, axis, into: into.into() }
    }

    /// The tensors at these places as one.
    fn made(&self, tensors: &[Spec<'_>], places: Vec<usize>, into: &str) -> Result<Made, Misfit> {
        let first = &tensors[places[0]].tensor;
        let axis = axis_of(&tensors[places[0]], self.axis)?;
        let (mut dims, mut parts) = (first.shape.dims().to_vec(), Vec::new());
        dims[axis] = 0;
        for place in &places {
            let other = &tensors[*place];
            axis_of(other, axis as i64)?;
            let TensorSpec { name, dtype, shape, .. } = &other.tensor;
            if *dtype != first.dtype
                || shape.num_axes() != dims.len()
                || (0..dims.len()).any(|i| i != axis && shape.dims()[i] != dims[i])
            {
                let (one, kind) = (&first.name, format!("{} {}", first.dtype, first.shape));
                let problem =
                    format!("is {dtype} {shape}, which does not fit behind {one:?}, {kind}, along axis {axis}");
                return Err(Misfit::new(name, problem));
            }
            let extent = shape.dims()[axis];
            parts.push(Indices { extent, range: 0..extent });
            dims[axis] = dims[axis].saturating_add(extent);
        }
        let shape = Shape::new(dims).map_err(|e| Misfit::new(&first.name, e.to_string()))?;
        let gather = Gather::new(&shape, axis, first.dtype.size(), &parts);
        let change = format!("{} tensors merged along axis {axis}", places.len());
        Ok(Made::computed(TensorSpec::new(into, first.dtype, shape), places, gather).with_change(change))
    }
}

/// The index of an axis of a tensor that is no part of a sparse array.
pub(super) fn axis_of(spec: &Spec<'_>, axis: i64) -> Result<usize, Misfit> {
    let name = &spec.tensor.name;
    if let Some(sparse) = spec.entry.sparse() {
        let whole = &sparse.name;
        let problem = format!("is a part of the sparse array {whole:?}, which is incomplete without it");
        return Err(Misfit::new(name, problem));
    }
    let axis = i32::try_from(axis).unwrap_or(i32::MAX);
    spec.tensor.shape.axis(axis).map_err(|e| Misfit::new(name, format!("has no such axis: {e}")))
}

impl Transform for Merge {
    fn name(&self) -> &'static str {
        "merge"
    }

    fn settings(&self) -> Value {
        json!(self)
    }

    fn renumbers(&self) -> bool {
        true
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let (found, mut seen, mut misfits) = (Places::of(tensors), HashSet::new(), Vec::new());
        let mut places = Vec::new();
        for name in &self.tensors {
            match found.find(name) {
                Some(place) if seen.insert(place) => places.push(place),
                Some(_) => misfits.push(Misfit::new(name, "is named twice")),
                None => misfits.push(Misfit::new(name, "is not there")),
            }
        }
        if places.is_empty() && misfits.is_empty() {
            misfits.push(Misfit::about_all("there is no tensor to merge"));
        }
        if !misfits.is_empty() {
            return Err(misfits);
        }
        let diffs = places.iter().map(|place| TensorName::diff_of(&tensors[*place].tensor.name));
        let diffs: Vec<usize> = diffs.filter_map(|name| found.find(&name)).collect();
        seen.extend(&diffs);
        let has_all = diffs.len() == places.len();
        let left_out = if has_all { Vec::new() } else { diffs.clone() };
        let mut merged = vec![self.made(tensors, places, &self.into)];
        merged.extend(has_all.then(|| self.made(tensors, diffs, &TensorName::diff_of(&self.into))));
        let mut merged =
            Some(merged.into_iter().collect::<Result<Vec<Made>, Misfit>>().map_err(|misfit| vec![misfit])?);
        let mut outcome = Outcome::default();
        for (place, spec) in tensors.iter().enumerate() {
            if seen.contains(&place) {
                outcome.made.extend(merged.take().into_iter().flatten());
            } else {
                outcome.made.push(Made::same(place, spec));
            }
        }
        if left_out.is_empty() {
            return Ok(outcome);
        }
        let (count, into) = (left_out.len(), &self.into);
        let reason = format!("not every tensor of {into:?} has a diff");
        outcome.left_out = left_out.into_iter().map(|place| (place, reason.clone())).collect();
        let diffs = if count == 1 { "diff" } else { "diffs" };
        Ok(outcome.with_note(format!("merge: left out {count} {diffs}: not every tensor of {into:?} has one")))
    }
}
