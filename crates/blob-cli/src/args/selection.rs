//! The arguments that say which tensors of a file are meant: the same for every command.
//!
//! Commands that list or show tensors take them after the file, those that work on whole files with `--only`.

use std::path::PathBuf;

use blob_convert::Dims;
use blob_core::DType;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// A file and some of its tensors.
#[derive(Debug, clap::Args)]
pub(crate) struct Selection {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Tensors: a name, also as a table shows it; else a layer's name, a glob (`*` matches `/` too), or `#3`, `#3-5`,
    /// `#3-` by index; without it, all
    #[arg(value_name = "PATTERN")]
    pub(crate) patterns: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
}

/// Which of the tensors.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Filter {
    /// Treat each PATTERN, of --exclude too, as a regular expression that matches anywhere in the name
    #[arg(long)]
    pub(crate) regex: bool,
    /// But none that match this PATTERN; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Only tensors of these dtypes: `f16`, `f32,f64`
    #[arg(long = "dtype", value_name = "DTYPE", alias = "only-dtype", value_delimiter = ',',
          value_parser = dtype(), hide_possible_values = true)]
    pub(crate) dtypes: Vec<DType>,
    /// Only tensors of this shape, with `*` for any extent: `64x3x*x*`, `scalar`
    #[arg(long = "shape", value_name = "SHAPE", value_parser = shape)]
    pub(crate) shapes: Vec<Dims>,
}

/// The heading of these arguments alone: those that follow them keep the heading of their own command.
const WHICH: &str = "Which tensors";

/// Which tensors of a whole file. `--dtype` is the dtype to convert to, so that of the tensors has another name.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Only {
    /// Only tensors that match this PATTERN: a name, else a layer's name, a glob (`*` matches `/` too), or `#3`,
    /// `#3-5` by index; may be repeated [default: all]
    #[arg(help_heading = WHICH, long, value_name = "PATTERN")]
    pub(crate) only: Vec<String>,
    /// But none that match this PATTERN; may be repeated
    #[arg(help_heading = WHICH, long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Treat each PATTERN as a regular expression that matches anywhere in the name
    #[arg(help_heading = WHICH, long, hide_short_help = true)]
    pub(crate) regex: bool,
    /// Only tensors of these dtypes: `f16`, `f32,f64`
    #[arg(help_heading = WHICH, long = "only-dtype", value_name = "DTYPE", value_delimiter = ',', value_parser = dtype(),
          hide_possible_values = true, hide_short_help = true)]
    pub(crate) dtypes: Vec<DType>,
    /// Only tensors of this shape, with `*` for any extent: `64x3x*x*`, `scalar`
    #[arg(help_heading = WHICH, long = "only-shape", value_name = "SHAPE", value_parser = shape, hide_short_help = true)]
    pub(crate) shapes: Vec<Dims>,
}

/// The option for sound arrays that are not read.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Skip {
    /// Leave out sound arrays that blob cannot convert: strings, compounds, complex numbers, float8, LZF
    #[arg(long, hide_short_help = true)]
    pub(crate) skip_unsupported: bool,
}

impl Selection {
    pub(crate) fn selection(&self) -> blob_convert::Selection {
        self.filter.of(&self.patterns)
    }
}

impl Filter {
    /// The tensors that match the patterns and this filter.
    pub(crate) fn of(&self, patterns: &[String]) -> blob_convert::Selection {
        let Self { regex, exclude, dtypes, shapes } = self.clone();
        blob_convert::Selection { patterns: patterns.to_vec(), regex, exclude, dtypes, shapes }
    }
}

impl Only {
    /// The names of these arguments, for those that they exclude.
    pub(super) const ARGUMENTS: [&str; 4] = ["only", "exclude", "dtypes", "shapes"];

    pub(crate) fn selection(&self) -> blob_convert::Selection {
        let Self { only: patterns, exclude, regex, dtypes, shapes } = self.clone();
        blob_convert::Selection { patterns, regex, exclude, dtypes, shapes }
    }
}

/// Parses the name of a dtype.
fn dtype() -> impl TypedValueParser<Value = DType> {
    PossibleValuesParser::new(DType::ALL.iter().map(|dtype| dtype.name()))
        .map(|name| name.parse().expect("clap has checked the name against the table"))
}

fn shape(text: &str) -> Result<Dims, String> {
    Dims::parse(text).ok_or_else(|| "extents are expected, with `*` for any: 64x3x*x*".to_owned())
}
