//! The arguments of `blob extract`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::{Filter, Writing};

/// Write tensors to files, each to its own
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob extract model.caffemodel conv1/0 -o conv1.npy
  blob extract model.caffemodel 'conv*' -o weights/
  blob extract mean.binaryproto -o mean.csv
  blob extract model.params '#0' --to raw -o - | xxd | head")]
pub(crate) struct Extract {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Tensors: a name, else a layer's name, a glob, or `#3`, `#3-5` by index; optional if the file has only one
    #[arg(value_name = "TENSOR")]
    pub(crate) tensors: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Output: a file, a folder (ending with `/`) with a file for each tensor, or `-` for standard output
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Output format [default: from OUT's extension; npy for `-`]
    #[arg(long, value_name = "FMT")]
    pub(crate) to: Option<ExtractFormat>,
    #[command(flatten)]
    pub(crate) writing: Writing,
}

/// The formats that `extract` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExtractFormat {
    /// NumPy's format: dtype, shape, values
    Npy,
    /// The values alone, row-major, little-endian
    Raw,
    /// Text: one line a row of the last axis; one value a line where there is only one axis
    Csv,
}
