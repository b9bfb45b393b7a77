//! `eps`: gives normalisations another eps and adds the difference to the variances, so that the results stay the same.
//!
//! The sum under the root stays the same: (variance + E − e) + e = variance + E, with the old eps E and the new eps e.
//! Computed in f64, rounded once.

use std::collections::HashSet;
use std::sync::Arc;

use blob_io::net::{Layer, Role};
use blob_io::{Error, Remedy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::binding::{Bound, User};
use super::bn::{BatchNorm, is_unselected, not_selected};
use super::f64_io::{Places, layers};
use super::norm::{Variance, is_norm};
use super::step::{Context, Fact, Left, Made, Misfit, Outcome, Spec, Transform};
use super::values::{Compute, Inputs, Stream, ready};
use super::wish::Wish;
use crate::change::listed;

/// Adds the difference of two eps to the variances of normalisations.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Eps {
    /// The eps that the normalisations have afterwards.
    to: f64,
    norms: Vec<Variance>,
    /// The variances that something else reads as stored, or whose factor is lost.
    #[serde(skip)]
    unfit: Vec<Misfit>,
    /// The layers that normalise by the input's own variance, and keep another eps.
    #[serde(skip)]
    staying: Vec<String>,
}

/// The settings in a recipe, and in a receipt, which has them in full.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wished {
    pub(crate) to: f64,
    norms: Option<Vec<Variance>>,
}

impl Eps {
    /// The normalisations of a net with another eps than `to`.
    #[must_use]
    pub fn of(net: &Bound<'_>, to: f64) -> Self {
        let layers = || net.layers().filter(|layer| is_norm(layer) && !is_same(net.eps(layer), to));
        let norms = layers().filter_map(|layer| {
            let named = |role| net.tensor(layer, role).map(str::to_owned);
            Some(Variance { variance: named(Role::Variance)?, factor: named(Role::Factor), eps: net.eps(layer) })
        });
        let norms: Vec<Variance> = norms.collect();
        let lost = layers().filter_map(|layer| Some((net.tensor(layer, Role::Variance)?, net.lost_factor(layer)?)));
        let mut unfit: Vec<Misfit> = lost.map(|(variance, problem)| Misfit::new(variance, problem)).collect();
        let mut seen = HashSet::new();
        for Variance { variance, eps, .. } in norms.iter().filter(|norm| seen.insert(&norm.variance)) {
            let used = net.other_reader(variance, |User { layer, role }| {
                role == Role::Variance && is_norm(layer) && is_same(net.eps(layer), *eps)
            });
            unfit.extend(used.map(|used| {
                Misfit::new(
                    variance,
                    format!("is for an eps of {eps:e}, and {used} uses it otherwise: it cannot change"),
                )
            }));
        }
        let staying = net.layers().filter(|layer| is_by_input(layer) && !is_same(layer.eps, to));
        Self { to, norms, unfit, staying: staying.map(|layer| layer.name.clone()).collect() }
    }

    /// Reads complete settings; `None` if one of the numbers is no eps.
    pub(super) fn read(settings: &Value) -> Option<Self> {
        let read = Self::deserialize(settings).ok()?;
        let is_sound = is_eps(read.to) && read.norms.iter().all(|norm| is_eps(norm.eps));
        is_sound.then_some(read)
    }

    /// The step for the normalisations of the net that a recipe's conversion follows.
    pub(super) fn make(settings: &Value, wish: &Wish<'_>) -> Result<Option<Arc<dyn Transform>>, Error> {
        let Wished { to, norms } = wish.settings("eps", settings)?;
        let of_norms = norms.into_iter().flatten().map(|norm| norm.eps);
        if let Some(wrong) = [to].into_iter().chain(of_norms).find(|eps| !is_eps(*eps)) {
            return Err(wish.refused(format!("the step \"eps\" has {wrong:e}, and an eps is a number of 0 or more")));
        }
        if let Some(net) = &wish.bound
            && net.layers().any(|layer| is_norm(layer) && net.tensor(layer, Role::Variance).is_some())
        {
            return Ok(Some(Arc::new(Self::of(net, to))));
        }
        if !wish.stated.is_empty() {
            return Self::of_receipt(wish, to).map(|eps| Some(Arc::new(eps) as Arc<dyn Transform>));
        }
        wish.check_role("eps", Role::Variance, "variance")?;
        let Some(net) = &wish.bound else {
            let message = "eps: nothing says what its BatchNorms add to their variances".to_owned();
            return Err(wish.lacks(message, Remedy::NetOrSymbol));
        };
        Ok(Some(Arc::new(Self::of(net, to))))
    }

    /// A normalisation whose eps before the step the net tells otherwise.
    pub(crate) fn other_eps(&self, net: &Bound<'_>) -> Option<OtherEps> {
        self.norms.iter().find_map(|norm| {
            OtherEps::of(norm.eps, net, |layer| net.tensor(layer, Role::Variance) == Some(&norm.variance))
        })
    }

    /// The normalisations whose eps the source's receipt states. PyTorch's names leave out those of PyTorch's own eps,
    /// so that the others are known for this eps alone.
    fn of_receipt(wish: &Wish<'_>, to: f64) -> Result<Self, Error> {
        let stated: HashSet<&str> = wish.stated.iter().map(|norm| &*norm.variance).collect();
        let unstated = wish.checkpoint.names().find(|name| is_variance(name) && !stated.contains(name));
        if let Some(name) = unstated.filter(|_| !is_same(to, TORCH)) {
            let message = format!("eps: its receipt states the eps of some BatchNorms, and not that of {name:?}");
            return Err(wish.lacks(message, Remedy::NetOrSymbol));
        }
        let norms = wish.stated.iter().filter(|norm| !is_same(norm.eps, to)).cloned().collect();
        Ok(Self { to, norms, unfit: Vec::new(), staying: Vec::new() })
    }
}

