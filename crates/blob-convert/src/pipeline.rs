//! The transforms of a conversion, applied in order to the source's tensors.
//!
//! Checks the outcome of each transform, since users write some: no tensor disappears silently, and no name is used
//! twice.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use blob_io::layout::TensorSpec;
use blob_io::{Checkpoint, Error, TensorName};

use crate::change::{Change, Effect};
use crate::fits::grouped;
use crate::options::{Options, refuse_first};
use crate::planned::{Computed, How, LeftOut, Planned};
use crate::state::State;
use crate::transform::{Context, Followed, FollowedNet, Made, Misfit, NetOrigin, Outcome, Spec, Transform, Values};

/// How often the source's tensors may be read to compute one tensor. Ours need about ten; without a bound, a receipt
/// could nest steps that each read the one before twice.
pub(crate) const MAX_READS: u64 = 1024;

/// How many tensors are named in an error.
const NAMED: usize = 200;

/// The tensors after all transforms.
#[derive(Debug, Default)]
pub(crate) struct Chained {
    pub(crate) tensors: Vec<Planned>,
    pub(crate) left_out: Vec<LeftOut>,
    /// The changes of the whole file.
    pub(crate) of_file: Vec<Change>,
    /// The layers that must be removed from the net.
    pub(crate) removed_layers: Vec<String>,
    pub(crate) value_changes: Vec<ValueChange>,
    /// The steps that change none of these tensors.
    pub(crate) idle: Vec<&'static str>,
    /// The net that was followed, where a transform followed one.
    pub(crate) net: Option<FollowedNet>,
    /// The net that says which values the source's framework takes otherwise than stored.
    pub(crate) told_by: Option<NetOrigin>,
}

/// A transform that changes the values of tensors.
#[derive(Debug)]
pub(crate) struct ValueChange {
    pub(crate) step: Arc<dyn Transform>,
    /// The source's entries that these tensors come from.
    pub(crate) entries: Vec<usize>,
}

/// Plans the transforms in order, each on the outcome of the one before.
pub(crate) fn chain(
    checkpoint: &Checkpoint,
    options: &Options,
    followed: &Followed<'_>,
    tensors: Vec<Planned>,
) -> Result<Chained, Error> {
    let mut chained = Chained { tensors, ..Chained::default() };
    let (steps, state) = (&options.transforms, State::after(&options.about(checkpoint).lineage, &options.registry));
    // The user asked for the last step; the steps before may only prepare that one.
    let forbidden = steps.iter().rev().find_map(|step| Some((step, state.forbids(&**step, checkpoint, followed)?)));
    if let Some((step, why)) = forbidden {
        return Err(refused(checkpoint, &**step, vec![why]));
    }
    let mut done = state.steps();
    for step in steps {
        let specs: Vec<Spec<'_>> = chained.tensors.iter().map(|tensor| spec(checkpoint, tensor)).collect();
        let outcome = step
            .plan(&specs, &Context::following(checkpoint, followed, &done))
            .map_err(|misfits| refused(checkpoint, &**step, in_words(&misfits)))?;
        let mut problems = problems(&outcome, &specs);
        if problems.is_empty() {
            problems.extend(too_deep(&outcome, &chained.tensors));
            problems.extend(state.moved(&**step, &outcome, &chained.tensors, checkpoint));
        }
        if !problems.is_empty() {
            return Err(refused(checkpoint, &**step, problems));
        }
        if is_idle(&outcome, &specs) {
            chained.idle.push(step.name());
        }
        let Outcome { made, left_out, notes, unfitting, lacking, notices, removed_layers } = outcome;
        let gone: HashSet<usize> = left_out.iter().map(|(index, _)| *index).collect();
        let valued = made.iter().filter(|made| {
            made.tensor.dtype != specs[made.from[0]].tensor.dtype || matches!(made.values, Values::Computed(_))
        });
        let entries: Vec<usize> = valued.map(|made| chained.tensors[made.from[0]].entry).collect();
        if !entries.is_empty() {
            done.push(step.name().to_owned());
            chained.value_changes.push(ValueChange { step: Arc::clone(step), entries });
        }
        for (index, reason) in left_out {
            let name = chained.tensors[index].spec.name.clone();
            chained.left_out.push(LeftOut { name, reason, is_asked: true });
        }
        chained.of_file.extend(notes.into_iter().map(|note| Change::unasked(Effect::Remark(note))));
        chained.of_file.extend(unfitting.into_iter().map(|note| Change::unasked(Effect::Unfitting(note))));
        chained.of_file.extend(lacking.into_iter().map(|note| Change::unasked(Effect::Lacking(note))));
        chained.of_file.extend(notices.into_iter().map(|notice| Change::unasked(Effect::Notice(notice))));
        chained.removed_layers.extend(removed_layers);
        chained.tensors = made.into_iter().map(|made| apply(step.name(), made, &chained.tensors, &gone)).collect();
    }
    let net = steps.iter().any(|step| step.follows_net()).then(|| followed.net()).flatten();
    chained.net = net.filter(|net| steps.iter().any(|step| step.follows(net)));
    let followed = chained.net.as_ref().map(|net| Effect::Followed { net: net.origin.to_string() });
    chained.of_file.extend(followed.map(Change::unasked));
    Ok(chained)
}

