//! `fold`: merges a BatchNorm and the Scale after it, or a Scale alone, into the weights and bias of the layer before.
//!
//! With scale = gamma / sqrt(variance / factor + eps) for each channel, weights become weight · scale, and the bias
//! (bias − mean / factor) · scale + beta. Computed in f64, each value rounded once. `find` decides where folding is
//! valid.

mod affine;
mod find;
mod side;
mod symbol;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use blob_core::Shape;
use blob_io::layout::TensorSpec;
use blob_io::{Error, Remedy, TensorName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::f64_io::Places;
use super::ignored::is_zero;
use super::step::{Context, Fact, Made, Misfit, Outcome, Spec, Transform, Undone};
use super::wish::Wish;
use crate::change;
use blob_io::words::listed;

use affine::{FACTOR, Norm, Normalised, Of, PARTS};
use find::by_reason;
use side::Side;

pub use find::{Refusal, RefusalKind};
pub(super) use find::{is_by_channel, lacking, scale_after};

/// Folds normalisations into the layers before them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Fold {
    layers: Vec<Folded>,
    /// The number of folded Scales without a BatchNorm.
    #[serde(skip)]
    scales: usize,
    /// The normalisations that are not folded.
    #[serde(skip)]
    refused: Vec<Refusal>,
    /// Whether a new description of the net comes with the tensors, or why there is none.
    #[serde(skip)]
    description: Option<Result<(), String>>,
}

/// One normalisation to fold, with the names of the tensors.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Folded {
    /// The name of the normalisation's layer.
    layer: String,
    /// The name of the Scale layer after it.
    scale_layer: Option<String>,
    weight: String,
    /// The name of the bias beside `weight`, stored or new.
    bias: String,
    has_bias: bool,
    side: Side,
    eps: f64,
    /// Without mean and variance, as in SegNet's BN, the channels are only scaled and shifted.
    mean: Option<String>,
    variance: Option<String>,
    factor: Option<String>,
    /// An absent or fixed gamma counts as 1.
    gamma: Option<String>,
    fix_gamma: bool,
    beta: Option<String>,
    /// The factors and summands of the Scale layer.
    scale: Option<String>,
    shift: Option<String>,
}

/// The names of the tensors of one fold.
#[derive(Debug)]
pub(crate) struct FoldedNames<'a> {
    pub(crate) weight: &'a str,
    /// The bias beside the weight, stored or new.
    pub(crate) bias: &'a str,
    pub(crate) gets_bias: bool,
    /// The tensors that are merged, and so removed.
    pub(crate) merged: Vec<&'a str>,
}

impl Folded {
    fn parts(&self) -> [Option<&String>; PARTS] {
        let gamma = self.gamma.as_ref().filter(|_| !self.fix_gamma);
        let (mean, variance, factor) = (self.mean.as_ref(), self.variance.as_ref(), self.factor.as_ref());
        [mean, variance, factor, gamma, self.beta.as_ref(), self.scale.as_ref(), self.shift.as_ref()]
    }

    /// Whether the layer has a bias afterwards: a fold that only scales needs none.
    fn gets_bias(&self) -> bool {
        self.has_bias || [&self.mean, &self.beta, &self.shift].iter().any(|part| part.is_some())
    }

    /// The tensors that the fold merges into the weights, and so removes.
    fn merged(&self) -> impl Iterator<Item = &String> {
        let all = [&self.mean, &self.variance, &self.factor, &self.gamma, &self.beta, &self.scale, &self.shift];
        all.into_iter().flatten()
    }
}

impl Fold {
    /// The number of folded normalisations.
    #[must_use]
    pub fn count(&self) -> usize {
        self.layers.len()
    }

    /// The number of folded Scales without a BatchNorm.
    #[must_use]
    pub fn scales(&self) -> usize {
        self.scales
    }

