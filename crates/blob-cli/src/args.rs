//! The command line as clap parses it: every command, flag and line of help. Does not know the commands' work.
//!
//! Users read the doc comments of this module and its submodules as help, so these name defaults and units.

mod batch;
mod convert;
mod diff;
mod extract;
mod fold;
mod graph;
mod hash;
mod ls;
mod merge;
pub(crate) mod onnx;
mod plot;
mod rename;
mod report;
mod selection;
mod transpose;
mod writing;

pub(crate) use batch::{Batch, Trusted};
pub(crate) use convert::{Bn, CaffeForm, Convert, FixedGamma, Transforms};
pub(crate) use diff::Diff;
pub(crate) use extract::{Extract, ExtractFormat};
pub(crate) use fold::{Fold, NetFiles};
pub(crate) use graph::Graph;
pub(crate) use hash::Hash;
pub(crate) use ls::{Ls, Order, SortKey};
pub(crate) use merge::{Merge, Split, is_written};
pub(crate) use plot::Plot;
pub(crate) use rename::{Rename, Sed};
pub(crate) use report::Report;
pub(crate) use selection::{Filter, Only, Selection, Skip};
pub(crate) use transpose::Transpose;
pub(crate) use writing::Writing;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use blob_io::{Format, IfExists};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use crate::help::more;
use crate::units;

const EXAMPLES: &str = "\
Examples:
  blob model.caffemodel                       what is in the file
  blob ls model.params '*fc*'                 its tensors, by name
  blob convert model.caffemodel -o model.safetensors";

/// Open, check, compare and convert the tensor files of Caffe, MXNet and NeoML, with none of them installed
#[derive(Debug, Parser)]
#[command(
    name = "blob",
    version,
    before_help = EXAMPLES,
    after_long_help = more(),
    arg_required_else_help = true,
    disable_help_subcommand = true,
    infer_subcommands = false,
    override_usage = "blob FILE...\n       blob COMMAND [OPTIONS] FILE..."
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The flags that every command takes.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Read the file as this format of `blob formats` instead of detecting it
    #[arg(long, global = true, value_name = "FMT", value_parser = format(|_| true), hide_possible_values = true)]
    pub(crate) from: Option<Format>,
    /// Read this member of an archive on standard input; for an archive on disk, append it to the path:
    /// `model.tar.gz/net.params`
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) member: Option<String>,
    /// Print errors alone: no warnings, no notes, no success lines
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print JSON, one object per line and file
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Do not shorten names or drop columns on narrow terminals
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) wide: bool,
    /// Print tables to files and pipes too, COLUMNS or 80 columns wide
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) table: bool,
    /// Print plain ASCII: 20x1x5x5 for shapes, `\u{540d}` in names, no box or block characters
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) ascii: bool,
    /// When to use colours; NO_COLOR and CLICOLOR_FORCE are respected
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub(crate) color: When,
    /// When to show progress on standard error; `auto`: on a terminal, after half a second
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub(crate) progress: When,
    /// Take the whole arrays of a file that breaks off, say where it does, and exit with 1; with `=ok`, exit with 0
    #[arg(long, global = true, value_name = "ok", num_args = 0..=1, require_equals = true,
          default_missing_value = "report", hide_possible_values = true)]
    pub(crate) salvage: Option<Salvage>,
    /// Whether a file was opened of which `salvage` takes a part.
    #[arg(skip)]
    pub(crate) is_salvaged: Arc<AtomicBool>,
    /// Maximum memory for inflating, reordering or expanding one array [default: 1GiB]
    #[arg(long, global = true, value_name = "SIZE", value_parser = units::parse_size, hide_short_help = true)]
    pub(crate) max_alloc: Option<u64>,
    /// Maximum disk space in the temporary folder for a pipe or an unpacked gzip file or archive member
    /// [default: 4GiB]
    #[arg(long, global = true, value_name = "SIZE", value_parser = units::parse_size, hide_short_help = true)]
    pub(crate) max_spool: Option<u64>,
    /// Maximum number of arrays in a file [default: 1048576]
    #[arg(long, global = true, value_name = "N", hide_short_help = true)]
    pub(crate) max_arrays: Option<u64>,
}

/// How a command ends that took the whole arrays of a file that breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Salvage {
    /// With exit code 1
    Report,
    /// With exit code 0
    Ok,
}

/// When to use a feature meant for terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// A command's arguments are made when the command is parsed: all of them would take half of the tool's start. Who
/// looks at another command's takes [`whole`].
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    Info(Info),
    Ls(Ls),
    Show(Show),
    Stats(Stats),
    Verify(Verify),
    Diff(Diff),
    Graph(Graph),
    Hash(Hash),
    Convert(Convert),
    Fold(Fold),
    Extract(Extract),
    Merge(Merge),
    Split(Split),
    Plot(Plot),
    Report(Report),
    // Known before the command's own arguments are.
    #[command(visible_alias = "permute")]
    Transpose(Transpose),
    Rename(Rename),
    Batch(Batch),
    /// List the supported formats
    ///
    /// A gzip file of any of them is read as what it unpacks to, and a tar or zip archive (.tar.gz, .mar) as the one
    /// file of a format in it. Where there are several, a path goes on behind the archive:
    /// model.tar.gz/net-0000.params.
    #[command(before_help = "\
Examples:
  blob formats                                what is read and written
  blob formats --json                         for programs")]
    Formats,
    /// Describe the JSON of every command: fields and reasons; with --json, as JSON Schema
    #[command(before_help = "\
Examples:
  blob schemas                                the fields of every line, in Markdown
  blob schemas --json                         JSON Schema, one a line")]
    Schemas,
    Completions(Completions),
    Man(Man),
}

