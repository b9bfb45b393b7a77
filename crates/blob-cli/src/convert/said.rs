//! Says what a conversion changes, from its one list: a warning for each kind that nobody asked for, a note for what a
//! user should know, and the counts of the rest for the success line.

use std::collections::BTreeMap;

use blob_convert::change::{Effect, Group};
use blob_convert::report::json::{self, Field, Type, field, properties};
use blob_io::words::{listed, more_line};
use blob_io::{Checkpoint, Warning};
use serde_json::Value;

use crate::context::Context;

/// At most this many warnings about the source are printed one by one.
const MAX_LISTED: usize = 20;

/// How many tensors a warning names.
const NAMED: usize = 3;

/// The warnings about the source: those that several of its tensors share are one line. What is lost by them stands
/// among the changes.
pub(super) fn warn_of_source(source: Warnings<'_>, context: &Context) {
    let mut shared: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, warning) in source.of_arrays() {
        shared.entry(warning.to_string()).or_default().push(name);
    }
    let each = shared.iter().map(|(warning, names)| format!("{}: {warning}", listed(NAMED, names)));
    warn(source.of_file().map(ToString::to_string).chain(each).collect(), "--json prints them all", context);
}

/// The warnings about a file that is converted.
#[derive(Clone, Copy)]
pub(super) struct Warnings<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) changes: &'a [Group],
    /// Whether the output is the same bytes, of which nothing is left out.
    pub(super) is_copy: bool,
}

impl<'a> Warnings<'a> {
    /// The warnings about the file as a whole, but for the losses among the changes.
    pub(super) fn of_file(self) -> impl Iterator<Item = &'a Warning> {
        self.checkpoint.warnings().iter().filter(move |warning| self.is_said(warning))
    }

    /// The warnings about the arrays, likewise.
    pub(super) fn of_arrays(self) -> impl Iterator<Item = (&'a str, Warning)> {
        let entries = self.checkpoint.entries().iter();
        let each = entries.flat_map(|entry| entry.warnings().map(|warning| (entry.name(), warning)));
        each.filter(move |(_, warning)| self.is_said(warning))
    }

    /// Whether a warning is said beside the changes.
    fn is_said(self, warning: &Warning) -> bool {
        if self.is_copy && warning.is_loss {
            return false;
        }
        let mut effects = self.changes.iter().map(|group| &group.change.effect);
        !effects.any(|effect| matches!(effect, Effect::Unlisted(unlisted) if unlisted == warning))
    }
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

/// The changes that were asked for, for the success line: `20 rounded to f16, 4 left out`.
pub(crate) fn asked(changes: &[Group]) -> Vec<String> {
    let counts: Vec<String> = changes.iter().filter(|group| group.change.is_asked).filter_map(Group::short).collect();
    if counts.is_empty() { Vec::new() } else { vec![counts.join(", ")] }
}

/// Prints the first warnings, then the number of the others.
pub(crate) fn warn(lines: Vec<String>, rest: &str, context: &Context) {
    for line in lines.iter().take(MAX_LISTED) {
        context.terminal.warning(line);
    }
    if let Some(more) = more_line(lines.len().saturating_sub(MAX_LISTED) as u64) {
        context.terminal.warning(format!("{more}; {rest}"));
    }
}

/// The field that the JSON of every command that changes tensors has.
pub(crate) fn changes_field<T>(get: fn(&T) -> Value) -> Field<T> {
    field("changes", Type::Array(&Type::Object(properties::<Group>)), "what was changed, one item a kind", get)
}

/// The changes as JSON.
pub(crate) fn listed_changes(changes: &[Group]) -> Value {
    changes.iter().map(json::value).collect()
}
