//! `split`: divides a tensor along an axis, and with it its diff.

use blob_core::Shape;
use blob_io::layout::TensorSpec;
use blob_io::{Checkpoint, Entry, Kind, TensorName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::f64_io::Places;
use super::merge::axis_of;
use super::runs::{Gather, Indices, Whole};
use super::selection::Selection;
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};

/// Divides a tensor into parts, which stand where it stood.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Split {
    tensor: String,
    axis: i64,
    sizes: Vec<usize>,
    #[serde(default)]
    into: Vec<String>,
    /// The only part that is kept, alone in its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    part: Option<usize>,
    /// The values of the tensor and of its diff, where they must be unpacked, for the parts of one plan of several
    /// files. Any other plan has its own: the next file may have other values.
    #[serde(skip)]
    unpacked: Option<[Whole; 2]>,
}

impl Split {
    /// Parts of these sizes along an axis, which counts from the last one if it is negative; `into` has the name of
    /// each, as `TENSOR_0`, `TENSOR_1` where it is empty.
    pub fn new(tensor: impl Into<String>, axis: i64, sizes: Vec<usize>, into: Vec<String>) -> Self {
        Self { tensor: tensor.into(), axis, sizes, into, part: None, unpacked: None }
    }

    /// Keeps one part, and leaves the others and all other tensors out.
    #[must_use]
    pub fn only(mut self, part: usize) -> Self {
        self.part = Some(part);
        self
    }

    /// The clones of this step unpack the tensor once.
    pub(crate) fn of_one_plan(self) -> Self {
        Self { unpacked: Some(Default::default()), ..self }
    }

    /// How many parts there are.
    pub(crate) fn parts(&self) -> usize {
        self.sizes.len()
    }

    /// The selection of the tensor and its diff; `None` where the source has no tensor of this name.
    pub(crate) fn own(&self, source: &Checkpoint) -> Option<Selection> {
        let tensor = source.place(&self.tensor)?;
        let places: Vec<usize> = [tensor].into_iter().chain(source.place(&TensorName::diff_of(&self.tensor))).collect();
        Some(Selection::of_places(source, &places))
    }

    /// The diff of the tensor in the source.
    pub(crate) fn diff<'c>(&self, source: &'c Checkpoint) -> Option<&'c str> {
        let tensor = source.entry(&self.tensor).filter(|entry| entry.kind() == Kind::Data)?;
        source.diff_of(tensor).map(Entry::name)
    }

    fn name(&self, part: usize) -> String {
        self.into.get(part).cloned().unwrap_or_else(|| format!("{}_{part}", self.tensor))
    }

    /// The parts of the tensor at a place.
    fn made(
        &self,
        tensors: &[Spec<'_>],
        place: usize,
        is_diff: bool,
        unpacked: Option<Whole>,
    ) -> Result<Vec<Made>, Misfit> {
        let spec = &tensors[place].tensor;
        let axis = axis_of(&tensors[place], self.axis)?;
        let extent = spec.shape.dims()[axis];
        let sum = self.sizes.iter().try_fold(0, |sum: usize, size| sum.checked_add(*size));
        if sum != Some(extent) {
            let sizes: Vec<String> = self.sizes.iter().map(usize::to_string).collect();
            let sum = sum.map_or("more".to_owned(), |sum| sum.to_string());
            let problem = format!("has {extent} indices on axis {axis}, and {} is {sum}", sizes.join(" + "));
            return Err(Misfit::new(&spec.name, problem));
        }
        let mut from = 0;
        let parts = self.sizes.iter().enumerate().map(|(part, size)| {
            let range = from..from + size;
            from += size;
            let mut dims = spec.shape.dims().to_vec();
            dims[axis] = *size;
            let shape = Shape::new(dims).map_err(|e| Misfit::new(&spec.name, e.to_string()))?;
            let change = format!("indices {} to {} of axis {axis}", range.start, range.end);
            let gather =
                Gather::new(&shape, axis, spec.dtype.size(), &[Indices { extent, range }]).of_whole(unpacked.clone());
            let name = self.name(part);
            let name = if is_diff { TensorName::diff_of(&name) } else { name };
            let tensor = TensorSpec::new(name, spec.dtype, shape);
            Ok(Made::computed(tensor, vec![place], gather).with_change(change))
        });
        let parts = parts.collect::<Result<Vec<Made>, Misfit>>()?.into_iter().enumerate();
        Ok(parts.filter(|(part, _)| self.part.is_none_or(|only| only == *part)).map(|(_, made)| made).collect())
    }
}

impl Transform for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn settings(&self) -> Value {
        json!(self)
    }

    fn renumbers(&self) -> bool {
        true
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let found = Places::of(tensors);
        let Some(place) = found.find(&self.tensor) else {
            return Err(vec![Misfit::new(&self.tensor, "is not there")]);
        };
        let (names, parts) = (self.into.len(), self.sizes.len());
        if names > 0 && names != parts {
            return Err(vec![Misfit::new(
                &self.tensor,
                format!("is divided into {parts}, and {names} names are given"),
            )]);
        }
        if self.part.is_some_and(|part| part >= parts) {
            return Err(vec![Misfit::new(&self.tensor, "has no such part")]);
        }
        let diff = found.find(&TensorName::diff_of(&self.tensor));
        let unpacked = self.unpacked.clone().unwrap_or_default();
        // Data and diff are held at the same time.
        let mut room = context.checkpoint().limits().max_alloc;
        let mut divided = |place: usize, is_diff: bool| {
            let len = tensors[place].tensor.byte_len();
            let is_held = !tensors[place].entry.is_plain() && len <= room;
            let unpacked = is_held.then(|| unpacked[usize::from(is_diff)].clone());
            room -= if is_held { len } else { 0 };
            self.made(tensors, place, is_diff, unpacked).map_err(|misfit| vec![misfit])
        };
        let (data, diffs) = (divided(place, false)?, diff.map(|diff| divided(diff, true)).transpose()?);
        // Each part is followed by its diff.
        let mut diffs = diffs.unwrap_or_default().into_iter();
        let mut parts: Vec<Made> = data.into_iter().flat_map(|made| [Some(made), diffs.next()]).flatten().collect();
        let mut outcome = Outcome::default();
        for (other, spec) in tensors.iter().enumerate() {
            if other == place {
                outcome.made.append(&mut parts);
            } else if Some(other) != diff && self.part.is_none() {
                outcome.made.push(Made::same(other, spec));
            } else if Some(other) != diff {
                outcome.left_out.push((other, format!("the file has a part of {:?} alone", self.tensor)));
            }
        }
        Ok(outcome)
    }
}
