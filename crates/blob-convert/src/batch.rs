//! Many conversions, each of one file and to one file: jobs, and whether a job is done already.
//!
//! A job is a [`Recipe`] with a mark: the digest of its steps and settings. Every output names the job that wrote the
//! output: in the receipt, or in a log for formats without receipts. So a batch can be killed anywhere and run again.
//! Does not know threads: the caller runs the jobs in any order, also on several machines.

mod done;
mod jobs;
mod log;
mod mark;
mod run;

use std::path::{Path, PathBuf};

use blob_io::{Checkpoint, Error, Format, IfExists, OpenOptions};

use crate::recipe::{Opened, Recipe};
pub use done::{Claim, Known, Trust};
pub use jobs::{Batch, Shard};
pub use log::Log;
use mark::Mark;
pub use mark::Marks;
pub use run::Ran;

/// A conversion of a batch.
#[derive(Clone, Debug)]
pub struct Job {
    /// The line of the file that the job stands in, from 1 on.
    pub line: usize,
    recipe: Recipe,
    mark: Mark,
    output: PathBuf,
}

/// How a batch opens the files of its jobs.
pub trait Opener {
    /// Opens a file, as this format if one is named.
    ///
    /// # Errors
    /// As [`OpenOptions::open`](blob_io::OpenOptions::open).
    fn open(&self, path: &Path, format: Option<Format>) -> Result<Checkpoint, Error>;
}

impl Opener for OpenOptions {
    fn open(&self, path: &Path, format: Option<Format>) -> Result<Checkpoint, Error> {
        format.into_iter().fold(self.clone(), OpenOptions::from).open(path)
    }
}

impl Job {
    /// A job of a recipe. An existing target stays, and is an error if another job or another program wrote the
    /// target; a recipe with `replace` replaces the target. The mark covers the files that are read besides the
    /// source.
    ///
    /// # Errors
    /// [`Error::Request`] for a recipe of several sources or outputs, or of a pipe; any error of reading a file.
    pub fn new(line: usize, mut recipe: Recipe, marks: &Marks) -> Result<Self, Error> {
        let output = jobs::checked(&recipe)?;
        if recipe.target.if_exists == IfExists::Refuse {
            recipe.target.if_exists = IfExists::Same;
        }
        let mark = marks.of(&recipe)?;
        Ok(Self { line, recipe, mark, output })
    }

    /// The file that is read.
    #[must_use]
    pub fn source(&self) -> &Path {
        &self.recipe.sources[0].path
    }

    /// The file or the folder that is written.
    #[must_use]
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// The digest of the recipe, in hexadecimal, for a source that does not break off.
    #[must_use]
    pub fn mark(&self) -> &str {
        &self.mark.of_whole
    }

    fn open(&self, opener: &dyn Opener) -> Result<Opened, Error> {
        let sources = self.recipe.sources.iter().map(|source| opener.open(&source.path, source.format));
        let sources = sources.collect::<Result<_, _>>()?;
        let into = self.recipe.target.into.as_ref().map(|into| opener.open(into, None)).transpose()?;
        Ok(Opened::new(sources, into))
    }

    /// The recipe, by which the output of this source gets the mark: another one where the source breaks off and its
    /// whole arrays are taken.
    #[must_use]
    pub fn marked(&self, source: &Checkpoint) -> Recipe {
        let mut recipe = self.recipe.clone();
        recipe.mark = Some(self.mark.of(source).to_owned());
        recipe
    }

    fn folder(&self) -> &Path {
        folder_of(&self.output)
    }
}

/// The folder that an output lies in.
fn folder_of(output: &Path) -> &Path {
    output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
