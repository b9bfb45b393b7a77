//! One step from tensors to tensors, decided from names, dtypes and shapes: what it is given, and what it returns.
//!
//! Knows no bytes: `values` has what makes them. What steps make together is `chain`'s.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Entry, TensorSpec};
use serde_json::Value;

use super::values::Compute;

/// One step from tensors to tensors.
///
/// It is pure: the same tensors, context and settings give the same outcome, which is how a receipt is replayed.
pub trait Transform: fmt::Debug + Send + Sync {
    /// Its word in receipts: `dtype`.
    fn name(&self) -> &'static str;

    /// What it is asked to do, as data: the receipt keeps them, and they are enough to do it again.
    fn settings(&self) -> Value;

    /// What becomes of the tensors. Each of them goes into one that is made, or is left out with a reason.
    ///
    /// # Errors
    /// Every tensor that it cannot be done with, and why.
    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>>;

    /// Whether it would change nothing and report nothing, so that it can be left out.
    fn is_idle(&self) -> bool {
        false
    }
}

/// A tensor as a step finds it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Spec<'a> {
    /// Its name, dtype and shape, as the steps before have made them.
    pub tensor: TensorSpec,
    /// The source's array that its values come from; of several, the first. It has the file's own name, the layer's type, and
    /// the place in the file.
    pub entry: &'a Entry,
}

/// What is known beside the tensors.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    checkpoint: &'a Checkpoint,
}

impl<'a> Context<'a> {
    pub(crate) fn new(checkpoint: &'a Checkpoint) -> Self {
        Self { checkpoint }
    }

    /// The source, for what its headers say; values are read by a [`Compute`].
    #[must_use]
    pub fn checkpoint(&self) -> &'a Checkpoint {
        self.checkpoint
    }
}

/// What a step makes of the tensors.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// The tensors that go on, in their order.
    pub made: Vec<Made>,
    /// The tensors that do not, by their places, and why.
    pub left_out: Vec<(usize, String)>,
    /// What else is to be known, in words.
    pub notes: Vec<String>,
    /// The layers that the net has no more.
    pub(crate) layers_gone: Vec<String>,
}

impl Outcome {
    /// Adds a note, which is about no single tensor.
    pub(crate) fn noting(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

impl FromIterator<Made> for Outcome {
    fn from_iter<I: IntoIterator<Item = Made>>(made: I) -> Self {
        Self { made: made.into_iter().collect(), ..Self::default() }
    }
}

/// A tensor that a step makes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Made {
    /// Its name, dtype and shape.
    pub tensor: TensorSpec,
    /// The places of the tensors that it is made of: at least one.
    pub from: Vec<usize>,
    /// How its values come about.
    pub values: Values,
    /// What the step changes about it, in words; empty where it changes nothing.
    pub changes: Vec<Cow<'static, str>>,
}

/// How the values of a tensor come about.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Values {
    /// They are those of the one tensor that it is made of, in their order, each rounded to the new dtype where that is another.
    Same,
    /// They are computed.
    Computed(Arc<dyn Compute>),
}

impl Made {
    /// The tensor at `place`, as it is.
    #[must_use]
    pub fn same(place: usize, spec: &Spec<'_>) -> Self {
        Self { tensor: spec.tensor.clone(), from: vec![place], values: Values::Same, changes: Vec::new() }
    }

    /// A tensor whose values are computed of those at the places `from`, which [`Inputs`](super::Inputs) has in this order.
    #[must_use]
    pub fn computed(tensor: TensorSpec, from: Vec<usize>, compute: impl Compute + 'static) -> Self {
        Self { tensor, from, values: Values::Computed(Arc::new(compute)), changes: Vec::new() }
    }

    /// The same values under another name.
    pub(crate) fn renamed(mut self, name: impl Into<String>) -> Self {
        self.tensor.name = name.into();
        self
    }

    /// The same values in another shape of as many elements.
    pub(crate) fn reshaped(mut self, shape: Shape) -> Self {
        self.tensor.shape = shape;
        self
    }

    /// The same values, rounded to another dtype.
    pub(crate) fn rounded(mut self, dtype: DType) -> Self {
        self.tensor.dtype = dtype;
        self
    }

    /// Says in words what is changed about it.
    pub(crate) fn saying(mut self, change: impl Into<Cow<'static, str>>) -> Self {
        self.changes.push(change.into());
        self
    }
}

/// A tensor that a step cannot be done with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Misfit {
    /// Its name; empty where it is about no single tensor.
    pub tensor: String,
    /// Why, in words that follow the name: `has 3 axes, not 4`.
    pub problem: String,
}

impl Misfit {
    /// This tensor, for this reason.
    pub fn new(tensor: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { tensor: tensor.into(), problem: problem.into() }
    }

    /// What is about no single tensor: `there are no weights of a convolution`.
    pub(crate) fn about_all(problem: impl Into<String>) -> Self {
        Self::new("", problem)
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.tensor {
            "" => f.write_str(&self.problem),
            tensor => write!(f, "{tensor:?} {}", self.problem),
        }
    }
}
