//! The arguments of `blob hash`.

use std::path::PathBuf;

use super::{Only, Skip};

/// Print digests of files, or of the tensors in them: BLAKE3, or SHA-256
///
/// Hashes the bytes of any file. If the output is not a terminal, the lines are those that b3sum and sha256sum print
/// and check. With --content it hashes the tensors: the digest is equal for equal names, dtypes, shapes and values in
/// any format and order, and marked `content-1:`; docs/content-hash.md defines it.
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
    /// Hash the tensors instead of the file: equal for equal tensors in any format
    #[arg(long)]
    pub(crate) content: bool,
    #[command(flatten)]
    pub(crate) only: Only,
    #[command(flatten)]
    pub(crate) skip: Skip,
    /// Use SHA-256 instead of BLAKE3
    #[arg(long)]
    pub(crate) sha256: bool,
}
