//! The command line of `blob convert`.

use std::path::{Path, PathBuf};

use blob_convert::transform::{FcFrom, Layout};
use blob_core::DType;
use blob_io::Format;
use blob_io::mxnet::Version;
use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::{NetFiles, format};
use crate::units;

/// Convert to safetensors, npz, npy, hdf5, MXNet's params or mxnet-record, Caffe's caffemodel, binaryproto,
/// blobprotovector, solverstate or datum, NeoML's neoml, neoml-array or neoml-net
///
/// A folder gets one npy file a tensor. Values and shapes stay bit for bit, unless a transform is asked for; they are done in
/// the order in which they stand here. A receipt in safetensors, npz, HDF5 and in a folder says where the tensors came from
/// and what changed them, and brings them back into the same file; other formats have no place for one. A Caffe file written
/// as the same message keeps its every other byte; a new one gets its layers from names, `<layer>/<index>`. HDF5 is Caffe's
/// where the source is, or where OUT is called .caffemodel.h5 or .solverstate.h5. A NeoML net is written from one only, or by a
/// receipt. To `-` (standard output) the file is read twice.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob convert model.caffemodel -o model.safetensors
  blob convert model-0000.params -o model.npz --dry-run
  blob convert model.caffemodel -o weights/   one .npy file a tensor
  blob convert model.npz -o model.params      as MXNet saves it
  blob convert model.caffemodel -o half.safetensors --strip-diff --dtype f16
  blob convert model.caffemodel --names torch -o torch.safetensors
  blob convert tuned.safetensors --into model.caffemodel -o tuned.caffemodel")]
pub(crate) struct Convert {
    /// The file to convert; `-` is standard input
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// Where to: a file, a folder (with `/` at the end), or `-` for standard output
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The output's format; without it, OUT's extension says it
    #[arg(long, value_name = "FMT", value_parser = format(|_| true))]
    pub(crate) to: Option<Format>,
    /// Put the arrays into this file of Caffe, NeoML or HDF5, by their names; its every other byte stays. The result is OUT
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["to", "dense", "anew"])]
    pub(crate) into: Option<PathBuf>,
    /// Store Caffe's blobs so: `legacy` (four dimensions, before 2015), `raw` (NVCaffe's), `v1` (in layers of 2014)
    #[arg(long, value_name = "FORM", value_delimiter = ',')]
    pub(crate) form: Vec<CaffeForm>,
    /// Write safetensors in shards of at most this many bytes of tensors, where one is not enough, with an index beside them:
    /// OUT.index.json, which every command reads
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub(crate) shard_size: Option<u64>,
    /// Expand sparse arrays instead of writing their parts
    #[arg(long)]
    pub(crate) dense: bool,
    /// Write OUT from the tensors alone, without the bytes around them: those that IN has of OUT's format, itself or in its
    /// receipt
    #[arg(long)]
    pub(crate) anew: bool,
    /// Replace OUT where it exists; IN itself is never replaced
    #[arg(long)]
    pub(crate) force: bool,
    /// Say what would be done, and write nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Put the input's SHA-256 into the receipt, beside its BLAKE3; where the output has no receipt, --json prints it
    #[arg(long)]
    pub(crate) sha256: bool,
    /// Write MXNet records of this version, 0 to 3 [default: the input's, else 2, which MXNet reads since 0.12]
    #[arg(long, value_name = "N", value_parser = params_version())]
    pub(crate) params_version: Option<Version>,
    #[command(flatten)]
    pub(crate) transforms: Transforms,
}

impl Convert {
    /// A conversion of a file without any option.
    pub(crate) fn new(input: &Path, output: &Path) -> Self {
        Self {
            input: input.to_owned(),
            output: output.to_owned(),
            to: None,
            into: None,
            form: Vec::new(),
            shard_size: None,
            dense: false,
            anew: false,
            force: false,
            dry_run: false,
            sha256: false,
            params_version: None,
            transforms: Transforms { names: PathBuf::from("raw"), ..Transforms::default() },
        }
    }
}

