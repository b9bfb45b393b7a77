//! The command line of `blob convert`.

use std::path::PathBuf;

use blob_convert::transform::{FcFrom, Layout};
use blob_core::DType;
use blob_io::Format;
use blob_io::mxnet::Version;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::onnx::Onnx;
use super::{NetFiles, Only, Skip, format};
use crate::units;

/// Convert a file to another format, or change its tensors on the way
///
/// `blob formats` lists the formats. A folder gets one npy file per tensor. Values and shapes are kept bit for bit
/// unless a transform is requested; transforms are applied in the order listed here. Safetensors, npz, HDF5 and folders
/// get a receipt, which records where the tensors came from and what was changed, and lets blob restore the original
/// file. A Caffe file written as the same message keeps all other bytes; a new one gets its layers from names of the
/// form `<layer>/<index>`. HDF5 has a dataset for each name; OUT that ends in .caffemodel.h5 or .solverstate.h5 gets
/// Caffe's form. A NeoML net can only be written from a NeoML net or by a receipt. Writing to `-` (standard output)
/// reads the file twice.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob convert model.caffemodel -o model.safetensors
  blob convert model-0000.params -o model.npz --dry-run
  blob convert model.caffemodel -o weights/   one .npy file a tensor
  blob convert model.caffemodel -o half.safetensors --strip-diff --dtype f16
  blob convert model.caffemodel --names torch -o torch.safetensors
  blob convert net.caffemodel --net deploy.prototxt -o net.onnx
  blob convert tuned.safetensors --into model.caffemodel -o tuned.caffemodel")]
pub(crate) struct Convert {
    /// The file to convert; `-` is standard input
    #[arg(value_name = "IN", required_unless_present = "recipe")]
    pub(crate) input: Option<PathBuf>,
    /// Output: a file, a folder (ending with `/`), or `-` for standard output
    ///
    /// A .onnx is a model of the whole net, which IN itself or --net describes.
    #[arg(short, long, value_name = "OUT", required_unless_present = "recipe")]
    pub(crate) output: Option<PathBuf>,
    /// Output format, of `blob formats` [default: from OUT's extension]
    #[arg(long, value_name = "FMT", value_parser = format(|_| true), hide_possible_values = true)]
    pub(crate) to: Option<Format>,
    /// Replace the arrays of the same names in a copy of this Caffe, NeoML, HDF5 or ONNX file, keep all other bytes,
    /// and write it to OUT
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["to", "dense", "anew"])]
    pub(crate) into: Option<PathBuf>,
    /// How to store Caffe's blobs: `legacy` (four dimensions, before 2015), `raw` (NVCaffe's), `v1` (layers of 2014)
    #[arg(long, value_name = "FORM", value_delimiter = ',', hide_short_help = true)]
    pub(crate) form: Vec<CaffeForm>,
    /// Split safetensors into shards of at most this many bytes of tensors, with an index OUT.index.json, which every
    /// command reads
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size, hide_short_help = true)]
    pub(crate) shard_size: Option<u64>,
    /// Expand sparse arrays instead of writing their parts
    #[arg(long, hide_short_help = true)]
    pub(crate) dense: bool,
    /// Write a new file from the tensors alone, without the other bytes that IN or its receipt has for OUT's format
    #[arg(long, hide_short_help = true)]
    pub(crate) anew: bool,
    /// Replace OUT if it exists; IN itself is never replaced
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what would be done without writing anything
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) skip: Skip,
    /// Write no receipt into safetensors, npz or HDF5: nothing then proves the conversion or leads back
    #[arg(long, conflicts_with = "sha256", hide_short_help = true)]
    pub(crate) no_receipt: bool,
    /// Add the input's SHA-256 to the receipt; without a receipt, --json prints it
    #[arg(long, hide_short_help = true)]
    pub(crate) sha256: bool,
    /// Write MXNet records of this version, 0 to 3 [default: the input's, else 2, which MXNet reads since 0.12]
    #[arg(long, value_name = "N", value_parser = params_version(), hide_short_help = true)]
    pub(crate) params_version: Option<Version>,
    /// Do as this recipe says, a JSON file; IN, -o, --to and --force, where they are given, count in place of its own
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) recipe: Option<PathBuf>,
    /// Write this conversion as a recipe too, with -n the recipe alone
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) recipe_out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) transforms: Transforms,
    #[command(flatten)]
    pub(crate) onnx: Onnx,
}

