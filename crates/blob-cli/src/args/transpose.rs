//! The command line of `blob transpose`, which is also called `permute`.

use std::path::PathBuf;

use blob_convert::transform::FcFrom;
use blob_io::Format;

use super::convert::fc_from;
use super::{Filter, Skip, Writing, format};

/// Permute the axes of tensors and change nothing else
///
/// OUT has FILE's format, or that of its extension. If that has a receipt, `blob verify OUT --against FILE` repeats the
/// permutation and compares.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob transpose net.npz fc.weight --perm 1,0 -o turned.npz
  blob transpose net.caffemodel conv1/0 conv2/0 --preset oihw-hwio -o tf.safetensors
  blob transpose net.caffemodel fc6/0 --fc-from 512,7,7 -o tf.safetensors")]
#[command(group = clap::ArgGroup::new("how").required(true).args(["perm", "preset", "fc_from"]))]
pub(crate) struct Transpose {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Tensors: names, else layers' names, globs (`*` matches `/` too), or `#3`, `#3-5` by index
    #[arg(required_unless_present_any = ["exclude", "dtypes", "shapes"], value_name = "TENSOR")]
    pub(crate) tensors: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Output: a file, a folder (ending with `/`), or `-` for standard output
    #[arg(short, long, value_name = "OUT", required_unless_present = "dry_run")]
    pub(crate) output: Option<PathBuf>,
    /// Output format, of `blob formats` [default: from OUT's extension]
    #[arg(long, value_name = "FMT", value_parser = format(|_| true), hide_possible_values = true)]
    pub(crate) to: Option<Format>,
    /// The axes in their new order, as numpy.transpose takes them: 2,3,1,0
    #[arg(long, value_name = "AXIS,...", value_delimiter = ',')]
    pub(crate) perm: Vec<usize>,
    /// The old and the new order in letters: oihw-hwio, nchw-nhwc, oihw-oiwh
    #[arg(long, value_name = "OLD-NEW", value_parser = preset)]
    pub(crate) preset: Option<Axes>,
    /// Permute the columns of matrices after a CxHxW output to height, width, channels
    #[arg(long, value_name = "C,H,W", value_parser = fc_from)]
    pub(crate) fc_from: Option<FcFrom>,
    #[command(flatten)]
    pub(crate) writing: Writing,
    #[command(flatten)]
    pub(crate) skip: Skip,
}

/// A permutation of axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Axes(pub(crate) Vec<usize>);

fn preset(text: &str) -> Result<Axes, String> {
    let axes = text.split_once('-').and_then(|(old, new)| {
        let axes = new.chars().map(|letter| old.chars().position(|other| other == letter));
        let axes: Vec<usize> = axes.collect::<Option<_>>()?;
        // Each letter occurs once on both sides.
        let once = (0..axes.len()).all(|axis| axes.contains(&axis)) && old.chars().count() == axes.len();
        (once && !axes.is_empty()).then_some(Axes(axes))
    });
    axes.ok_or_else(|| "two orders of the same letters are expected, as in oihw-hwio".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_name_a_permutation() {
        for (text, axes) in
            [("oihw-hwio", &[2, 3, 1, 0][..]), ("hwio-oihw", &[3, 2, 0, 1]), ("ab-ba", &[1, 0]), ("x-x", &[0])]
        {
            assert_eq!(preset(text), Ok(Axes(axes.to_vec())), "{text}");
        }
        for wrong in ["", "-", "oihw", "oihw-hwi", "oihw-hwoo", "oi-oix", "oo-oo", "oihw-hwic"] {
            assert!(preset(wrong).is_err(), "{wrong}");
        }
    }
}
