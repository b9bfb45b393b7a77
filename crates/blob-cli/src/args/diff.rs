//! The command line of `blob diff`.

use std::path::PathBuf;

use blob_convert::diff::Tolerance;

/// Compare two files tensor by tensor, whatever their formats: what changed, and how far
///
/// Values are compared as numbers, and equal ones are equal: NaN and NaN, 0 and -0; shapes, without their ones. A tensor under
/// another name is found by its content. Exits 0 if all is equal, 1 if not, 2 if something cannot be read.
///
/// To a pipe or a file it prints one line a tensor that is not equal, without a header: `~` changed, `-` only in A, `+` only
/// in B, `>` renamed, `!` not read; then name, the name in B, elements changed, elements, largest absolute and relative
/// difference, root mean square, separated by tabs, `-` where there is none. These fields are stable; new ones come at the end.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob diff old.caffemodel new.safetensors    what changed, and how far?
  blob diff a.params b.npz --rtol 1e-4        more than rounding?
  blob diff net.caffemodel half.npz --ulp 1 --all")]
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
    /// Values are equal if at most N floats apart; with two dtypes, in steps of the coarser one
    #[arg(long, value_name = "N", conflicts_with_all = ["rtol", "atol"])]
    pub(crate) ulp: Option<u64>,
    /// Equal are equal bits, dtypes and shapes only
    #[arg(long, conflicts_with_all = ["rtol", "atol", "ulp"])]
    pub(crate) exact: bool,
    /// List the equal tensors, too
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
