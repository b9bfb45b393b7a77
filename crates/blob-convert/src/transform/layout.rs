//! `layout`: permutes weights to the axis order of another framework.

mod behind;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use blob_core::Shape;
use blob_io::net::{Layer, LayerKind};
use serde_json::{Value, json};

use super::binding::User;
use super::fc_from::FcFrom;
use super::reorder::permuted;
use super::role::{By, CONVOLUTION, INNER_PRODUCT, Roles, Weights};
use super::step::{Context, Fact, Left, Made, Misfit, Outcome, Spec, Transform, Undone};
use super::topology::{Wire, sources, wired};
use crate::change::listed;

/// Permutes the weights of convolutions and of fully connected layers to another framework's axes.
///
/// Caffe, MXNet and PyTorch store convolutions as outputs × inputs/groups × height × width, unless a net of MXNet's
/// says NHWC: outputs × height × width × inputs; matrices as outputs × inputs, unless a net of Caffe's says
/// `transpose`. Only the net that the conversion follows tells these exceptions.
///
/// Weights of deconvolutions, inputs × outputs/groups × height × width, are permuted by the same axes: `hwio` is then
/// height × width × outputs × inputs, as in TensorFlow. If the net says that a convolution is depthwise, `hwio` is
/// TensorFlow's height × width × channels × outputs per channel. Weights of convolutions that do not have four axes are
/// left alone. With `hwio`, matrices become TensorFlow's inputs × outputs, without the leading ones of Caffe before
/// 2015. The factors of Caffe's Scale and Bias along several axes of an image follow the image's axes: with `hwio` and
/// `ohwi`, channels × height × width become height × width × channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// PyTorch's, the usual stored order.
    Oihw,
    /// TensorFlow's and Keras's.
    Hwio,
    /// TensorFlow Lite's.
    Ohwi,
}

impl Layout {
    /// Every layout.
    pub const ALL: &[Self] = &[Self::Oihw, Self::Hwio, Self::Ohwi];

    /// The letters of the axes in order: `hwio`.
    #[must_use]
    pub fn order(self) -> &'static str {
        match self {
            Self::Oihw => "oihw",
            Self::Hwio => "hwio",
            Self::Ohwi => "ohwi",
        }
    }

    /// Whether matrices are inputs × outputs.
    fn is_by_inputs(self) -> bool {
        self == Self::Hwio
    }

    pub(super) fn read(settings: &Value) -> Option<Arc<dyn Transform>> {
        let to = settings["to"].as_str()?;
        let layout = Self::ALL.iter().copied().find(|layout| layout.order() == to)?;
        match settings.get("matrices") {
            Some(Value::Bool(true)) => Some(Arc::new(layout)),
            None => Some(Arc::new(OfConvolutions { to: layout, is_asked: false })),
            Some(Value::Bool(false)) => Some(Arc::new(OfConvolutions { to: layout, is_asked: true })),
            Some(_) => None,
        }
    }
}

impl Transform for Layout {
    fn name(&self) -> &'static str {
        "layout"
    }

    fn settings(&self) -> Value {
        json!({ "to": self.order(), "matrices": true })
    }

    fn keeps_order(&self) -> bool {
        *self == Self::Oihw
    }

    fn only_once(&self) -> Option<String> {
        Some(format!("permuted to {}", self.order()))
    }

    fn undone(&self) -> Undone<'_> {
        Undone::Reordered
    }

    fn left(&self) -> Left<'_> {
        Left::Turned
    }

    fn relies_on(&self) -> &'static [Fact] {
        &[Fact::Axes]
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        self.planned(tensors, context, &[Weights::Convolution, Weights::InnerProduct])
    }

    fn follows_net(&self) -> bool {
        true
    }
}

/// Permutes convolutions alone.
#[derive(Debug)]
struct OfConvolutions {
    to: Layout,
    /// Whether the settings say so; older receipts have no word about matrices.
    is_asked: bool,
}

