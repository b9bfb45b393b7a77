//! The command line of `blob diff`.

use std::path::PathBuf;

use blob_convert::diff::Tolerance;

use super::Only;

/// Compare the tensors of two files of any formats
///
/// Values are compared as numbers: NaN equals NaN, 0 equals -0. Ones in shapes are ignored. Renamed tensors are found
/// by their content. Exits with 0 if all tensors are equal, 1 if not, 2 if something cannot be read.
///
/// The fields of a line to a pipe or a file, where each tensor that differs has one: `~` changed, `-` only in A, `+`
/// only in B, `>` renamed, `!` not read; then name, the name in B, elements changed, elements, largest absolute and
/// relative difference, root mean square, and `values`, `dtype`, `shape`, …, or why it was not read; `-` where there is
/// none.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob diff old.caffemodel new.safetensors    what changed, and how far?
  blob diff a.params b.npz --rtol 1e-4        more than rounding?
  blob diff net.caffemodel half.npz --ulp 1   more than rounding to f16, overflow to Inf among it?")]
pub(crate) struct Diff {
    /// A: a file; `-` is standard input
    #[arg(value_name = "A")]
    pub(crate) file: PathBuf,
    /// B: the file that A is compared with
    #[arg(value_name = "B")]
    pub(crate) other: PathBuf,
    /// Values are equal within RTOL times the size of B's, as numpy.isclose has it
    #[arg(long, value_name = "RTOL", value_parser = positive)]
    pub(crate) rtol: Option<f64>,
    /// Values are equal within ATOL
    #[arg(long, value_name = "ATOL", value_parser = positive)]
    pub(crate) atol: Option<f64>,
    /// Values are equal if at most N floats apart; with two dtypes, in steps of the coarser one. An infinity is equal
    /// to itself only: a value that became Inf in f16 has changed
    #[arg(long, value_name = "N", conflicts_with_all = ["rtol", "atol"])]
    pub(crate) ulp: Option<u64>,
    /// Require equal bits, dtypes and shapes
    #[arg(long, conflicts_with_all = ["rtol", "atol", "ulp"])]
    pub(crate) exact: bool,
    #[command(flatten)]
    pub(crate) only: Only,
    /// List equal tensors too
    #[arg(long)]
    pub(crate) all: bool,
}

impl Diff {
    pub(crate) fn tolerance(&self) -> Tolerance {
        match (self.exact, self.ulp) {
            (true, _) => Tolerance::Exact,
            (false, Some(steps)) => Tolerance::Ulp(steps),
            (false, None) => {
                let (relative, absolute) = (self.rtol.unwrap_or(0.0), self.atol.unwrap_or(0.0));
                Tolerance::Close { relative, absolute }
            }
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("not a number from 0 on".to_owned()),
    }
}
