//! What `--diff` takes.

use clap::ValueEnum;

/// What becomes of diffs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Diffs {
    Keep,
    Drop,
}
