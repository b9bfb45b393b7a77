//! `bn`: divides the means and variances of Caffe's BatchNorms by the factor stored beside each pair, as Caffe's
//! forward pass does.
//!
//! The output has no factor, or a factor of 1. A factor of 0 makes mean and variance 0, as in
//! `BatchNormLayer::Forward_cpu` of BVLC/caffe `9b891540`.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use blob_core::DType;
use blob_io::net::{Layer, LayerKind, Role};
use blob_io::{Checkpoint, Error, Remedy, TensorName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::binding::{Bound, listed};
use super::f64_io::{Ones, Places, layers};
use super::ignored::is_zero;
use super::norm::Norm;
use super::reports::Amount;
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform, Undone};
use super::values::{Compute, Inputs, Stream, ready};
use super::wish::Wish;
use crate::change;

/// Divides the means and variances of Caffe's BatchNorm layers by the layers' factors.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct BatchNorm {
    layers: Vec<Norm>,
    with_ones: bool,
    /// Layers of the file that have a factor but do not occur in the net.
    #[serde(skip)]
    unknown: Vec<String>,
    /// Means and variances whose factor an earlier conversion left out.
    #[serde(skip)]
    lost: Vec<Misfit>,
}

impl BatchNorm {
    /// The step's name in receipts.
    pub(crate) const NAME: &str = "bn";

    /// The layers of a net that have all three tensors.
    #[must_use]
    pub fn of(net: &Bound<'_>) -> Self {
        let norms = net.layers().filter(|layer| layer.kind == LayerKind::BatchNorm);
        // Layers of one name, as for training and for testing, have the same tensors.
        let mut seen = HashSet::new();
        let norms = norms.filter(|layer| net.tensor(layer, Role::Mean).is_none_or(|mean| seen.insert(mean)));
        let norms: Vec<&Layer> = norms.collect();
        let lost = norms.iter().filter_map(|layer| {
            let problem = net.lost_factor(layer)?;
            let name = net.tensor(layer, Role::Mean).or_else(|| net.tensor(layer, Role::Variance))?;
            Some(Misfit::new(name, problem))
        });
        let lost = lost.collect();
        let layers = norms.into_iter().filter_map(|layer| {
            let named = |role| net.tensor(layer, role).map(str::to_owned);
            Some(Norm { mean: named(Role::Mean)?, variance: named(Role::Variance)?, factor: named(Role::Factor)? })
        });
        let unknown = net.uncovered().iter().filter(|norm| norm.has_factor);
        let unknown = unknown.map(|norm| norm.layer.clone()).collect();
        Self { layers: layers.collect(), with_ones: false, unknown, lost }
    }

    /// The step for all BatchNorms of the net that a recipe's conversion follows. `None` for an implied step without a
    /// net.
    pub(super) fn make(settings: &Value, wish: &Wish<'_>) -> Result<Option<Arc<dyn Transform>>, Error> {
        wish.no_settings("bn", settings)?;
        let Some(net) = &wish.bound else {
            if wish.is_implied {
                return Ok(None);
            }
            return Err(wish.lacks("nothing says which of its layers are BatchNorms".to_owned(), Remedy::Net));
        };
        wish.check_role("bn", Role::Factor, "factor")?;
        let divided = Self::of(net);
        // Caffe refuses a BatchNorm without a factor, so a factor of one is written.
        Ok(Some(Arc::new(if wish.to.is_caffe() { divided.with_ones() } else { divided })))
    }

    /// The layers whose factors were left out.
    fn without_factors(&self) -> &[Norm] {
        if self.with_ones { &[] } else { &self.layers }
    }

    /// Sets the factors to 1 instead of leaving them out, for a file that Caffe will read.
    #[must_use]
    pub fn with_ones(mut self) -> Self {
        self.with_ones = true;
        self
    }
}

impl Transform for BatchNorm {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn settings(&self) -> Value {
        json!(self)
    }

    fn named(&self) -> Vec<&str> {
        self.layers.iter().flat_map(Norm::names).collect()
    }

    fn fits_net(&self) -> bool {
        true
    }

