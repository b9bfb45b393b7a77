//! The arguments of `blob merge` and `blob split`.

use std::path::PathBuf;

use blob_io::Format;

use super::{Only, Skip, Writing, format};
use crate::units;

/// Merge the tensors of several files into one file, or several tensors into one along an axis
///
/// Fails if two files have tensors of the same name, and lists them; --prefix tells them apart. Tensors of a file
/// that stores no names, or none but such as `@0`, are named after the file. With --axis the tensors are concatenated
/// into NAME, in place of the first one; the others are kept. If all of them have diffs, as Caffe's blobs can, these
/// become NAME.diff. OUT contains only tensors, not what else its format can hold; the layers of a .caffemodel keep
/// their types. With --axis `blob verify OUT --against FILE` repeats it; of several files `blob verify OUT --against
/// FILE --against FILE` compares every tensor. Memory use is a few MiB; along other axes than the first, 4 KiB or the
/// decompressor's state per tensor.
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
    /// The files; with --axis a file, then its tensors: names, else layers' names, `#3` by index
    #[arg(required = true, value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Output: a file, or `-` for standard output
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Output format, of `blob formats` [default: from OUT's extension]
    #[arg(long, value_name = "FMT", value_parser = format(is_written), hide_possible_values = true)]
    pub(crate) to: Option<Format>,
    /// Concatenate the tensors along this axis; negative axes count from the last
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true, requires = "into")]
    pub(crate) axis: Option<i64>,
    /// Name of the concatenated tensor
    #[arg(long, value_name = "NAME", requires = "axis")]
    pub(crate) into: Option<String>,
    /// Put the file's name before each name that several files have: `head/fc.weight`; of files of one name also the
    /// folder's
    #[arg(long, conflicts_with = "axis")]
    pub(crate) prefix: bool,
    #[command(flatten)]
    pub(crate) writing: Writing,
    #[command(flatten)]
    pub(crate) skip: Skip,
    #[command(flatten)]
    pub(crate) only: Only,
}

/// The ways to split whole files, which take no tensor.
const WHOLE: [&str; 2] = ["by_layer", "max_size"];

/// Split a file by layer or by size, or one tensor along an axis
///
/// OUT is a folder (ending with `/`), or a name with `{}` for the layer's name or the number of the file. With --axis
/// and neither, OUT is one file: FILE's tensors, with the parts in place of TENSOR. A diff is split like its blob. The
/// files contain only tensors, not what else their format can hold; the layers of a .caffemodel keep their types. Each
/// has a receipt where its format has room for one: `blob verify PART --against FILE` compares. With --force existing
/// files, at most 500, are replaced together once all new ones are complete; if one cannot be written, existing files
/// stay as they were and new ones are removed. Killed while it names the files, it leaves some old and some new, which
/// `blob merge` says; split again then. Memory use is about 8 MiB, except for a compressed or column-major TENSOR,
/// which is unpacked as a whole, up to --max-alloc.
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
    #[arg(value_name = "TENSOR", requires = "axis", conflicts_with_all = WHOLE)]
    pub(crate) tensor: Option<String>,
    /// Output: a folder (ending with `/`), a file name with `{}`, or with --axis a file or `-` for standard output
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Output format, of `blob formats` [default: from the extension; in a folder, FILE's]
    #[arg(long, value_name = "FMT", value_parser = format(is_written), hide_possible_values = true)]
    pub(crate) to: Option<Format>,
    /// Write a file for each layer: the tensors whose names differ only in the last part
    #[arg(long)]
    pub(crate) by_layer: bool,
    /// Write files of at most this many bytes of tensors, in FILE's order; a larger tensor, or in a .caffemodel or
    /// .caffemodel.h5 a larger layer, gets its own file; a sparse array counts as one tensor
    #[arg(long, value_name = "SIZE", value_parser = units::parse_size)]
    pub(crate) max_size: Option<u64>,
    /// Split TENSOR along this axis; negative axes count from the last
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true, requires = "sizes")]
    pub(crate) axis: Option<i64>,
    /// Size of each part along the axis: 64,64,128
    #[arg(long, value_name = "N,...", value_delimiter = ',', requires = "axis", conflicts_with_all = WHOLE)]
    pub(crate) sizes: Vec<usize>,
    /// Names of the parts [default: TENSOR_0, TENSOR_1, ...; in separate files, TENSOR]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', requires = "axis", conflicts_with_all = WHOLE)]
    pub(crate) into: Vec<String>,
    #[command(flatten)]
    pub(crate) writing: Writing,
    #[command(flatten)]
    pub(crate) skip: Skip,
    #[command(flatten)]
    pub(crate) only: Only,
}

/// Whether the format can be written from tensors alone. A NeoML net cannot, because it needs the layers,
/// nor an ONNX model, which needs a graph.
pub(crate) fn is_written(format: Format) -> bool {
    format.holds().from_tensors
}
