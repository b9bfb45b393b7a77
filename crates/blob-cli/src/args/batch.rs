//! The arguments of `blob batch`.

use std::path::PathBuf;

use blob_convert::batch::Shard;
use blob_io::Format;
use clap::ValueEnum;

use super::{Transforms, format};

/// Do many conversions, each a line of JSON, and do only the missing ones when run again
///
/// A line is a recipe (docs/recipe.md) with one source and one output; --make writes such lines. An output that is
/// there is kept where its receipt, or a line of --log for formats without receipts, names the source's BLAKE3, the
/// recipe, the files that it reads, and this major version of blob. Any other is an error unless its bytes are those
/// that the job writes, or its recipe says `"if_exists": "replace"`. So a batch can be killed anywhere and run again.
/// Folders of outputs are made. Exits with 1 if a job failed.
#[derive(Debug, clap::Args)]
#[command(
    before_help = "\
Examples:
  blob batch --make 'models/**' --to safetensors -o out/ > jobs.ndjson
  blob batch jobs.ndjson --keep-going         all jobs, or those that are not done
  blob batch jobs.ndjson --shard 3/100        a hundredth of them, on one of many machines
  blob batch jobs.ndjson --log done.ndjson -n",
    override_usage = "blob batch [OPTIONS] JOBS\n       blob batch --make <GLOB> --to <FMT> --output <DIR> [TRANSFORMS]"
)]
pub(crate) struct Batch {
    /// The recipes, one a line; `-` is standard input
    #[arg(value_name = "JOBS", required_unless_present = "make", conflicts_with = "make")]
    pub(crate) file: Option<PathBuf>,
    /// Do only each Nth job, from the Ith on: 0/N to N-1/N are all jobs
    #[arg(long, value_name = "I/N")]
    pub(crate) shard: Option<Shard>,
    /// How many jobs run at once [default: the number of processors]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,
    /// Append a line of JSON for each job to this file, and believe its lines
    #[arg(long, value_name = "OUT")]
    pub(crate) log: Option<PathBuf>,
    /// Go on after a job that failed
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// How a source is known to be the one that an output names: `content` reads and hashes it, `mtime` believes its
    /// length where it is older than the output
    #[arg(long, value_name = "HOW", default_value = "content", hide_short_help = true)]
    pub(crate) trust: Trusted,
    /// Read the outputs that were done before, and compare their arrays with their receipts
    #[arg(long, conflicts_with = "trust", hide_short_help = true)]
    pub(crate) check: bool,
    /// Print what would be done without writing anything
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Print a job for each file of tensors that this GLOB matches
    #[arg(long, value_name = "GLOB", requires_all = ["to", "output"],
          conflicts_with_all = ["shard", "jobs", "log", "keep_going", "check", "trust", "dry_run"])]
    pub(crate) make: Option<String>,
    /// With --make, the format of the outputs, of `blob formats`
    #[arg(long, value_name = "FMT", value_parser = format(|_| true), hide_possible_values = true, requires = "make")]
    pub(crate) to: Option<Format>,
    /// With --make, the folder of the outputs, which are called as their sources
    #[arg(short, long, value_name = "DIR", requires = "make")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) transforms: Transforms,
}

/// How a source is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Trusted {
    Content,
    Mtime,
}