/// Whether all tensors stay as they are.
fn is_idle(outcome: &Outcome, specs: &[Spec<'_>]) -> bool {
    let mut made = outcome.made.iter().enumerate();
    let all_stay = made.all(|(place, made)| {
        let is_same = made.from == [place] && made.tensor == specs[place].tensor;
        is_same && made.changes.is_empty() && matches!(made.values, Values::Same)
    });
    all_stay && outcome.left_out.is_empty()
}

fn spec<'a>(checkpoint: &'a Checkpoint, tensor: &Planned) -> Spec<'a> {
    Spec::new(tensor.spec.clone(), &checkpoint.entries()[tensor.entry])
}

/// Applies the plan for one tensor; `gone` holds the indices of the tensors that are left out.
fn apply(step: &'static str, mut made: Made, before: &[Planned], gone: &HashSet<usize>) -> Planned {
    let first = &before[made.from[0]];
    let is_new = first.is_new || gone.contains(&made.from[0]);
    let mut changes = first.changes.clone();
    let words = std::mem::take(&mut made.changes).into_iter();
    let mut effects: Vec<Effect> = words.map(|words| Effect::Transformed { step, words }).collect();
    effects.extend(seen(&made, &first.spec, !effects.is_empty()));
    changes.extend(effects.into_iter().map(Change::asked));
    let guess = made.guess.map(|what| Change::unasked(Effect::Guessed { what }));
    // Two transforms may have the same guess.
    changes.extend(guess.filter(|guess| !first.changes.contains(guess)));
    let (how, read_as, casts) = match made.values {
        Values::Same => {
            let mut casts = first.casts.clone();
            if made.tensor.dtype != first.spec.dtype {
                casts.push(made.tensor.dtype);
            }
            (first.how.clone(), first.read_as, casts)
        }
        Values::Computed(compute) => {
            let inputs = made.from.iter().map(|index| before[*index].clone()).collect();
            let computed = Computed::new(compute, made.tensor.clone(), inputs).in_one();
            (How::Computed(Arc::new(computed)), made.tensor.dtype, Vec::new())
        }
    };
    Planned { how, read_as, casts, changes, is_new, ..Planned::new(made.tensor, first.entry) }
}

/// The changes that are visible in a tensor whose values a transform hands on: the transform need not list these.
fn seen(made: &Made, was: &TensorSpec, has_words: bool) -> Vec<Effect> {
    let mut effects = Vec::new();
    if matches!(made.values, Values::Computed(_)) {
        return effects;
    }
    if made.tensor.shape != was.shape && !has_words {
        effects.push(Effect::Reshaped { was: was.shape.clone() });
    }
    if made.tensor.dtype != was.dtype {
        effects.push(Effect::of_dtype(was.dtype, made.tensor.dtype));
    }
    if made.tensor.name != was.name {
        effects.push(Effect::Renamed { was: was.name.clone() });
    }
    effects
}