impl Transform for OfConvolutions {
    fn name(&self) -> &'static str {
        self.to.name()
    }

    fn settings(&self) -> Value {
        if self.is_asked {
            json!({ "to": self.to.order(), "matrices": false })
        } else {
            json!({ "to": self.to.order() })
        }
    }

    fn keeps_order(&self) -> bool {
        self.to.keeps_order()
    }

    fn only_once(&self) -> Option<String> {
        self.to.only_once()
    }

    fn undone(&self) -> Undone<'_> {
        Undone::Reordered
    }

    fn left(&self) -> Left<'_> {
        Left::Turned
    }

    fn relies_on(&self) -> &'static [Fact] {
        self.to.relies_on()
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let outcome = self.to.planned(tensors, context, &[Weights::Convolution])?;
        let roles = Roles::of(context).map_err(|misfit| vec![misfit])?;
        let stay = tensors.iter().filter(|spec| roles.role(spec).0 == Weights::InnerProduct).count();
        if self.is_asked || self.to.keeps_order() || stay == 0 {
            return Ok(outcome);
        }
        let note = format!("layout: matrices of inner products stay: {stay}; \"matrices\": true permutes them, too");
        Ok(outcome.with_note(note))
    }

    fn follows_net(&self) -> bool {
        true
    }
}

/// A tensor in the layout, as one layer reads it; `made` is `None` for a tensor without axes that the layout names.
struct Turned {
    role: Weights,
    by: By,
    made: Option<Made>,
}

