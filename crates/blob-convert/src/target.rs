//! Where a conversion's output goes, and what must hold there before the work begins.

use std::path::Path;

use blob_io::{Checkpoint, Error, Output, OutputDir};

use crate::Watch;
use crate::verify::receipt;

/// How many changed arrays are named.
const NAMED: usize = 3;

/// Where the output goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Target<'a> {
    /// A file: made beside its place and put there when it is complete.
    File {
        /// The file.
        path: &'a Path,
        /// Whether an existing file may be replaced.
        overwrite: bool,
    },
    /// Standard output.
    Stdout,
    /// A folder of `.npy` files; the plan must come from [`plan_folder`](crate::plan_folder).
    Folder {
        /// The folder.
        path: &'a Path,
        /// Whether an existing folder may be replaced: one that holds only what an earlier conversion wrote.
        overwrite: bool,
    },
}

impl Target<'_> {
    /// Checks what [`run`](crate::run) would fail at before it writes: a file that exists, a folder that is missing or
    /// cannot be written, files that would be lost. What is made for that is removed.
    ///
    /// # Errors
    /// As [`run`](crate::run).
    pub fn check(&self, watch: &dyn Watch) -> Result<(), Error> {
        match *self {
            Self::Stdout => Ok(()),
            Self::File { path, overwrite } => Output::check(path, overwrite),
            Self::Folder { path, overwrite } => {
                let replaces = OutputDir::check(path, overwrite)?;
                unchanged(path, replaces, watch)
            }
        }
    }
}

/// Begins a folder.
pub(crate) fn folder(path: &Path, overwrite: bool, watch: &dyn Watch) -> Result<OutputDir, Error> {
    let folder = OutputDir::create(path, overwrite)?;
    unchanged(path, folder.replaces(), watch)?;
    Ok(folder)
}

/// Errors where arrays of a folder that shall be replaced are not what a conversion wrote: they are somebody's work.
fn unchanged(path: &Path, replaces: bool, watch: &dyn Watch) -> Result<(), Error> {
    if !replaces {
        return Ok(());
    }
    let old = Checkpoint::open(path)?;
    let (mut changed, mut count) = (Vec::new(), 0);
    receipt(&old, &Uncounted(watch), &mut |finding| {
        count += 1;
        if changed.len() < NAMED {
            changed.push(format!("{:?}", finding.tensor()));
        }
    })?;
    if count == 0 {
        return Ok(());
    }
    let more = match count - changed.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Err(Error::Request {
        file: path.display().to_string(),
        message: format!(
            "holds arrays that were changed since they were written, which --force does not replace: {}{more}; move them away, or name another folder",
            changed.join(", ")
        ),
    })
}

/// Hears of a signal, but not of bytes, which are not the source's.
struct Uncounted<'a>(&'a dyn Watch);

impl Watch for Uncounted<'_> {
    fn advanced(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}