    /// The normalisations that cannot be folded.
    #[must_use]
    pub fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    /// Notes whether a new description of the net comes with the tensors; the error says why there is none. With a new
    /// description, the plan does not list the changes that the old description needs.
    pub(crate) fn described(&mut self, description: Result<(), String>) {
        self.description = Some(description);
    }

    /// Finds all normalisations that can be folded in the net that a recipe's conversion follows.
    pub(crate) fn find(settings: &Value, wish: &Wish<'_>) -> Result<Self, Error> {
        wish.no_settings("fold", settings)?;
        let (mut fold, refused) = Self::of(wish.wired()?.1);
        if fold.layers.is_empty() && refused.is_empty() {
            return Err(wish.refused("its net has no BatchNorm, nor a Scale alone".to_owned()));
        }
        if fold.layers.is_empty() {
            let message = format!("no BatchNorm can be folded: {}", by_reason(&refused, REASONS_IN_LINE).join("; "));
            return Err(if refused.iter().any(|refusal| refusal.kind.is_of_training()) {
                wish.lacks(message, Remedy::TestedNet)
            } else {
                wish.refused(message)
            });
        }
        fold.refused = refused;
        Ok(fold)
    }

    /// The names of the folded layers, and of these layers' tensors.
    pub(crate) fn folded(&self) -> impl Iterator<Item = String> {
        let layers = self.layers.iter().flat_map(|folded| [Some(&folded.layer), folded.scale_layer.as_ref()]);
        layers.flatten().chain(self.layers.iter().flat_map(Folded::merged)).cloned()
    }

    /// The names of each fold's tensors.
    pub(crate) fn names(&self) -> impl Iterator<Item = FoldedNames<'_>> {
        self.layers.iter().map(|folded| FoldedNames {
            weight: &folded.weight,
            bias: &folded.bias,
            gets_bias: folded.gets_bias(),
            merged: folded.merged().map(|name| &**name).collect(),
        })
    }

    /// The notice about factors of 0.
    fn zero_factors(&self, tensors: &[Spec<'_>], places: &Places<'_>, context: &Context<'_>) -> Option<String> {
        let factors = self.layers.iter().filter_map(|folded| folded.factor.as_ref());
        let zero = factors.filter(|factor| {
            let place = places.find(factor);
            place.is_some_and(|place| is_zero(context.checkpoint(), tensors[place].entry.name()))
        });
        let zero: Vec<String> = zero.cloned().collect();
        let named = change::listed(&zero);
        (!zero.is_empty()).then(|| format!("fold: factor 0: Caffe takes mean and variance as zero: {named}"))
    }
}

