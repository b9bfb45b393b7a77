//! Gathers changes of one kind into one sentence: a count, a reason, three names.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use blob_core::DType;
use blob_io::{Error, Format, grouped};

use super::{Change, Effect};
use blob_io::words::{self, NAMED_PROBLEMS, and_more, quoted};

/// How many tensors a sentence names.
const NAMED: usize = 3;

/// Changes of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// The first change of the group.
    pub change: Change,
    /// The changed tensors; empty for a change of the whole file.
    pub tensors: Vec<String>,
    /// The number of lost values, for a change of single values.
    pub values: Option<u64>,
}

/// Gathers changes, in the order in which each kind is first met.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: Vec<Group>,
    places: HashMap<Key, usize>,
}

/// Changes with one key stand in one sentence.
type Key = (&'static str, String, bool);

impl Groups {
    /// Adds a change of a tensor.
    pub(crate) fn of_tensor(&mut self, name: &str, change: &Change) {
        let group = self.group(change);
        group.tensors.push(name.to_owned());
    }

    /// Adds a change of a number of a tensor's values.
    pub(crate) fn of_values(&mut self, name: &str, change: &Change, count: u64) {
        let group = self.group(change);
        group.tensors.push(name.to_owned());
        *group.values.get_or_insert(0) += count;
    }

    /// Adds a change of the whole file.
    pub(crate) fn of_file(&mut self, change: &Change) {
        self.group(change);
    }

    pub(crate) fn finish(self) -> Vec<Group> {
        self.groups
    }

    fn group(&mut self, change: &Change) -> &mut Group {
        let key = (change.effect.name(), detail(change).into_owned(), change.is_asked);
        let place = *self.places.entry(key).or_insert_with(|| {
            self.groups.push(Group { change: change.clone(), tensors: Vec::new(), values: None });
            self.groups.len() - 1
        });
        &mut self.groups[place]
    }
}

/// The part of a change that all tensors of one sentence share.
fn detail(change: &Change) -> Cow<'_, str> {
    match &change.effect {
        Effect::Transformed { step, .. } => Cow::Borrowed(step),
        Effect::Rounded { to, .. } | Effect::Widened { to, .. } if change.is_asked => Cow::Borrowed(to.name()),
        Effect::Rounded { from, to } | Effect::Widened { from, to } => Cow::Owned(format!("{from} {to}")),
        Effect::OtherDtype { was, to } => Cow::Owned(format!("{was} {to}")),
        Effect::DtypeLost { dtype, .. } => Cow::Borrowed(dtype.name()),
        Effect::NewDtype { since, .. } => Cow::Borrowed(since),
        Effect::LeftOut { reason } if !change.is_asked => Cow::Borrowed(reason),
        Effect::Infinite { words }
        | Effect::Zeroed { words }
        | Effect::Lost { words }
        | Effect::TakenOtherwise { words }
        | Effect::Dropped(words) => Cow::Borrowed(words),
        Effect::WayBack { why } => Cow::Borrowed(why),
        Effect::Unlisted(warning) => Cow::Borrowed(&warning.text),
        Effect::Guessed { what } => Cow::Borrowed(what),
        Effect::Followed { net } => Cow::Borrowed(net),
        Effect::Unfitting(text) | Effect::Lacking(text) | Effect::Notice(text) | Effect::Remark(text) => {
            Cow::Borrowed(text)
        }
        _ => Cow::Borrowed(""),
    }
}

impl Group {
    /// The words of a success line: `20 rounded to f16`. `None` where there is nothing to count.
    #[must_use]
    pub fn short(&self) -> Option<String> {
        let count = self.tensors.len();
        let words = match &self.change.effect {
            Effect::Expanded => "expanded".to_owned(),
            Effect::Transformed { step, .. } => format!("by {step}"),
            Effect::Renamed { .. } => "renamed".to_owned(),
            Effect::Reshaped { .. } => "reshaped".to_owned(),
            Effect::Rounded { to, .. } => format!("rounded to {to}"),
            Effect::Widened { to, .. } => format!("widened to {to}"),
            Effect::LeftOut { .. } => "left out".to_owned(),
            _ => return None,
        };
        Some(format!("{count} {words}"))
    }