    fn undone(&self) -> Undone<'_> {
        Undone::Divided(self.without_factors())
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let places = Places::of(tensors);
        let mut divided = vec![None; tensors.len()];
        let (mut left_out, mut zeroed) = (Vec::new(), Vec::new());
        let (mut diffs, mut stale) = (Vec::new(), BTreeSet::new());
        let lost = self.lost.iter().filter(|misfit| places.find(&misfit.tensor).is_some());
        let mut misfits: Vec<Misfit> = lost.cloned().collect();
        for norm in &self.layers {
            // A selection may have taken one of the two.
            let (statistics, names) = norm.found(|name| places.find(name));
            let Some(factor) = places.find(&norm.factor).filter(|_| !statistics.is_empty()) else {
                misfits.extend(undivided(norm, &places, context.checkpoint()));
                continue;
            };
            if tensors[factor].tensor.shape.count() != 1 {
                misfits.push(Misfit::new(
                    &norm.factor,
                    format!("is {}, and a factor is one value", tensors[factor].tensor.shape),
                ));
            }
            let is_zero = is_zero(context.checkpoint(), tensors[factor].entry.name());
            for place in statistics {
                if !tensors[place].tensor.dtype.is_float() {
                    misfits.push(Misfit::new(&tensors[place].tensor.name, "has no floats to be divided"));
                }
                divided[place] = Some((factor, is_zero));
            }
            zeroed.extend(is_zero.then(|| norm.factor.clone()));
            left_out.push((factor, gone(&names, is_zero)));
            // A diff no longer fits a mean or a variance with new values.
            stale
                .extend([&norm.mean, &norm.variance].iter().filter_map(|name| places.find(&TensorName::diff_of(name))));
            // The diff of a factor goes with the factor.
            let diff = places.find(&TensorName::diff_of(&norm.factor)).filter(|_| !self.with_ones);
            diffs.extend(diff.map(|diff| (diff, "the diff of a factor that is left out".to_owned())));
        }
        if !misfits.is_empty() {
            return Err(misfits);
        }
        let count = left_out.len() - zeroed.len();
        left_out.append(&mut diffs);
        let mut is_kept = vec![true; tensors.len()];
        left_out.iter().for_each(|(factor, _)| is_kept[*factor] = false);
        let kept = tensors.iter().enumerate();
        let kept = kept.filter(|(place, _)| (is_kept[*place] || self.with_ones) && !stale.contains(place));
        let made = kept.map(|(place, spec)| match divided[place] {
            _ if !is_kept[place] => Made::computed(spec.tensor.clone(), vec![place], Ones)
                .with_change("1: mean and variance have taken what it was"),
            Some((factor, is_zero)) => {
                let change = if is_zero { "0, as the layer's factor is" } else { "divided by the layer's factor" };
                Made::computed(spec.tensor.clone(), vec![place, factor], Divided).with_change(change)
            }
            None => Made::same(place, spec),
        });
        let mut outcome: Outcome = made.collect();
        outcome.left_out = if self.with_ones { Vec::new() } else { left_out };
        outcome.left_out.extend(stale.iter().map(|place| (*place, "the diff of a divided tensor".to_owned())));
        if !self.unknown.is_empty() {
            let keep = if self.unknown.len() == 1 { "keeps its" } else { "keep their" };
            let listed = listed(&self.unknown);
            outcome = outcome.with_note(format!("bn: {listed} {keep} factor: the net has no such BatchNorm"));
        }
        if !zeroed.is_empty() {
            let (count, named) = (zeroed.len(), change::listed(&zeroed));
            let layers = layers(count);
            let zero =
                format!("bn: factor 0: mean and variance of {count} {layers} become 0, as Caffe takes them: {named}");
            outcome = outcome.with_notice(zero);
        }
        Ok(match count {
            0 => outcome,
            count => outcome
                .with_notice(format!("bn: mean and variance of {count} {} divided by their factor", layers(count))),
        })
    }

    fn follows_net(&self) -> bool {
        true
    }

    fn is_idle(&self) -> bool {
        self.layers.is_empty() && self.unknown.is_empty() && self.lost.is_empty()
    }
}

/// The reason why a factor is left out, by the names of mean and variance.
fn gone(names: &[&str], is_zero: bool) -> String {
    let by = match (is_zero, names.len()) {
        (true, 1) => "becomes 0, as it is 0",
        (true, _) => "become 0, as it is 0",
        (false, 1) => "is divided by it",
        (false, _) => "are divided by it",
    };
    format!("{} {by}", names.join(" and "))
}

/// The mean or the variance that would stay undivided, as the factor in the file is not among the tensors.
fn undivided(norm: &Norm, places: &Places<'_>, checkpoint: &Checkpoint) -> Option<Misfit> {
    let name = [&norm.mean, &norm.variance].into_iter().find(|name| places.find(name).is_some())?;
    is_unselected(&norm.factor, places, checkpoint).then(|| not_selected(name, &norm.factor))
}

/// Whether the file has a factor that is not among the tensors.
pub(super) fn is_unselected(factor: &str, places: &Places<'_>, checkpoint: &Checkpoint) -> bool {
    checkpoint.entry(factor).is_some() && places.find(factor).is_none()
}

/// The misfit of a mean or a variance that would stay undivided.
pub(super) fn not_selected(name: &str, factor: &str) -> Misfit {
    Misfit::new(name, format!("is divided by {factor:?}, which is not selected"))
}

/// Multiplies the first input by the inverse of the second input, which is one value.
#[derive(Debug)]
struct Divided;

impl Compute for Divided {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        let made = inputs.made;
        let mut values = inputs.floats(0)?;
        let factor = inputs.floats(1)?;
        let factor = factor.first().copied().unwrap_or(0.0);
        if factor == 0.0 {
            let lost = values.iter().filter(|value| **value != 0.0).count() as u64;
            inputs.report(Amount::Lost(lost), "became 0: the layer's factor is 0, so no statistics were gathered");
        }
        // Caffe computes in the net's own dtype, but keeps the statistics of an f16 net in f32.
        if made.dtype == DType::F64 {
            let scale = if factor == 0.0 { 0.0 } else { 1.0 / factor };
            values.iter_mut().for_each(|value| *value *= scale);
        } else {
            let factor = factor as f32;
            let scale = if factor == 0.0 { 0.0 } else { 1.0 / factor };
            values.iter_mut().for_each(|value| *value = f64::from(*value as f32 * scale));
        }
        Ok(ready(inputs.rounded(&values)))
    }
}
