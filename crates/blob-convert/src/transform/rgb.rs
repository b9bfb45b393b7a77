//! `rgb`: the input channels of the first convolution from end to beginning, for images of RGB where the net takes BGR.

use serde_json::{Value, json};

use super::reorder::Reorder;
use super::role::{By, Role, guessed, role};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};

/// Reverses the input channels of the first convolution, which must have three: OpenCV's and so Caffe's images are BGR.
///
/// The first is the one that stands first in the file.
#[derive(Clone, Copy, Debug)]
pub struct Rgb;

impl Transform for Rgb {
    fn name(&self) -> &'static str {
        "rgb"
    }

    fn settings(&self) -> Value {
        json!({})
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let is_weight = |spec: &&Spec<'_>| role(spec).0 == Role::Convolution;
        let Some(first) = tensors.iter().find(is_weight) else {
            return Err(vec![Misfit::about_all("there are no weights of a convolution")]);
        };
        if first.tensor.shape.dims().get(1) != Some(&3) {
            let problem =
                format!("is the first convolution, of shape {}, and has not three input channels", first.tensor.shape);
            return Err(vec![Misfit::new(&first.tensor.name, problem)]);
        }
        // With its diff, where there is one.
        let is_first = |spec: &Spec<'_>| {
            let place = |spec: &Spec<'_>| (spec.entry.position(), spec.entry.index());
            place(spec) == place(first) && spec.tensor.shape == first.tensor.shape
        };
        let made = tensors.iter().enumerate().map(|(place, spec)| match is_first(spec) {
            false => Made::same(place, spec),
            true => {
                let order = Reorder::backwards(spec.tensor.shape.dims());
                Made::computed(spec.tensor.clone(), vec![place], order).saying("input channels reversed")
            }
        });
        let mut outcome: Outcome = made.collect();
        let by_shape = usize::from(role(first).1 == By::Shape);
        outcome.notes.extend(guessed(by_shape, "the weights of the first convolution"));
        Ok(outcome)
    }
}
