//! `fc-from`: the columns of an inner product behind a flattening, for a framework that flattens channels last.
//!
//! Caffe, MXNet and torch flatten channels × height × width; TensorFlow and Keras flatten height × width × channels.

use serde_json::{Value, json};

use super::reorder::Reorder;
use super::role::{By, Role, guessed, role};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};

/// Permutes the columns of the inner products that have as many inputs as the extents say: from channels × height × width to
/// height × width × channels.
#[derive(Clone, Copy, Debug)]
pub struct FcFrom([usize; 3]);

impl FcFrom {
    /// Behind an output of so many channels, of this height and width; `None` where there are no inputs, or more than can be
    /// counted.
    #[must_use]
    pub fn new(channels: usize, height: usize, width: usize) -> Option<Self> {
        let inputs = channels.checked_mul(height)?.checked_mul(width)?;
        (inputs > 0).then_some(Self([channels, height, width]))
    }

    pub(super) fn read(settings: &Value) -> Option<Self> {
        let extent = |name: &str| settings[name].as_u64().and_then(|n| usize::try_from(n).ok());
        Self::new(extent("channels")?, extent("height")?, extent("width")?)
    }
}

impl Transform for FcFrom {
    fn name(&self) -> &'static str {
        "fc-from"
    }

    fn settings(&self) -> Value {
        let [channels, height, width] = self.0;
        json!({ "channels": channels, "height": height, "width": width })
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let [channels, height, width] = self.0;
        let inputs = channels * height * width;
        let (mut by_shape, mut count) = (0, 0);
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let same = Made::same(place, spec);
            let (Role::InnerProduct, by) = role(spec) else { return same };
            let ([rows, columns] | [1, 1, rows, columns]) = *spec.tensor.shape.dims() else { return same };
            if columns != inputs {
                return same;
            }
            count += 1;
            by_shape += usize::from(by == By::Shape);
            let order = Reorder::permuted(&[rows, channels, height, width], &[0, 2, 3, 1]);
            Made::computed(spec.tensor.clone(), vec![place], order)
                .saying(format!("columns permuted from {channels}\u{d7}{height}\u{d7}{width} to channels last"))
        });
        let mut outcome: Outcome = made.collect();
        if count == 0 {
            let problem = format!("no weights of an inner product have {inputs} inputs");
            return Err(vec![Misfit::about_all(problem)]);
        }
        outcome.notes.extend(guessed(by_shape, "weights of inner products"));
        Ok(outcome)
    }
}
