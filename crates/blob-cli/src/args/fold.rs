//! The arguments of `blob fold`, and those that name the description of a net.

use std::path::PathBuf;

use blob_io::Format;

use super::format;

/// Put BatchNorms, with the Scale after them, into the convolution, deconvolution or fully connected layer before
///
/// A Scale alone behind such a layer is folded too. Only where the net computes the same afterwards: what cannot be folded stays, and is told with the reason. The net's layers are
/// those in a .caffemodel itself, in a prototxt, or in MXNet's symbol. OUT is written anew, without the tensors that are folded;
/// a layer without a bias gets one. A .caffemodel is then described without the folded layers; a prototxt is yours to change.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob fold model.caffemodel -o folded.caffemodel
  blob fold weights.npz --net deploy.prototxt -o folded.npz
  blob fold net-0000.params -o folded.params  with net-symbol.json beside it")]
pub(crate) struct Fold {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) input: PathBuf,
    /// Where to: a file
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The output's format; without it, OUT's extension says it
    #[arg(long, value_name = "FMT", value_parser = format(|_| true))]
    pub(crate) to: Option<Format>,
    #[command(flatten)]
    pub(crate) nets: NetFiles,
    /// Replace OUT where it exists; FILE itself is never replaced
    #[arg(long)]
    pub(crate) force: bool,
    /// Say what would be folded, and write nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// What says which layers a net has.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct NetFiles {
    /// The net's layers are those of this prototxt [default: those in a .caffemodel itself]
    #[arg(long, value_name = "PROTOTXT", conflicts_with = "symbol")]
    pub(crate) net: Option<PathBuf>,
    /// The net's layers are those of this symbol file of MXNet's [default: NAME-symbol.json beside NAME-0000.params]
    #[arg(long, value_name = "JSON")]
    pub(crate) symbol: Option<PathBuf>,
}
