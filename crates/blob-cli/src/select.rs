//! Selects tensors of an open file as a command's arguments say; `blob_convert::Selection` does the matching.
//!
//! A name may also be given as in a table: escaped, or cut.

use blob_convert::{Selected, Selection};
use blob_io::{Checkpoint, Entry};

use crate::args::{Order, SortKey};
use crate::escape::{escape, escape_ascii, escape_field};
use crate::failure::Failure;
use crate::nearest::nearest;
use crate::output::width::{DOTS, width};
use crate::units;

/// The places of the tensors that are selected, in the file's order.
///
/// # Errors
/// A pattern that is wrong or matches nothing, and a selection that takes nothing: the answer is no.
pub(crate) fn select(checkpoint: &Checkpoint, selection: &Selection) -> Result<Vec<usize>, Failure> {
    let named = by_names(checkpoint, selection)?;
    let Selected { places, unmatched, .. } = found(checkpoint, &named)?;
    match unmatched.first() {
        Some(pattern) => Err(no_match(checkpoint, pattern)),
        None if places.is_empty() && !named.is_all() => {
            Err(Failure::no(format!("no tensor of {} is {named}", checkpoint.name())))
        }
        None => Ok(places),
    }
}

/// The selected tensors of a file, and the patterns that match nothing there.
pub(crate) fn found(checkpoint: &Checkpoint, selection: &Selection) -> Result<Selected, Failure> {
    selection.of(checkpoint).map_err(Failure::new)
}

/// The one tensor that is selected; without a pattern, the file's only one.
///
/// # Errors
/// No match, or more than one.
pub(crate) fn select_one<'c>(checkpoint: &'c Checkpoint, selection: &Selection) -> Result<&'c Entry, Failure> {
    match select_some(checkpoint, selection)?[..] {
        [one] => Ok(&checkpoint.entries()[one]),
        ref several => Err(too_many(checkpoint, selection, several)),
    }
}

/// The tensors that are selected, for a command that shows each: a file of several needs a selection.
pub(crate) fn select_some(checkpoint: &Checkpoint, selection: &Selection) -> Result<Vec<usize>, Failure> {
    match (checkpoint.entries(), selection.is_all()) {
        ([], true) => Err(Failure::no(format!("{} holds no tensors", checkpoint.name()))),
        ([first, _, ..], true) => {
            let count = checkpoint.entries().len();
            Err(Failure::new(format!("{} holds {count} tensors; name one of them", checkpoint.name()))
                .help(format!("for instance {:?}; `blob ls` lists them all", first.name())))
        }
        _ => select(checkpoint, selection),
    }
}

/// The refusal of a command that takes one tensor.
pub(crate) fn too_many(checkpoint: &Checkpoint, selection: &Selection, places: &[usize]) -> Failure {
    let names = places.iter().take(3).map(|place| format!("{:?}", checkpoint.entries()[*place].name()));
    let (some, dots) = (names.collect::<Vec<_>>().join(", "), if places.len() > 3 { ", …" } else { "" });
    let what = match &selection.patterns[..] {
        [pattern] => format!("{pattern:?}"),
        _ => "the selection".to_owned(),
    };
    Failure::new(format!("{what} matches {} tensors, and one is needed", places.len()))
        .help(format!("it matches {some}{dots}; a name or `#3` takes one"))
}

/// The selection with whole names in place of the names that a table shows.
pub(crate) fn by_names(checkpoint: &Checkpoint, selection: &Selection) -> Result<Selection, Failure> {
    let mut named = selection.clone();
    if named.regex {
        return Ok(named);
    }
    for pattern in named.patterns.iter_mut().chain(&mut named.exclude) {
        if let Some(entry) = shown_as(checkpoint, pattern)? {
            *pattern = entry.name().to_owned();
        }
    }
    Ok(named)
}

