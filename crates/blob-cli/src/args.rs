//! The command line, as clap sees it: every command, every flag, every line of help.
//!
//! Leaves what the commands do to their own files. The texts here are what users read, so they name defaults and units.

mod convert;
mod devices;
mod diff;
mod extract;
mod fold;
mod hash;
mod ls;
mod merge;
mod plot;
mod rename;
mod report;
mod transpose;

pub(crate) use convert::{Bn, CaffeForm, Convert, FixedGamma, Transforms};
pub(crate) use diff::Diff;
pub(crate) use extract::{Extract, ExtractFormat};
pub(crate) use fold::{Fold, NetFiles};
pub(crate) use hash::Hash;
pub(crate) use ls::{Ls, SortKey};
pub(crate) use merge::{Merge, Split, is_written};
pub(crate) use plot::Plot;
pub(crate) use rename::Rename;
pub(crate) use report::Report;
pub(crate) use transpose::Transpose;

use std::path::PathBuf;

use blob_io::{Format, IfExists};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};

use crate::help::more;
use crate::open::name;
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
    /// Take the file for this format, whatever it looks like
    #[arg(long, global = true, value_name = "FMT", value_parser = format(|_| true))]
    pub(crate) from: Option<Format>,
    /// Take this file of the archive that standard input is; one of an archive on disk is named by its path:
    /// `model.tar.gz/net.params`
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub(crate) member: Option<String>,
    /// Print JSON: one object a line for each file
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Cut no names and leave out no columns, however narrow the terminal is
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) wide: bool,
    /// Print tables as for a terminal also to a file or a pipe; COLUMNS says how wide, else they are 80 wide
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) table: bool,
    /// Print plain ASCII: 20x1x5x5 for shapes, `\u{540d}` in names, no box or block characters
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) ascii: bool,
    /// Colour the output; NO_COLOR and CLICOLOR_FORCE are obeyed
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub(crate) color: When,
    /// Show progress on standard error; `auto`: on a terminal, when it takes more than half a second
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_short_help = true)]
    pub(crate) progress: When,
    /// The most bytes to inflate, reorder or expand for one array [default: 1GiB]
    #[arg(long, global = true, value_name = "SIZE", value_parser = units::parse_size, hide_short_help = true)]
    pub(crate) max_alloc: Option<u64>,
    /// The most bytes of a pipe, or of what a gzip file or an archive's member unpacks to, to keep in the temporary folder
    /// [default: 4GiB]
    #[arg(long, global = true, value_name = "SIZE", value_parser = units::parse_size, hide_short_help = true)]
    pub(crate) max_spool: Option<u64>,
    /// The most arrays a file may list [default: 1048576]
    #[arg(long, global = true, value_name = "N", hide_short_help = true)]
    pub(crate) max_arrays: Option<u64>,
}

/// When to do something that a terminal likes and a pipe does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// If it goes to a terminal
    #[default]
    Auto,
    /// Also to a file or a pipe
    Always,
    /// Not at all
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Info(Info),
    Ls(Ls),
    Show(Show),
    Stats(Stats),
    Verify(Verify),
    Diff(Diff),
    Hash(Hash),
    Convert(Convert),
    Fold(Fold),
    Extract(Extract),
    Merge(Merge),
    Split(Split),
    Plot(Plot),
    Report(Report),
    Transpose(Transpose),
    Rename(Rename),
    /// List the formats: names, extensions, read, write, tested against what
    ///
    /// A gzip file of any of them is read as what it unpacks to, and a tar or zip archive (.tar.gz, .mar) as the one file of
    /// a format in it. Where there are several, a path goes on behind the archive: model.tar.gz/net-0000.params.
    #[command(before_help = "\
Examples:
  blob formats                                what is read and written
  blob formats --json                         for programs")]
    Formats,
    Devices(devices::Devices),
    /// Describe the JSON of every command; with --json, as JSON Schema
    #[command(hide = true)]
    Schemas,
    Completions(Completions),
    Man(Man),
}

impl Command {
    /// The file argument of a command that takes one.
    pub(crate) fn file(&self) -> Option<String> {
        let path = match self {
            Self::Ls(args) => &args.selection.file,
            Self::Show(args) => &args.file,
            Self::Stats(args) => &args.selection.file,
            Self::Convert(args) => &args.input,
            Self::Extract(args) => &args.file,
            Self::Diff(args) => &args.file,
            Self::Split(args) => &args.file,
            Self::Plot(args) => &args.file,
            Self::Report(args) => &args.file,
            Self::Transpose(args) => &args.file,
            Self::Rename(args) => &args.file,
            _ => return None,
        };
        Some(name(path))
    }
}

