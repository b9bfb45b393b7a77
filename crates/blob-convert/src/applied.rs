//! Reads the transforms that a file's receipt lists as done, and refuses a second run of a transform that must run
//! once only.

use std::sync::Arc;

use blob_io::{Checkpoint, Error};
use serde::Deserialize;
use serde_json::Value;

use crate::before::{Called, Wanted, before};
use crate::change::Change;
use crate::history::{MAX_STEPS, Origin, UNKNOWN, parse, present, receipt_text};
use crate::options::{Options, refuse};
use crate::step::Step;
use crate::transform::{Followed, Undone};

/// The transforms in a receipt.
#[derive(Deserialize)]
struct Transformed {
    /// `None` for an absent list, `null` for a list that had no room.
    #[serde(default, deserialize_with = "present")]
    transforms: Option<Value>,
}

/// The transforms of a file's receipt; empty where receipt or list is absent. The error is the reason why the list
/// cannot be read.
pub(crate) fn steps(checkpoint: &Checkpoint) -> Result<Vec<Step>, &'static str> {
    let Some(text) = receipt_text(checkpoint) else { return Ok(Vec::new()) };
    let transformed: Transformed = parse(text).ok_or("the receipt cannot be read")?;
    match transformed.transforms {
        None => Ok(Vec::new()),
        Some(Value::Null) => Err("the receipt had no room for its transforms"),
        Some(Value::Array(steps)) if steps.len() > MAX_STEPS => Err("the receipt has too many transforms"),
        Some(steps) => serde_json::from_value(steps).map_err(|_| "the receipt's transforms cannot be read"),
    }
}

/// The transforms that a conversion does.
pub(crate) struct ToDo {
    /// The options without the transforms that change nothing, and with the steps back to the source's earlier names
    /// where the output needs those names.
    pub(crate) options: Options,
    /// The changes that a user should know.
    pub(crate) changes: Vec<Change>,
    /// The number of the first transforms behind which all tensors have their new names.
    pub(crate) named: usize,
}

/// Refuses a transform that was already done and must not be done twice.
pub(crate) fn to_do(checkpoint: &Checkpoint, options: &Options, wanted: Wanted<'_>) -> Result<ToDo, Error> {
    let about = options.about(checkpoint);
    let mut options = Options { about: Some(Arc::clone(&about)), ..options.clone() };
    refuse_again(checkpoint, &options, &about.lineage)?;
    // Weights count as stored in PyTorch's order, and stay, unless a net has another order.
    if options.transforms.iter().any(|step| step.keeps_order())
        && !Followed::new(checkpoint, &options.net).has_other_order()
    {
        options.transforms.retain(|step| !step.keeps_order());
    }
    options.transforms.retain(|step| !step.is_idle());
    // A map of the user's starts from the tensors' current names.
    let named = options.transforms.iter().position(|step| matches!(step.undone(), Undone::Renamed(_)));
    let called = match named.map(|at| options.transforms[at].undone()) {
        Some(Undone::Renamed(names)) => Called::By(names),
        _ if options.names_stay => Called::AsTheyAre,
        _ => Called::AsNeeded,
    };
    let before = before(checkpoint, &about.lineage, wanted, called, &options.registry)?;
    let at = named.map_or(0, |at| at + 1);
    let begin = at + before.steps.len();
    options.transforms.splice(at..at, before.steps);
    let last = options.transforms.iter().rposition(|step| matches!(step.undone(), Undone::Renamed(_)));
    let named = last.map_or(begin, |last| begin.max(last + 1));
    Ok(ToDo { options, changes: before.changes, named })
}

/// Refuses each step that the source's receipt lists as done and whose second run would scramble the values.
fn refuse_again(checkpoint: &Checkpoint, options: &Options, lineage: &[Origin]) -> Result<(), Error> {
    let once = options.transforms.iter().filter_map(|step| Some((step, step.only_once()?)));
    // An unreadable receipt is ignored here, because `verify` reports it. The history includes earlier conversions.
    let done: Vec<&Step> = lineage.iter().flat_map(|origin| &origin.transforms).collect();
    let mut problems = Vec::new();
    for (transform, words) in once {
        if done.iter().any(|step| step.name == UNKNOWN) {
            let name = transform.name();
            problems.push(format!("does not allow {name}: its receipt had no room for its steps, and may have had it"));
        }
        for step in done.iter().filter(|step| step.name == transform.name()) {
            // The receipt has the settings of the earlier run. A user's own transform is known by name alone.
            let was = match options.registry.read(&step.name, &step.settings) {
                Ok(step) if step.keeps_order() => None,
                Ok(step) => step.only_once().or(Some(words.clone())),
                Err(_) => Some(words.clone()),
            };
            let problem = |was| format!("does not allow {}: its receipt says that it was {was}", step.name);
            // A file merged of several has the step once for each of them.
            problems.extend(was.map(problem).filter(|problem| !problems.contains(problem)));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(refuse(checkpoint, problems.join("; "))) }
}
