//! The arguments of `blob report`.

use std::path::PathBuf;

use super::Only;

/// Write an HTML report of a file: NaN and Inf, differences from OTHER, warnings, receipt, tensors with statistics and
/// histograms
///
/// The page is a single HTML file without scripts or external resources, light or dark as the browser prefers, for a
/// phone too. It begins with the answers, which link to their tables. It lists the first 4096 tensors; all tensors are
/// measured.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob report model.caffemodel -o model.html
  blob report old.params new.safetensors -o change.html")]
pub(crate) struct Report {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// A file to compare with
    #[arg(value_name = "OTHER")]
    pub(crate) other: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) only: Only,
    /// Output: a file, or `-` for standard output
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Replace OUT if it exists; input files are never replaced
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what would be written without writing anything; reads all values
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}
