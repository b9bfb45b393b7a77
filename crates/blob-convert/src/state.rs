//! The state of a file's tensors, by the history in the receipt: the current axes and eps, and the steps that changed
//! values.
//!
//! A net speaks of tensors as stored by the framework, so a step that relies on a net asks here first. The receipt is
//! hostile; the receipt's lists bound the work.

use std::collections::BTreeMap;
use std::sync::Arc;

use blob_io::net::{Net, Role};
use blob_io::{Checkpoint, Error, work};

use crate::fits::is_of_net;
use crate::history::{Origin, UNKNOWN, lineage_of, receipt_text, steps_of};
use crate::options::refuse;
use crate::planned::Planned;
use crate::step::Step;
use crate::transform::{
    Bound, Fact, Followed, Left, MovedEps, Names, Outcome, Own, Registry, Transform, Undone, Values, Variance, is_norm,
    is_same, is_variance,
};

/// The state after the steps in a file's history.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// For each tensor that was permuted by name, under the current name: the original axis at each place.
    axes: BTreeMap<String, Vec<usize>>,
    /// The turn of all weights, in words that follow "were", and whether the result is PyTorch's order.
    turned: Option<(String, bool)>,
    eps: BTreeMap<String, Moved>,
    /// The eps of all normalisations, where the receipt does not list the variances.
    eps_of_all: Option<f64>,
    /// The eps that PyTorch's names say of variances, by the current name.
    said: BTreeMap<String, f64>,
    /// The eps that they say of all variances.
    said_of_all: Option<f64>,
    /// The means and variances that were divided by the factors of Caffe's BatchNorms, by the current name.
    divided: BTreeMap<String, ()>,
    /// Whether tensors were chosen, so that the file may lack others of its layers.
    is_part: bool,
    /// The other steps that changed values.
    changed: Vec<String>,
    /// The step that had no room in the receipt, and may have changed anything.
    unknown: Option<String>,
}

/// A variance's original eps and current eps.
#[derive(Clone, Copy, Debug)]
struct Moved {
    from: f64,
    to: f64,
}

impl State {
    pub(crate) fn of(checkpoint: &Checkpoint, registry: &Registry) -> Self {
        Self::after(&receipt_text(checkpoint).map(lineage_of).unwrap_or_default(), registry)
    }

    /// The state after the steps of a lineage.
    pub(crate) fn after(lineage: &[Origin], registry: &Registry) -> Self {
        let mut state = Self::default();
        steps_of(lineage).for_each(|(step, is_before_merge)| state.add(step, is_before_merge, registry));
        state
    }

    fn add(&mut self, step: &Step, is_before_merge: bool, registry: &Registry) {
        match registry.read(&step.name, &step.settings) {
            Ok(done) => self.after_step(&*done, is_before_merge),
            Err(_) => self.after_unread(step),
        }
    }

    /// The state after these steps, too.
    pub(crate) fn then(mut self, steps: &[Arc<dyn Transform>]) -> Self {
        steps.iter().for_each(|step| self.after_step(&**step, false));
        self
    }

    fn after_step(&mut self, done: &dyn Transform, is_before_merge: bool) {
        match done.left() {
            Left::AsSaid => {}
            Left::Turned => {
                let how = done.only_once().unwrap_or_else(|| format!("turned by {}", done.name()));
                self.turned = Some((how, done.keeps_order()));
            }
            Left::Permuted { tensors: [], .. } => {}
            // The names may be others now, and the same step of another source would count as the way back.
            Left::Permuted { .. } if is_before_merge => self.after_permuted(done.name()),
            Left::Permuted { tensors, axes } => tensors.iter().for_each(|name| self.permute(name, axes)),
            Left::ForEps { variances, to } => {
                for Variance { variance, eps: from, .. } in variances {
                    let from = *from;
                    self.eps.entry(variance.clone()).and_modify(|moved| moved.to = to).or_insert(Moved { from, to });
                }
            }
        }
        self.is_part |= done.selection().is_some_and(|selection| !selection.is_all());
        match done.undone() {
            Undone::Divided(norms) => {
                let names = norms.iter().flat_map(|norm| [norm.mean(), norm.variance()]);
                self.divided.extend(names.map(|name| (name.to_owned(), ())));
            }
            Undone::Renamed(names) => {
                self.rename(names);
                // The file that is merged of several may have the names of others.
                for (variance, eps) in names.stated_eps().filter(|_| !is_before_merge) {
                    match variance {
                        Some(variance) => drop(self.said.insert(variance, eps)),
                        None => self.said_of_all = Some(eps),
                    }
                }
            }
            Undone::Changed | Undone::Reordered if matches!(done.left(), Left::AsSaid | Left::Turned) => {
                self.changed.push(done.name().to_owned());
            }
            _ => {}
        }
    }

