//! The interface of a transform: the tensors that go in and the tensors that come out; `values` computes values.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use blob_core::{DType, Shape};
use blob_io::layout::TensorSpec;
use blob_io::{Checkpoint, Entry};
use serde_json::Value;

use super::followed::{Followed, FollowedNet, Topology};
use super::names::Names;
use super::norm::{Norm, Variance};
use super::reports::Witness;
use super::selection::Selection;
use super::values::Compute;

/// Turns the tensors of a file into other tensors.
///
/// A transform is pure: the same tensors, context and settings give the same outcome, which a receipt repeats.
pub trait Transform: fmt::Debug + Send + Sync {
    /// The transform's name in receipts: `dtype`.
    fn name(&self) -> &'static str;

    /// The settings as data. The receipt stores the settings, and the transform can be rebuilt from this data.
    fn settings(&self) -> Value;

    /// Plans the result. Each tensor is used for at least one resulting tensor, or is left out with a reason.
    ///
    /// # Errors
    /// Every tensor that the transform cannot handle, and why.
    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>>;

    /// Whether a net decides the outcome: the receipt then names the net in the settings, as `net`.
    fn follows_net(&self) -> bool {
        false
    }

    /// Whether the transform needs the net's edges, so that a net without edges counts as none.
    fn follows_edges(&self) -> bool {
        false
    }

    /// Whether the transform would change and report nothing: a conversion leaves the transform out.
    fn is_idle(&self) -> bool {
        false
    }

    /// The tensors of the source to read, for a transform that chooses some. Other tensors are not read.
    fn selection(&self) -> Option<&Selection> {
        None
    }

    /// The tensors that the settings name, of which the transform passes over absent ones: a recipe refuses these.
    fn named(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Whether the transform leaves every tensor unchanged, unless the net says that the file has another order.
    fn keeps_order(&self) -> bool {
        false
    }

    /// The way back to the tensors before the transform, for an output that needs the old names.
    fn undone(&self) -> Undone<'_> {
        Undone::Changed
    }

    /// The tensors that the transform merges into the tensors of these names.
    fn merged_into(&self, _names: &HashSet<&str>) -> Vec<String> {
        Vec::new()
    }

    /// The differences from the net's description that the transform leaves.
    fn left(&self) -> Left<'_> {
        Left::AsSaid
    }

    /// The facts that the transform takes from a net, and that an earlier conversion may have changed.
    fn relies_on(&self) -> &'static [Fact] {
        &[]
    }

    /// The file that still says which tensors of `source` the transform changes; `None` for the receipt alone.
    fn witness(&self, _source: &Checkpoint) -> Option<Witness> {
        None
    }

    /// Whether the net still reads the tensors as before, so that an ONNX model can be made of them.
    fn fits_net(&self) -> bool {
        false
    }

    /// Whether each tensor that is not left out keeps shape, dtype and values.
    fn keeps_values(&self) -> bool {
        false
    }

    /// Whether the transform leaves out the diffs of arrays, so that none stays in a file that the tensors go into.
    fn strips_diffs(&self) -> bool {
        false
    }

    /// Whether tensors get other positions than in the source: a format without names then tells of new numbers.
    fn renumbers(&self) -> bool {
        false
    }

    /// For a transform that must not be done twice, such as a permutation: the state of the tensors afterwards, behind
    /// "it was": `permuted to hwio`. A file whose receipt lists a transform of this name is refused.
    fn only_once(&self) -> Option<String> {
        None
    }
}

impl dyn Transform + '_ {
    /// Whether the transform follows this net.
    pub(crate) fn follows(&self, net: &FollowedNet) -> bool {
        self.follows_net() && (net.is_wired || !self.follows_edges())
    }
}

/// The way back to the tensors that a transform was given.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Undone<'a> {
    /// No way back is needed: the new tensors are as good as the old ones, for the framework of the source.
    AsItWas,
    /// Tensors were renamed by this map.
    Renamed(&'a Names),
    /// Means and variances were divided, and the factors of these BatchNorms left out.
    Divided(&'a [Norm]),
    /// Values were put into another order. An output whose file has the old order needs the values turned back.
    Reordered,
    /// No way back: values were changed, and the receipt does not have the old ones.
    Changed,
    /// Tensors were merged into others: [`Transform::merged_into`] lists the merged tensors.
    Merged,
}

/// The differences from the net's description that a transform leaves, of which the receipt tells later conversions.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Left<'a> {
    /// No difference.
    AsSaid,
    /// The weights of layers, with other axes.
    Turned,
    /// These tensors, with axis `i` where axis `axes[i]` was.
    Permuted {
        /// The names of the tensors.
        tensors: &'a [String],
        /// The axes.
        axes: &'a [usize],
    },
    /// Variances to which another eps is added.
    ForEps {
        /// The variances, each with the old eps.
        variances: &'a [Variance],
        /// The new eps.
        to: f64,
    },
}