/// An eps that a step says of a layer, and a net tells otherwise.
pub(crate) struct OtherEps {
    pub(crate) layer: String,
    pub(crate) said: f64,
    pub(crate) told: f64,
}

impl OtherEps {
    /// The difference from the first of the net's layers that are meant; `None` where one of them has the eps that is
    /// said, or the net has none.
    pub(super) fn of(said: f64, net: &Bound<'_>, is_meant: impl Fn(&Layer) -> bool) -> Option<Self> {
        let mut meant = net.layers().filter(|layer| is_norm(layer) && is_meant(layer)).peekable();
        let (layer, told) = meant.peek().map(|layer| (layer.name.to_string(), net.eps(layer)))?;
        (!meant.any(|layer| is_same(net.eps(layer), said))).then_some(Self { layer, said, told })
    }
}

/// PyTorch's eps of a BatchNorm.
pub(super) const TORCH: f64 = 1e-5;

/// Whether PyTorch would give a variance this name.
pub(crate) fn is_variance(name: &str) -> bool {
    name.ends_with(".running_var")
}

fn is_eps(eps: f64) -> bool {
    eps.is_finite() && eps >= 0.0
}

/// Whether a layer of MXNet's divides by the root of the input's own variance and an eps.
pub(super) fn is_by_input(layer: &Layer) -> bool {
    matches!(&*layer.type_name, "InstanceNorm" | "LayerNorm" | "GroupNorm")
}

/// Whether two eps are equal as f32: Caffe stores each eps as an f32.
pub(crate) fn is_same(a: f64, b: f64) -> bool {
    a as f32 == b as f32
}

/// The bits of an eps as f32, with one zero: equal for two eps that are the same.
pub(super) fn bits(eps: f64) -> u32 {
    (eps as f32 + 0.0).to_bits()
}

impl Transform for Eps {
    fn name(&self) -> &'static str {
        "eps"
    }

    fn settings(&self) -> Value {
        json!(self)
    }

    fn left(&self) -> Left<'_> {
        Left::ForEps { variances: &self.norms, to: self.to }
    }

    fn named(&self) -> Vec<&str> {
        self.norms.iter().map(|norm| &*norm.variance).collect()
    }

    fn relies_on(&self) -> &'static [Fact] {
        &[Fact::Eps]
    }

    fn plan(&self, tensors: &[Spec<'_>], context: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let places = Places::of(tensors);
        let unfit = self.unfit.iter().filter(|misfit| places.find(&misfit.tensor).is_some());
        let (mut added, mut misfits): (_, Vec<Misfit>) = (vec![None; tensors.len()], unfit.cloned().collect());
        for norm in &self.norms {
            let Some(place) = places.find(&norm.variance) else { continue };
            let difference = norm.eps - self.to;
            let (factor, is_divided) = (norm.factor.as_ref(), context.is_after(BatchNorm::NAME));
            if let Some(factor) = factor
                && !is_divided
                && is_unselected(factor, &places, context.checkpoint())
            {
                misfits.push(not_selected(&norm.variance, factor));
                continue;
            }
            let has_factor = factor.and_then(|factor| places.find(factor)).is_some();
            let problem = if has_factor && is_divided {
                "is for Caffe beside a factor of 1, and the layer's own eps stays there: it cannot change".to_owned()
            } else if has_factor {
                "is to be divided by its factor first: --bn fold-factor".to_owned()
            } else if !tensors[place].tensor.dtype.is_float() {
                "has no floats to add to".to_owned()
            } else if added[place].is_some_and(|other: f64| other != difference) {
                "belongs to two layers of different eps".to_owned()
            } else {
                added[place] = Some(difference);
                continue;
            };
            misfits.push(Misfit::new(&norm.variance, problem));
        }
        if !misfits.is_empty() {
            return Err(misfits);
        }
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let Some(difference) = added[place] else { return Made::same(place, spec) };
            let change = format!("{difference:e} added, for an eps of {:e}", self.to);
            Made::computed(spec.tensor.clone(), vec![place], Added(difference)).with_change(change)
        });
        let (mut outcome, to): (Outcome, f64) = (made.collect(), self.to);
        let notice = match added.iter().flatten().count() {
            0 => format!("eps: nothing is changed: no stored variance is for another eps than {to:e}"),
            count => format!("eps: the variances of {count} {} are for an eps of {to:e}", layers(count)),
        };
        outcome.notices.push(notice);
        if !self.staying.is_empty() {
            let named = listed(&self.staying);
            outcome.notes.push(format!("eps: layers that compute the variance of their input keep their eps: {named}"));
        }
        Ok(outcome)
    }

    fn follows_net(&self) -> bool {
        true
    }
}

/// Adds a number to each value. A value of 0 or more that would become negative is an error.
#[derive(Debug)]
struct Added(f64);

impl Compute for Added {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        let old = inputs.floats(0)?;
        let new: Vec<f64> = old.iter().map(|value| value + self.0).collect();
        match old.iter().zip(&new).position(|(old, new)| *new < 0.0 && *old >= 0.0) {
            Some(at) => Err(inputs.error(format!("variance {at} is {:e}, and would be {:e}", old[at], new[at]))),
            None => Ok(ready(inputs.rounded(&new))),
        }
    }
}
