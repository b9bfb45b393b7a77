//! A tensor's name, taken apart: the layer and the index of the blob, MXNet's group, the part of an array.
//!
//! The one place that takes names apart and puts them together. Pure text: whether the file has the array that a name
//! points to is the file's to say.

use std::fmt;

use crate::entry::Kind;

/// The endings of the parts of an array, which is data without one of them.
const ENDINGS: [(Kind, &str); 4] =
    [(Kind::Diff, ".diff"), (Kind::Values, "#values"), (Kind::Indices, "#indices"), (Kind::Indptr, "#indptr")];

/// A tensor's name, taken apart.
///
/// ```
/// use blob_io::{Group, Kind, TensorName};
///
/// let diff = TensorName::of("conv1/0.diff");
/// assert_eq!((diff.array, diff.kind), ("conv1/0", Kind::Diff));
/// assert_eq!((diff.layer(), diff.index()), (Some("conv1"), Some(0)));
/// let mean = TensorName::of("aux:bn0_moving_mean");
/// assert_eq!(mean.grouped(), (Some(Group::Auxiliary), "bn0_moving_mean"));
/// assert_eq!(TensorName::new("arg:embed_weight", Kind::Indices).to_string(), "arg:embed_weight#indices");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TensorName<'a> {
    /// The name of the array: all but the ending of a part.
    pub array: &'a str,
    /// Which part of the array has this name, by the ending: [`Kind::Data`] where there is none.
    pub kind: Kind,
}

/// The group of an array in MXNet's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Group {
    /// `arg:`, a parameter.
    Argument,
    /// `aux:`, an auxiliary state.
    Auxiliary,
}

impl Group {
    /// Both groups.
    pub const ALL: [Self; 2] = [Self::Argument, Self::Auxiliary];

    /// The group's mark at the beginning of a name.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Argument => "arg:",
            Self::Auxiliary => "aux:",
        }
    }

    /// The group of a name, and the rest of the name.
    #[must_use]
    pub fn split(name: &str) -> (Option<Self>, &str) {
        let marked = Self::ALL.into_iter().find_map(|group| Some((Some(group), name.strip_prefix(group.prefix())?)));
        marked.unwrap_or((None, name))
    }
}

impl<'a> TensorName<'a> {
    /// A part of an array.
    #[must_use]
    pub fn new(array: &'a str, kind: Kind) -> Self {
        Self { array, kind }
    }

    /// Takes a name apart.
    #[must_use]
    pub fn of(name: &'a str) -> Self {
        let part = ENDINGS.iter().find_map(|(kind, ending)| Some((name.strip_suffix(ending)?, *kind)));
        let (array, kind) = part.unwrap_or((name, Kind::Data));
        Self { array, kind }
    }

    /// The name of an array's diff.
    #[must_use]
    pub fn diff_of(array: &str) -> String {
        TensorName::new(array, Kind::Diff).to_string()
    }

    /// The array whose diff this is; `None` for a name that does not end in `.diff`.
    #[must_use]
    pub fn diffed(self) -> Option<&'a str> {
        (self.kind == Kind::Diff).then_some(self.array)
    }

    /// The name of an array or of the array's diff, without `.diff`.
    #[must_use]
    pub fn without_diff(name: &'a str) -> &'a str {
        Self::of(name).diffed().unwrap_or(name)
    }

    /// Another part of the same array.
    #[must_use]
    pub fn with(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// MXNet's group, and the array's name without the group's mark.
    #[must_use]
    pub fn grouped(self) -> (Option<Group>, &'a str) {
        Group::split(self.array)
    }

    /// Caffe's layer in `<layer>/<index>`: all before the last slash.
    #[must_use]
    pub fn layer(self) -> Option<&'a str> {
        self.array.rsplit_once('/').map(|(layer, _)| layer)
    }

    /// The index of a blob in `<layer>/<index>`; `None` for anything but a number without leading zeros.
    #[must_use]
    pub fn index(self) -> Option<usize> {
        number(self.array.rsplit_once('/')?.1)
    }

    /// The position of an array without a name in `@<position>`.
    #[must_use]
    pub fn position(self) -> Option<usize> {
        position(self.array)
    }

    /// Whether a reader gave the name, because the array has none (`@3`), or the array's layer (`@3/0`).
    #[must_use]
    pub fn is_given(self) -> bool {
        let is_of_layer = self.index().is_some() && self.layer().and_then(position).is_some();
        is_of_layer || self.position().is_some()
    }

    /// For a blob of a layer that has the name of an earlier layer, and so is called by its position too (`conv1@3/0`):
    /// the name of both.
    #[must_use]
    pub fn namesake(self) -> Option<&'a str> {
        let (first, at) = self.layer()?.rsplit_once('@')?;
        number(at).map(|_| first)
    }
}

impl fmt::Display for TensorName<'_> {
    /// The whole name, as stored in files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = ENDINGS.iter().find(|(own, _)| *own == self.kind).map_or("", |(_, ending)| ending);
        write!(f, "{}{ending}", self.array)
    }
}

/// The position in `@<position>`.
fn position(text: &str) -> Option<usize> {
    number(text.strip_prefix('@')?)
}

/// A plain number: of one value there is one text.
pub(crate) fn number(digits: &str) -> Option<usize> {
    let number: usize = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_put_together_from_its_parts() {
        for name in ["conv1/0", "conv1/0.diff", "a/b/12", "w#values", "w#indices", "w#indptr", "arg:w", ".diff", ""] {
            assert_eq!(TensorName::of(name).to_string(), name);
        }
    }

    #[test]
    fn numbers_have_one_text() {
        let index = |name| TensorName::of(name).index();
        assert_eq!(["x/7", "x/0", "x/07", "x/+7", "x/", "7"].map(index), [Some(7), Some(0), None, None, None, None]);
        assert_eq!(TensorName::of("@12.diff").position(), Some(12));
        assert_eq!(TensorName::of("@x").position(), None);
    }

    #[test]
    fn a_name_that_the_file_does_not_have_is_told_from_others() {
        for (name, is_given, namesake) in [
            ("@3", true, None),
            ("@3.diff", true, None),
            ("@3#values", true, None),
            ("@3/0", true, Some("")),
            ("conv@3/0", false, Some("conv")),
            ("@03", false, None),
            ("@3/weight", false, Some("")),
            ("@3a", false, None),
            ("a@3", false, None),
        ] {
            let parts = TensorName::of(name);
            assert_eq!((parts.is_given(), parts.namesake()), (is_given, namesake), "{name}");
        }
    }
}