/// The tensor whose name a table shows like this; `None` for any other pattern.
fn shown_as<'c>(checkpoint: &'c Checkpoint, pattern: &str) -> Result<Option<&'c Entry>, Failure> {
    let is_cut = DOTS.iter().any(|dots| pattern.contains(dots));
    if !(is_cut || pattern.contains('\\')) {
        return Ok(None);
    }
    let escaped = checkpoint.entries().iter().find(|entry| is_escaped_to(entry.name(), pattern));
    match (checkpoint.entry(pattern), escaped) {
        (Some(named), Some(other)) if named.name() != other.name() => {
            let failure = Failure::new(format!("{pattern:?} is the name of one tensor, and how another one is shown"));
            return Err(failure.help("`#3` takes one"));
        }
        (Some(_), _) => return Ok(None),
        (None, Some(entry)) => return Ok(Some(entry)),
        (None, None) => {}
    }
    let mut shown = checkpoint.entries().iter().filter(|entry| {
        let name = entry.name();
        is_cut_to(&escape(name), pattern) || is_cut_to(&escape_ascii(name), pattern)
    });
    match (shown.next(), shown.count()) {
        (None, _) => Ok(None),
        (one, 0) => Ok(one),
        (_, more) => {
            let failure = Failure::new(format!("{pattern:?} is how the names of {} tensors are cut", more + 1));
            Err(failure.help("`#3` takes one; `blob ls --wide` shows whole names"))
        }
    }
}

/// Whether a table, a message or a line of fields shows the name like this.
fn is_escaped_to(name: &str, shown: &str) -> bool {
    escape(name) == shown
        || escape_ascii(name) == shown
        || [false, true].iter().any(|ascii| escape_field(name, *ascii) == shown)
}

/// Whether a cut leaves `shown` of a name: both ends, with dots for more columns than the dots have.
fn is_cut_to(name: &str, shown: &str) -> bool {
    DOTS.iter().any(|dots| {
        shown.match_indices(dots).any(|(at, _)| {
            let (head, tail) = (&shown[..at], &shown[at + dots.len()..]);
            name.starts_with(head) && name.ends_with(tail) && width(name) > width(head) + width(dots) + width(tail)
        })
    })
}

fn no_match(checkpoint: &Checkpoint, pattern: &str) -> Failure {
    let entries = checkpoint.entries();
    let failure = Failure::no(format!("no tensor of {} matches {pattern:?}", checkpoint.name()));
    if std::path::Path::new(pattern).is_file() {
        return failure.help(format!("{pattern:?} is a file; this command takes one file, then names of its tensors"));
    }
    match nearest(pattern, entries.iter().map(Entry::name)) {
        Some(name) => failure.help(format!("did you mean {name:?}?")),
        None => {
            failure.help(format!("it holds {}; `blob ls` lists them", units::plural(entries.len() as u64, "tensor")))
        }
    }
}

/// Brings the places of tensors into the order that is asked for.
pub(crate) fn sort(chosen: &mut [usize], order: &Order, entries: &[Entry]) {
    match order.sort {
        None => {}
        Some(SortKey::Name) => chosen.sort_by(|a, b| entries[*a].name().cmp(entries[*b].name())),
        Some(SortKey::Size) => chosen.sort_by_key(|i| std::cmp::Reverse(entries[*i].byte_len())),
        Some(SortKey::Offset) => chosen.sort_by_key(|i| entries[*i].offset().unwrap_or(u64::MAX)),
    }
    if order.reverse {
        chosen.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_stands_for_more_columns_than_its_dots() {
        assert!(is_cut_to("stage1_unit2_conv", "stag…conv"));
        assert!(is_cut_to("stage1_unit2_conv", "…conv"));
        assert!(is_cut_to("stage1_unit2_conv", "stage1_u..._conv"));
        // This name has as many columns as the cut one, and would not have been cut.
        assert!(!is_cut_to("stagXconv", "stag…conv"));
        assert!(!is_cut_to("stageconv", "stag…conv"));
        assert!(!is_cut_to("stage1_unit2_bias", "stag…conv"));
    }
}