/// The tensors that would read the source too often.
fn too_deep(outcome: &Outcome, before: &[Planned]) -> Vec<String> {
    let computed = outcome.made.iter().filter(|made| matches!(made.values, Values::Computed(_)));
    let reads =
        computed.map(|made| (made, made.from.iter().map(|index| before[*index].reads()).fold(0, u64::saturating_add)));
    let problems = reads.filter(|(_, reads)| *reads > MAX_READS).map(|(made, reads)| {
        format!("{:?} would read the file's tensors {reads} times, and {MAX_READS} are allowed", made.tensor.name)
    });
    problems.collect()
}

/// The mistakes in a transform's outcome.
fn problems(outcome: &Outcome, specs: &[Spec<'_>]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut used = vec![false; specs.len()];
    let mut names: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for made in &outcome.made {
        let name = &*made.tensor.name;
        if made.from.is_empty() || made.from.iter().any(|index| *index >= specs.len()) {
            problems.push(format!("{name:?} is made from no existing tensor"));
            continue;
        }
        made.from.iter().for_each(|index| used[*index] = true);
        names.entry(name).or_default().push(made.from[0]);
        let first = &specs[made.from[0]].tensor;
        if matches!(made.values, Values::Same)
            && (made.from.len() > 1 || made.tensor.shape.count() != first.shape.count())
        {
            problems.push(format!("{name:?} is {}, and is made of {}", made.tensor.shape, first.shape));
        }
    }
    for (index, _) in &outcome.left_out {
        match used.get_mut(*index) {
            Some(used) => *used = true,
            None => problems.push(format!("tensor {index}, which is left out, is not one of the {}", specs.len())),
        }
    }
    problems.extend(as_sparse(&outcome.made, specs, &names));
    let lost = specs.iter().zip(used).filter(|(_, used)| !used);
    problems.extend(lost.map(|(spec, _)| format!("{:?} is lost", spec.tensor.name)));
    for (name, of) in names.into_iter().filter(|(_, of)| of.len() > 1) {
        let of: Vec<String> = of.into_iter().map(|index| format!("{:?}", specs[index].tensor.name)).collect();
        problems.push(format!("{} would all be called {name:?}", of.join(", ")));
    }
    problems
}

/// Arrays that would have the name of a sparse array, whose parts have other names in most formats.
fn as_sparse(made: &[Made], specs: &[Spec<'_>], names: &BTreeMap<&str, Vec<usize>>) -> Vec<String> {
    let parts = made.iter().filter(|made| made.from.first().is_some_and(|first| has_parts(specs.get(*first))));
    let arrays: HashSet<&str> = parts.map(|made| TensorName::of(&made.tensor.name).array).collect();
    let both = arrays.into_iter().filter_map(|array| Some((array, &specs[*names.get(array)?.first()?])));
    let both = both.filter(|(_, spec)| !has_parts(Some(spec)));
    let mut both: Vec<String> = both
        .map(|(array, spec)| format!("{:?} would be called {array:?}, as a sparse array is", spec.tensor.name))
        .collect();
    both.sort();
    both
}

fn has_parts(spec: Option<&Spec<'_>>) -> bool {
    spec.is_some_and(|spec| spec.entry.sparse().is_some())
}

/// The misfits of a transform; the same one of several tensors is one sentence.
fn in_words(misfits: &[Misfit]) -> Vec<String> {
    let names = misfits.iter().map(|misfit| &misfit.tensor);
    let names: Vec<String> =
        names.map(|name| if name.is_empty() { String::new() } else { format!("{name:?}") }).collect();
    grouped(names.iter().zip(misfits).map(|(name, misfit)| (&**name, &*misfit.problem)))
}

/// The error for a transform that cannot be applied, with the tensors that prevent it.
fn refused(checkpoint: &Checkpoint, step: &dyn Transform, problems: Vec<String>) -> Error {
    refuse_first(NAMED, checkpoint, &format!("does not allow {}", step.name()), problems)
}
