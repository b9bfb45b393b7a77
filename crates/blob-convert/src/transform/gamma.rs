//! `fix-gamma`: 1 in place of every gamma that MXNet does not use.
//!
//! A BatchNorm of MXNet with `fix_gamma`, which is so where the symbol says nothing, computes with 1, whatever its file has.

use blob_io::Checkpoint;
use blob_io::net::{Layer, Role};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bound::{Bound, listed};
use super::small::{Ones, Places, layers};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};

/// Sets gamma to 1 where MXNet does.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FixGamma {
    gammas: Vec<String>,
    /// Whether no symbol says which gammas are fixed, though there are some.
    #[serde(skip)]
    is_unsaid: bool,
    /// The gammas that no layer of the net has.
    #[serde(skip)]
    unknown: Vec<String>,
}

impl FixGamma {
    /// The gammas of a net that are fixed; where nothing describes it, none are, and that is told.
    #[must_use]
    pub fn of(net: Option<&Bound<'_>>, checkpoint: &Checkpoint) -> Self {
        let Some(net) = net else {
            let is_mxnet = checkpoint.format().is_mxnet();
            let is_unsaid = is_mxnet && checkpoint.names().any(|name| name.ends_with("gamma"));
            return Self { gammas: Vec::new(), is_unsaid, unknown: Vec::new() };
        };
        let fixed = net.layers().filter(|layer: &&Layer| layer.fix_gamma);
        let gammas = fixed.filter_map(|layer| net.tensor(layer, Role::Weight).map(str::to_owned)).collect();
        let unknown = net.strangers().iter().filter_map(|stranger| stranger.gamma.clone()).collect();
        Self { gammas, is_unsaid: false, unknown }
    }

    /// The gammas that are set, by the file's names.
    pub(crate) fn gammas(&self) -> &[String] {
        &self.gammas
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
        let mut outcome: Outcome = made.collect();
        if self.is_unsaid {
            outcome = outcome.noting("fix-gamma: gammas stay as stored; no symbol says which of them MXNet takes as 1, and --symbol can name one");
        }
        if !self.unknown.is_empty() {
            let unknown: Vec<&str> = self.unknown.iter().map(|name| &**name).collect();
            let (listed, is_one) = (listed(&unknown), unknown.len() == 1);
            let (stay, them) = if is_one { ("stays", "it") } else { ("stay", "them") };
            outcome = outcome.noting(format!("fix-gamma: {listed} {stay} as stored: no layer of the net has {them}"));
        }
        Ok(match is_fixed.iter().filter(|is| **is).count() {
            0 => outcome,
            count => outcome.noting(format!("fix-gamma: gamma of {count} {} set to 1", layers(count))),
        })
    }

    fn is_idle(&self) -> bool {
        self.gammas.is_empty() && !self.is_unsaid && self.unknown.is_empty()
    }
}
