//! Which of a blob's two memories an operation works on.
//!
//! `place.rs` borrows their bytes.

use std::fmt;

/// One of a blob's two memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The values.
    Data,
    /// The gradient. Untouched it is all zeros.
    Diff,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Data => "data",
            Part::Diff => "diff",
        })
    }
}