/// Summarize a file: format, tensors, parameters, warnings
///
/// Reads headers, and few values: those of a mean image (.binaryproto), for the `mean_value` of each channel, and of
/// BatchNorms, which ignore some.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob info model.caffemodel                  the same as: blob model.caffemodel
  blob info --json *.params                   a line for each file")]
pub(crate) struct Info {
    /// Files to summarize; `-` is standard input; archive.tar/FILE names a file in a tar or zip archive
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) only: Only,
}

/// Print the values of tensors
///
/// Tensors of more than 1000 values are abbreviated, as in NumPy.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob show model.caffemodel conv1/1          a tensor by name
  blob show mean.binaryproto --slice '0,:,0,0'
  blob show model.params '#3' --csv > w.csv   all values, for a spreadsheet")]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Print a slice, in NumPy's notation: `0,:,::2`, `-1`, `...,0`
    #[arg(long, value_name = "SLICE", allow_hyphen_values = true)]
    pub(crate) slice: Option<String>,
    /// Digits after the decimal point
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(..=17))]
    pub(crate) precision: u8,
    /// Print every value
    #[arg(long, conflicts_with = "head")]
    pub(crate) full: bool,
    /// Print only the first N values
    #[arg(long, value_name = "N")]
    pub(crate) head: Option<usize>,
    /// Print CSV: one line per row of the last axis, or per value if there is only one axis
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}

/// Print statistics of each tensor: minimum, maximum, mean, norms, zeros, NaN and Inf
///
/// Sums are computed in f64. NaN and Inf are counted, but excluded from mean, STD, L1 and L2. STD is the population's.
///
/// The fields of a line to a pipe or a file: name, dtype, shape, the index on the axis of --per-channel, count, min,
/// max, mean, std, l1, l2, and how many values are 0, NaN and Inf; with --hist the counts of 16 bins between min and
/// max, separated by commas; `-` where there is none. An array that cannot be read has dtype `error`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob stats model.caffemodel                 all tensors
  blob stats model.params '*gamma' --hist     some of them, with histograms
  blob stats model.caffemodel conv1/0 --per-channel 0")]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Add a histogram of the values; reads the data twice
    #[arg(long)]
    pub(crate) hist: bool,
    /// Print one line per index of this axis; negative axes count from the last
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true)]
    pub(crate) per_channel: Option<i64>,
    #[command(flatten)]
    pub(crate) order: Order,
}

/// Check files: structure, finite values, equality with another file
///
/// Exits with 0 if every check passes, 1 if a check fails or the file is broken: malformed, cut off, empty, a web page
/// or a pointer of Git LFS in its place. Exits with 2 if it is another kind of file, as a text or a picture, or cannot
/// be read.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob verify *.caffemodel                    are they whole?
  blob verify --finite model.params           and free of NaN and Inf?
  blob verify out.safetensors --against model.caffemodel")]
pub(crate) struct Verify {
    /// Files to check; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Fail on NaN and Inf
    #[arg(long)]
    pub(crate) finite: bool,
    /// Fail on warnings
    #[arg(long)]
    pub(crate) strict: bool,
    /// Compare names, dtypes, shapes and values bit for bit with this file of any format. The transforms in FILE's
    /// receipt are repeated with OTHER's tensors. For what `blob merge` wrote, once for each of its files, in any order
    #[arg(long, value_name = "OTHER")]
    pub(crate) against: Vec<PathBuf>,
    /// The net that the transforms in FILE's receipt followed, if it does not lie beside OTHER; a symbol file is named
    /// by --symbol
    #[arg(long, value_name = "PROTOTXT", requires = "against")]
    pub(crate) net: Option<PathBuf>,
    /// Print the transforms in FILE's receipt, one per line
    #[arg(long)]
    pub(crate) replay: bool,
    /// Compare with MXNet's symbol file of the net: missing and extra arrays, shapes, dtypes. If there is no such file,
    /// it is searched for beside FILE, also in its archive
    #[arg(long, value_name = "JSON", conflicts_with_all = Only::ARGUMENTS)]
    pub(crate) symbol: Option<PathBuf>,
    /// Print all findings, not only the first 20 per file
    #[arg(long)]
    pub(crate) all: bool,
    /// Print only files that fail
    #[arg(long)]
    pub(crate) failed_only: bool,
    /// Check the SHA-256 of the file
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    pub(crate) sha256: Option<String>,
    #[command(flatten)]
    pub(crate) only: Only,
}

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob completions bash > blob.bash           then `source blob.bash`
  blob completions zsh > _blob                into a folder of $fpath")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page, or write all of them into a folder
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob man > blob.1                           then `man -l blob.1`
  blob man -o man1/                           a page a command")]
pub(crate) struct Man {
    /// Folder for blob.1, blob-ls.1 and the other pages
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Replace pages that exist
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Print what would be done without writing anything
    #[arg(short = 'n', long, requires = "output")]
    pub(crate) dry_run: bool,
}

/// Whether existing files are replaced, by `--force`.
pub(crate) fn if_exists(force: bool) -> IfExists {
    if force { IfExists::Replace } else { IfExists::Refuse }
}

/// Parses the name of a format that `take` accepts.
/// The command line with the arguments of every command, and the global ones among each command's.
pub(crate) fn whole() -> clap::Command {
    let mut tool = Args::command();
    tool.build();
    tool
}

fn format(take: fn(Format) -> bool) -> impl TypedValueParser<Value = Format> {
    let known = Format::ALL.iter().filter(move |f| take(**f));
    let values = known.map(|f| PossibleValue::new(f.name()).help(f.title()));
    PossibleValuesParser::new(values).map(|name| name.parse().expect("clap has checked the name against the table"))
}

fn sha256(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err("a SHA-256 has 64 hexadecimal digits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_passes_the_checks_of_clap() {
        Args::command().debug_assert();
    }
}
