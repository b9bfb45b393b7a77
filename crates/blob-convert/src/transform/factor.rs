//! `bn-factor`: adds a factor of 1 to Caffe's BatchNorms whose means and variances were divided by the old factor.

use blob_core::Shape;
use blob_io::layout::TensorSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::f64_io::{Ones, Places, layers};
use super::norm::Norm;
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform, Undone};

/// Adds a factor of 1 beside each mean.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Factors {
    layers: Vec<Norm>,
}

impl Factors {
    pub(crate) fn new(layers: Vec<Norm>) -> Self {
        Self { layers }
    }
}

impl Transform for Factors {
    fn name(&self) -> &'static str {
        "bn-factor"
    }

    fn settings(&self) -> Value {
        json!(self)
    }

    fn undone(&self) -> Undone<'_> {
        Undone::AsItWas
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let places = Places::of(tensors);
        let lacking = self.layers.iter().filter(|norm| places.find(&norm.factor).is_none());
        let (mut added, mut alone): (Vec<Made>, Vec<Misfit>) = Default::default();
        for norm in lacking {
            let (mean, variance) = (places.find(&norm.mean), places.find(&norm.variance));
            let (Some(mean), Some(_)) = (mean, variance) else {
                let there = [(mean, &norm.mean), (variance, &norm.variance)].into_iter().find(|(at, _)| at.is_some());
                let problem = "is divided by its layer's factor, which mean and variance share: take both or none";
                alone.extend(there.map(|(_, name)| Misfit::new(name, problem)));
                continue;
            };
            let shape = Shape::new([1]).map_err(|e| vec![Misfit::new(&*norm.factor, e.to_string())])?;
            let factor = TensorSpec::new(&*norm.factor, tensors[mean].tensor.dtype, shape);
            let made = Made::computed(factor, vec![mean], Ones);
            added.push(made.with_change("1: mean and variance are divided already"));
        }
        if !alone.is_empty() {
            return Err(alone);
        }
        let count = added.len();
        let same = tensors.iter().enumerate().map(|(place, spec)| Made::same(place, spec));
        let outcome: Outcome = same.chain(added).collect();
        Ok(match count {
            0 => outcome,
            _ => outcome.with_notice(format!("bn-factor: a factor of 1 for {count} {}", layers(count))),
        })
    }
}