impl Turned {
    /// Shape and changes in words; `None` for a tensor that stays.
    fn order(&self) -> Option<(&Shape, &[Cow<'static, str>])> {
        let made = self.made.as_ref().filter(|made| !made.changes.is_empty())?;
        Some((&made.tensor.shape, &made.changes))
    }
}

impl Layout {
    fn planned(self, tensors: &[Spec<'_>], context: &Context<'_>, of: &[Weights]) -> Result<Outcome, Vec<Misfit>> {
        let roles = Roles::of(context).map_err(|misfit| vec![misfit])?;
        // Without edges, or with wrong ones, nothing says which values a layer reads.
        let net = wired(context).ok().flatten();
        let all_wires = net.as_ref().map(sources).unwrap_or_default();
        let wires: HashMap<*const Layer, &Wire<'_>> =
            all_wires.iter().map(|wire| (std::ptr::from_ref(wire.layer), wire)).collect();
        let (mut others, mut count, mut staying, mut misfits) = (0, 0, Vec::new(), Vec::new());
        let mut all = Vec::new();
        for (place, spec) in tensors.iter().enumerate() {
            let turn = |user| self.turned(place, spec, user, of, &wires);
            let user = roles.user(spec);
            let turned = turn(user);
            if let Some(User { layer, .. }) = user
                && roles.users(spec).any(|user| turn(Some(user)).order().is_some())
            {
                let used = roles.other_reader(spec, |user| turn(Some(user)).order() == turned.order());
                misfits.extend(used.map(|used| {
                    let both =
                        format!("has other axes for {:?} than for {used}: one tensor cannot be both", layer.name);
                    Misfit::new(spec.entry.name(), both)
                }));
            }
            let is_turned = turned.order().is_some();
            let Turned { role, by, made } = turned;
            match role {
                Weights::Convolution => {
                    others += usize::from(made.is_none());
                    count += usize::from(made.is_some());
                }
                Weights::InnerProduct => count += 1,
                Weights::Other if user.is_some_and(|user| behind::is_along_axes(user.layer)) => {
                    count += usize::from(is_turned);
                    staying.extend((made.is_none() && self != Self::Oihw).then(|| spec.tensor.name.clone()));
                }
                Weights::Other => {}
            }
            let guess = if role == Weights::Convolution { CONVOLUTION } else { INNER_PRODUCT };
            let guess = (by == By::Shape && is_turned).then_some(guess);
            all.push(made.unwrap_or_else(|| Made::same(place, spec)).guessed(guess));
        }
        if !misfits.is_empty() {
            return Err(misfits);
        }
        let mut outcome: Outcome = all.into_iter().collect();
        if others > 0 {
            outcome = outcome.with_note(format!("weights of convolutions that have not four axes stay: {others}"));
        }
        if !staying.is_empty() {
            let why = "as the net does not tell which these are";
            outcome.unfitting.push(format!("layout: factors of several axes stay, {why}: {}", listed(&staying)));
        }
        if let Some(net) = &net {
            outcome.unfitting.extend(match self {
                Self::Oihw => behind::first(net, &all_wires, tensors),
                Self::Hwio | Self::Ohwi => behind::last(self, net, &all_wires, tensors, context.is_after(FcFrom::NAME)),
            });
        }
        Ok(if count == 0 {
            outcome.with_note("there are no weights of convolutions or inner products to permute")
        } else {
            outcome
        })
    }

    /// A tensor in the layout, as one of the layers reads it.
    fn turned(
        self,
        place: usize,
        spec: &Spec<'_>,
        user: Option<User<'_>>,
        of: &[Weights],
        wires: &HashMap<*const Layer, &Wire<'_>>,
    ) -> Turned {
        let (role, by) = Roles::role_in(user, spec);
        let (role, layer) = (if of.contains(&role) { role } else { Weights::Other }, user.map(|user| user.layer));
        let made = match role {
            Weights::Convolution => self.convolution(place, spec, layer),
            Weights::InnerProduct => self.matrix(place, spec, layer),
            Weights::Other => layer.filter(|layer| behind::is_along_axes(layer)).and_then(|layer| {
                behind::factors(self, place, spec, layer, wires.get(&std::ptr::from_ref(layer)).copied())
            }),
        };
        Turned { role, by, made }
    }

    /// Permutes the weights of a convolution; `None` where the axes have no place in the layout.
    fn convolution(self, place: usize, spec: &Spec<'_>, layer: Option<&Layer>) -> Option<Made> {
        let dims = spec.tensor.shape.dims();
        let stored = if layer.is_some_and(|layer| layer.channels_last) { Self::Ohwi } else { Self::Oihw };
        if dims.len() != 4 {
            let turns_back = self == Self::Oihw && stored == Self::Ohwi && dims.len() > 2;
            return turns_back.then(|| {
                let axes: Vec<usize> = [0, dims.len() - 1].into_iter().chain(1..dims.len() - 1).collect();
                permuted(place, spec, dims, &axes)
                    .with_change("input channels permuted from the last axis to the second")
            });
        }
        // A diff belongs to the same layer as the data.
        let groups = layer.and_then(|layer| groups(layer, dims[0])).filter(|_| self == Self::Hwio);
        let axis = |letter: char| stored.order().find(letter).unwrap_or_default();
        let axes: Vec<usize> = self.order().chars().map(axis).collect();
        let oihw: Vec<usize> = Self::Oihw.order().chars().map(|letter| dims[axis(letter)]).collect();
        let (from, to) = (stored.order(), self.order());
        let made = permuted(place, spec, dims, &axes);
        Some(match groups.and_then(|groups| by_channel(&oihw, groups)) {
            // The outputs of one channel are adjacent, so only the shape differs.
            Some(shape) => {
                made.reshaped(shape).with_change(format!("permuted from {from} to hwcm, of a depthwise convolution"))
            }
            None if stored == self => Made::same(place, spec),
            None => made.with_change(format!("permuted from {from} to {to}")),
        })
    }

    /// Permutes the weights of an inner product; `None` for weights that have the layout's order, or no two axes.
    fn matrix(self, place: usize, spec: &Spec<'_>, layer: Option<&Layer>) -> Option<Made> {
        let (by_inputs, is_turned) = (layer.is_some_and(|layer| layer.transpose), self.is_by_inputs());
        let [rows, columns] = *spec.tensor.shape.dims().strip_prefix(&[1, 1]).unwrap_or(spec.tensor.shape.dims())
        else {
            return None;
        };
        if by_inputs == is_turned {
            return None;
        }
        let to = if is_turned { "inputs \u{d7} outputs" } else { "outputs \u{d7} inputs" };
        Some(permuted(place, spec, &[rows, columns], &[1, 0]).with_change(format!("transposed to {to}")))
    }
}

/// The number of groups of a convolution in groups. The type of some layers implies one group per channel.
fn groups(layer: &Layer, outputs: usize) -> Option<usize> {
    if layer.kind != LayerKind::Convolution {
        return None;
    }
    if layer.type_name.contains("Depthwise") {
        return Some(outputs);
    }
    usize::try_from(layer.group).ok().filter(|groups| *groups > 1)
}

/// TensorFlow's shape for the weights of a depthwise convolution: height, width, channels, outputs per channel.
fn by_channel(dims: &[usize], channels: usize) -> Option<Shape> {
    let [outputs, 1, height, width] = *dims else { return None };
    let is_even = channels > 0 && outputs.is_multiple_of(channels);
    is_even.then(|| Shape::new([height, width, channels, outputs / channels]).ok()).flatten()
}
