//! The interface of a transform: the tensors that it gets and the tensors that it returns, without their values.
//!
//! `values` has the interface that computes values; `chain` runs several transforms one after the other.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use blob_core::{DType, Shape};
use blob_io::{Checkpoint, Entry, TensorSpec};
use serde_json::Value;

use super::names::Names;
use super::norm::{Norm, Variance};
use super::selection::Selection;
use super::topology::{Followed, FollowedNet, Topology};
use super::values::Compute;

/// Turns the tensors of a file into other tensors.
///
/// It is pure: the same tensors, context and settings give the same outcome, so that a receipt can be replayed.
pub trait Transform: fmt::Debug + Send + Sync {
    /// Its name in receipts: `dtype`.
    fn name(&self) -> &'static str;

    /// Its settings as data. The receipt stores them, and the transform can be rebuilt from them.
    fn settings(&self) -> Value;

    /// Plans the result. Each tensor is used for at least one resulting tensor, or is left out with a reason.
    ///
    /// # Errors
    /// Every tensor that the transform cannot handle, and why.
    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>>;

    /// Whether a net decides what it does: the receipt then names the net in its settings, as `net`.
    fn follows_net(&self) -> bool {
        false
    }

    /// Whether it follows what layers read, so that a net which does not say so counts as none.
    fn follows_edges(&self) -> bool {
        false
    }

    /// Whether it would change nothing and report nothing, so that it can be left out.
    fn is_idle(&self) -> bool {
        false
    }

    /// The tensors of the source that it is about, where it chooses some. Nothing else is read.
    fn selection(&self) -> Option<&Selection> {
        None
    }

    /// Whether it leaves tensors as they are, unless the net says that they are stored in another order.
    fn keeps_order(&self) -> bool {
        false
    }

    /// What it takes to have the tensors of before again, where an output needs their names.
    fn undone(&self) -> Undone<'_> {
        Undone::Changed
    }

    /// The tensors that it merges into those of these names.
    fn merged_into(&self, _names: &HashSet<&str>) -> Vec<String> {
        Vec::new()
    }

    /// What it leaves that is no longer as a net says.
    fn left(&self) -> Left<'_> {
        Left::AsSaid
    }

    /// What it takes from a net, and an earlier conversion may have changed.
    fn relies_on(&self) -> &'static [Fact] {
        &[]
    }

    /// For a transform that must not be done to the same tensors twice, as a permutation: what they are after it, in
    /// words that follow "it was": `permuted to hwio`. A file whose receipt lists a transform of this name is refused.
    fn only_once(&self) -> Option<String> {
        None
    }
}

impl dyn Transform + '_ {
    /// Whether it follows this net.
    pub(crate) fn follows(&self, net: &FollowedNet) -> bool {
        self.follows_net() && (net.is_wired || !self.follows_edges())
    }
}

/// What it takes to have the tensors again that a transform was given.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Undone<'a> {
    /// Nothing: these are as good as those, for the framework that they came from.
    AsItWas,
    /// Their names.
    Renamed(&'a Names),
    /// The factors of these BatchNorms.
    Divided(&'a [Norm]),
    /// Their order, which is turned round where a file has them as they were.
    Reordered,
    /// More than a receipt has: values were changed.
    Changed,
    /// The tensors that were merged into others: [`Transform::merged_into`] has them.
    Merged,
}

/// What a transform leaves that is no longer as a net says: the receipt tells later conversions of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Left<'a> {
    /// Nothing.
    AsSaid,
    /// The weights of layers, with other axes.
    Turned,
    /// These tensors, with axis `i` where axis `axes[i]` was.
    Permuted {
        /// Their names.
        tensors: &'a [String],
        /// The axes.
        axes: &'a [usize],
    },
    /// Variances to which another eps is added.
    ForEps {
        /// Each with the eps of before.
        variances: &'a [Variance],
        /// The eps of now.
        to: f64,
    },
}

/// What a net says of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact {
    /// What their axes are.
    Axes,
    /// What is added to variances.
    Eps,
}

/// A tensor before a transform.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Spec<'a> {
    /// Its name, dtype and shape after the transforms before.
    pub tensor: TensorSpec,
    /// The entry of the source that its values come from, the first if there are several: its name in the file, its
    /// layer's type and its position.
    pub entry: &'a Entry,
}

impl<'a> Spec<'a> {
    /// A tensor whose values come from an entry of the source.
    #[must_use]
    pub fn new(tensor: TensorSpec, entry: &'a Entry) -> Self {
        Self { tensor, entry }
    }
}

/// What a transform may look at besides the tensors.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    checkpoint: &'a Checkpoint,
    net: Net<'a>,
}

/// Where a context has its net from.
#[derive(Clone, Copy, Debug)]
enum Net<'a> {
    Given(Option<&'a Topology>),
    Followed(&'a Followed<'a>),
}