    /// After a step that permuted axes, nobody knows of which tensors.
    fn after_permuted(&mut self, step: &str) {
        self.turned = Some((format!("permuted by {step}"), false));
        self.changed.push(step.to_owned());
    }

    /// Assumes the worst of a step whose settings had no room in the receipt.
    fn after_unread(&mut self, step: &Step) {
        match step.own() {
            Some(Own::Names) => {
                let names_are_lost = !self.axes.is_empty();
                self.axes.clear();
                if names_are_lost {
                    self.after_permuted("permute");
                }
                self.eps_of_all = self.eps.values().next().map(|moved| moved.to).or(self.eps_of_all);
            }
            Some(Own::Layout | Own::Permute) => self.after_permuted(&step.name),
            Some(Own::Eps) => match step.settings["to"].as_f64() {
                Some(to) => (self.eps, self.eps_of_all) = (BTreeMap::new(), Some(to)),
                None => self.unknown = Some(step.name.clone()),
            },
            None if step.name == UNKNOWN => self.unknown = Some("its steps".to_owned()),
            _ => self.changed.push(step.name.clone()),
        }
    }

    fn permute(&mut self, name: &str, axes: &[usize]) {
        let before = self.axes.remove(name).unwrap_or_else(|| (0..axes.len()).collect());
        let now: Option<Vec<usize>> = axes.iter().map(|axis| before.get(*axis).copied()).collect();
        match now {
            Some(now) if now.iter().copied().eq(0..axes.len()) => {}
            now => drop(self.axes.insert(name.to_owned(), now.unwrap_or_default())),
        }
    }

    fn rename(&mut self, names: &Names) {
        renamed(&mut self.axes, names);
        renamed(&mut self.eps, names);
        renamed(&mut self.said, names);
        renamed(&mut self.divided, names);
    }

    /// The eps added to each variance; empty where the net's own eps applies.
    fn moved_eps(&self) -> MovedEps {
        let each = self.eps.iter().map(|(variance, moved)| (variance.clone(), moved.to));
        MovedEps { each: each.collect(), all: self.eps_of_all }
    }

    /// The eps of the file's variances, as far as the receipt states any.
    pub(crate) fn stated_eps(&self, checkpoint: &Checkpoint) -> Vec<Variance> {
        let stated = checkpoint
            .names()
            .filter_map(|name| Some(Variance { variance: name.to_owned(), factor: None, eps: self.eps_of(name)? }));
        stated.collect()
    }

    /// The eps of a variance of this name, as far as steps and receipts state one.
    pub(crate) fn eps_of(&self, name: &str) -> Option<f64> {
        let moved = self.eps.get(name).map(|moved| moved.to).or(self.eps_of_all.filter(|_| is_variance(name)));
        let said = self.said.get(name).copied().or(self.said_of_all.filter(|_| is_variance(name)));
        moved.or(said)
    }

    /// A normalisation whose eps the receipt and the followed net tell differently, in words.
    fn other_eps(&self, checkpoint: &Checkpoint, followed: &Followed<'_>) -> Option<String> {
        let net = followed.get().ok()??;
        let bound = Bound::of(net.net(), checkpoint);
        bound.layers().filter(|layer| is_norm(layer)).find_map(|layer| {
            let variance = bound.tensor(layer, Role::Variance).filter(|name| !self.eps.contains_key(*name))?;
            let said = self.said.get(variance).copied().or(self.said_of_all)?;
            let (name, origin, eps) = (&layer.name, net.origin(), layer.eps);
            let is_other = self.eps_of_all.is_none() && !is_same(said, eps);
            is_other
                .then(|| format!("its receipt says that the eps of {name:?} is {said:e}, and {origin} says {eps:e}"))
        })
    }

    /// The reason why a step is no longer possible: a fact that the step relies on is no longer as the net says.
    pub(crate) fn forbids(
        &self,
        step: &dyn Transform,
        checkpoint: &Checkpoint,
        followed: &Followed<'_>,
    ) -> Option<String> {
        let facts = step.relies_on();
        if let Some(unknown) = self.unknown.as_ref().filter(|_| !facts.is_empty()) {
            return Some(format!("its receipt had no room for {unknown}, which may have been the same: {ANEW}"));
        }
        if facts.contains(&Fact::Eps)
            && let Some(other) = self.other_eps(checkpoint, followed)
        {
            return Some(other);
        }
        let (how, is_usual) = self.turned.as_ref().filter(|_| facts.contains(&Fact::Axes))?;
        // Most nets say PyTorch's order.
        let is_as_said = *is_usual && !followed.has_other_order();
        (!is_as_said).then(|| format!("its receipt says that weights were {how}, and their axes count here: {ANEW}"))
    }

