//! `undo`: puts the values of tensors back into the order before an earlier step. The crate's module `undo` finds the
//! step.

use std::collections::HashMap;
use std::sync::Arc;

use blob_core::Shape;
use serde_json::{Value, json};

use super::step::{Context, Made, Misfit, Outcome, Spec, Transform, Values};
use super::values::Compute;

/// Turns tensors back, by name.
#[derive(Debug)]
pub(crate) struct Undo {
    tensors: HashMap<String, Turned>,
}

/// A tensor that an earlier step has put into another order.
#[derive(Clone, Debug)]
pub(crate) struct Turned {
    /// The computation that turns the tensor back.
    pub(crate) back: Arc<dyn Compute>,
    /// The shape before that step, and after that step.
    pub(crate) before: Shape,
    pub(crate) after: Shape,
}

impl Undo {
    pub(crate) fn new(tensors: HashMap<String, Turned>) -> Self {
        Self { tensors }
    }
}

impl Transform for Undo {
    fn name(&self) -> &'static str {
        "undo"
    }

    fn settings(&self) -> Value {
        json!({})
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let mut misfits = Vec::new();
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let same = Made::same(place, spec);
            let Some(turned) = self.tensors.get(&spec.tensor.name) else { return same };
            // Axes of extent 1 may have gone on the way.
            if sides(&spec.tensor.shape) != sides(&turned.after) {
                let problem = format!("has shape {}, and had {} after a step", spec.tensor.shape, turned.after);
                misfits.push(Misfit::new(&spec.tensor.name, problem));
                return same;
            }
            let values = Values::Computed(Arc::clone(&turned.back));
            let made = Made { values, ..same.reshaped(turned.before.clone()) };
            made.with_change("turned back")
        });
        let outcome = made.collect();
        if misfits.is_empty() { Ok(outcome) } else { Err(misfits) }
    }
}

/// The extents other than 1.
fn sides(shape: &Shape) -> Vec<usize> {
    shape.dims().iter().copied().filter(|extent| *extent != 1).collect()
}
