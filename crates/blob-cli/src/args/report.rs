//! The arguments of `blob report`.

use std::path::PathBuf;

/// Write a page about a file: summary, tensors with statistics and histograms, warnings, receipt; with OTHER, what differs
///
/// The page is one HTML file for any browser, light or dark as the reader's. Nothing is loaded from anywhere, and no script is in
/// it. It lists the first 4096 tensors; all are measured, and those with NaN or Inf are named.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob report model.caffemodel -o model.html
  blob report old.params new.safetensors -o change.html")]
pub(crate) struct Report {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// A file that it is compared with
    #[arg(value_name = "OTHER")]
    pub(crate) other: Option<PathBuf>,
    /// Where to: a file, or `-` for standard output
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Replace OUT where it exists; a file that is read is never replaced
    #[arg(long)]
    pub(crate) force: bool,
}
