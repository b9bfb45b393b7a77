//! The arguments of `blob plot`.

use std::path::PathBuf;

use super::Filter;

/// Draw a tensor: its histogram, a heat map, its filters, an image; in the terminal, as PNG or SVG
///
/// The default is a histogram in the terminal and as SVG, and a heat map as PNG. An SVG has a title, the scale and a
/// legend; a PNG has the points alone, enlarged by a whole number, and the rest as text in the file. In the terminal,
/// pictures are coloured if the output is, and made of characters otherwise. NaN and Inf are counted in the title, and
/// magenta, or `?`, in a picture.
///
/// The rows of a heat map are the first axis longer than 1, its columns all other axes; if there are too many, each
/// point is the mean of several values. Blue is negative, red positive; the hundredth of the points that lies furthest
/// out has the colours of the scale's ends, and a note says how far those values go.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob plot net.caffemodel conv1/0            its histogram
  blob plot net.caffemodel conv1/0 --filters -o conv1.svg
  blob plot mean.binaryproto --image -o mean.png
  blob plot net.params arg:fc1_weight --hist -o fc1.svg")]
#[command(group = clap::ArgGroup::new("kind").args(["hist", "heatmap", "filters", "image"]))]
pub(crate) struct Plot {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The tensor: a name, `#3` by index, or a glob that matches one; optional if the file has only one
    #[arg(value_name = "TENSOR")]
    pub(crate) tensor: Option<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Draw a histogram of the values
    #[arg(long)]
    pub(crate) hist: bool,
    /// Draw each value as a colour
    #[arg(long)]
    pub(crate) heatmap: bool,
    /// Draw the filters of a convolution, N×C×H×W: in colour if they have three channels, otherwise one square per
    /// channel
    #[arg(long)]
    pub(crate) filters: bool,
    /// Draw an image, C×H×W or 1×C×H×W with one or three channels; one with values outside 0 to 255 is scaled to that
    #[arg(long)]
    pub(crate) image: bool,
    /// The three channels are blue, green, red, as Caffe has them [default for files of Caffe]
    #[arg(long, conflicts_with_all = ["rgb", "hist", "heatmap"])]
    pub(crate) bgr: bool,
    /// The three channels are red, green, blue [default for other files]
    #[arg(long, conflicts_with_all = ["hist", "heatmap"])]
    pub(crate) rgb: bool,
    /// Output: an .svg, or a .png, which a histogram cannot be [default: the terminal]
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Replace OUT if it exists; FILE itself is never replaced
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what would be written to OUT without writing anything; reads all values
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}