/// A fact about tensors that a net tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact {
    /// The meaning of the axes.
    Axes,
    /// The eps added to variances.
    Eps,
}

/// A tensor before a transform.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Spec<'a> {
    /// The name, dtype and shape after the transforms before.
    pub tensor: TensorSpec,
    /// The source's entry that the values come from, the first of several: its name, layer type and position.
    pub entry: &'a Entry,
}

impl<'a> Spec<'a> {
    /// A tensor whose values come from an entry of the source.
    #[must_use]
    pub fn new(tensor: TensorSpec, entry: &'a Entry) -> Self {
        Self { tensor, entry }
    }
}

/// The source and the net: a transform may look at both besides the tensors.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    checkpoint: &'a Checkpoint,
    net: Net<'a>,
    /// The steps that have changed values before, in this conversion or an earlier one.
    done: &'a [String],
}

/// The origin of a context's net.
#[derive(Clone, Copy, Debug)]
enum Net<'a> {
    Given(Option<&'a Topology>),
    Followed(&'a Followed<'a>),
}

impl<'a> Context<'a> {
    /// A source and the net that the conversion follows.
    #[must_use]
    pub fn new(checkpoint: &'a Checkpoint, net: Option<&'a Topology>) -> Self {
        Self { checkpoint, net: Net::Given(net), done: &[] }
    }

    pub(crate) fn following(checkpoint: &'a Checkpoint, followed: &'a Followed<'a>, done: &'a [String]) -> Self {
        Self { checkpoint, net: Net::Followed(followed), done }
    }

    /// Whether a step of this name has changed values before.
    pub(super) fn is_after(&self, step: &str) -> bool {
        self.done.iter().any(|done| done == step)
    }

    /// The net that the conversion follows, the same for all transforms; `None` if no net is described.
    ///
    /// # Errors
    /// A net that cannot be read, or a missing net that a receipt names.
    pub fn net(&self) -> Result<Option<&'a Topology>, Misfit> {
        match self.net {
            Net::Given(net) => Ok(net),
            Net::Followed(followed) => followed.get().map_err(Misfit::about_all),
        }
    }

    /// The same net; `None` also for a net that does not say which layer reads what.
    ///
    /// # Errors
    /// As [`Context::net`].
    pub fn wired_net(&self) -> Result<Option<&'a Topology>, Misfit> {
        Ok(self.net()?.filter(|net| net.is_wired()))
    }

    /// The source, for facts from the headers. A [`Compute`] reads values.
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
    /// Remarks for a user to check: each becomes a warning.
    pub notes: Vec<String>,
    /// Remarks on tensors that stay as they are, though the order of the values that they meet has changed, or is not
    /// known: each becomes a warning that [`Options::strict`](crate::Options::strict) refuses.
    pub unfitting: Vec<String>,
    /// Remarks on parameters that a net needs and the file lacks: each becomes a warning, and is refused alike.
    pub lacking: Vec<String>,
    /// Remarks for a user to know, such as the net that is followed: shown, but no warning.
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
    /// The name, dtype and shape.
    pub tensor: TensorSpec,
    /// The places of the tensors that this tensor is made from: at least one.
    pub from: Vec<usize>,
    /// How the values are obtained.
    pub values: Values,
    /// The changes by the transform, in words; empty for an unchanged tensor.
    pub changes: Vec<Cow<'static, str>>,
    /// The role guessed from name and shape, where nothing else tells the role: a warning.
    pub guess: Option<&'static str>,
}

/// How the values of a tensor are obtained.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Values {
    /// The values of the one source tensor, in order, rounded if the dtype changes.
    Same,
    /// Computed from the source tensors.
    Computed(Arc<dyn Compute>),
}

impl Made {
    /// The tensor at `place`, unchanged.
    #[must_use]
    pub fn same(place: usize, spec: &Spec<'_>) -> Self {
        Self { tensor: spec.tensor.clone(), from: vec![place], values: Values::Same, changes: Vec::new(), guess: None }
    }

    /// A tensor computed from the tensors at the places `from`, the [`Inputs`](super::Inputs) in this order.
    #[must_use]
    pub fn computed(tensor: TensorSpec, from: Vec<usize>, compute: impl Compute + 'static) -> Self {
        Self { tensor, from, values: Values::Computed(Arc::new(compute)), changes: Vec::new(), guess: None }
    }

    /// Notes the role guessed from name and shape.
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
    /// The tensor's name; empty if the problem concerns no single tensor.
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