    /// `1 tensor`, `20 tensors`.
    fn count(&self) -> String {
        match self.tensors.len() {
            1 => "1 tensor".to_owned(),
            count => format!("{} tensors", grouped(count as u64)),
        }
    }

    /// The sentence of values that are written as another dtype.
    fn of_dtype(&self, f: &mut fmt::Formatter<'_>, from: DType, to: DType) -> fmt::Result {
        let (count, named, how) = (self.count(), listed(&self.tensors), self.change.effect.name());
        let is = if self.tensors.len() == 1 { "is" } else { "are" };
        if self.change.is_asked {
            write!(f, "{count} {is} {how} to {to}: {named}")
        } else {
            write!(f, "{count} of {from} {is} {how} to {to}, the dtype there: {named}")
        }
    }

    /// `4,305 values`, `1 value`.
    fn value_count(&self) -> String {
        match self.values.unwrap_or_default() {
            1 => "1 value".to_owned(),
            count => format!("{} values", grouped(count)),
        }
    }
}

/// The sentence of a warning.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, named) = (self.count(), listed(&self.tensors));
        let (is, has) = if self.tensors.len() == 1 { ("is", "its name") } else { ("are", "their names") };
        let first = self.tensors.first().map_or(String::new(), |name| quoted(name));
        let others = and_more(self.tensors.len().saturating_sub(1));
        match &self.change.effect {
            Effect::Unpacked => write!(f, "{count} {is} unpacked to row-major little-endian: {named}"),
            Effect::Expanded => write!(f, "{count} {is} expanded from sparse to dense: {named}"),
            Effect::Transformed { step, words } if self.tensors.len() == 1 => write!(f, "{step}: {words}: {named}"),
            Effect::Transformed { step, .. } => write!(f, "{count} {is} changed by {step}: {named}"),
            Effect::Renamed { was } => write!(f, "{count} {is} renamed: {} to {first}{others}", quoted(was)),
            Effect::Reshaped { was } => write!(f, "{count} {is} reshaped: {first} from {was}{others}"),
            Effect::Rounded { from, to } | Effect::Widened { from, to } => self.of_dtype(f, *from, *to),
            Effect::OtherDtype { was, to } => {
                write!(f, "{count} {is} written as {to} where there was {was}; --dtype {was} keeps that: {named}")
            }
            Effect::BitsStored { of, stored, is_told: true } => {
                write!(f, "{count} of {of} {is} stored as {stored}, since NumPy has no bfloat16: {named}")
            }
            Effect::BitsStored { of, stored, is_told: false } => {
                write!(f, "{count} of {of} {is} stored as {stored}, and nothing in the output says so: {named}")
            }
            Effect::Padded { to, .. } => {
                write!(f, "{count} {is} stored with {to} axes, ones behind their own: {named}")
            }
            Effect::DtypeLost { dtype, format } => {
                let format = format.name();
                write!(f, "{count} of {dtype} without values {is} read as f32: {format} has no dtype of none: {named}")
            }
            Effect::NameLost { format } => {
                write!(f, "{count} {is} stored without {has}: {} has none: {named}", format.name())
            }
            Effect::NameEncoded { stored } => {
                let stored = quoted(stored);
                write!(f, "{count} {is} stored under encoded names, which blob reads back: {first} as {stored}{others}")
            }
            Effect::NewDtype { dtype, since } if self.tensors.len() == 1 => {
                write!(f, "{count} of {dtype}, which only {since} and later read: {named}")
            }
            Effect::NewDtype { dtype, since } => {
                write!(f, "{count} of dtypes that only {since} and later read, such as {dtype}: {named}")
            }
            Effect::Untied { from } => {
                write!(f, "{count} shared values, and {is} written apart: {first} with {}{others}", quoted(from))
            }
            // Each tensor may have another reason.
            Effect::LeftOut { .. } if self.change.is_asked => write!(f, "{count} left out: {named}"),
            Effect::LeftOut { reason } => write!(f, "{count} left out: {reason}: {named}"),
            Effect::Guessed { what } => {
                let by = if self.tensors.len() == 1 { "its name and shape" } else { "their names and shapes" };
                write!(f, "{count} {is} taken for {what} by {by}, which --net would say: {named}")
            }
            Effect::Infinite { words } | Effect::Zeroed { words } | Effect::Lost { words } => {
                write!(f, "{} in {count} {words}: {named}", self.value_count())
            }
            Effect::TakenOtherwise { words } => write!(f, "{words}: {count}: {named}"),
            Effect::MetadataDropped { format, keys } if !format.holds().inherits => {
                write!(f, "metadata left out, {}: {}", untaken(*format), listed(keys))
            }
            Effect::Unlisted(warning) if !self.tensors.is_empty() => write!(f, "{named}: {warning}"),
            Effect::NamesStay { .. }
            | Effect::MetadataDropped { .. }
            | Effect::Unlisted(_)
            | Effect::Dropped(_)
            | Effect::WayBack { .. }
            | Effect::Followed { .. }
            | Effect::Unfitting(_)
            | Effect::Lacking(_)
            | Effect::Notice(_)
            | Effect::Remark(_) => self.change.fmt(f),
        }
    }
}