    /// For each tensor whose axes count for a step and differ from the net's: the problem, in words.
    pub(crate) fn moved(
        &self,
        step: &dyn Transform,
        outcome: &Outcome,
        tensors: &[Planned],
        file: &Checkpoint,
    ) -> Vec<String> {
        if self.axes.is_empty() || !step.relies_on().contains(&Fact::Axes) {
            return Vec::new();
        }
        let touched = outcome.made.iter().filter(|made| {
            let is_computed = matches!(made.values, Values::Computed(_));
            is_computed || made.from.iter().any(|place| tensors[*place].spec.shape != made.tensor.shape)
        });
        let places = touched.flat_map(|made| &made.from);
        let mut names: Vec<&str> = places.map(|place| file.entries()[tensors[*place].entry].name()).collect();
        names.sort_unstable();
        names.dedup();
        let problems = names.into_iter().filter_map(|name| {
            let axes: Vec<String> = self.axes.get(name)?.iter().map(usize::to_string).collect();
            let axes = axes.join(",");
            Some(format!(
                "{name:?} has its axes permuted to {axes}, as the receipt says: `blob transpose` turns it back"
            ))
        });
        problems.collect()
    }

    /// The steps that changed values, each once, in words.
    pub(crate) fn steps(&self) -> Vec<String> {
        let mut steps = self.changed.clone();
        steps.extend((!self.axes.is_empty()).then(|| "permute".to_owned()));
        let is_moved = self.eps_of_all.is_some() || self.eps.values().any(|moved| moved.from != moved.to);
        steps.extend(is_moved.then(|| "eps".to_owned()));
        steps.extend(self.unknown.iter().map(|_| "steps that it had no room for".to_owned()));
        steps.sort_unstable();
        steps.dedup();
        steps
    }
}

/// Moves facts to the new names of their tensors. Only the pairs of the map are visited: the receipt bounds them, and a
/// receipt may have many maps that rename little.
fn renamed<T>(facts: &mut BTreeMap<String, T>, names: &Names) {
    let mut moved = Vec::new();
    for (old, new) in names.pairs() {
        work::visit(0, 1);
        moved.extend(facts.remove(old).map(|fact| (new.to_owned(), fact)));
    }
    facts.extend(moved);
}

impl<'a> Bound<'a> {
    /// Looks up the tensors of `net` in a file. MXNet's tensors are called `arg:NAME` and `aux:NAME` there, or NAME.
    /// The file's receipt tells the current eps of the variances.
    #[must_use]
    pub fn new(net: &'a Net, checkpoint: &'a Checkpoint) -> Self {
        let state = State::of(checkpoint, &Registry::default());
        // A division for which a receipt had no room may have been of any layer.
        let is_known = state.unknown.is_none() && !state.changed.iter().any(|step| Own::of(step) == Some(Own::Bn));
        let (eps, divided) = (state.moved_eps(), state.divided);
        Self::moved(net, checkpoint, eps).part((state.is_part && is_known).then(|| divided.into_keys().collect()))
    }
}

/// Advice for two steps, the second of which relies on a fact that the first changes.
const ANEW: &str = "begin with the file of before, and do this first, or both in one command";

/// A sentence on the steps that changed values by the source's receipt, for an output without a receipt; `None` where
/// no step did.
pub(crate) fn unsaid(checkpoint: &Checkpoint) -> Option<String> {
    let (steps, file) = (State::of(checkpoint, &Registry::default()).steps().join(", "), checkpoint.name());
    (!steps.is_empty())
        .then(|| format!("the receipt of {file} says that values were changed by {steps}, and the output does not"))
}

/// Refuses tensors whose values steps in the receipt changed, for a file that takes the values of before. The steps in
/// `undone` do not count, nor the step to ONNX for a model that blob made: its own tensors are behind that step.
/// `stays` says why no step can be undone.
pub(crate) fn check_as_they_were(
    checkpoint: &Checkpoint,
    base: &Checkpoint,
    undone: &[String],
    stays: Option<String>,
) -> Result<(), Error> {
    let mut steps = State::of(checkpoint, &Registry::default()).steps();
    steps.retain(|step| !(undone.contains(step) || Own::of(step) == Some(Own::Onnx) && is_of_net(base)));
    if steps.is_empty() {
        return Ok(());
    }
    let (steps, base) = (steps.join(", "), base.name());
    let stays = stays.map_or(String::new(), |why| format!(", which cannot be undone: {why}"));
    let message = format!(
        "has other values than {base} takes: its receipt says that they were changed by {steps}{stays}; where that is \
         undone, or {base} has it too, --no-receipt writes a file that says nothing of it"
    );
    Err(refuse(checkpoint, message))
}