/// What is changed about the tensors, in the order in which it is done.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Transforms, in this order")]
pub(crate) struct Transforms {
    #[command(flatten)]
    pub(crate) only: Only,
    /// Leave out the diffs of Caffe's blobs
    #[arg(long)]
    pub(crate) strip_diff: bool,
    /// Remove the leading ones of Caffe blobs from before 2015: 1x1xOxI of an inner product becomes OxI, a bias of
    /// 1x1x1xN becomes N
    #[arg(long, hide_short_help = true)]
    pub(crate) squeeze_legacy: bool,
    /// Fold BatchNorms and Scales into the layer before, as `blob fold` does
    #[arg(long, hide_short_help = true)]
    pub(crate) fold: bool,
    /// Divide the means and variances of Caffe's BatchNorms by their factor and leave that out, or keep all three
    /// [default: depends on --names]
    #[arg(long, value_name = "HOW", hide_short_help = true)]
    pub(crate) bn: Option<Bn>,
    /// Set gamma to 1 where MXNet's symbol has `fix_gamma`, its default, or keep the stored values
    /// [default: depends on --names]
    #[arg(long, value_name = "HOW", hide_short_help = true)]
    pub(crate) fix_gamma: Option<FixedGamma>,
    /// Make every BatchNorm ready for this eps: the difference to the net's own is added to its variances. torch's
    /// default is 1e-5, MXNet's 1e-3
    #[arg(long, value_name = "E", value_parser = eps, hide_short_help = true)]
    pub(crate) eps: Option<f64>,
    /// Reverse the three input channels of the first convolution, so that a net for BGR takes RGB images
    #[arg(long, hide_short_help = true)]
    pub(crate) rgb: bool,
    /// Permute the columns of inner products after a CxHxW output to height, width, channels, the order in which
    /// TensorFlow flattens. With a net, C,H,W must be what it says, as far as it does, and a layer with `transpose:
    /// true`, whose weights are inputs x outputs, is refused; fc6=512,7,7 is for that layer alone, and the option may
    /// be repeated
    #[arg(long, value_name = "[FC=]C,H,W", value_parser = fc_from_of, hide_short_help = true)]
    pub(crate) fc_from: Vec<FcFrom>,
    /// Permute weights to the order of PyTorch (`oihw`), TensorFlow and Keras (`hwio`) or TensorFlow Lite (`ohwi`)
    ///
    /// The letters are outputs, inputs, height, width. With `hwio`, matrices of fully connected layers become inputs,
    /// outputs, and depthwise convolutions, which only a net tells, height, width, channels, outputs per channel.
    #[arg(long, value_name = "AXES", value_parser = layout())]
    pub(crate) layout: Option<Layout>,
    /// Convert floats to this dtype, rounding each value once; integers and bools are kept
    #[arg(long, value_name = "DTYPE", value_parser = dtype())]
    pub(crate) dtype: Option<DType>,
    /// Rename: `raw` not, `torch` to PyTorch's names, a file by lines `OLD NEW`
    ///
    /// `torch` implies --squeeze-legacy, --bn fold-factor and --fix-gamma auto. In a file `*` in OLD matches any text,
    /// and `$1` in NEW is the text that the first `*` matched. Without the option, a file of the framework that the
    /// names are from, and --into, get the names from before `torch` again, which the receipt has; `raw` keeps torch's.
    #[arg(long, value_name = "NAMES")]
    pub(crate) names: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) nets: NetFiles,
    /// Fail if anything would be lost that no option names; otherwise warn
    ///
    /// Lost are values that become infinite or 0, and names, metadata and arrays that the format cannot hold.
    #[arg(long)]
    pub(crate) strict: bool,
}

/// How the factor of Caffe's BatchNorms is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bn {
    FoldFactor,
    Raw,
}

/// How a gamma that MXNet ignores is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FixedGamma {
    Auto,
    Off,
}

/// The ways to store Caffe's blobs other than the standard one since 2015.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaffeForm {
    Legacy,
    Raw,
    V1,
}

fn params_version() -> impl TypedValueParser<Value = Version> {
    PossibleValuesParser::new(["0", "1", "2", "3"]).map(|number| Version::ALL[usize::from(number.as_bytes()[0] - b'0')])
}

/// Parses the name of a floating-point dtype.
fn dtype() -> impl TypedValueParser<Value = DType> {
    let floats = || DType::ALL.iter().filter(|dtype| dtype.is_float());
    PossibleValuesParser::new(floats().map(|dtype| dtype.name()))
        .map(move |name| *floats().find(|dtype| dtype.name() == name).expect("clap has checked it"))
}

fn layout() -> impl TypedValueParser<Value = Layout> {
    let all = Layout::ALL.iter();
    PossibleValuesParser::new(all.clone().map(|layout| layout.order()))
        .map(move |name| *all.clone().find(|layout| layout.order() == name).expect("clap has checked it"))
}

fn eps(text: &str) -> Result<f64, String> {
    let eps: Option<f64> = text.parse().ok();
    let eps = eps.filter(|eps| eps.is_finite() && *eps >= 0.0);
    eps.ok_or_else(|| "a number of 0 or more is expected, as 1e-5".to_owned())
}

/// Three extents, for the layer before `=` alone.
fn fc_from_of(text: &str) -> Result<FcFrom, String> {
    match text.rsplit_once('=') {
        Some((layer, extents)) => Ok(fc_from(extents)?.layer(layer)),
        None => fc_from(text),
    }
}

pub(super) fn fc_from(text: &str) -> Result<FcFrom, String> {
    let extents: Option<Vec<usize>> = text.split(',').map(|extent| extent.trim().parse().ok()).collect();
    let made = match extents.as_deref() {
        Some([channels, height, width]) => FcFrom::new(*channels, *height, *width),
        _ => None,
    };
    made.ok_or_else(|| "three extents are expected: channels, height, width, as in 512,7,7".to_owned())
}
