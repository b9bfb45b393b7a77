//! `Part`: which of a blob's two memories is meant.

use std::fmt;

/// One of a blob's two memories. Functions that may work on both take a part or [`Part::BOTH`].
// Exhaustive: a blob has two memories, and a `match` over them should need no wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The values.
    Data,
    /// The gradient. Untouched: all zeros, without memory.
    Diff,
}

impl Part {
    /// The data, then the diff.
    pub const BOTH: [Part; 2] = [Part::Data, Part::Diff];
}

/// A part is a list of one: `copy_from(&source, Part::Diff)`, `copy_from(&source, Part::BOTH)`.
impl AsRef<[Part]> for Part {
    fn as_ref(&self) -> &[Part] {
        std::slice::from_ref(self)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Data => "data",
            Part::Diff => "diff",
        })
    }
}
