//! Says what a conversion changes, from its one list: a warning for each kind that nobody asked for, a note for what a
//! user should know, and the counts of the rest for the success line.

use std::collections::BTreeMap;

use blob_convert::change::{Effect, Group};
use blob_convert::report::json::{self, Field, Type, field, properties};
use blob_io::words::listed;
use blob_io::{Checkpoint, Warning};

use crate::context::Context;
use crate::units;

/// At most this many warnings about the source are printed one by one.
const MAX_LISTED: usize = 20;

/// How many tensors a warning names.
const NAMED: usize = 3;

/// The warnings about the source: those that several of its tensors share are one line. What is lost by them stands
/// among the changes.
pub(super) fn warn_of_source(checkpoint: &Checkpoint, changes: &[Group], context: &Context) {
    let mut shared: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, warning) in of_arrays(checkpoint, changes) {
        shared.entry(warning.to_string()).or_default().push(name);
    }
    let whole = checkpoint.warnings().iter().filter(|warning| !is_among(changes, warning)).map(ToString::to_string);
    let each = shared.iter().map(|(warning, names)| format!("{}: {warning}", listed(NAMED, names)));
    warn(whole.chain(each).collect(), "--json prints them all", context);
}

/// The warnings about the source's arrays, but for the losses among the changes.
pub(super) fn of_arrays<'a>(
    checkpoint: &'a Checkpoint,
    changes: &'a [Group],
) -> impl Iterator<Item = (&'a str, Warning)> {
    let entries = checkpoint.entries().iter();
    let each = entries.flat_map(|entry| entry.warnings().map(|warning| (entry.name(), warning)));
    each.filter(|(_, warning)| !is_among(changes, warning))
}

/// Whether what a warning of the source says is one of the changes.
pub(super) fn is_among(changes: &[Group], warning: &Warning) -> bool {
    changes.iter().any(|group| matches!(&group.change.effect, Effect::Unlisted(unlisted) if unlisted == warning))
}

/// The changes that nobody asked for, in words: a line for each kind.
pub(crate) fn warnings(changes: &[Group]) -> Vec<String> {
    changes.iter().filter(|group| group.change.is_warned()).map(ToString::to_string).collect()
}

/// A warning for each kind of change that nobody asked for.
pub(crate) fn warn_of_changes(changes: &[Group], context: &Context) {
    warn(warnings(changes), "--json prints them all", context);
}

/// A note for each thing that a user should know.
pub(crate) fn notices(changes: &[Group], context: &Context) {
    let notices = changes.iter().filter(|group| group.change.is_notice());
    notices.for_each(|group| context.terminal.note(format!("  {}", context.terminal.text(&group.to_string()))));
}

/// What was asked for, for the success line: `20 rounded to f16, 4 left out`.
pub(crate) fn asked(changes: &[Group]) -> Vec<String> {
    let counts: Vec<String> = changes.iter().filter(|group| group.change.is_asked).filter_map(Group::short).collect();
    if counts.is_empty() { Vec::new() } else { vec![counts.join(", ")] }
}

/// Prints the first warnings, then the number of the others.
pub(crate) fn warn(lines: Vec<String>, rest: &str, context: &Context) {
    for line in lines.iter().take(MAX_LISTED) {
        context.terminal.warning(line);
    }
    if lines.len() > MAX_LISTED {
        let more = units::grouped((lines.len() - MAX_LISTED) as u64);
        context.terminal.warning(format!("and {more} more; {rest}"));
    }
}

/// A result with its changes.
pub(crate) trait Changes {
    fn changes(&self) -> &[Group];
}

/// The field that the JSON of every command that changes tensors has.
pub(crate) fn changes_field<T: Changes>() -> Field<T> {
    field("changes", Type::Array(&Type::Object(properties::<Group>)), "what was changed, one item a kind", |of: &T| {
        of.changes().iter().map(json::value).collect()
    })
}
