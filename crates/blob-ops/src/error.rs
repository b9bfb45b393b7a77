//! What can be wrong with a call. Each variant names the argument and its value.

use crate::Histogram;
use std::fmt;

/// An argument that an operation cannot work with.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A histogram of no bins, or of too many.
    #[non_exhaustive]
    Bins {
        /// The number asked for.
        bins: usize,
    },
    /// A histogram over a range that is empty or not finite.
    #[non_exhaustive]
    Range {
        /// The lower end asked for.
        min: f64,
        /// The upper end asked for.
        max: f64,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Bins { bins } => write!(
                f,
                "histogram: bins = {bins} is not between 1 and {}",
                Histogram::MAX_BINS
            ),
            Error::Range { min, max } => write!(
                f,
                "histogram: range {min} to {max} is not finite and rising"
            ),
        }
    }
}

impl std::error::Error for Error {}
