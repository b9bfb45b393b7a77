//! `fix-gamma`: 1 in place of every gamma that MXNet does not use.
//!
//! A BatchNorm of MXNet with `fix_gamma`, which is so where the symbol says nothing, computes with 1, whatever its file has.

use blob_io::Error;
use blob_io::net::{Layer, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bn::layers;
use super::bound::Bound;
use super::small::{Places, ready, write};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};
use super::values::{Compute, Inputs, Stream};

/// Sets gamma to 1 where MXNet does.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FixGamma {
    gammas: Vec<String>,
}

impl FixGamma {
    /// The gammas of a net that are fixed.
    #[must_use]
    pub fn of(net: &Bound<'_>) -> Self {
        let fixed = net.layers().filter(|layer: &&Layer| layer.fix_gamma());
        Self { gammas: fixed.filter_map(|layer| net.tensor(layer, Role::Weight).map(str::to_owned)).collect() }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.gammas.is_empty()
    }
}

impl Transform for FixGamma {
    fn name(&self) -> &'static str {
        "fix-gamma"
    }

    fn settings(&self) -> Value {
        json!(self)
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let places = Places::of(tensors);
        let mut is_fixed = vec![false; tensors.len()];
        self.gammas.iter().filter_map(|name| places.find(name)).for_each(|place| is_fixed[place] = true);
        let made = tensors.iter().enumerate().map(|(place, spec)| match is_fixed[place] {
            true => {
                Made::computed(spec.tensor.clone(), vec![place], Ones).saying("set to 1, which fix_gamma makes of it")
            }
            false => Made::same(place, spec),
        });
        let outcome: Outcome = made.collect();
        Ok(match is_fixed.iter().filter(|is| **is).count() {
            0 => outcome,
            count => outcome.noting(format!("fix_gamma: gamma of {count} {} set to 1", layers(count))),
        })
    }
}

#[derive(Debug)]
struct Ones;

impl Compute for Ones {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        let made = inputs.made();
        // Its size was within bounds, or it is refused here.
        let count = inputs.whole(0)?.len() / made.dtype.size();
        Ok(ready(write(&vec![1.0; count], made.dtype)))
    }
}
