//! `fix-gamma`: sets every gamma to 1 that MXNet ignores.
//!
//! An MXNet BatchNorm with `fix_gamma`, the default, computes with gamma = 1 whatever gamma the file holds.

use std::collections::HashSet;
use std::sync::Arc;

use blob_io::net::{Layer, Role};
use blob_io::{Checkpoint, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::binding::{Bound, bare, listed};
use super::f64_io::{Ones, Places, layers};
use super::followed::Topology;
use super::reports::Witness;
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform, Undone};
use super::wish::Wish;

/// Sets gamma to 1 where MXNet treats it as 1.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FixGamma {
    gammas: Vec<String>,
    /// Whether the file has gammas but no symbol says which are fixed.
    #[serde(skip)]
    is_undescribed: bool,
    /// The gammas that belong to no layer of the net.
    #[serde(skip)]
    unknown: Vec<String>,
    /// The gammas that one layer takes as 1 and another reader as stored.
    #[serde(skip)]
    shared: Vec<Misfit>,
}

impl FixGamma {
    /// The fixed gammas of a net. Without a net none are set, and a note says so.
    #[must_use]
    pub fn of(net: Option<&Bound<'_>>, checkpoint: &Checkpoint) -> Self {
        let Some(net) = net else {
            let is_mxnet = checkpoint.format().is_mxnet();
            let names: HashSet<&str> = checkpoint.names().map(bare).collect();
            // The slopes of a PReLU are called gamma, too.
            let mut stems = names.iter().filter_map(|name| name.strip_suffix("gamma"));
            let is_undescribed = is_mxnet
                && stems.any(|stem| {
                    ["moving_mean", "running_mean"].iter().any(|mean| names.contains(&*format!("{stem}{mean}")))
                });
            return Self { gammas: Vec::new(), is_undescribed, unknown: Vec::new(), shared: Vec::new() };
        };
        let fixed = net.layers().filter(|layer: &&Layer| layer.fix_gamma);
        let gammas = fixed.filter_map(|layer| net.tensor(layer, Role::Weight).map(str::to_owned)).collect();
        let unknown = net.uncovered().iter().filter_map(|norm| norm.gamma.clone()).collect();
        Self { gammas, is_undescribed: false, unknown, shared: shared(net) }
    }

    /// The step for all fixed gammas in the net that a recipe's conversion follows.
    pub(super) fn make(settings: &Value, wish: &Wish<'_>) -> Result<Option<Arc<dyn Transform>>, Error> {
        wish.no_settings("fix-gamma", settings)?;
        wish.check_role("fix-gamma", Role::Weight, "gamma")?;
        Ok(Some(Arc::new(Self::of(wish.bound.as_ref(), wish.checkpoint))))
    }
}

/// The fixed gammas that something else reads as stored: a layer in any role, or the net's user.
fn shared(net: &Bound<'_>) -> Vec<Misfit> {
    let (mut seen, mut shared) = (HashSet::new(), Vec::new());
    for layer in net.layers().filter(|layer| layer.fix_gamma) {
        let Some(gamma) = net.tensor(layer, Role::Weight).filter(|gamma| seen.insert(*gamma)) else { continue };
        let used = net.other_reader(gamma, |user| user.layer.fix_gamma && user.role == Role::Weight);
        shared.extend(used.map(|used| {
            let why = "which has fix_gamma, and as stored for";
            Misfit::new(gamma, format!("is 1 for {:?}, {why} {used}: one tensor cannot be both", layer.name))
        }));
    }
    shared
}

impl Transform for FixGamma {
    fn name(&self) -> &'static str {
        "fix-gamma"
    }

    fn settings(&self) -> Value {
        json!(self)
    }

    fn named(&self) -> Vec<&str> {
        self.gammas.iter().map(String::as_str).collect()
    }

    fn fits_net(&self) -> bool {
        true
    }

    fn undone(&self) -> Undone<'_> {
        Undone::AsItWas
    }

    /// MXNet's symbol file decides which gammas are fixed; the file may still be beside the source.
    fn witness(&self, source: &Checkpoint) -> Option<Witness> {
        let symbol = Topology::of(source).ok().flatten()?;
        let fixed = Self::of(Some(&Bound::new(symbol.net(), source)), source);
        Some(Witness { file: symbol.origin().name.clone(), tensors: fixed.gammas })
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let places = Places::of(tensors);
        if !self.shared.is_empty() {
            return Err(self.shared.clone());
        }
        let mut is_fixed = vec![false; tensors.len()];
        self.gammas.iter().filter_map(|name| places.find(name)).for_each(|place| is_fixed[place] = true);
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            if is_fixed[place] {
                Made::computed(spec.tensor.clone(), vec![place], Ones)
                    .with_change("set to 1, which fix_gamma makes of it")
            } else {
                Made::same(place, spec)
            }
        });
        let mut outcome: Outcome = made.collect();
        if self.is_undescribed {
            outcome = outcome.with_note("fix-gamma: gammas stay as stored; no symbol says which of them MXNet takes as 1, and --symbol can name one");
        }
        if !self.unknown.is_empty() {
            let listed = listed(&self.unknown);
            let (stay, them) = if self.unknown.len() == 1 { ("stays", "it") } else { ("stay", "them") };
            outcome =
                outcome.with_note(format!("fix-gamma: {listed} {stay} as stored: no layer of the net has {them}"));
        }
        Ok(match is_fixed.iter().filter(|is| **is).count() {
            0 => outcome,
            count => outcome.with_notice(format!("fix-gamma: gamma of {count} {} set to 1", layers(count))),
        })
    }

    fn follows_net(&self) -> bool {
        true
    }

    fn is_idle(&self) -> bool {
        self.gammas.is_empty() && !self.is_undescribed && self.unknown.is_empty()
    }
}
