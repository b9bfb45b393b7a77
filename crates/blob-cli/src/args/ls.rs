//! The command line of `blob ls`.

use clap::ValueEnum;

use super::Selection;

/// List tensors: name, dtype, shape, size, offset
///
/// Reads headers only.
///
/// The fields of a line to a pipe or a file: name, dtype, shape (20x1x5x5, `scalar`), bytes and offset; a place without
/// an array has dtype `none`, a broken array `error`, and both shape `-`. With -l follow kind, layer type, number of
/// pieces, and warnings; with -r the file comes before the name. A name that a spreadsheet would take for a formula
/// begins with `\\x3d` in place of `=`, and likewise for `+`, `-` and `@`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob ls model.caffemodel                    all tensors
  blob ls model.caffemodel 'fc*' '#0'         some of them
  blob ls --sort size model.params | head     the largest ones
  blob ls -r models/                          every file of tensors in a folder")]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Show more columns: kind, pieces, warnings
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Show a tree, by the parts of the names between slashes
    #[arg(long, conflicts_with = "long")]
    pub(crate) tree: bool,
    /// List every file in the folder FILE and its subfolders. Links to folders, hidden files, indexes of shards and
    /// files without tensors are skipped
    #[arg(short, long, conflicts_with = "tree")]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) order: Order,
}

/// In which order tensors are listed.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Order {
    /// Sort by name, size (largest first) or offset [default: order of the file]
    #[arg(long, value_name = "KEY")]
    pub(crate) sort: Option<SortKey>,
    /// List in the opposite order
    #[arg(long)]
    pub(crate) reverse: bool,
}

/// The keys by which tensors are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortKey {
    /// By name, byte by byte
    Name,
    /// By size in bytes, the largest first
    Size,
    /// By place in the file
    Offset,
}