/// What is changed about the tensors, in the order in which it is done.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Transforms, in this order")]
pub(crate) struct Transforms {
    /// Leave out the diffs of Caffe's blobs
    #[arg(long)]
    pub(crate) strip_diff: bool,
    /// Take away the ones of Caffe's four dimensions of before 2015: 1x1xOxI is OxI for an inner product, 1x1x1xN N for a bias
    #[arg(long)]
    pub(crate) squeeze_legacy: bool,
    /// Divide the means and variances of Caffe's BatchNorms by the factor beside them, as Caffe does, and leave that out; or keep
    /// all three. Without it, as --names says
    #[arg(long, value_name = "HOW")]
    pub(crate) bn: Option<Bn>,
    /// Set gamma to 1 where MXNet's symbol has `fix_gamma`, which is so where it says nothing; or keep what is stored. Without it, as
    /// --names says
    #[arg(long, value_name = "HOW")]
    pub(crate) fix_gamma: Option<FixedGamma>,
    /// Reverse the input channels of the first convolution, which has three: RGB images for a net of BGR
    #[arg(long)]
    pub(crate) rgb: bool,
    /// Permute the columns of inner products behind an output of C channels, H by W, to height, width, channels, as TensorFlow
    /// flattens
    #[arg(long, value_name = "C,H,W", value_parser = fc_from)]
    pub(crate) fc_from: Option<FcFrom>,
    /// Permute the weights of convolutions, which are `oihw`: outputs, inputs, height, width; depthwise ones, known only by a net
    /// in FILE itself (--net is not asked), are with `hwio` height, width, channels, outputs of each channel
    #[arg(long, value_name = "AXES", value_parser = layout())]
    pub(crate) layout: Option<Layout>,
    /// Write floats of every width as one dtype, each rounded once; integers and bools stay
    #[arg(long, value_name = "DTYPE", value_parser = dtype())]
    pub(crate) dtype: Option<DType>,
    /// Names: `raw`, those of the file; `torch`, PyTorch's, which implies --squeeze-legacy, --bn fold-factor and --fix-gamma auto; or a
    /// file of lines `OLD NEW`, where `*` in OLD stands for any text, `$1` in NEW for what the first one stood for
    #[arg(long, value_name = "NAMES", default_value = "raw", hide_default_value = true)]
    pub(crate) names: PathBuf,
    #[command(flatten)]
    pub(crate) nets: NetFiles,
    /// Write nothing where values would be lost, as those that become infinite as f16; without it, they are told
    #[arg(long)]
    pub(crate) strict: bool,
}

/// What becomes of the factor of Caffe's BatchNorms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bn {
    FoldFactor,
    Raw,
}

/// What becomes of a gamma that MXNet does not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FixedGamma {
    Auto,
    Off,
}

/// How Caffe's blobs are stored, where it is not as since 2015.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaffeForm {
    Legacy,
    Raw,
    V1,
}

fn params_version() -> impl TypedValueParser<Value = Version> {
    let version = |number: String| Version::ALL[usize::from(number.as_bytes()[0] - b'0')];
    PossibleValuesParser::new(["0", "1", "2", "3"]).map(version)
}

/// Reads the name of a dtype of floats.
fn dtype() -> impl TypedValueParser<Value = DType> {
    let floats = || DType::ALL.iter().filter(|dtype| dtype.is_float());
    let named = move |name: String| *floats().find(|dtype| dtype.name() == name).expect("clap has checked it");
    PossibleValuesParser::new(floats().map(|dtype| dtype.name())).map(named)
}

fn layout() -> impl TypedValueParser<Value = Layout> {
    let all = Layout::ALL.iter();
    let named = |name: String| *Layout::ALL.iter().find(|l| l.order() == name).expect("clap has checked it");
    PossibleValuesParser::new(all.map(|layout| layout.order())).map(named)
}

pub(super) fn fc_from(text: &str) -> Result<FcFrom, String> {
    let extents: Option<Vec<usize>> = text.split(',').map(|extent| extent.trim().parse().ok()).collect();
    let made = match extents.as_deref() {
        Some([channels, height, width]) => FcFrom::new(*channels, *height, *width),
        _ => None,
    };
    made.ok_or_else(|| "three extents are expected: channels, height, width, as in 512,7,7".to_owned())
}