/// What a file is: format, tensors, parameters, warnings
///
/// Reads headers only.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob info model.caffemodel                  the same as: blob model.caffemodel
  blob info --json *.params                   a line for each file")]
pub(crate) struct Info {
    /// Files to look at; `-` is standard input; a path may go on behind a tar or zip archive to a file in it
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

/// A file and some of its tensors.
#[derive(Debug, clap::Args)]
pub(crate) struct Selection {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Tensors: a name, a glob (`*` matches `/` too), or `#3` by index; without it, all
    #[arg(value_name = "PATTERN")]
    pub(crate) patterns: Vec<String>,
    /// Take each PATTERN as a regular expression that matches anywhere in the name
    #[arg(long)]
    pub(crate) regex: bool,
}

/// Print a tensor's values
///
/// A tensor of more than 1000 values is shown by its corners, as NumPy does.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob show model.caffemodel conv1/1          a tensor by name
  blob show mean.binaryproto --slice '0,:,0,0'
  blob show model.params '#3' --csv > w.csv   all values, for a spreadsheet")]
pub(crate) struct Show {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The tensor: a name, `#3` by index, or a glob that matches one; not needed where the file has only one
    #[arg(value_name = "TENSOR")]
    pub(crate) tensor: Option<String>,
    /// A part of it, as NumPy writes it: `0,:,::2`, `-1`, `...,0`
    #[arg(long, value_name = "SLICE", allow_hyphen_values = true)]
    pub(crate) slice: Option<String>,
    /// Digits after the point
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(..=17))]
    pub(crate) precision: u8,
    /// Every value, however many there are
    #[arg(long, conflicts_with = "head")]
    pub(crate) full: bool,
    /// The first N values only, one after the other
    #[arg(long, value_name = "N")]
    pub(crate) head: Option<usize>,
    /// Comma-separated: one line a row of the last axis; one value a line where there is only one axis
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}

/// Minimum, maximum, mean, norms, zeros, NaN and Inf of each tensor
///
/// Sums are in f64; NaN and Inf are counted and left out of mean, STD, L1 and L2. STD is the population's.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob stats model.caffemodel                 all tensors
  blob stats model.params '*gamma' --hist     some of them, with histograms
  blob stats model.caffemodel conv1/0 --per-channel 0")]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// A histogram between the smallest and the largest value; reads the data twice
    #[arg(long)]
    pub(crate) hist: bool,
    /// One line for each index of this axis; negative ones count from the last
    #[arg(long, value_name = "AXIS", allow_negative_numbers = true)]
    pub(crate) per_channel: Option<i64>,
}

/// Check files: structure, finite values, equality with another file
///
/// Exits 0 if all is well, 1 if there is a finding or the file is broken, 2 if it cannot be read.
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
    /// NaN and Inf are findings
    #[arg(long)]
    pub(crate) finite: bool,
    /// Warnings are findings
    #[arg(long)]
    pub(crate) strict: bool,
    /// Compare bit for bit with this file, whatever its format: names, dtypes, shapes, values. The transforms of FILE's receipt
    /// are done again with OTHER's tensors
    #[arg(long, value_name = "OTHER")]
    pub(crate) against: Option<PathBuf>,
    /// Print the transforms of FILE's receipt, one line a step
    #[arg(long)]
    pub(crate) replay: bool,
    /// Compare with MXNet's symbol file of the net: what is missing, what is extra, shapes, dtypes. A name that is no file here
    /// is looked for beside FILE, also in its archive
    #[arg(long, value_name = "JSON")]
    pub(crate) symbol: Option<PathBuf>,
    /// Print every finding, not only the first 20 of a file
    #[arg(long)]
    pub(crate) all: bool,
    /// Say nothing of the files that are well
    #[arg(long)]
    pub(crate) failed_only: bool,
    /// The SHA-256 that the file must have
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    pub(crate) sha256: Option<String>,
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
    /// The folder for blob.1, blob-ls.1 and the others
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
}

/// What `--force` says.
pub(crate) fn if_exists(force: bool) -> IfExists {
    if force { IfExists::Replace } else { IfExists::Refuse }
}

/// Reads the name of one of the formats that `take` takes.
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
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_digest_has_64_digits() {
        assert!(sha256(&"aB".repeat(32)).is_ok_and(|d| d == "ab".repeat(32)));
        assert!(sha256("12").is_err());
        assert!(sha256(&"g".repeat(64)).is_err());
    }
}
