//! The arguments of `blob merge` and `blob split`.

use std::path::PathBuf;

use blob_io::Format;

use super::format;
use crate::units;

/// Put the tensors of several files into one, or several tensors of a file into one along an axis
///
/// Tensors of one name in two files are refused, all of them named. Those of a file that stores no names are called by the file's
/// name. With --axis the tensors become NAME, which stands in the first one's place; all others stay. Where all of them have diffs,
/// as Caffe's blobs can, these become NAME.diff. OUT is written anew, without what its format has beside tensors; a .caffemodel's layers
/// keep their types. It has no receipt, which tells of one source and all of its tensors (but an npz says which of them are bf16): `blob diff`
/// compares OUT with each FILE. Memory stays at some 8 MiB; along an axis behind the first 4 KiB for each
/// tensor, or what the decompression of each takes, where that is more.
#[derive(Debug, clap::Args)]
#[command(
    before_help = "\
Examples:
  blob merge backbone.params head.params -o net.params
  blob merge mean.npy std.npy -o both.npz     called `mean` and `std`
  blob merge net.npz q k v --axis 0 --into qkv -o fused.npz",
    override_usage = "blob merge [OPTIONS] FILE... --output <OUT>\n       \
                      blob merge [OPTIONS] FILE TENSOR... --axis <AXIS> --into <NAME> --output <OUT>"
)]
pub(crate) struct Merge {
    /// The files; with --axis a file, then its tensors: names, `#3` by index
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Where to: a file; `-` is standard output
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The output's format; without it, OUT's extension says it
    #[arg(long, value_name = "FMT", value_parser = format(is_written))]
    pub(crate) to: Option<Format>,
    /// Put the tensors one behind the other along this axis; negative ones count from the last
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true, requires = "into")]
    pub(crate) axis: Option<i64>,
    /// What the tensor is called that --axis makes
    #[arg(long, value_name = "NAME", requires = "axis")]
    pub(crate) into: Option<String>,
    /// Replace OUT where it exists; a file that is read is never replaced
    #[arg(long)]
    pub(crate) force: bool,
    /// Say what would be done, and write nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Write the tensors of a file to several files: by layer, by size, or a tensor in parts along an axis
///
/// OUT is a folder (with `/` at the end), or has `{}` in its name, where each file gets the layer's name or its number. With --axis
/// and neither, OUT is one file: FILE's tensors, with the parts in TENSOR's place. A diff is cut as its blob is. Files are written
/// anew, without what their format has beside tensors; a .caffemodel's layers keep their types. They have no receipts, which tell of all
/// tensors of a source (but an npz says which of them are bf16): `blob diff` compares them with FILE. With
/// --force the files that are there are replaced together, at most 500, once all are whole; where one cannot be written, they stay
/// as they were, and new ones go again. Memory stays at some 8 MiB, but for a TENSOR that is compressed or column-major: it is
/// unpacked once, as a whole, up to --max-alloc.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob split net.caffemodel --by-layer -o layers/
  blob split net.params --max-size 2GB -o 'net-{}.params'
  blob split net.npz qkv --axis 0 --sizes 64,64,64 --into q,k,v -o net3.npz")]
#[command(group = clap::ArgGroup::new("how").required(true).args(["by_layer", "max_size", "axis"]))]
pub(crate) struct Split {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// With --axis, the tensor: a name, `#3` by index, or a glob that matches one
    #[arg(value_name = "TENSOR", requires = "axis")]
    pub(crate) tensor: Option<String>,
    /// Where to: a folder (with `/` at the end), files called with `{}`, or with --axis a file, `-` for standard output
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The format of the files; without it, the extension says it, and in a folder it is FILE's
    #[arg(long, value_name = "FMT", value_parser = format(is_written))]
    pub(crate) to: Option<Format>,
    /// A file for each layer: the tensors whose names are the same but for the last part
    #[arg(long)]
    pub(crate) by_layer: bool,
    /// Files of at most this many bytes of tensors, in FILE's order; a larger tensor, and in a .caffemodel or
    /// .caffemodel.h5 a larger layer, has a file of its own; a sparse array is one tensor
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub(crate) max_size: Option<u64>,
    /// Cut TENSOR along this axis; negative ones count from the last
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true, requires = "sizes")]
    pub(crate) axis: Option<i64>,
    /// How many indices of the axis each part gets: 64,64,128
    #[arg(long, value_name = "N,...", value_delimiter = ',', requires = "axis")]
    pub(crate) sizes: Vec<usize>,
    /// What the parts are called [default: TENSOR_0, TENSOR_1, ...; in files of their own, TENSOR]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', requires = "axis")]
    pub(crate) into: Vec<String>,
    /// Replace files that exist; FILE itself is never replaced
    #[arg(long)]
    pub(crate) force: bool,
    /// Say what would be done, and write nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// The formats that are written from tensors alone: the layers of a NeoML net are not known.
pub(crate) fn is_written(format: Format) -> bool {
    format != Format::NeomlNet
}
