//! The command line of `blob devices`.

/// List the GPUs: name, compute capability, memory, driver; or why there is none
///
/// Exits 0 in both cases. The commands read a file once and need no GPU; programs that use blob's libraries may.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
Examples:
  blob devices                                the GPUs, or why there is none
  blob devices --json                         for programs")]
pub(crate) struct Devices {}