impl Transform for Fold {
    fn name(&self) -> &'static str {
        "fold"
    }

    fn settings(&self) -> Value {
        json!(self)
    }

    fn fits_net(&self) -> bool {
        true
    }

    fn undone(&self) -> Undone<'_> {
        Undone::Merged
    }

    fn merged_into(&self, names: &HashSet<&str>) -> Vec<String> {
        let taken = self
            .layers
            .iter()
            .filter(|folded| [&folded.weight, &folded.bias].iter().any(|name| names.contains(name.as_str())));
        taken.flat_map(Folded::merged).cloned().collect()
    }

    fn relies_on(&self) -> &'static [Fact] {
        &[Fact::Axes, Fact::Eps]
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let places = Places::of(tensors);
        let mut planned = FoldPlan::default();
        // A part of a file has some of the layers.
        let layers = self.layers.iter().filter(|folded| {
            folded.merged().chain([&folded.weight, &folded.bias]).any(|name| places.find(name).is_some())
        });
        let layers: Vec<&Folded> = layers.collect();
        for folded in &layers {
            if let Err(mut misfits) = planned.add(folded, tensors, &places) {
                planned.misfits.append(&mut misfits);
            }
        }
        if !planned.misfits.is_empty() {
            return Err(planned.misfits);
        }
        let folded: BTreeSet<usize> = planned.made.keys().chain(planned.gone.keys()).copied().collect();
        let (mut outcome, mut diffs) = (Outcome::default(), 0);
        for (place, spec) in tensors.iter().enumerate() {
            let data = TensorName::of(&spec.tensor.name).diffed().and_then(|data| places.find(data));
            match (planned.made.remove(&place), planned.gone.get(&place)) {
                (Some(made), _) => outcome.made.extend(made),
                (None, Some(layer)) => outcome.left_out.push((place, format!("folded with {layer:?}"))),
                // A diff no longer fits a tensor whose values change.
                (None, None) if data.is_some_and(|data| folded.contains(&data)) => {
                    outcome.left_out.push((place, "the diff of a folded tensor".to_owned()));
                    diffs += 1;
                }
                (None, None) => outcome.made.push(Made::same(place, spec)),
            }
        }
        let is_described = self.description == Some(Ok(()));
        outcome.notes = by_reason(&self.refused, MAX_REASONS);
        if let Some(Err(why)) = &self.description {
            outcome.notes.push(format!("no new symbol is written: {why}"));
        }
        outcome.notices.extend(planned.new_biases().filter(|_| !is_described));
        outcome.notices.extend(self.zero_factors(tensors, &places, context));
        if diffs > 0 {
            outcome.notices.push(format!("fold: the diffs of folded tensors are left out, {diffs} of them"));
        }
        let gone = layers.iter().flat_map(|folded| [Some(&folded.layer), folded.scale_layer.as_ref()]).flatten();
        outcome.removed_layers = gone.cloned().collect();
        if !(outcome.removed_layers.is_empty() || is_described) {
            let named = listed(MOST_NAMED, &outcome.removed_layers);
            outcome.notices.push(format!("fold: remove these layers from your prototxt or symbol: {named}"));
        }
        Ok(outcome)
    }

    fn follows_net(&self) -> bool {
        true
    }

    fn is_idle(&self) -> bool {
        self.layers.is_empty()
    }
}

/// At most this many reasons are told apart, each on a line, and in the one line of an error.
const MAX_REASONS: usize = 20;
const REASONS_IN_LINE: usize = 5;

/// At most this many layers that you remove from a description are named.
const MOST_NAMED: usize = 20;

/// The change that a new bias asks of the text that describes the net: Caffe's prototxt, or MXNet's symbol.
const GIVE_A_BIAS: &str = "in your prototxt add bias_term: true (in a symbol no_bias: False)";

#[derive(Default)]
struct FoldPlan {
    /// The tensors that replace the tensor at a place.
    made: BTreeMap<usize, Vec<Made>>,
    gone: BTreeMap<usize, String>,
    misfits: Vec<Misfit>,
    /// The new biases, each with the weight of its layer.
    new: Vec<(String, String)>,
    biases: BTreeSet<String>,
}

impl FoldPlan {
    /// The note about layers that get a bias.
    fn new_biases(&self) -> Option<String> {
        match &self.new[..] {
            [] => None,
            [(bias, weight)] => Some(format!("fold: {bias:?} is new: {GIVE_A_BIAS} to the layer of {weight:?}")),
            several => {
                let biases: Vec<String> = several.iter().map(|(bias, _)| bias.clone()).collect();
                let (count, named) = (biases.len(), change::listed(&biases));
                Some(format!("fold: {count} biases are new: {GIVE_A_BIAS} to their layers: {named}"))
            }
        }
    }

