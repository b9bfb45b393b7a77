//! The command line of `blob graph`.

use std::path::PathBuf;

use super::NetFiles;
use super::onnx::input;

/// Show the graph of a net: layers, shapes, parameters, multiply-adds
///
/// Works on files that describe a net of Caffe's, and on files of weights with --net; on MXNet's parameters with the
/// symbol beside them, or with --symbol. The tool runs no net: shapes
/// follow from the layers' settings. A multiply-add is counted for each weight of a convolution or a fully connected
/// layer and each value that the weight is used for.
///
/// The fields of a line to a pipe or a file: layer, type, shape of the output, parameters and multiply-adds; `-` where
/// there is none.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob graph net.caffemodel --net deploy.prototxt
  blob graph net.caffemodel --net deploy.prototxt --svg > net.svg
  blob graph weights.npz --net deploy.prototxt --input data=1,3,224,224
  blob graph net-0000.params --symbol net-symbol.json --input data=1,3,224,224")]
pub(crate) struct Graph {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) nets: NetFiles,
    /// The shape of an input, as data=1,3,224,224 [default: the net's own]; may be repeated
    #[arg(long = "input", value_name = "NAME=N,C,H,W", value_parser = input)]
    pub(crate) input_shape: Vec<(String, Vec<u64>)>,
    /// Print the graph for Graphviz
    #[arg(long, group = "drawn", conflicts_with = "json")]
    pub(crate) dot: bool,
    /// Print the graph for Mermaid, which pages on GitHub and GitLab draw
    #[arg(long, group = "drawn", conflicts_with = "json")]
    pub(crate) mermaid: bool,
    /// Print a drawing of the graph, an SVG
    #[arg(long, group = "drawn", conflicts_with = "json")]
    pub(crate) svg: bool,
}
