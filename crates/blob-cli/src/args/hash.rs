//! The arguments of `blob hash`.

use std::path::PathBuf;

/// Print digests of files, or of the tensors in them: BLAKE3, or SHA-256
///
/// The digest of a file is that of its bytes, whatever they are. Where the output is not a terminal, each line is one that b3sum and
/// sha256sum print and check.
/// With --content it is that of the tensors: equal for the same names, dtypes, shapes and values in any format and order, and
/// marked `content-1:`; docs/content-hash.md defines it.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob hash *.caffemodel > SUMS               as b3sum prints them
  blob hash --sha256 model.params             as sha256sum prints it
  blob hash --content a.caffemodel b.npz      do they hold the same tensors?")]
pub(crate) struct Hash {
    /// Files; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Hash the tensors, not the file: the same digest for the same tensors in any format
    #[arg(long)]
    pub(crate) content: bool,
    /// SHA-256 in place of BLAKE3
    #[arg(long)]
    pub(crate) sha256: bool,
}
