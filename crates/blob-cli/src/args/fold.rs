//! The arguments of `blob fold`, and those that name the description of a net.

use std::path::PathBuf;

use blob_convert::recipe::NetFile;
use blob_io::Format;

use super::{Only, Skip, Writing, format};

/// Fold BatchNorms and the Scale after them into the convolution, deconvolution or fully connected layer before
///
/// A Scale without a BatchNorm is folded too. Only layers that leave the net's results unchanged are folded; the others
/// are listed with the reason. The net's layers are read from the .caffemodel itself, a prototxt, or MXNet's symbol.
/// OUT is a new file without the folded tensors; a layer without a bias gets one. The folded layers are removed from a
/// .caffemodel; MXNet's symbol is written anew beside OUT, OUT-symbol.json; a prototxt must be edited by hand.
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
    /// Output file
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Output format, of `blob formats` [default: from OUT's extension]
    #[arg(long, value_name = "FMT", value_parser = format(|_| true), hide_possible_values = true)]
    pub(crate) to: Option<Format>,
    #[command(flatten)]
    pub(crate) nets: NetFiles,
    #[command(flatten)]
    pub(crate) writing: Writing,
    #[command(flatten)]
    pub(crate) skip: Skip,
    #[command(flatten)]
    pub(crate) only: Only,
}

/// The file that describes the layers of a net.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct NetFiles {
    /// The net's layers are those of this prototxt [default: those in a .caffemodel itself]
    #[arg(long, value_name = "PROTOTXT", conflicts_with = "symbol")]
    pub(crate) net: Option<PathBuf>,
    /// The net's layers are those of this symbol file of MXNet's [default: NAME-symbol.json beside NAME-0000.params]
    #[arg(long, value_name = "JSON")]
    pub(crate) symbol: Option<PathBuf>,
}

impl NetFiles {
    /// The file that the user names.
    pub(crate) fn file(&self) -> Option<NetFile> {
        let net = self.net.clone().map(NetFile::Prototxt);
        net.or_else(|| self.symbol.clone().map(NetFile::Symbol))
    }
}