/// Why a new file of the format lacks metadata of its source.
fn untaken(format: Format) -> String {
    let name = format.name();
    if format.holds().receipt {
        format!("which a new {name} does not take over")
    } else {
        format!("for which {name} has no place")
    }
}

/// Refuses what would be lost: [`Options::strict`](crate::Options::strict) for the changes of a file.
///
/// # Errors
/// [`Error::Request`] with every [loss](Change::is_loss).
pub fn refuse_losses(file: &str, changes: &[Group]) -> Result<(), Error> {
    let losses = changes.iter().filter(|group| group.change.is_loss());
    let losses: Vec<String> = losses.map(ToString::to_string).collect();
    if losses.is_empty() {
        return Ok(());
    }
    let message = format!("would not come out as it is: {}", words::first_of(NAMED_PROBLEMS, losses));
    Err(Error::Request { file: file.to_owned(), message })
}

/// The first names in quotes, and the number of the others.
pub(crate) fn listed(names: &[String]) -> String {
    words::listed(NAMED, names)
}

#[cfg(test)]
mod tests {

    use super::*;

    fn said(changes: &[(&str, Change)]) -> Vec<String> {
        let mut groups = Groups::default();
        changes.iter().for_each(|(name, change)| groups.of_tensor(name, change));
        groups.finish().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn changes_of_one_kind_are_one_sentence() {
        let lost = || Change::unasked(Effect::NameLost { format: Format::NeomlArray });
        let rounded = |from| Change::unasked(Effect::Rounded { from, to: DType::F32 });
        let all = [
            ("a", lost()),
            ("b", lost()),
            ("c", rounded(DType::F64)),
            ("d", lost()),
            ("e", lost()),
            ("f", rounded(DType::F16)),
            ("g", rounded(DType::F64)),
            ("h", Change::unasked(Effect::of_dtype(DType::F16, DType::F32))),
        ];
        let sentences = [
            "4 tensors are stored without their names: neoml-array has none: \"a\", \"b\", \"d\" and 1 more",
            "2 tensors of f64 are rounded to f32, the dtype there: \"c\", \"g\"",
            "1 tensor of f16 is rounded to f32, the dtype there: \"f\"",
            "1 tensor of f16 is widened to f32, the dtype there: \"h\"",
        ];
        assert_eq!(said(&all), sentences);
    }

    #[test]
    fn asked_and_unasked_changes_stay_apart() {
        let left_out = |is_asked, reason: &str| Change { effect: Effect::LeftOut { reason: reason.into() }, is_asked };
        let all = [("a", left_out(true, "x")), ("b", left_out(false, "x")), ("c", left_out(true, "y"))];
        assert_eq!(said(&all), ["2 tensors left out: \"a\", \"c\"", "1 tensor left out: x: \"b\""]);
        assert!(all[1].1.is_loss() && all[1].1.is_warned() && !all[0].1.is_loss() && !all[0].1.is_warned());
    }
}