    fn add(&mut self, folded: &Folded, tensors: &[Spec<'_>], places: &Places<'_>) -> Result<(), Vec<Misfit>> {
        let lacks =
            |name: &String| Misfit::new(name, format!("is not there, and {:?} is folded with it", folded.layer));
        let weight = places.find(&folded.weight).ok_or_else(|| vec![lacks(&folded.weight)])?;
        let mut misfits = Vec::new();
        let spec = &tensors[weight].tensor;
        let channels = folded.side.channels(&spec.shape);
        // A weight without values may have any number of channels.
        let channels = channels.filter(|channels| spec.dtype.is_float() && *channels <= spec.shape.count());
        let Some(channels) = channels else {
            return Err(vec![Misfit::new(
                &folded.weight,
                format!("is {} of {}, and cannot be folded into", spec.shape, spec.dtype),
            )]);
        };
        let mut parts = [None; PARTS];
        for (part, (name, slot)) in folded.parts().into_iter().zip(&mut parts).enumerate() {
            let Some(name) = name else { continue };
            let Some(place) = places.find(name) else {
                misfits.push(lacks(name));
                continue;
            };
            let count = tensors[place].tensor.shape.count();
            let wanted = if part == FACTOR { 1 } else { channels };
            if count != wanted {
                misfits.push(Misfit::new(
                    name,
                    format!("has {count} values, not {wanted} as {:?} has channels", folded.weight),
                ));
            }
            *slot = Some(place);
        }
        let bias = places.find(&folded.bias);
        if bias.is_some() != folded.has_bias {
            let what = if folded.has_bias { "is not there" } else { "is there, though the layer has no bias" };
            misfits.push(Misfit::new(&folded.bias, format!("{what}, and {:?} is folded with it", folded.layer)));
        }
        if let Some(count) = bias.map(|bias| tensors[bias].tensor.shape.count()).filter(|count| *count != channels) {
            misfits.push(Misfit::new(&folded.bias, format!("has {count} values, not {channels}")));
        }
        if self.made.contains_key(&weight) || !self.biases.insert(folded.bias.clone()) {
            misfits.push(Misfit::new(&folded.weight, "has two normalisations folded into it"));
        }
        if !misfits.is_empty() {
            return Err(misfits);
        }
        self.make(folded, tensors, weight, bias, parts, channels);
        let gone = folded.merged().filter_map(|name| places.find(name));
        self.gone.extend(gone.map(|place| (place, folded.layer.clone())));
        Ok(())
    }

    fn make(
        &mut self,
        folded: &Folded,
        tensors: &[Spec<'_>],
        weight: usize,
        bias: Option<usize>,
        parts: [Option<usize>; PARTS],
        channels: usize,
    ) {
        let with = |first: Option<usize>| -> (Vec<usize>, [Option<usize>; PARTS]) {
            let mut from: Vec<usize> = first.into_iter().collect();
            let inputs = parts.map(|part| {
                let place = part?;
                from.push(place);
                Some(from.len() - 1)
            });
            (from, inputs)
        };
        let change = format!("{:?} is folded into it", folded.layer);
        let spec = &tensors[weight].tensor;
        let (from, inputs) = with(Some(weight));
        let norm = Norm { inputs, eps: folded.eps, channels };
        let scaled = Normalised { norm, of: Of::Weights(folded.side.run(&spec.shape)) };
        let mut made = vec![Made::computed(spec.clone(), from, scaled).with_change(change.clone())];
        let (from, inputs) = with(bias);
        let of = if bias.is_some() { Of::Bias } else { Of::NoBias };
        let shifted = Normalised { norm: Norm { inputs, eps: folded.eps, channels }, of };
        match bias {
            Some(bias) => {
                let made = Made::computed(tensors[bias].tensor.clone(), from, shifted).with_change(change);
                self.made.entry(bias).or_default().push(made);
            }
            None if !folded.gets_bias() => {}
            None => {
                // The bias gets the dtype of the weights.
                let shape = Shape::new([channels]).unwrap_or_else(|_| Shape::default());
                let bias = TensorSpec::new(&*folded.bias, spec.dtype, shape);
                made.push(Made::computed(bias, from, shifted).with_change(format!("new: {change}")));
                self.new.push((folded.bias.clone(), folded.weight.clone()));
            }
        }
        self.made.entry(weight).or_default().splice(0..0, made);
    }
}
