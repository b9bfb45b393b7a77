//! The transforms that a file's receipt says were done: they are read, and those that must not be done twice are
//! refused.

use std::sync::Arc;

use blob_io::{Checkpoint, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::options::{Options, refuse};
use crate::receipt::{MAX_STEPS, Step, history_of, parse, receipt_text};
use crate::transform::{Followed, Transform};

/// What a receipt says of transforms.
#[derive(Deserialize)]
struct Transformed {
    /// Absent, or `null` where there was no room for it.
    #[serde(default, deserialize_with = "present")]
    transforms: Option<Value>,
}

/// Reads `null` as `Some(Value::Null)`; by default serde would make it `None`.
fn present<'de, D: Deserializer<'de>>(text: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(text).map(Some)
}

/// The transforms of a file's receipt, none where it has none; or why they cannot be read.
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

/// The options without the transforms that change nothing. Refuses a permutation that was already applied.
pub(crate) fn to_do(checkpoint: &Checkpoint, options: &Options) -> Result<Options, Error> {
    refuse_again(checkpoint, &options.transforms)?;
    let mut options = options.clone();
    // What is stored in PyTorch's order stays, unless a net says that it is not.
    let is_idle = |step: &Arc<dyn Transform>| step.name() == "layout" && step.settings()["to"] == "oihw";
    if options.transforms.iter().any(is_idle) && !Followed::new(checkpoint, &options.net).has_other_order() {
        options.transforms.retain(|step| !is_idle(step));
    }
    Ok(options)
}

/// Refuses a permutation that the source's receipt lists as done: a second one would scramble the values.
fn refuse_again(checkpoint: &Checkpoint, transforms: &[Arc<dyn Transform>]) -> Result<(), Error> {
    // An unreadable receipt is ignored here, because `verify` reports it. The history includes earlier conversions.
    let done = receipt_text(checkpoint).map(history_of).unwrap_or_default();
    let done: Vec<Step> = done.into_iter().flat_map(|origin| origin.transforms).collect();
    let mut problems = Vec::new();
    for transform in transforms {
        // Where the user names the tensors, it is their decision.
        if transform.settings()["tensors"].is_array() {
            continue;
        }
        for step in done.iter().filter(|step| step.name == transform.name()) {
            let was = match (&*step.name, step.settings["to"].as_str()) {
                ("layout", Some(to)) if to != "oihw" => format!("permuted to {to}"),
                ("rgb", _) => "reversed to RGB".to_owned(),
                ("fc-from", _) => "permuted to channels last".to_owned(),
                _ => continue,
            };
            problems.push(format!("does not allow {}: its receipt says that it was {was}", step.name));
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(refuse(checkpoint, problems.join("; "))),
    }
}
