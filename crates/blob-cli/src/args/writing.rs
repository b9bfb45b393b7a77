//! The arguments of a command that writes tensors: whether files are replaced, anything is written, losses are refused.

use blob_convert::recipe::Target;
use blob_io::{Format, IfExists};

use super::{Skip, if_exists};

/// How a command writes.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Writing {
    /// Replace OUT if it exists; an input is never replaced
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what would be done without writing anything
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Fail if anything would be lost that no option names; otherwise warn
    #[arg(long)]
    pub(crate) strict: bool,
}

impl Writing {
    pub(crate) fn if_exists(self) -> IfExists {
        if_exists(self.force)
    }

    /// Gives the output of a recipe this format and these settings.
    pub(crate) fn set(self, to: Option<Format>, skip: Skip, target: &mut Target) {
        target.format = to;
        (target.if_exists, target.strict) = (self.if_exists(), self.strict);
        target.skip_unsupported = skip.skip_unsupported;
    }
}