impl<'a> Context<'a> {
    /// A source and the net that its conversion follows.
    #[must_use]
    pub fn new(checkpoint: &'a Checkpoint, net: Option<&'a Topology>) -> Self {
        Self { checkpoint, net: Net::Given(net) }
    }

    pub(crate) fn following(checkpoint: &'a Checkpoint, followed: &'a Followed<'a>) -> Self {
        Self { checkpoint, net: Net::Followed(followed) }
    }

    /// The net that the conversion follows, the same for all transforms; `None` where nothing describes one.
    ///
    /// # Errors
    /// A net that cannot be read, or that a receipt names and that is not there.
    pub fn net(&self) -> Result<Option<&'a Topology>, Misfit> {
        match self.net {
            Net::Given(net) => Ok(net),
            Net::Followed(followed) => followed.get().map_err(Misfit::about_all),
        }
    }

    /// The same net, if it says what layers read.
    ///
    /// # Errors
    /// As [`Context::net`].
    pub fn wired_net(&self) -> Result<Option<&'a Topology>, Misfit> {
        Ok(self.net()?.filter(|net| net.is_wired()))
    }

    /// The source, for what its headers say; values are read by a [`Compute`].
    #[must_use]
    pub fn checkpoint(&self) -> &'a Checkpoint {
        self.checkpoint
    }
}

/// The result of planning a transform.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// The resulting tensors in order.
    pub made: Vec<Made>,
    /// The places of the tensors that are left out, and why.
    pub left_out: Vec<(usize, String)>,
    /// What a user should look at: each becomes a warning.
    pub notes: Vec<String>,
    /// What a user should know, such as the net that is followed: said, but no warning.
    pub notices: Vec<String>,
    /// The layers that must be removed from the net.
    pub(crate) removed_layers: Vec<String>,
}

impl Outcome {
    /// Adds a note, which is about no single tensor.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds a notice, which is no warning.
    #[must_use]
    pub fn with_notice(mut self, notice: impl Into<String>) -> Self {
        self.notices.push(notice.into());
        self
    }
}

impl FromIterator<Made> for Outcome {
    fn from_iter<I: IntoIterator<Item = Made>>(made: I) -> Self {
        Self { made: made.into_iter().collect(), ..Self::default() }
    }
}

/// A resulting tensor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Made {
    /// Its name, dtype and shape.
    pub tensor: TensorSpec,
    /// The places of the tensors that it is made from: at least one.
    pub from: Vec<usize>,
    /// How its values are obtained.
    pub values: Values,
    /// What the transform changes about it, in words; empty if nothing.
    pub changes: Vec<Cow<'static, str>>,
    /// What it is taken for by its name and shape, where nothing says it: a warning.
    pub guess: Option<&'static str>,
}

/// How the values of a tensor are obtained.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Values {
    /// Those of the one tensor that it is made from, in order, rounded if the dtype changes.
    Same,
    /// Computed from the tensors that it is made from.
    Computed(Arc<dyn Compute>),
}

impl Made {
    /// The tensor at `place`, unchanged.
    #[must_use]
    pub fn same(place: usize, spec: &Spec<'_>) -> Self {
        Self { tensor: spec.tensor.clone(), from: vec![place], values: Values::Same, changes: Vec::new(), guess: None }
    }

    /// A tensor computed from those at the places `from`, which become the [`Inputs`](super::Inputs) in this order.
    #[must_use]
    pub fn computed(tensor: TensorSpec, from: Vec<usize>, compute: impl Compute + 'static) -> Self {
        Self { tensor, from, values: Values::Computed(Arc::new(compute)), changes: Vec::new(), guess: None }
    }

    /// Notes what it is taken for by its name and shape.
    #[must_use]
    pub fn guessed(mut self, what: Option<&'static str>) -> Self {
        self.guess = what;
        self
    }

    /// The same values under another name.
    #[must_use]
    pub fn renamed(mut self, name: impl Into<String>) -> Self {
        self.tensor.name = name.into();
        self
    }

    /// The same values in another shape of as many elements.
    #[must_use]
    pub fn reshaped(mut self, shape: Shape) -> Self {
        self.tensor.shape = shape;
        self
    }

    /// The same values, rounded to another dtype.
    #[must_use]
    pub fn rounded(mut self, dtype: DType) -> Self {
        self.tensor.dtype = dtype;
        self
    }

    /// Adds a description of the change.
    #[must_use]
    pub fn with_change(mut self, change: impl Into<Cow<'static, str>>) -> Self {
        self.changes.push(change.into());
        self
    }
}

/// A tensor that a transform cannot handle.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Misfit {
    /// Its name; empty if the problem concerns no single tensor.
    pub tensor: String,
    /// The problem, worded to follow the name: `has 3 axes, not 4`.
    pub problem: String,
}

impl Misfit {
    /// A problem with one tensor.
    pub fn new(tensor: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { tensor: tensor.into(), problem: problem.into() }
    }

    /// A problem that concerns no single tensor: `there are no weights of a convolution`.
    pub fn about_all(problem: impl Into<String>) -> Self {
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
