//! The arguments of `blob plot`.

use std::path::PathBuf;

/// Draw a tensor: its histogram, a heat map, its filters, an image; in the terminal, as PNG or SVG
///
/// Without another wish it is the histogram in the terminal and as SVG, a heat map as PNG. A picture in the terminal is coloured
/// where the output is, of characters elsewhere. A heat map has the first axis longer than 1 as its rows, all others as its
/// columns; where there are too many for the picture, each of its points is their mean. Blue is negative, red positive.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob plot net.caffemodel conv1/0            its histogram
  blob plot net.caffemodel conv1/0 --filters -o conv1.png
  blob plot mean.binaryproto --image -o mean.png
  blob plot net.params arg:fc1_weight --hist -o fc1.svg")]
#[command(group = clap::ArgGroup::new("kind").args(["hist", "heatmap", "filters", "image"]))]
pub(crate) struct Plot {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The tensor: a name, `#3` by index, or a glob that matches one; not needed where the file has only one
    #[arg(value_name = "TENSOR")]
    pub(crate) tensor: Option<String>,
    /// How many values lie where between the smallest and the largest
    #[arg(long)]
    pub(crate) hist: bool,
    /// Each value as a colour
    #[arg(long)]
    pub(crate) heatmap: bool,
    /// The filters of a convolution, N×C×H×W: with three channels in colour, else a square a channel
    #[arg(long)]
    pub(crate) filters: bool,
    /// An image, C×H×W or 1×C×H×W with one or three channels, of values from 0 to 255; others are scaled to that
    #[arg(long)]
    pub(crate) image: bool,
    /// The three channels are blue, green, red, as Caffe has them [default for files of Caffe]
    #[arg(long, conflicts_with_all = ["rgb", "hist", "heatmap"])]
    pub(crate) bgr: bool,
    /// The three channels are red, green, blue [default for other files]
    #[arg(long, conflicts_with_all = ["hist", "heatmap"])]
    pub(crate) rgb: bool,
    /// Where to: a .png, or for a histogram an .svg; without it, the terminal
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Replace OUT where it exists; FILE itself is never replaced
    #[arg(long)]
    pub(crate) force: bool,
}
